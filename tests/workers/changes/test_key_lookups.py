"""Several declared keys of a table, from received bytes to the lake in memory."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_stat_subscription_stats import ConflictType
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.changes.key_conflict import KeyConflict
from workers.lake.memory.destination import MemoryDestination
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    Truncate,
    TupleColumn,
    Update,
)

A = relation(1, "a", "id", "v")
NULL = TupleColumn(ColumnStatus.NULL)
HELD = [(1, 10), (2, 20)]


def i(key: int, value: int | None) -> Message:
    columns = row(str(key), str(value))
    return Insert(1, columns if value is not None else (columns[0], NULL))


def u(old: int, new: int, value: int) -> Message:
    key = None if old == new else (*row(str(old)), NULL)
    return Update(1, "K" if key else None, key, row(str(new), str(value)))


def d(key: int) -> Message:
    return Delete(1, "K", (*row(str(key)), NULL))


def apply(
    world: Subscribed, transactions: Sequence[Sequence[Message]], whole: bool = True, after: int = 0
) -> None:
    received = batch(*([A, *own] for own in transactions), after=after)
    dest = MemoryDestination(world.lake)
    worker = world.worker(dest)
    size = received.ntxns if whole else 1
    try:
        for begin in range(0, received.ntxns, size):
            worker.apply_batch(received.part(begin, begin + size))
    finally:
        assert dest.staged == 0


cuts = pytest.mark.parametrize("whole", [True, False], ids=["one batch", "batch by batch"])


@cuts
@pytest.mark.parametrize(
    ("transactions", "conflict", "keys", "before"),
    [
        ([[i(1, 20)]], ConflictType.MULTIPLE_UNIQUE_CONFLICTS, ["id", "v"], 0),
        ([[u(1, 2, 20)]], ConflictType.MULTIPLE_UNIQUE_CONFLICTS, ["id", "v"], 0),
        ([[i(3, 20)]], ConflictType.INSERT_EXISTS, ["v"], 0),
        ([[i(2, 30)]], ConflictType.INSERT_EXISTS, ["id"], 0),
        ([[i(3, 30)], [u(3, 3, 20)]], ConflictType.UPDATE_EXISTS, ["v"], 1),
        ([[i(3, 30)], [i(4, 40), i(5, 30)]], ConflictType.INSERT_EXISTS, ["v"], 1),
        ([[i(3, 30), u(1, 1, 20)], [d(2)]], ConflictType.UPDATE_EXISTS, ["v"], 0),
    ],
)
def test_a_row_that_breaks_keys_stops_its_transaction(
    world: Subscribed,
    transactions: list[list[Message]],
    conflict: ConflictType,
    keys: list[str],
    before: int,
    whole: bool,
) -> None:
    world.declare("a", keys=(("v",),))
    world.put("a", *HELD)
    with pytest.raises(ReplicationError) as caught:
        apply(world, transactions, whole)
    error = caught.value
    assert isinstance(error, KeyConflict)
    assert (error.code, error.conflict, world.position()) == ("23505", conflict, 100 * before)
    assert error.detail == "\n".join(
        f'Key ({key}) already exists in lake table "public.a".' for key in keys
    )
    assert "overwrite" not in (error.hint or "")


@cuts
def test_keys_that_are_given_up_first_are_free(world: Subscribed, whole: bool) -> None:
    world.declare("a", keys=(("v",),))
    world.put("a", *HELD)
    apply(
        world,
        [[d(1), i(3, 10)], [u(2, 2, 21), i(4, 20)], [u(9, 9, 21)], [i(5, None), i(6, None)]],
        whole,
    )
    assert world.rows("a") == [(2, 21), (3, 10), (4, 20), (5, None), (6, None)]


def test_after_a_truncate_only_the_batch_counts(world: Subscribed) -> None:
    world.declare("a", keys=(("v",),))
    world.put("a", *HELD)
    empty = Truncate(False, False, (1,))
    apply(world, [[empty, i(7, 10)]])
    assert world.rows("a") == [(7, 10)]
    with pytest.raises(KeyConflict):
        apply(world, [[empty, i(8, 10), i(9, 10)]], after=100)


def test_a_value_that_two_rows_have_is_an_error(world: Subscribed) -> None:
    world.declare("a", keys=(("v",),))
    world.put("a", *HELD, (3, 20))
    apply(world, [[i(4, 40)]])
    with pytest.raises(ReplicationError, match=r"key \(v\) is not unique") as caught:
        apply(world, [[i(5, 50)], [i(6, 20)]], after=100)
    assert world.position() == 200
    assert caught.value.code == "23505"


@cuts
def test_a_part_of_a_key_that_was_not_sent_stops_its_transaction_which_can_be_skipped(
    world: Subscribed, whole: bool
) -> None:
    """The value that stays is in the table's row, but what other row has the key then cannot be
    asked along with it."""
    world.declare("a", keys=(("v", "id"),))
    world.put("a", *HELD)
    unsent = (*row("1"), TupleColumn(ColumnStatus.UNCHANGED))
    transactions = [[i(3, 30)], [i(4, 40), Update(1, None, None, unsent)], [i(5, 50)]]
    with pytest.raises(ReplicationError) as caught:
        apply(world, transactions, whole)
    error = caught.value
    assert (error.code, world.position()) == ("0A000", 100)
    assert error.primary.startswith('key (v, id) of lake table "public.a" cannot be checked')
    assert 'column "v"' in (error.detail or "")
    assert error.context == [
        'processing remote data for replication origin "pg_16384" during message type "UPDATE" '
        'for replication target relation "public.a" column "v" in transaction 2, finished at 0/C7'
    ]
    world.sub = world.store.update_subscription(world.sub.oid, subskiplsn=LSN(199))
    apply(world, transactions, whole)
    assert world.rows("a") == [*HELD, (3, 30), (5, 50)]


def test_without_an_identity_inserts_are_looked_at(world: Subscribed) -> None:
    world.declare("a", keys=(("v",),))
    world.put("a", *HELD)
    keyless = relation(1, "a", "id", "v", key="none")
    worker = world.worker()
    worker.apply_batch(batch([keyless, i(1, 30)]))
    assert world.rows("a") == [(1, 10), (1, 30), (2, 20)]
    with pytest.raises(KeyConflict):
        worker.apply_batch(batch([keyless, i(4, 30)], after=100))


@pytest.mark.parametrize(
    ("keys", "identity", "sqlstate"), [((("w",),), "d", "42703"), ((("v",),), "f", "0A000")]
)
def test_keys_that_cannot_be_looked_at_stop_the_table(
    world: Subscribed, keys: tuple[tuple[str, ...], ...], identity: str, sqlstate: str
) -> None:
    world.declare("a", keys=keys)
    form = relation(1, "a", "id", "v", identity=identity)
    change = Update(1, "O", row("1", "10"), row("1", "11"))
    for message in (i(5, 5), change) if identity == "f" else (i(5, 5),):
        with pytest.raises(ReplicationError) as caught:
            world.worker().apply_batch(batch([form, message]))
        assert caught.value.code == sqlstate
