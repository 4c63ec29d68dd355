"""Several sources, one lake table: each has its rows and its position, whoever dies or is first."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_lsn import LSN
from config.limits import SHARED_TABLE_ATTEMPTS
from tests.workers.sharing import TARGET, A, B, Make, Sharing, insert
from tests.workers.subscribed import FINGERPRINT
from tests.workers.transactions import batch, relation, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake, ancestors_of
from workers.lake.segment import Segment
from workers.lake.sources import branches_of, source_of
from workers.lake.table import MAIN, SOURCE_COLUMN, LakeIdent, Stamp
from workers.proto.messages import Delete, Message, Truncate, Update
from workers.tables.shared_tables import publish_shared_copy
from workers.tables.table_locks import TableLocks

WHOLE = relation(1, "a", "id", "v", identity="f")


def branches(lake: MemoryLake) -> set[str]:
    return {name for name in lake.tables[TARGET].refs if name != MAIN}


def test_the_same_key_of_two_sources(sharing: Make) -> None:
    one, two = sharing("1"), sharing("2")
    first, second = one.worker(), two.worker()
    first.apply_batch(batch([A, insert(1, 1), insert(2, 2)]))
    second.apply_batch(batch([A, insert(1, 5)], [Delete(1, "K", row("2", ""))]))
    first.apply_batch(batch([Update(1, None, None, row("1", "9"))], after=500))
    assert (one.rows(), two.rows()) == ([(1, 9), (2, 2)], [(1, 5)])
    assert (one.position(), two.position()) == (600, 200)
    second.apply_batch(batch([Truncate(False, False, (1,))], after=500))
    assert (one.rows(), two.rows()) == ([(1, 9), (2, 2)], [])


def test_equal_rows_of_two_sources(sharing: Make) -> None:
    one, two = sharing("1"), sharing("2")
    for each in (one, two):
        each.worker().apply_batch(batch([WHOLE, insert(1, 1), insert(1, 1)]))
    worker = two.worker()
    worker.apply_batch(batch([WHOLE, Delete(1, "O", row("1", "1"))], after=100))
    assert (one.rows(), two.rows()) == ([(1, 1), (1, 1)], [(1, 1)])


def test_a_key_of_another_source_is_not_in_the_way(sharing: Make) -> None:
    one, two = sharing("1"), sharing("2")
    one.worker().apply_batch(batch([A, insert(1, 1)]))
    rel = two.rel("a")
    two.store.update_rel(rel.srsubid, rel.srrelid, copied=False)  # so that it is looked for
    worker = two.worker()
    worker.apply_batch(batch([A, insert(1, 1)]))
    with pytest.raises(ReplicationError, match="insert_exists"):
        worker.apply_batch(batch([A, insert(1, 1)], after=100))
    assert (one.rows(), two.rows()) == ([(1, 1)], [(1, 1)])


class Meeting(MemoryDestination):
    """Lets others publish just before it does, so often."""

    def __init__(self, lake: MemoryLake, meets: Sequence[Callable[[], None]]) -> None:
        super().__init__(lake)
        self.meets = list(meets)

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        if self.meets:
            self.meets.pop(0)()
        return super().publish(ident, branch, stamp)


def test_who_is_overtaken_writes_again_from_there(lake: MemoryLake, sharing: Make) -> None:
    """As between data directories, which have no lock in common."""
    one, two = sharing("1"), sharing("2")
    other = two.worker()
    dest = Meeting(
        lake,
        [partial(other.apply_batch, batch([A, insert(n, n)], after=100 * n)) for n in range(3)],
    )
    worker = one.worker(dest)
    worker.apply_batch(batch([A, insert(1, 1)], [Update(1, None, None, row("1", "2"))]))
    assert (one.rows(), two.rows()) == ([(1, 2)], [(0, 0), (1, 1), (2, 2)])
    assert (one.position(), two.position()) == (200, 300)
    assert dest.staged == 0


def test_who_is_overtaken_for_ever_gives_up(lake: MemoryLake, sharing: Make) -> None:
    one = sharing("1")
    dest = Meeting(lake, [lambda: commit(lake)] * (SHARED_TABLE_ATTEMPTS + 1))
    with pytest.raises(ReplicationError, match="faster than one can publish") as caught:
        one.worker(dest).apply_batch(batch([A, insert(1, 1)]))
    assert caught.value.code == "40001"
    one.worker().apply_batch(batch([A, insert(1, 1)]))
    assert one.rows() == [(1, 1)]


def commit(lake: MemoryLake) -> None:
    """A commit to main that changes nothing."""
    MemoryDestination(lake).fence(TARGET)


def test_a_successor_leaves_the_others_alone(lake: MemoryLake, sharing: Make) -> None:
    """One dies while it publishes; its successor's fence only makes the other one write again."""
    one, two = sharing("1"), sharing("2")

    def die(operation: str) -> None:
        if operation == "publish":
            raise ConnectionFailure("gone")

    with pytest.raises(ConnectionFailure):
        one.worker(MemoryDestination(lake, failpoint=die)).apply_batch(batch([A, insert(1, 1)]))
    left = branches(lake)
    assert len(left) == 1

    def succeed() -> None:
        before = branches(lake)
        one.worker()
        assert before - branches(lake) == left

    two.worker(Meeting(lake, [succeed])).apply_batch(batch([A, insert(7, 7)]))
    assert (one.rows(), one.position(), two.rows()) == ([], 0, [(7, 7)])
    one.worker().apply_batch(batch([A, insert(1, 1)]))
    assert one.rows() == [(1, 1)]


def test_a_batch_shown_before_its_worker_died_is_not_applied_again(
    lake: MemoryLake, sharing: Make
) -> None:
    one, two = sharing("1"), sharing("2")

    class Dying(MemoryDestination):
        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            super().publish(ident, branch, stamp)
            raise ConnectionFailure("gone")

    received = batch([WHOLE, insert(1, 1)])
    with pytest.raises(ConnectionFailure):
        one.worker(Dying(lake)).apply_batch(received)
    two.worker().apply_batch(batch([WHOLE, insert(1, 1)], after=700))
    one.worker().apply_batch(received)
    assert (one.rows(), two.rows()) == ([(1, 1)], [(1, 1)])


def test_a_batch_that_main_shows_although_it_was_refused(lake: MemoryLake, sharing: Make) -> None:
    one = sharing("1")

    class Deaf(MemoryDestination):
        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            super().publish(ident, branch, stamp)
            raise ReplicationError("main was moved", sqlstate="40001")

    one.worker(Deaf(lake)).apply_batch(batch([WHOLE, insert(1, 1)]))
    assert (one.rows(), one.position()) == ([(1, 1)], 100)


def test_two_tables_of_one_subscription_show_together(lake: MemoryLake, sharing: Make) -> None:
    """A row that moves between partitions is never in none of them."""
    one = sharing("1", "a", "b")
    worker = one.worker()
    worker.apply_batch(batch([A, B, insert(1, 1), insert(2, 2, relid=2)]))
    shown: list[int] = []

    class Watched(MemoryDestination):
        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            done = super().publish(ident, branch, stamp)
            shown.append(len(self.lake.rows(ident)))
            return done

    moved: list[Message] = [A, B, Delete(1, "K", row("1", "")), insert(1, 1, relid=2)]
    one.worker(Watched(lake)).apply_batch(batch(moved, after=100))
    assert (one.rows("a"), one.rows("b")) == ([], [(1, 1), (2, 2)])
    assert shown == [2]
    assert (one.position("a"), one.position("b")) == (200, 200)
    assert one.store.in_flight(one.sub.oid) == []
    last = one.worker()
    last.apply_batch(
        batch([A, B, Truncate(False, False, (1,)), insert(5, 5), insert(6, 6, 2)], after=200)
    )
    assert (one.rows("a"), one.rows("b")) == ([(5, 5)], [(1, 1), (2, 2), (6, 6)])


def snapshots(lake: MemoryLake) -> int:
    return len(list(ancestors_of(lake.tables[TARGET], MAIN)))


@pytest.mark.parametrize("work_mem", [1, 1 << 30], ids=["in slices", "at once"])
def test_a_batch_of_many_sources_is_one_snapshot_with_all_positions(
    lake: MemoryLake, sharing: Make, work_mem: int
) -> None:
    names = [f"part_{n}" for n in range(12)]
    one = sharing("1", *names)
    worker, before = one.worker(), snapshots(lake)
    worker.work_mem = work_mem
    relations = [relation(n, name, "id", "v") for n, name in enumerate(names, start=1)]
    for number in range(5):
        added = [insert(number, 1, relid=n) for n in range(1, 13)]
        worker.apply_batch(batch([*relations, *added], after=100 * number))
        positions = {one.position(name) for name in names}
        assert positions == {100 * (number + 1)}
    assert all(one.rows(name) == [(n, 1) for n in range(5)] for name in names)
    at_once = snapshots(lake) - before == 5
    assert at_once == (work_mem > 1)


def test_a_row_that_is_missing_is_told_of_its_own_source(
    sharing: Make, caplog: pytest.LogCaptureFixture
) -> None:
    one = sharing("1", "a", "b")
    worker = one.worker()
    with caplog.at_level("INFO"):
        gone: list[Message] = [A, B, insert(1, 1), Delete(2, "K", row("7", ""))]
        worker.apply_batch(batch(gone))
    [told] = [line for line in caplog.messages if "conflict=delete_missing" in line]
    assert f"relid={one.rel('b').srrelid} " in told
    assert "count=1" in told


def test_a_bad_key_of_one_source_ends_its_trust_and_no_other(sharing: Make) -> None:
    one = sharing("1", "a", "b")
    for name in ("a", "b"):
        rel = one.rel(name)
        one.store.update_rel(rel.srsubid, rel.srrelid, fingerprint=FINGERPRINT)
    worker = one.worker()
    changed = Update(2, None, None, row("2", "9"))  # inserts alone are not compared
    twice: list[Message] = [A, B, insert(1, 1), insert(2, 2, 2), changed, insert(2, 3, 2)]
    with pytest.raises(ReplicationError) as caught:
        worker.apply_batch(batch(twice))
    assert caught.value.code == "23505"
    assert (one.rel("a").copied, one.rel("b").copied) == (True, False)
    assert (one.rows("a"), one.rows("b")) == ([], [])


MOVED = relation(1, "moved", "id", "v")


@pytest.mark.parametrize(("names", "how"), [(["a"], "up FILE"), (["a", "moved"], "refresh sub_1")])
def test_a_renamed_table_leaves_rows_under_its_old_name(
    lake: MemoryLake, sharing: Make, names: list[str], how: str
) -> None:
    """The error says how it gets there under the new one, and what deletes those of the old."""
    one = sharing("1", *names)
    rel = one.rel("a")
    one.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=1)
    if "moved" in names:  # it is in the file, and not subscribed yet
        one.store.delete_rel(rel.srsubid, one.rel("moved").srrelid)
    with pytest.raises(ReplicationError) as caught:
        one.worker().apply_batch(batch([A, insert(1, 1)], [MOVED, insert(1, 2)]))
    assert (caught.value.code, one.rows()) == ("55000", [(1, 1)])
    hint = caught.value.hint or ""
    before, _, command = hint.partition("until you delete them: ")
    assert f"pgsub {how}" in before
    assert shlex.split(command) == [
        "pgsub",
        "sql",
        "DELETE FROM `lake`.`public`.`all of them` WHERE `_pgsub_source` = '1:public.a'",
    ]


def test_a_column_of_the_publisher_that_says_the_source(sharing: Make) -> None:
    late = relation(1, "a", "id", SOURCE_COLUMN)
    one = sharing("1")
    with pytest.raises(ReplicationError, match="in the way") as caught:
        one.worker().apply_batch(batch([late, insert(1, 1)]))
    assert caught.value.code == "42701"


def test_a_table_that_was_set_back_between_two_batches(lake: MemoryLake, sharing: Make) -> None:
    one, two = sharing("1"), sharing("2")
    worker, other = one.worker(), two.worker()
    worker.apply_batch(batch([WHOLE, insert(1, 1)]))
    before = lake.tables[TARGET].refs[MAIN]
    worker.apply_batch(batch([WHOLE, insert(2, 2)], after=100))
    MemoryDestination(lake).rollback(TARGET, before)
    with pytest.raises(ReplicationError, match="is behind what was published") as caught:
        worker.apply_batch(batch([WHOLE, insert(3, 3)], after=200))
    assert caught.value.code == "55000"
    other.apply_batch(batch([WHOLE, insert(7, 7)]))  # which has lost nothing
    assert (one.rows(), two.rows()) == ([(1, 1)], [(7, 7)])
    with pytest.raises(ReplicationError, match="is behind what was published"):
        one.worker().apply_batch(batch([WHOLE, insert(3, 3)], after=200))


def test_no_branch_outlives_its_batch_by_more_than_one(lake: MemoryLake, sharing: Make) -> None:
    one = sharing("1")
    worker = one.worker()
    for n in range(3):
        worker.apply_batch(batch([A, insert(n, n)], after=100 * n))
    assert len(branches(lake)) == 1


SUM = (("sum", "id + v"), ("whose", "upper(_pgsub_source)"))


PRODUCT = (("sum", "id * v"), ("whose", "concat('from ', _pgsub_source)"))


def computed(world: Sharing) -> list[tuple[Any, ...]]:
    """(id, v, sum, whose) of a source's rows."""
    source = source_of(world.sub, world.rel("a"))
    found = [row for row in world.lake.rows(TARGET) if row[SOURCE_COLUMN] == source]
    return sorted((row["id"], row["v"], row["sum"], row["whose"]) for row in found)


def update(key: int, value: int, old: int | None = None) -> Message:
    """With the old key where that has changed."""
    new = row(str(key), str(value))
    return Update(1, None, None, new) if old is None else Update(1, "K", row(str(old), "0"), new)


def test_each_source_computes_what_is_generated_for_its_rows(sharing: Make) -> None:
    """By expressions of its own, which may be over its name; who has none leaves it NULL."""
    one, two, three = (sharing("a", generated=SUM), sharing("b", generated=PRODUCT), sharing("c"))
    workers = [each.worker() for each in (one, two, three)]
    for worker in workers:
        worker.apply_batch(batch([A, insert(1, 10), insert(2, 20)]))
    whose = "A:PUBLIC.A", "from b:public.a"
    assert computed(one) == [(1, 10, 11, whose[0]), (2, 20, 22, whose[0])]
    assert computed(two) == [(1, 10, 10, whose[1]), (2, 20, 40, whose[1])]
    untouched = [(1, 10, None, None), (2, 20, None, None)]
    assert computed(three) == untouched
    workers[0].apply_batch(batch([A, update(1, 11), update(5, 20, old=2)], after=100))
    assert computed(one) == [(1, 11, 12, whose[0]), (5, 20, 25, whose[0])]
    emptied: list[Message] = [A, Truncate(False, False, (1,)), insert(3, 30), update(3, 31)]
    workers[0].apply_batch(batch(emptied, after=200))
    assert computed(one) == [(3, 31, 34, whose[0])]
    assert computed(two) == [(1, 10, 10, whose[1]), (2, 20, 40, whose[1])]
    workers[2].apply_batch(batch([A, update(1, 11)], after=100))
    assert computed(three) == [(1, 11, None, None), untouched[1]]


@pytest.mark.parametrize(
    "declared", [{}, {"on_key_conflict": "overwrite"}, {"keys": (("v",),)}], ids=str
)
def test_so_it_is_where_keys_are_looked_for(sharing: Make, declared: dict[str, Any]) -> None:
    one, two = sharing("a", generated=SUM, **declared), sharing("b", generated=PRODUCT, **declared)
    for each in (one, two):
        rel = each.rel("a")
        each.store.update_rel(rel.srsubid, rel.srrelid, copied=False)
        each.worker().apply_batch(batch([A, insert(1, 10), insert(2, 20)]))
    worker = one.worker()
    worker.apply_batch(batch([A, update(3, 10, old=1), insert(4, 40)], after=100))
    if "on_key_conflict" in declared:
        worker.apply_batch(batch([A, insert(2, 20)], after=200))
    assert [row[:3] for row in computed(one)] == [(2, 20, 22), (3, 10, 13), (4, 40, 44)]
    assert [row[:3] for row in computed(two)] == [(1, 10, 10), (2, 20, 40)]


def test_so_it_is_with_whole_rows(sharing: Make) -> None:
    one, two = sharing("a", generated=SUM), sharing("b", generated=PRODUCT)
    for each in (one, two):
        each.worker().apply_batch(batch([WHOLE, insert(1, 10), insert(1, 10)]))
    changed = Update(1, "O", row("1", "10"), row("2", "20"))
    two.worker().apply_batch(batch([WHOLE, changed], after=100))
    assert [row[:3] for row in computed(one)] == [(1, 10, 11)] * 2
    assert [row[2:] for row in computed(two)] == [(10, "from b:public.a"), (40, "from b:public.a")]


def test_the_source_itself_is_not_generated(sharing: Make) -> None:
    """It would give rows to another source. Declared later, only the worker sees it."""
    two = sharing("b")
    one = sharing("a", generated=((SOURCE_COLUMN, "concat('b', ':public.a')"),))
    with pytest.raises(ReplicationError, match="incompatible generated column") as caught:
        one.worker().apply_batch(batch([A, insert(1, 1)]))
    assert caught.value.code == "55000"
    assert (one.rows(), two.rows()) == ([], [])


def test_a_copy_is_shown_though_main_has_moved(lake: MemoryLake, sharing: Make) -> None:
    one, two = sharing("1"), sharing("2")
    for each in (one, two):
        each.worker().apply_batch(batch([WHOLE, insert(1, 1)]))
    rel = one.rel("a")
    stamp, prefix = one.stamp(rel, LSN(900)), branches_of(one.sub, rel.srrelid)
    dest = MemoryDestination(lake)
    copy = f"{prefix}1"
    dest.create_branch(TARGET, copy)
    dest.write(TARGET, copy, [Segment((), truncate=True, source=stamp.source)], stamp)
    two.worker().apply_batch(batch([WHOLE, insert(2, 2)], after=100))
    names = iter(f"{prefix}{n}" for n in range(2, 9))
    overtaken = Meeting(lake, [lambda: commit(lake)])
    publish_shared_copy(overtaken, TableLocks(None), TARGET, copy, stamp, lambda: next(names))
    assert (one.rows(), one.position()) == ([], 900)
    assert (two.rows(), two.position()) == ([(1, 1), (2, 2)], 200)


def test_a_copy_ends_the_distrust_of_its_source(lake: MemoryLake, sharing: Make) -> None:
    """Somebody adds a row of one of them, which its copy takes away."""
    one, two = sharing("1"), sharing("2")
    for each in (one, two):
        each.worker().apply_batch(batch([A, insert(1, 1)]))
    rel = one.rel("a")
    theirs = {"id": 7, "v": 7, SOURCE_COLUMN: source_of(one.sub, rel)}
    lake.commit(lake.tables[TARGET], MAIN, [*lake.rows(TARGET), theirs], foreign=True)
    one.worker().apply_batch(batch([A, insert(2, 2)], after=100))
    assert (one.rows(), one.rel("a").copied) == ([(1, 1), (2, 2), (7, 7)], False)

    stamp = replace(one.stamp(rel, LSN(900)), epoch="anew")
    dest, copy = MemoryDestination(lake), f"{branches_of(one.sub, rel.srrelid)}1"
    dest.create_branch(TARGET, copy)
    dest.write(TARGET, copy, [Segment((), truncate=True, source=stamp.source)], stamp)
    publish_shared_copy(dest, TableLocks(None), TARGET, copy, stamp, lambda: "never needed")
    one.store.update_rel(
        rel.srsubid, rel.srrelid, epoch="anew", lake_lsn=LSN(900), floor=LSN(900), copied=True
    )
    one.worker().apply_batch(batch([A, insert(7, 9)], after=900))
    two.worker().apply_batch(batch([A, insert(2, 2)], after=100))
    assert (one.rows(), one.rel("a").copied) == ([(7, 9)], True)
    assert (two.rows(), two.rel("a").copied) == ([(1, 1), (2, 2)], False)
