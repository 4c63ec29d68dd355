"""A large transaction is applied slice by slice, and ends as if it had been applied at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_stat_subscription_stats import ConflictType
from config.guc import Settings
from tests.workers.columnar.native import NativeTable, Stored
from tests.workers.sharing import Make, insert
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import ancestors_of
from workers.lake.table import MAIN, LakeIdent, Stamp
from workers.proto.messages import (
    ColumnStatus,
    Delete,
    Insert,
    Message,
    Relation,
    Truncate,
    TupleColumn,
    TupleData,
    Update,
)

A: Final = relation(1, "a", "id", "v")
FULL_A: Final = relation(1, "a", "id", "v", identity="f")
B: Final = relation(2, "b", "id", "v")
ONE_RECORD: Final = 1
THREE_CHANGES: Final = 3 * (128 + 50)
AT_ONCE: Final = Settings().apply_work_mem
UNSENT: Final = TupleColumn(ColumnStatus.UNCHANGED)
NULL: Final = TupleColumn(ColumnStatus.NULL)
TOO_LARGE: Final = "99999999999"


@dataclass(frozen=True, slots=True)
class History:
    """What the lake held, and a transaction on the publisher."""

    lake: list[tuple[int, int]]
    messages: list[Message]
    full: bool


def _sent(key: int, value: int | None) -> TupleData:
    kept = UNSENT if value is None else TupleColumn(ColumnStatus.TEXT, str(value).encode())
    return (*row(str(key)), kept)


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Inserts, changes, moves and swaps of few keys, so that slices meet each other's rows."""
    full = draw(st.booleans())
    live = {key: 10 * key for key in draw(st.sets(st.integers(1, 5)))}
    lake = [pair for pair in live.items() if draw(st.integers(0, 4))]
    messages: list[Message] = [FULL_A if full else A]
    for _ in range(draw(st.integers(1, 14))):
        key, value = draw(st.integers(1, 6)), draw(st.integers(0, 3))
        what = draw(st.sampled_from("IIUUUMMDT"))
        if what == "I" and key not in live:
            live[key] = value
            messages.append(Insert(1, _sent(key, value)))
        elif what == "T" and not draw(st.integers(0, 3)):
            live.clear()
            messages.append(Truncate(cascade=False, restart_seqs=False, relids=(1,)))
        if what not in "UMD" or not live:
            continue
        old = draw(st.sampled_from(sorted(live)))
        old_row = _sent(old, live[old]) if full else (*row(str(old)), NULL)
        if what == "D":
            del live[old]
            messages.append(Delete(1, "O" if full else "K", old_row))
            continue
        moved = key if what == "M" and key not in live else old
        kept = draw(st.booleans())
        new = _sent(moved, None if kept else value)
        live[moved] = live.pop(old) if kept else (live.pop(old), value)[1]
        sends_old = full or moved != old
        mark = ("O" if full else "K") if sends_old else None
        messages.append(Update(1, mark, old_row if sends_old else None, new))
    return History(lake, messages, full)


def _natively(history: History) -> tuple[list[Stored], int, int]:
    table = NativeTable(((str(k), str(v)) for k, v in history.lake), () if history.full else (0,))
    for message in history.messages:
        if isinstance(message, Truncate):
            table.rows.clear()
        elif not isinstance(message, Relation):
            table.apply([message])
    return table.rows, table.missing_updates, table.missing_deletes


def _applied(
    history: History, work_mem: int, *, trusted: bool
) -> tuple[list[Stored], int, int] | str:
    world = Subscribed()
    world.identity = {"id": True, "v": True} if history.full else {"id": True}
    try:
        if not trusted:
            world.distrust("a")
        world.put("a", *history.lake, ours=True)
        worker = _worker(world, work_mem)
        try:
            worker.apply_batch(batch(history.messages))
        except ReplicationError as error:
            assert world.rows("a") == sorted(history.lake), "a part of the transaction is shown"
            return error.code
        stats = world.store.subscription_stats(world.sub.oid)
        missing = (ConflictType.UPDATE_MISSING, ConflictType.DELETE_MISSING)
        counted = [getattr(stats, conflict.column) if stats else 0 for conflict in missing]
        rows: list[Stored] = [(str(key), str(value)) for key, value in world.rows("a")]
        return rows, int(counted[0]), int(counted[1])
    finally:
        world.close()


def _worker(world: Subscribed, work_mem: int, dest: MemoryDestination | None = None) -> Applier:
    worker = world.worker(dest)
    worker.work_mem = work_mem
    return worker


@settings(max_examples=100, deadline=None)
@given(histories(), st.sampled_from([ONE_RECORD, THREE_CHANGES]), st.booleans())
def test_slices_leave_the_rows_that_the_publisher_and_one_fold_leave(
    history: History, work_mem: int, trusted: bool
) -> None:
    """Also where the lake lacks rows: changes are counted as missing exactly if some are.

    A fold counts the changes of one missing row as one, and a TRUNCATE discards what came before,
    so the numbers depend on the cut.
    """
    rows, updates, deletes = _natively(history)
    in_slices = _applied(history, work_mem, trusted=trusted)
    assert not isinstance(in_slices, str), in_slices
    assert in_slices[0] == sorted(rows)
    assert in_slices[0] == _applied(history, AT_ONCE, trusted=trusted)[0]
    assert in_slices[1] + in_slices[2] <= updates + deletes
    if not any(isinstance(each, Truncate) for each in history.messages):
        assert bool(in_slices[1] + in_slices[2]) == bool(updates + deletes)


def _swap() -> list[Message]:
    """Rows 1 and 2 of a swap their keys by way of -1, with values that are not sent."""
    moves = [(1, -1), (2, 1), (-1, 2)]
    return [Update(1, "K", (*row(str(old)), NULL), _sent(new, None)) for old, new in moves]


@pytest.mark.parametrize("work_mem", [ONE_RECORD, THREE_CHANGES, AT_ONCE])
def test_keys_are_swapped_over_slices_with_values_that_are_not_sent(work_mem: int) -> None:
    world = Subscribed()
    world.put("a", (1, 10), (2, 20), ours=True)
    _worker(world, work_mem).apply_batch(batch([A, *_swap()]))
    assert world.rows("a") == [(1, 20), (2, 10)]
    world.close()


@pytest.mark.parametrize("work_mem", [ONE_RECORD, THREE_CHANGES, AT_ONCE])
def test_slices_of_a_shared_table_leave_each_source_its_rows(sharing: Make, work_mem: int) -> None:
    """Keys are the same in all sources, and a TRUNCATE of one is no TRUNCATE of another."""
    one, other = sharing("1", "a", "b"), sharing("2")
    other.worker().apply_batch(batch([A, *(insert(key, 7) for key in range(5))]))
    worker = one.worker()
    worker.work_mem = work_mem
    messages: list[Message] = [A, B, *_inserts(0, 9)]
    messages += [Update(1, None, None, _sent(key, 10 * key)) for key in range(9)]
    messages += _swap()
    messages.append(Truncate(cascade=False, restart_seqs=False, relids=(2,)))
    messages += [insert(key, key, relid=2) for key in range(4)]
    messages += [Delete(2, "K", (*row("2"), NULL)), Delete(1, "K", (*row("0"), NULL))]
    worker.apply_batch(batch(messages, after=500))
    assert one.rows("a") == [(1, 20), (2, 10), *((key, 10 * key) for key in range(3, 9))]
    assert one.rows("b") == [(0, 0), (1, 1), (3, 3)]
    assert one.position("a") == one.position("b") == 600
    assert (other.rows(), other.position()) == ([(key, 7) for key in range(5)], 100)


def _inserts(first: int, last: int) -> list[Message]:
    return [Insert(relid, row(str(key), "0")) for key in range(first, last) for relid in (1, 2)]


def _stamps(world: Subscribed, name: str) -> list[Stamp]:
    table = world.lake.tables[LakeIdent("public", name)]
    return [each.stamp for each in ancestors_of(table, MAIN) if each.stamp]


def test_only_the_end_of_the_transaction_carries_a_position(world: Subscribed) -> None:
    """Table b is changed in the first slice alone, and its position moves all the same."""
    messages: list[Message] = [A, B, Insert(2, row("1", "0"))]
    messages += [Insert(1, row(str(n), "0")) for n in range(9)]
    _worker(world, THREE_CHANGES).apply_batch(batch(messages))
    for name in ("a", "b"):
        assert [stamp.lsn for stamp in _stamps(world, name)] == [100, 0]
    table = world.lake.tables[LakeIdent("public", "a")]
    assert len(list(ancestors_of(table, MAIN))) >= 2 + 3, "nine rows are three slices at least"
    assert world.position() == 100


def test_a_bad_value_in_the_last_slice_leaves_nothing(world: Subscribed) -> None:
    dest = MemoryDestination(world.lake)
    worker = _worker(world, THREE_CHANGES, dest)
    bad = Insert(2, row("7", TOO_LARGE))
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch([A, B, *_inserts(0, 1)], [*_inserts(1, 9), bad]))
    assert caught.value.code == "22003"
    assert "in transaction 2, finished at 0/C7" in caught.value.context[0]
    assert world.rows("a") == world.rows("b") == [(0, 0)]
    assert (world.position(), dest.staged) == (100, 0)


@pytest.mark.parametrize("dies_at", ["write_branch", "publish"])
@pytest.mark.parametrize("after", range(1, 5))
def test_a_death_between_slices_or_tables_leaves_whole_transactions(
    world: Subscribed, dies_at: str, after: int
) -> None:
    """The successor receives the transaction again, and skips it in the tables that show it."""
    seen = 0

    def die(name: str) -> None:
        nonlocal seen
        seen += name == dies_at
        if seen >= after and name == dies_at:
            raise ConnectionFailure("lost the lake server")

    received = batch([A, B, *_inserts(0, 9)])
    worker = _worker(world, THREE_CHANGES, MemoryDestination(world.lake, failpoint=die))
    if dies_at == "write_branch" or after <= 2:
        with pytest.raises(ConnectionFailure):
            worker.apply_batch(received)
        shown = [len(world.rows(name)) for name in ("a", "b")]
        assert set(shown) <= ({0, 9} if dies_at == "publish" else {0})
    _worker(world, THREE_CHANGES).apply_batch(received)
    assert world.rows("a") == world.rows("b") == [(key, 0) for key in range(9)]


def test_main_moved_by_another_writer_applies_the_transaction_again(world: Subscribed) -> None:
    """Its rows are not staged any more: they come from the spool again, and no table has them
    twice."""

    class Overtaken(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if ident.table == "b" and not self.refused:
                self.refused += 1
                world.put("b", (77, 7), ours=True)
            return super().publish(ident, branch, stamp)

    dest = Overtaken(world.lake)
    _worker(world, THREE_CHANGES, dest).apply_batch(batch([A, B, *_inserts(0, 9)]))
    rows = [(key, 0) for key in range(9)]
    assert (dest.refused, world.rows("a"), world.rows("b")) == (1, rows, [*rows, (77, 7)])
    assert not world.store.in_flight(world.sub.oid)


def test_a_table_that_is_set_back_beside_the_publication_is_noticed(world: Subscribed) -> None:
    """The transaction before was published by the same worker, and is not received again."""

    class SetBack(MemoryDestination):
        refused = 0

        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            if stamp.lsn == 200 and not self.refused:
                self.refused += 1
                table = self.lake.tables[ident]
                table.refs[MAIN] = list(ancestors_of(table, MAIN))[-1].snapshot_id
                self.fence(ident)
            return super().publish(ident, branch, stamp)

    worker = _worker(world, THREE_CHANGES, SetBack(world.lake))
    large = [Insert(1, row(str(key), "0")) for key in range(9)]
    with pytest.raises(ReplicationError, match="is behind what was published") as caught:
        worker.apply_batch(batch([A, Insert(1, row("50", "0"))], large))
    assert caught.value.code == "55000"


def test_a_skipped_transaction_of_any_size_changes_nothing(world: Subscribed) -> None:
    received = batch([A, B, *_inserts(0, 9)])
    finish = int(received.final_lsn[0])
    world.sub = world.store.update_subscription(world.sub.oid, subskiplsn=finish)
    _worker(world, ONE_RECORD).apply_batch(received)
    assert world.rows("a") == world.rows("b") == []
    assert [_stamps(world, name)[0].lsn for name in ("a", "b")] == [100, 100]


def _tables(messages: Sequence[Message]) -> set[int]:
    return {each.relid for each in messages if isinstance(each, Insert)}


def test_several_transactions_beyond_the_memory_are_cut_between_transactions(
    world: Subscribed,
) -> None:
    """Each part is published by itself, because a part is whole transactions."""
    many = [[A, B, *_inserts(3 * n, 3 * n + 3)] for n in range(4)]
    assert _tables(many[0]) == {1, 2}
    _worker(world, THREE_CHANGES).apply_batch(batch(*many))
    assert [stamp.lsn for stamp in _stamps(world, "a")] == [400, 300, 200, 100, 0]
    assert world.rows("a") == [(key, 0) for key in range(12)]
