"""Scenarios and pitfalls whose rule is the worker's own, on a lake in memory."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import Setter, SubRelState
from tests.workers.subscribed import COLUMNS, EPOCH, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryTable
from workers.lake.table import MAIN, LakeColumn, LakeIdent, Stamp
from workers.proto.messages import Insert, LogicalMessage, Message, Update

A = relation(1, "a", "id", "v")
FULL = relation(1, "a", "id", "v", identity="f")
IDENT = LakeIdent("public", "a")


def insert(key: int) -> list[Message]:
    return [A, Insert(1, row(str(key), "0"))]


@pytest.mark.parametrize("transactional", [True, False])
def test_s_020_6_a_message_changes_nothing(world: Subscribed, transactional: bool) -> None:
    said = LogicalMessage(transactional, LSN(50), "pgoutput", b"INSERT")
    world.worker().apply_batch(batch([said], [said, *insert(1), said]))
    assert world.rows("a") == [(1, 0)]
    assert world.position() == 200


def test_s_100_11_the_origin_follows_what_comes_after_an_error_that_was_dealt_with(
    world: Subscribed,
) -> None:
    """H-3: somebody else commits to main, so the batch is written again, and three follow."""

    class Overtaken(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if not self.refused:
                world.put("a", (7, 7))
            try:
                return super().publish(ident, branch, stamp)
            except ReplicationError:
                self.refused += 1
                raise

    world.distrust("a")  # else what is staged is of no use beside (7, 7)
    dest = Overtaken(world.lake)
    worker = world.worker(dest)
    worker.apply_batch(batch(insert(1)))
    assert (dest.refused, world.position()) == (1, 100)
    for number in (2, 3, 4):
        worker.apply_batch(batch(insert(number), after=100 * (number - 1)))
    assert world.position() == 400
    assert world.rows("a") == [(1, 0), (2, 0), (3, 0), (4, 0), (7, 7)]


@pytest.mark.parametrize(("s_lsn", "applied"), [(198, 1), (199, 1), (200, 0)])
def test_s_p_6_the_transaction_at_the_hand_over_is_applied_once(
    world: Subscribed, s_lsn: int, applied: int
) -> None:
    """H-42: its commit record starts at 199 and ends at 200, s is just before, there, after it."""
    rel = world.rel("a")
    key = rel.srsubid, rel.srrelid
    world.store.delete_rel(*key)
    world.store.insert_rel(replace(rel, srsubstate=SubRelState.INIT, srsublsn=None))
    world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    # The sync worker had what ended by s: of the two transactions the first, or both.
    stamp = Stamp(origin_name(rel.srsubid), LSN(s_lsn), EPOCH, LSN(s_lsn))
    copied = [{"id": n, "v": 0} for n in (1, 2)[: 2 - applied]]
    world.lake.commit(world.lake.tables[IDENT], MAIN, copied, stamp)
    world.store.set_rel_state(*key, SubRelState.SYNCDONE, LSN(s_lsn), Setter.TABLESYNC)
    world.store.update_rel(*key, lake_lsn=LSN(s_lsn), floor=LSN(s_lsn))
    world.worker().apply_batch(batch(insert(1), insert(2), insert(3)))
    assert world.rows("a") == [(1, 0), (2, 0), (3, 0)]


def test_a_table_of_another_schema_is_another_table(world: Subscribed) -> None:
    """H-19: the subscription has public.a and no other a."""
    elsewhere = replace(relation(3, "a", "id", "v"), nspname="elsewhere")
    world.worker().apply_batch(batch([elsewhere, Insert(3, row("9", "9")), *insert(1)]))
    assert world.rows("a") == [(1, 0)]


def test_a_local_column_with_a_value_hides_no_row_from_identity_full(world: Subscribed) -> None:
    """H-44: published columns only are compared."""
    rel, dest = world.rel("a"), MemoryDestination(world.lake)
    stamp = Stamp(origin_name(rel.srsubid), LSN(50), EPOCH, LSN(50))
    columns = (*COLUMNS, LakeColumn("extra", pa.int32()))
    dest.drop_table(IDENT)
    dest.create_table(IDENT, columns, owner="u", relid=rel.srrelid, stamp=stamp)
    world.lake.commit(world.lake.tables[IDENT], MAIN, [{"id": 1, "v": 1, "extra": 7}])
    world.worker().apply_batch(batch([FULL, Update(1, "O", row("1", "1"), row("1", "2"))]))
    assert world.rows("a") == [(1, 2, 7)]


@pytest.mark.parametrize("again", [False, True], ids=["gone", "made again"])
def test_a_target_that_somebody_replaced_is_not_taken_for_the_one_remembered(
    world: Subscribed, again: bool
) -> None:
    """H-20: neither the worker that remembers it nor the next writes to it."""
    worker, dest = world.worker(), MemoryDestination(world.lake)
    worker.apply_batch(batch(insert(1)))
    dest.drop_table(IDENT)
    if again:
        world.lake.tables[IDENT] = MemoryTable(COLUMNS)
        world.put("a")
    with pytest.raises(ReplicationError):
        worker.apply_batch(batch(insert(2), after=100))
    with pytest.raises(ReplicationError, match=r"no replication position|does not exist") as caught:
        world.worker().apply_batch(batch(insert(1), insert(2)))
    assert "pgsub refresh mysub --recopy public.a" in (caught.value.hint or "")
    assert world.position() == 100
    if again:
        assert world.rows("a") == []
