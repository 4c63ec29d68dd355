"""A batch becomes visible table by table, or all tables at one moment: the same rows either way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, cast

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from config.limits import PUBLISH_ATTEMPTS
from tests.workers.one_call import OneCallLake
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.changes.table_work import TableWork
from workers.lake.memory.destination import MemoryDestination
from workers.lake.publication import InParallel, Publication
from workers.lake.refusals import changed_meanwhile, no_call_for_several
from workers.lake.table import LakeIdent
from workers.proto.messages import Insert, Message, Update
from workers.tables.publish_tables import choose

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")
BOTH = batch([A, B, Insert(1, row("1", "1")), Insert(2, row("1", "1"))])
SLICE = 3 * (128 + 50)


def rows(world: Subscribed) -> tuple[Any, Any]:
    return world.rows("a"), world.rows("b")


def fence(world: Subscribed, name: str) -> None:
    """A commit of another writer that moves ``main`` and changes no row."""
    MemoryDestination(world.lake).fence(LakeIdent("public", name))


class Unit:
    """Stands for a table's part of a batch."""


@pytest.mark.parametrize(
    ("units", "offered", "expected"),
    [(1, True, "table by table"), (2, True, "one call"), (2, False, "table by table")],
)
def test_the_choice(units: int, offered: bool, expected: str) -> None:
    class Lake(MemoryDestination):
        publishes_together = offered

    one_call: Any = "one call"
    table_by_table: Any = "table by table"
    parts: Any = [[Unit()]] * units
    chosen: Any = choose(parts, Lake(), one_call, table_by_table)
    assert chosen == expected


def test_a_batch_of_two_tables_is_one_call(world: Subscribed) -> None:
    dest = OneCallLake(world.lake)
    worker = world.worker(dest)
    worker.apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])
    worker.apply_batch(batch([Insert(1, row("2", "2"))], after=100))
    assert dest.calls == [["a", "b"]], "a single table moves by one call in any case"
    assert (world.position(), world.store.in_flight(world.sub.oid)) == (200, [])


def test_a_reader_never_sees_one_table_without_the_other(world: Subscribed) -> None:
    seen, lock = set[tuple[int, int]](), cast("Any", world.lake.lock)

    def look(_: str) -> None:
        if not lock._is_owned():
            seen.add((len(world.rows("a")), len(world.rows("b"))))

    dest = OneCallLake(world.lake, before=lambda _: look(""), behind=lambda _: look(""))
    dest.failpoint = look
    worker = world.worker(dest)
    for turn in range(3):
        changes = [Insert(relid, row(str(turn), "0")) for relid in (1, 2)]
        worker.apply_batch(batch([A, B, *changes], after=100 * turn))
    assert seen == {(n, n) for n in range(4)}


def test_a_refused_call_is_made_again_with_all_tables(world: Subscribed) -> None:
    """Nothing of the batch was visible: the rows of both tables are written again."""
    dest = OneCallLake(world.lake, before=lambda n: None if n else fence(world, "b"))
    world.worker(dest).apply_batch(BOTH)
    assert dest.calls == [["a", "b"], ["a", "b"]]
    assert rows(world) == ([(1, 1)], [(1, 1)])
    assert dest.staged == 0


def test_what_another_writer_did_meanwhile_counts(world: Subscribed) -> None:
    world.put("b", (1, 1), (7, 7), ours=True)
    dest = OneCallLake(
        world.lake, before=lambda n: None if n else world.put("b", (1, 5), ours=True)
    )
    changes: list[Message] = [Insert(1, row("1", "1"))]
    changes += [Update(2, None, None, row(key, "9")) for key in ("1", "7")]
    world.worker(dest).apply_batch(batch([A, B, *changes]))
    assert rows(world) == ([(1, 1)], [(1, 9)])
    assert world.store.subscription_stats(world.sub.oid).confl_update_missing == 1


def test_calls_end_and_nothing_is_visible(world: Subscribed) -> None:
    dest = OneCallLake(world.lake, before=lambda _: fence(world, "b"))
    with pytest.raises(ReplicationError, match="is moved by somebody else") as caught:
        world.worker(dest).apply_batch(BOTH)
    assert caught.value.code == "40001"
    assert len(dest.calls) == PUBLISH_ATTEMPTS
    assert rows(world) == ([], [])
    world.worker(OneCallLake(world.lake)).apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])


@pytest.mark.parametrize("first", ["a", "b"])
def test_a_lake_that_breaks_its_word_doubles_no_row(world: Subscribed, first: str) -> None:
    """One table moved, and the call was refused: only the other one is written again."""

    class Half(OneCallLake):
        def move(self, parts: Sequence[Publication]) -> list[int | None]:
            if len(self.calls) > 1:
                return super().move(parts)
            for each in parts:
                if each.ident.table == first:
                    super().move([each])
                else:
                    self.fence(each.ident)
            return super().move(parts)

    dest = Half(world.lake)
    world.worker(dest).apply_batch(BOTH)
    other = "b" if first == "a" else "a"
    assert dest.calls == [["a", "b"], [other]]
    assert rows(world) == ([(1, 1)], [(1, 1)])


def test_a_lake_that_takes_no_such_call_after_all(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    class Refusing(OneCallLake):
        def publish_together(
            self, parts: Sequence[Publication], in_parallel: InParallel
        ) -> list[int | None]:
            self.publishes_together = False
            raise no_call_for_several("404")

    caplog.set_level(logging.WARNING, "workers")
    world.worker(Refusing(world.lake)).apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])
    assert [each.getMessage() for each in caplog.records] == [
        "action=publish_together the lake's catalog does not move several tables in one call: 404"
    ]


def test_a_lake_that_breaks_its_word_and_then_takes_no_call_doubles_no_row(
    world: Subscribed,
) -> None:
    """One table moved, and the next call is refused: only the other one is published alone."""

    class HalfThenNone(OneCallLake):
        def move(self, parts: Sequence[Publication]) -> list[int | None]:
            if len(self.calls) > 1:
                raise no_call_for_several("404")
            super().move(parts[:1])
            self.fence(parts[1].ident)
            return super().move(parts)

    dest = HalfThenNone(world.lake)
    world.worker(dest).apply_batch(BOTH)
    assert [len(each) for each in dest.calls] == [2, 1]
    assert rows(world) == ([(1, 1)], [(1, 1)])
    assert (world.position(), world.store.in_flight(world.sub.oid)) == (100, [])
    assert dest.staged == 0


def test_a_table_that_changed_before_the_second_writing_is_applied_again(
    world: Subscribed,
) -> None:
    """The rows were staged for the columns or the partitions of before."""

    class Altered(OneCallLake):
        writes = 0

        def write_sources(self, ident: LakeIdent, *given: Any, **more: Any) -> Any:
            self.writes += 1
            if self.writes == 3:  # behind the first writing of both tables
                raise changed_meanwhile(ident)
            return super().write_sources(ident, *given, **more)

    dest = Altered(world.lake, before=lambda n: None if n else fence(world, "b"))
    world.worker(dest).apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])
    assert dest.staged == 0


def test_rows_in_files_that_a_refused_commit_had_are_staged_again(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The files may be gone together with the branch of the refused commit."""
    monkeypatch.setattr(TableWork, "has_committed_files", True)
    dest = OneCallLake(world.lake, before=lambda n: None if n else fence(world, "b"))
    worker = world.worker(dest)
    worker.apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])
    assert dest.staged == 0


def test_a_transaction_in_slices_is_applied_again(world: Subscribed) -> None:
    """Its rows are not staged any more."""
    dest = OneCallLake(world.lake, before=lambda n: None if n else fence(world, "a"))
    worker = world.worker(dest)
    worker.work_mem = SLICE
    inserts = [Insert(relid, row(str(key), "0")) for key in range(9) for relid in (1, 2)]
    worker.apply_batch(batch([A, B, *inserts]))
    expected = [(key, 0) for key in range(9)]
    assert rows(world) == (expected, expected)
    assert dest.calls == [["a", "b"], ["a", "b"]]


# The worker dies


def _die(_: int) -> None:
    raise ConnectionFailure("lost the lake server")


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_worker_that_dies_at_the_call_loses_and_doubles_nothing(
    world: Subscribed, when: str
) -> None:
    hook: Any = {when: _die}
    with pytest.raises(ConnectionFailure):
        world.worker(OneCallLake(world.lake, **hook)).apply_batch(BOTH)
    shown = [(1, 1)] if when == "behind" else []
    assert rows(world) == (shown, shown)
    world.worker(OneCallLake(world.lake)).apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])


@pytest.mark.parametrize("fenced", ["a", "b"])
def test_a_late_call_is_refused_behind_a_fence_on_any_table(world: Subscribed, fenced: str) -> None:
    """A dead worker's call lands when the successor has fenced one of the tables."""
    late: list[Sequence[Publication]] = []

    class Late(OneCallLake):
        def move(self, parts: Sequence[Publication]) -> list[int | None]:
            late.append(parts)
            raise ConnectionFailure("lost the lake server")

    zombie = Late(world.lake)
    with pytest.raises(ConnectionFailure):
        world.worker(zombie).apply_batch(BOTH)
    fence(world, fenced)
    with pytest.raises(ReplicationError, match="main was moved"):
        OneCallLake(world.lake).move(late[0])
    assert rows(world) == ([], [])
    world.worker(OneCallLake(world.lake)).apply_batch(BOTH)
    assert rows(world) == ([(1, 1)], [(1, 1)])
