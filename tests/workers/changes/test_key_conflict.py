"""Keys that are given while another row has them, from received bytes to the lake in memory."""

from __future__ import annotations

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.proto.messages import ColumnStatus, Delete, Insert, Message, TupleColumn, Update

A = relation(1, "a", "id", "v")
FULL = relation(1, "a", "id", "v", identity="f")
NULL = TupleColumn(ColumnStatus.NULL)


def i(key: int, value: int) -> Message:
    return Insert(1, row(str(key), str(value)))


def u(old: int, new: int, value: int) -> Message:
    if old == new:
        return Update(1, None, None, row(str(new), str(value)))
    return Update(1, "K", (*row(str(old)), NULL), row(str(new), str(value)))


def d(key: int) -> Message:
    return Delete(1, "K", (*row(str(key)), NULL))


Rows = list[tuple[int, int]]
Outcome = Rows | tuple[str, int]
"""The rows, or why the transaction stopped that begins after so many good ones."""

HISTORIES: list[tuple[Rows, list[list[Message]], Outcome, Rows]] = [
    # what the lake has, transactions, outcome in "error" mode, rows in "overwrite" mode
    ([(1, 10), (3, 30)], [[u(3, 1, 31)]], ("update_exists", 0), [(1, 31)]),
    ([(1, 10), (3, 30)], [[u(1, 1, 11)], [u(3, 1, 31)]], ("update_exists", 1), [(1, 31)]),
    ([], [[i(1, 10)], [i(2, 20), u(2, 1, 21)]], ("update_exists", 1), [(1, 21)]),
    ([(1, 10)], [[i(1, 11)], [d(1)]], ("insert_exists", 0), []),
    ([(1, 10)], [[i(1, 11)], [u(1, 2, 12)]], ("insert_exists", 0), [(2, 12)]),
    ([], [[i(1, 10)], [i(1, 11)]], ("insert_exists", 1), [(1, 11)]),
    ([(1, 10)], [[u(3, 1, 31)], [u(1, 5, 51)]], [(5, 51)], [(5, 51)]),
    (
        [(1, 10), (2, 20)],
        [[u(1, -1, 10), u(2, 1, 20), u(-1, 2, 10)]],
        [(1, 20), (2, 10)],
        [(1, 20), (2, 10)],
    ),
    ([(1, 10), (2, 20)], [[u(2, 3, 20), u(1, 2, 10)]], [(2, 10), (3, 20)], [(2, 10), (3, 20)]),
    (
        [(1, 10)],
        [[d(1)], [i(1, 11)], [u(1, 2, 12)], [i(1, 13)]],
        [(1, 13), (2, 12)],
        [(1, 13), (2, 12)],
    ),
]


def apply(world: Subscribed, transactions: list[list[Message]], whole: bool) -> None:
    """In one batch, or each transaction in a batch of its own."""
    received = batch(*([A, *own] for own in transactions))
    dest = MemoryDestination(world.lake)
    worker = world.worker(dest)
    size = received.ntxns if whole else 1
    try:
        for begin in range(0, received.ntxns, size):
            worker.apply_batch(received.part(begin, begin + size))
    finally:
        assert dest.staged == 0


histories = pytest.mark.parametrize(("held", "transactions", "outcome", "overwritten"), HISTORIES)
cuts = pytest.mark.parametrize("whole", [True, False], ids=["one batch", "batch by batch"])


@cuts
@histories
def test_the_row_in_the_way_stops_its_transaction(
    world: Subscribed,
    held: Rows,
    transactions: list[list[Message]],
    outcome: Outcome,
    overwritten: Rows,
    whole: bool,
) -> None:
    world.distrust("a")
    world.put("a", *held)
    if isinstance(outcome, tuple):
        with pytest.raises(ReplicationError) as caught:
            apply(world, transactions, whole)
        conflict, before = outcome
        assert (caught.value.code, world.position()) == ("23505", 100 * before)
        assert f'"public.a": conflict={conflict}' in caught.value.primary
        assert "(id)" in (caught.value.detail or "")
        found = f"in transaction {before + 1}, finished at 0/{100 * before + 99:X}"
        assert caught.value.context[0].endswith(found)
    else:
        apply(world, transactions, whole)
        assert world.rows("a") == outcome


@cuts
@histories
def test_the_row_in_the_way_goes_if_declared(
    world: Subscribed,
    held: Rows,
    transactions: list[list[Message]],
    outcome: Outcome,
    overwritten: Rows,
    whole: bool,
) -> None:
    world.declare("a", on_key_conflict="overwrite")
    world.put("a", *held)
    apply(world, transactions, whole)
    assert world.rows("a") == overwritten


@pytest.mark.parametrize("conflict", [None, "error", "overwrite"])
def test_a_direct_swap_comes_with_whole_rows_and_is_no_conflict(
    world: Subscribed, conflict: str | None
) -> None:
    """A deferrable key is no replica identity, so only REPLICA IDENTITY FULL can send a swap."""
    world.declare("a", on_key_conflict=conflict)
    world.distrust("a")
    world.put("a", (1, 10), (2, 20))
    swap = [
        Update(1, "O", row("1", "10"), row("2", "10")),
        Update(1, "O", row("2", "20"), row("1", "20")),
    ]
    world.worker().apply_batch(batch([FULL, *swap]))
    assert world.rows("a") == [(1, 20), (2, 10)]


def test_a_key_given_twice_is_looked_for_in_a_table_we_copied_too(world: Subscribed) -> None:
    """The publisher lost a row without telling (a partition was dropped)."""
    transactions = [[u(1, 1, 11), i(1, 12)]]
    world.put("a", (1, 10))
    with pytest.raises(ReplicationError) as caught:
        apply(world, transactions, whole=True)
    assert (caught.value.code, world.rows("a")) == ("23505", [(1, 10)])
    world.put("a")
    apply(world, transactions, whole=True)
    assert world.rows("a") == [(1, 12)]


def test_a_key_that_two_rows_have_is_found_before_anything_is_written(world: Subscribed) -> None:
    world.declare("a", on_key_conflict="overwrite")
    world.put("a", (1, 10), (1, 11), (2, 20))
    received = batch([A, i(2, 21)], [i(1, 12)], [i(3, 30)])
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(received)
    assert caught.value.primary == 'key (id) is not unique in lake table "public.a"'
    assert caught.value.code == "23505"
    assert world.position() == 100
    assert world.rows("a") == [(1, 10), (1, 11), (2, 21)]
