"""The table of logical messages, written by an apply worker into a lake in memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.namespace import MESSAGES_TABLE
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from tests.workers.subscribed import EPOCH, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeColumn, LakeIdent, Stamp
from workers.proto.message_rows import MESSAGES
from workers.proto.messages import ColumnStatus, Insert, Message, TupleColumn
from workers.publisher.binary_columns import BinaryForms

A = relation(1, "a", "id", "v")
IDENT = LakeIdent("public", "said")
TYPES: tuple[pa.DataType, ...] = (pa.string(), pa.binary(), pa.string(), pa.bool_())
COLUMNS = tuple(
    LakeColumn(each.name, type) for each, type in zip(MESSAGES.columns, TYPES, strict=True)
)


@pytest.fixture
def rel(world: Subscribed) -> SubscriptionRel:
    """The table of messages, which joined at 100."""
    sub, at = world.sub, LSN(100)
    row = SubscriptionRel(
        sub.oid, 0, SubRelState.READY, None, *MESSAGES_TABLE, IDENT.schema, IDENT.table
    )
    relid = world.store.insert_rel(row).srrelid
    stamp = Stamp(origin_name(sub.oid), at, EPOCH, at)
    MemoryDestination(world.lake).create_table(IDENT, COLUMNS, owner="u", relid=relid, stamp=stamp)
    return world.store.update_rel(sub.oid, relid, epoch=EPOCH, floor=at, lake_lsn=at)


def said(content: bytes, lsn: int, *, transactional: bool = True) -> Insert:
    values = (b"p", content, lsn.to_bytes(8, "big"), bytes([transactional]))
    columns = tuple(TupleColumn(ColumnStatus.BINARY, value) for value in values)
    return Insert(MESSAGES.relid, columns)


def insert(key: int) -> list[Message]:
    return [A, Insert(1, row(str(key), "0"))]


@pytest.mark.parametrize("binary", [False, True])
def test_messages_are_rows_once_whatever_comes_again(
    world: Subscribed, rel: SubscriptionRel, binary: bool
) -> None:
    """The first transaction ended where the table joined. The second worker gets all again."""
    alone = said(b"alone", 200, transactional=False)
    mixed: list[Message] = [*insert(1), said(b"x", 250)]
    transactions: list[list[Message]] = [[said(b"before", 40)], [alone], mixed]
    if binary:
        del mixed[:2]  # the rows of the other table are text
    for last in (2, 3, 3):
        worker = world.worker()
        worker.binary = BinaryForms(lambda _: {}) if binary else None
        worker.apply_batch(batch(*transactions[:last]))
    assert world.rows("said") == [("p", b"alone", "0/C8", False), ("p", b"x", "0/FA", True)]
    assert world.rows("a") == ([] if binary else [(1, 0)])
    assert world.position() == 300


def test_a_position_is_in_the_lake_with_the_rows(world: Subscribed, rel: SubscriptionRel) -> None:
    """The catalog is lost behind the publishing: the table alone knows what it has."""
    world.worker().apply_batch(batch([said(b"1", 50)], [said(b"2", 200, transactional=False)]))
    stamp = MemoryDestination(world.lake).table(IDENT)
    assert stamp is not None
    assert stamp.position("") == Stamp(origin_name(rel.srsubid), LSN(200), EPOCH, LSN(100))
    world.store.origin_advance(origin_name(rel.srsubid), LSN(0), "lost", go_backward=True)
    world.worker().apply_batch(batch([said(b"1", 50)], [said(b"2", 200, transactional=False)]))
    assert [each[1] for each in world.rows("said")] == [b"2"]


def test_an_error_never_suspends_the_table(world: Subscribed, rel: SubscriptionRel) -> None:
    """No copy could bring back the messages that the table would miss."""
    MemoryDestination(world.lake).drop_table(IDENT)
    table = replace(rel, lake_table="said")
    MemoryDestination(world.lake).create_table(
        IDENT,
        COLUMNS[:1],
        owner="u",
        relid=table.srrelid,
        stamp=Stamp(origin_name(rel.srsubid), LSN(100), EPOCH, LSN(100)),
    )
    worker = world.worker()
    worker.default_on_error = "suspend"
    with pytest.raises(ReplicationError, match="content"):
        worker.apply_batch(batch([], [said(b"secret", 150)]))
    now = world.store.rel(rel.srsubid, rel.srrelid)
    assert now is not None
    assert not now.suspended


def test_without_the_table_a_message_changes_nothing(world: Subscribed) -> None:
    world.worker().apply_batch(batch([said(b"x", 50)], [*insert(1), said(b"y", 150)]))
    assert world.rows("a") == [(1, 0)]
    assert world.position() == 200
