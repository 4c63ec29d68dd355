"""Tables that are changed together are due together, and have their turns one after the other."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_subscription_rel import SubRelState
from config.guc import Settings
from tests.workers.maintained import Clock
from workers.lake.effects import Counts, FileSizes
from workers.lake.table import LakeIdent
from workers.tables.maintenance.schedule import Maintenance
from workers.tables.maintenance.turn_order import TurnOrder


class Many:
    """Tables of one worker that each batch changes, and the upkeep after each batch."""

    def __init__(
        self, tables: int, *, snapshots: int = 0, shared: bool = False, **settings: Any
    ) -> None:
        self.turns: list[list[int]] = []
        self.failing: set[int] = set()
        in_force = Settings.model_validate(settings)
        self.maintenance = Maintenance(
            cast("Any", self),
            settings=lambda: in_force,
            clock=Clock(),  # with the real one a slow rewrite rests beyond the last batch
            new_place=itertools.count().__next__,
        )
        self.tables = [self._table(relid, shared) for relid in range(tables)]
        for relid, table in enumerate(self.tables):
            lake = SimpleNamespace(ident=table.lake.ident, snapshots=[0.0] * snapshots, files=0)
            self.maintenance.opened(relid, cast("Any", lake))

    def _table(self, relid: int, shared: bool) -> Any:
        rel = SimpleNamespace(srrelid=relid, srsubid=1, srsubstate=SubRelState.READY)
        lake = SimpleNamespace(ident=LakeIdent("public", "0" if shared else str(relid)))
        source = str(relid) if shared else ""
        return SimpleNamespace(rel=rel, lake=lake, branch="b", source=source)

    def _done(self, ident: LakeIdent) -> int:
        self.turns[-1].append(int(ident.table))
        if int(ident.table) in self.failing:
            raise ReplicationError("no")
        return 1

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, deleted_share: float | None = None
    ) -> int:
        return self._done(ident)

    def expire(self, ident: LakeIdent, **_: Any) -> int:
        return self._done(ident)

    def batch(self, *changed: int) -> set[int]:
        """Which branches must not be used any more after a batch that changed these tables."""
        self.turns.append([])
        tables = [self.tables[relid] for relid in changed] or self.tables
        idents: set[LakeIdent] = set()
        written = []
        for table in tables:
            effect = SimpleNamespace(commits=int(table.lake.ident not in idents), snapshots=())
            written.append(SimpleNamespace(table=table, counts=Counts(appended=1), effect=effect))
            idents.add(table.lake.ident)
        for each in written:
            self.maintenance.published(cast("Any", each))
        return self.maintenance.maintain_changed_tables(tables, self.together)

    def together(self, jobs: Sequence[Any]) -> list[Any]:
        """The last one ends first."""
        return [job() for job in reversed(jobs)][::-1]


def test_of_many_tables_a_tenth_has_its_turn_after_a_batch() -> None:
    many = Many(25)
    for _ in range(30):
        many.batch()
    assert many.turns[:9] == [[]] * 9
    assert [sorted(turn) for turn in many.turns[9:13]] == [
        [0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11],
    ]  # fmt: skip
    assert max(map(len, many.turns)) == 3
    for relid in range(25):
        turns = [n for n, turn in enumerate(many.turns) if relid in turn]
        assert len(turns) >= 2
        assert turns[1] - turns[0] == 10


def test_who_has_waited_longest_is_first() -> None:
    many = Many(25)
    for _ in range(8):
        many.batch()
    many.batch(*range(20, 25))
    many.batch(*range(20, 25))
    assert many.turns[-1] == [20]
    many.batch(*range(20, 25))
    assert many.turns[-1] == [21]
    many.batch()
    many.batch()
    assert [set(turn) for turn in many.turns[-2:]] == [{22, 23, 24}, {0, 1, 2}]


def test_one_of_them_that_fails_spoils_its_own_branch_alone() -> None:
    many = Many(25)
    many.failing = {1}
    spoiled = [many.batch() for _ in range(11)]
    assert spoiled == [set()] * 9 + [{1}, set()]
    assert set(many.turns[9]) == {0, 1, 2}


def test_snapshots_of_many_tables_go_in_turns_too() -> None:
    many = Many(25, snapshots=390, compaction_batches=10_000)
    for _ in range(20):
        many.batch()
    assert [len(turn) for turn in many.turns[9:19]] == [3] * 8 + [1, 0]
    assert sorted(relid for turn in many.turns for relid in turn) == list(range(25))


def test_a_shared_table_s_snapshots_are_counted_once_for_all_sources() -> None:
    many = Many(25, snapshots=390, shared=True)
    for _ in range(14):
        many.batch()
    assert many.turns[9:] == [[0], [], [], [], []]


@pytest.mark.parametrize(("batches", "turns"), [(1, 25), (5, 5), (10, 3), (300, 3)])
def test_an_expiry_that_is_wanted_more_often_takes_more_tables(batches: int, turns: int) -> None:
    held: dict[str, Any] = {"snapshot_expiry_batches": batches, "snapshot_retain_last": 1}
    many = Many(25, snapshots=400, autovacuum=False, **held)
    for _ in range(10):
        many.batch()
    assert max(map(len, many.turns)) == turns


def test_who_is_first_among_equals_differs_from_life_to_life() -> None:
    orders = []
    for _ in range(3):
        turns = TurnOrder()
        for relid in range(25):
            turns.opened(relid)
        orders.append(tuple(sorted(range(25), key=turns._places.__getitem__)))
    assert len(set(orders)) > 1
