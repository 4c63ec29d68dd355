"""A table under REPLICA IDENTITY FULL is matched by its primary key."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import FINGERPRINT, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    TupleColumn,
    TupleData,
    Update,
)
from workers.publisher.fingerprint import key_digest, with_key_digest
from workers.publisher.replica_identity import OTHER_LEAF

FULL = relation(1, "a", "id", "v", identity="f")
INT4 = 23
ROWS: list[Message] = [FULL, Insert(1, row("1", "10")), Insert(1, row("2", "20"))]


def key_alone(key: str) -> TupleData:
    """An old row as a partition logs it that is not under FULL itself."""
    return (*row(key), TupleColumn(ColumnStatus.NULL))


@pytest.fixture
def keyed(world: Subscribed) -> Subscribed:
    world.key_under_full = {"id": True}
    return world


def apply(world: Subscribed, *transactions: Sequence[Message]) -> None:
    world.worker().apply_batch(batch(*transactions))


@pytest.mark.parametrize("identity", [{"id": True}, {"id": True, OTHER_LEAF: False}])
@pytest.mark.parametrize("apart", [False, True])
def test_what_a_partition_logs_of_its_key_finds_the_row(
    keyed: Subscribed, apart: bool, identity: dict[str, bool]
) -> None:
    """No other value of the old row came, or no old row at all."""
    keyed.key_under_full = identity
    changes: list[Message] = [
        FULL,
        Delete(1, "O", key_alone("1")),
        Update(1, "O", key_alone("2"), row("3", "20")),
        Update(1, None, None, row("3", "30")),
    ]
    if apart:
        apply(keyed, ROWS)
        keyed.worker().apply_batch(batch(changes, after=100))
    else:
        apply(keyed, ROWS, changes)
    assert keyed.rows("a") == [(3, 30)]


def test_a_row_is_found_although_another_value_differs(keyed: Subscribed) -> None:
    """As by the native subscriber: whole rows would miss the row."""
    apply(keyed, ROWS)
    changed = Update(1, "O", row("1", "11"), row("1", "12"))
    keyed.worker().apply_batch(batch([FULL, changed], after=100))
    assert keyed.rows("a") == [(1, 12), (2, 20)]


@pytest.mark.parametrize("key", [{}, {"id": False}, {"elsewhere": True}])
def test_without_a_key_that_is_sent_whole_rows_are_found(
    world: Subscribed, key: dict[str, bool]
) -> None:
    world.key_under_full = key
    apply(world, ROWS)
    changed = Update(1, "O", row("1", "11"), row("1", "12"))
    world.worker().apply_batch(batch([FULL, changed], after=100))
    assert world.rows("a") == [(1, 10), (2, 20)]


def _copied_with(world: Subscribed, key: list[tuple[str, int, int]]) -> None:
    rel = world.rel("a")
    stored = with_key_digest(FINGERPRINT, key_digest(key))
    world.store.update_rel(rel.srsubid, rel.srrelid, fingerprint=stored)


def test_a_key_that_came_after_the_copy_is_not_used(keyed: Subscribed) -> None:
    """Before that, rows may have been equal in it: one of two is deleted, not both."""
    _copied_with(keyed, [])
    keyed.put("a", (1, 10), (1, 11))
    apply(keyed, [FULL, Delete(1, "O", row("1", "10"))])
    assert keyed.rows("a") == [(1, 11)]


def test_a_key_that_was_there_at_the_copy_is_trusted(keyed: Subscribed) -> None:
    (typid,) = {column.typid for column in FULL.columns if column.name == "id"}
    _copied_with(keyed, [("id", typid, -1)])
    apply(keyed, ROWS, [FULL, Delete(1, "O", key_alone("1"))])
    assert keyed.rows("a") == [(2, 20)]
    assert keyed.rel("a").copied


@pytest.mark.parametrize("copied", [True, False], ids=["keyed copy", "older version"])
def test_a_partition_whose_index_lacks_the_key_stops_the_table(
    world: Subscribed, copied: bool
) -> None:
    """Its old rows have NULL in the key. An UPDATE of the key alone brings no old row at all."""
    world.key_under_full = {"id": True, OTHER_LEAF: True}
    if copied:
        _copied_with(world, [("id", INT4, -1)])
    apply(world, ROWS)
    changed: list[Message] = [Update(1, None, None, row("3", "10")), Delete(1, "O", row("1", "1"))]
    for change in changed:
        with pytest.raises(ReplicationError, match="do not log whole rows") as said:
            world.worker().apply_batch(batch([FULL, change], after=100))
        assert said.value.code == "55000"
        assert "--recopy public.a" in (said.value.hint or "")
    assert world.rows("a") == [(1, 10), (2, 20)]


def test_what_a_partition_logged_before_its_identity_was_mended_names_the_remedy(
    keyed: Subscribed,
) -> None:
    """The publisher answers for the present, and the change is older: 08P01 named none."""
    apply(keyed, ROWS)
    old: TupleData = (TupleColumn(ColumnStatus.NULL), *row("10"))
    keyed.declare("b", on_error="suspend")
    with pytest.raises(ReplicationError, match="do not log whole rows") as said:
        keyed.worker().apply_batch(batch([FULL, Delete(1, "O", old)], after=100))
    assert (said.value.code, keyed.rows("a")) == ("55000", [(1, 10), (2, 20)])
    keyed.declare("a", on_error="suspend")
    keyed.worker().apply_batch(batch([FULL, Delete(1, "O", old)], after=100))
    assert keyed.rel("a").suspend_sqlstate == "55000"


def test_partitions_without_whole_rows_and_without_a_key_stop_the_table(world: Subscribed) -> None:
    """Not silence: the rows would stay. Inserts alone go on."""
    world.key_under_full = {OTHER_LEAF: False}
    apply(world, ROWS)
    with pytest.raises(
        ReplicationError, match=r'partitions of "public\.a" do not log whole'
    ) as said:
        world.worker().apply_batch(batch([FULL, Delete(1, "O", key_alone("1"))], after=100))
    assert said.value.code == "55000"
    assert "--recopy public.a" in (said.value.hint or "")
    assert world.rows("a") == [(1, 10), (2, 20)]
