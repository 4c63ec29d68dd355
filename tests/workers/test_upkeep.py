"""Upkeep is due after so many batches, counted from what the table holds."""

from __future__ import annotations

import fcntl
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, FamilyProcessGone, IoError, ReplicationError
from catalog.lake_maintenance import AUTOVACUUM, COMPACTION, EXPIRY, LakeUpkeep
from config.guc import Settings
from tests.workers.sharing import Make
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers import upkeep
from workers.applier import Applier
from workers.lake.destination import Counts, Effect, Identity, LakeIdent, LakeTable
from workers.lake.memory import MemoryDestination, MemoryLake
from workers.proto.messages import Insert
from workers.shared_targets import TableLocks
from workers.upkeep import Dead, Upkeep, vacuum_is_due

A = relation(1, "a", "id", "v")


class Kept(MemoryDestination):
    """A lake whose tables hold snapshots of these times and so many files, and that remembers its
    upkeep: after which batch, and what an expiry was to keep."""

    def __init__(
        self, lake: MemoryLake, *, snapshots: Sequence[float] = (), files: int = 0
    ) -> None:
        super().__init__(lake, identity=Identity(1, 7))
        self.holds = (snapshots, files)
        self.compacted: list[int] = []
        self.expired: list[int] = []
        self.kept: list[tuple[int, float]] = []
        self.vacuumed: list[int] = []
        self.rewrites: list[int] = []
        self.rows = (0, 0)
        self.batches = 0
        self.failing = False
        self.error = ReplicationError("no")

    def table(self, ident: LakeIdent) -> LakeTable | None:
        found = super().table(ident)
        snapshots, files = self.holds
        return found and replace(found, snapshots=snapshots, files=files)

    def compact(self, ident: LakeIdent, branch: str, *, dead_share: float | None = None) -> int:
        if dead_share is None:
            self.compacted.append(self.batches)
        else:
            self.vacuumed.append(self.batches)
        if self.failing:
            raise self.error
        super().compact(ident, branch)
        return self.rewrites.pop() if self.rewrites and dead_share else 0

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        rows, dead = self.rows
        return [replace(counts, rows=rows, dead=dead) for counts in super().count(effects)]

    def expire(self, ident: LakeIdent, *, retain: int, age: float = 0.0) -> int:
        self.expired.append(self.batches)
        self.kept.append((retain, age))
        if self.failing:
            raise self.error
        return super().expire(ident, retain=retain, age=age)


def play(worker: Applier, dest: Kept, batches: int) -> None:
    for _ in range(batches):
        dest.batches += 1
        inserted = Insert(1, row(str(dest.batches), "1"))
        worker.apply_batch(batch([A, inserted], after=100 * dest.batches))


@pytest.mark.parametrize(("small_from", "due"), [(10_000, [10, 20]), (1, [100, 200])])
def test_small_files_are_looked_at_every_ten_small_batches_or_hundred_large(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, small_from: int, due: list[int]
) -> None:
    monkeypatch.setattr(upkeep, "SMALL_BATCH", small_from)
    dest = Kept(world.lake)
    play(world.worker(dest), dest, due[-1] + 1)
    assert dest.compacted == due


class Clock:
    """Seconds that pass when they are told to."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Expiring:
    """A worker on table a whose expiry settings may change while it runs; a second to a batch."""

    def __init__(self, world: Subscribed, *snapshots: float, **settings: Any) -> None:
        self.dest, self.clock = Kept(world.lake, snapshots=snapshots), Clock()
        self.dest.batches = len(world.rows("a"))  # of the lives before
        self.worker = world.worker(self.dest)
        self.busy: list[LakeIdent] = []
        self.set(**settings)
        self.worker.writer._upkeep = Upkeep(
            self.dest,
            self.busy.__contains__,
            lambda: self.settings,
            world.store.add_lake_upkeep,
            now=self.clock,
        )

    def set(self, **settings: Any) -> None:
        """Settings that are in force from now on."""
        self.settings = Settings.model_validate(settings)

    def play(self, batches: int) -> list[int]:
        """After which batches there was an expiry so far."""
        for _ in range(batches):
            self.clock.now += 1
            play(self.worker, self.dest, 1)
        return self.dest.expired


def test_snapshots_expire_when_so_many_would_go(world: Subscribed) -> None:
    worker = Expiring(world, snapshot_expiry_batches=30, snapshot_retain_last=5)
    assert worker.play(96) == [35, 65, 95]
    assert worker.dest.kept == [(5, 0)] * 3


def test_by_default_three_hundred_batches_lie_between_two_expiries(world: Subscribed) -> None:
    worker = Expiring(world, *range(390))
    assert worker.play(311) == [10, 310]
    assert worker.dest.kept == [(100, 0)] * 2


@pytest.mark.parametrize(("batches", "due"), [(1, [10, 11, 12]), (3, [10, 13, 16])])
def test_few_batches_between_two_expiries_are_none_at_a_worker_s_start(
    world: Subscribed, batches: int, due: list[int]
) -> None:
    worker = Expiring(world, 0, snapshot_expiry_batches=batches, snapshot_retain_last=1)
    assert worker.play(due[-1]) == due


def test_no_snapshot_expires_by_itself_with_0(world: Subscribed) -> None:
    """Nor does what was not counted stay for ever: it is turned on while the worker runs."""
    worker = Expiring(world, *range(5000), snapshot_expiry_batches=0)
    assert worker.play(40) == []
    worker.set(snapshot_expiry_batches=300)
    assert worker.play(1) == [41]
    worker.set(snapshot_expiry_batches=0, snapshot_retain_last=1)
    assert worker.play(40) == [41]


def test_a_smaller_number_that_stays_counts_at_once(world: Subscribed) -> None:
    worker = Expiring(world, *range(60), snapshot_expiry_batches=20)
    assert worker.play(20) == []
    worker.set(snapshot_expiry_batches=20, snapshot_retain_last=7)
    assert worker.play(20) == [21]
    assert worker.dest.kept == [(7, 0)]


def test_young_snapshots_are_no_reason_for_an_expiry(world: Subscribed) -> None:
    """Until they are old, and then those alone that are; in each life of a worker."""
    settings = {"snapshot_expiry_batches": 20, "snapshot_retain_last": 1}
    born = [*range(-99_900, -99_890), *range(40, 101)]
    for batches in (25, 29):
        worker = Expiring(world, *born, **settings, snapshot_retain_age="1h")
        assert worker.play(batches) == []
    worker.clock.now = 3649  # what was born before 50 is too old a second later
    assert worker.play(1) == [55]
    assert worker.dest.kept == [(1, 3600)]
    assert worker.play(19) == [55]
    assert worker.play(1) == [55, 75]


def test_an_age_that_is_taken_back_counts_at_once(world: Subscribed) -> None:
    worker = Expiring(world, *range(5000), snapshot_retain_age="1d")
    assert worker.play(20) == []
    worker.set()
    assert worker.play(1) == [21]


def test_the_last_snapshots_stay_however_old_they_are(world: Subscribed) -> None:
    worker = Expiring(world, *range(-50, 0), snapshot_expiry_batches=10, snapshot_retain_age=1)
    worker.clock.now = 10_000.0
    assert worker.play(59) == []
    assert worker.play(1) == [60]


def test_snapshots_stay_while_somebody_reads_what_they_name(world: Subscribed) -> None:
    worker = Expiring(world, snapshot_expiry_batches=19, snapshot_retain_last=1)
    worker.busy[:] = [LakeIdent("public", "a")]
    assert worker.play(22) == []
    worker.busy[:] = [LakeIdent("public", "b")]
    assert worker.play(5) == [23]


def test_workers_that_are_killed_early_keep_a_table_all_the_same(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven lives of sixty batches: snapshots as after one life of four hundred."""
    monkeypatch.setattr(upkeep, "SMALL_BATCH", 1)
    held, expiries, compactions = 0, 0, 0
    for life in range(7):
        dest = Kept(world.lake, snapshots=range(held), files=held)
        dest.batches = first = life * 60
        play(world.worker(dest), dest, 60)
        held += 60
        if dest.expired:
            held = Settings().snapshot_retain_last + first + 60 - dest.expired[-1]
        expiries += len(dest.expired)
        compactions += len(dest.compacted)
    assert expiries == 1
    assert held < Settings().snapshot_retain_last + Settings().snapshot_expiry_batches
    assert compactions >= 4


def test_nothing_is_due_in_the_first_batches(world: Subscribed) -> None:
    """A tag may hold any number of snapshots, and large files need no upkeep."""
    dest = Kept(world.lake, snapshots=range(5000), files=5000)
    worker = world.worker(dest)
    play(worker, dest, upkeep.AT_LEAST - 1)
    assert dest.expired == []
    play(worker, dest, 1)
    assert dest.expired == [upkeep.AT_LEAST]


def test_a_branch_whose_upkeep_failed_is_not_used_again(world: Subscribed) -> None:
    dest = Kept(world.lake)
    worker = world.worker(dest)
    play(worker, dest, 9)
    (branch,) = branches(dest)
    dest.failing = True
    play(worker, dest, 1)
    assert dest.compacted == [10]
    play(worker, dest, 1)
    assert branches(dest) != {branch}
    assert len(world.rows("a")) == 11


DUE = Dead(rows=1_200_000, dead=400_000)


@pytest.mark.parametrize(
    ("dead", "due"),
    [
        (Dead(), False),
        (DUE, True),
        (replace(DUE, dead=260_000), False),  # 100,000 + 0.2 × 940,000
        (replace(DUE, dead=250_001, rows=1_000_005), True),
        (replace(DUE, left=150_000), False),
        (replace(DUE, dead=1_000_000, left=730_000), False),  # 100,000 + 0.2 × 930,000
        (replace(DUE, dead=1_000_000, left=650_000), True),
    ],
)
def test_a_vacuum_is_due_as_postgresql_s(dead: Dead, due: bool) -> None:
    assert vacuum_is_due(dead, Settings()) is due


def vacuumed(world: Subscribed, dest: Kept) -> tuple[Applier, Clock]:
    """A worker whose first minute is over, on a table that is due."""
    worker, clock = world.worker(dest), Clock()
    worker.writer._upkeep = Upkeep(dest, clock=clock)
    clock.now += 60
    dest.rows = (1_200_000, 400_000)
    return worker, clock


def test_files_with_dead_rows_are_rewritten_until_none_is_left(world: Subscribed) -> None:
    """Once in a minute while there are some; what is left then is no reason to look again."""
    dest = Kept(world.lake)
    worker, clock = vacuumed(world, dest)
    dest.rewrites = [3, 5]
    for _ in range(4):
        play(worker, dest, 2)
        clock.now += 60
    assert dest.vacuumed == [1, 3, 5]
    dest.rows = (1_600_000, 1_000_000)
    play(worker, dest, 1)
    assert dest.vacuumed == [1, 3, 5, 9]


def test_dead_rows_count_anew_when_the_table_is_emptied(world: Subscribed) -> None:
    dest = Kept(world.lake)
    worker, clock = vacuumed(world, dest)
    play(worker, dest, 1)
    clock.now += 60
    dest.rows = (10, 1)
    play(worker, dest, 1)
    dest.rows = (1_200_000, 400_000)
    play(worker, dest, 1)
    assert dest.vacuumed == [1, 3]


def test_a_vacuum_that_fails_rests_before_it_is_tried_again(world: Subscribed) -> None:
    dest = Kept(world.lake)
    worker, clock = vacuumed(world, dest)
    dest.failing = True
    play(worker, dest, 3)
    assert dest.vacuumed == [1]
    assert len(world.rows("a")) == 3
    clock.now += 60
    play(worker, dest, 1)
    assert dest.vacuumed == [1, 4]


def test_a_worker_does_not_begin_with_a_vacuum(world: Subscribed) -> None:
    dest = Kept(world.lake)
    worker = world.worker(dest)
    worker.writer._upkeep = Upkeep(dest, clock=Clock())
    dest.rows = (1_200_000, 400_000)
    play(worker, dest, 3)
    assert dest.vacuumed == []


def test_autovacuum_off_rewrites_nothing(world: Subscribed) -> None:
    expiry = {"snapshot_expiry_batches": 14, "snapshot_retain_last": 1}
    dest, settings = Kept(world.lake), [Settings(autovacuum=False, **expiry)]
    worker, clock = world.worker(dest), Clock()
    worker.writer._upkeep = Upkeep(dest, settings=lambda: settings[0], clock=clock)
    clock.now += 60
    dest.rows = (1_200_000, 400_000)
    play(worker, dest, 20)
    assert (dest.compacted, dest.vacuumed, dest.expired) == ([], [], [15])
    settings[0] = Settings()
    play(worker, dest, 1)
    assert (dest.compacted, dest.vacuumed) == ([21], [21])


def test_a_shared_table_s_vacuum_that_fails_is_tried_once(lake: MemoryLake, sharing: Make) -> None:
    """On the branch that was made for the batch; the batch gets another, without naps, too."""
    shared, dest = sharing("a1"), Kept(lake)
    dest.rows, dest.failing = (1_200_000, 400_000), True
    worker = shared.worker(dest)
    worker.writer._upkeep = Upkeep(dest, settings=lambda: Settings(autovacuum_naptime=0))
    for key in (1, 2):
        dest.batches += 1
        worker.apply_batch(batch([A, Insert(1, row(str(key), "1"))], after=100 * key))
    assert dest.vacuumed == [2]
    assert shared.rows() == [(1, 1), (2, 1)]


def test_a_shared_table_s_snapshots_go_while_no_other_source_has_its_turn(
    lake: MemoryLake, sharing: Make, tmp_path: Path
) -> None:
    free: list[bool] = []

    def look(operation: str) -> None:
        if operation == "expire":
            free.extend(map(is_free, (tmp_path / "locks").iterdir()))

    dest = MemoryDestination(lake, identity=Identity(1, 7), failpoint=look)
    worker = sharing("a1", data_dir=tmp_path).worker(dest)
    asked = Settings(snapshot_expiry_batches=1, snapshot_retain_last=1, snapshot_retain_age=0)
    worker.writer._upkeep = Upkeep(dest, settings=lambda: asked)
    for key in range(12):
        worker.apply_batch(batch([A, Insert(1, row(str(key), "1"))], after=100 * key))
    assert free
    assert not any(free)
    assert all(map(is_free, (tmp_path / "locks").iterdir()))


def test_their_turn_is_over_before_files_of_other_tables_are_rewritten(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Watched(Kept):
        def compact(self, *given: Any, **named: Any) -> int:
            seen.append("compact")
            return super().compact(*given, **named)

        def expire(self, *given: Any, **named: Any) -> int:
            seen.append("expire")
            return super().expire(*given, **named)

    dest = Watched(world.lake)
    worker = world.worker(dest)
    monkeypatch.setattr(TableLocks, "release", lambda locks: seen.append("release"))
    asked = Settings(snapshot_expiry_batches=1, snapshot_retain_last=1, snapshot_retain_age=0)
    worker.writer._upkeep = Upkeep(dest, settings=lambda: asked)
    play(worker, dest, 10)
    assert seen[-4:] == ["expire", "release", "compact", "release"]


def is_free(lock: Path) -> bool:
    """Nobody has the turn."""
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def recorded(world: Subscribed) -> dict[str, LakeUpkeep]:
    """What the catalog knows of table a, by kind."""
    known = world.store.lake_upkeep(world.sub.oid)
    assert {each.relid for each in known} <= {world.rel("a").srrelid}
    return {each.kind: each for each in known}


def test_what_is_done_is_counted(world: Subscribed) -> None:
    """In the worker's store, by each worker of the table."""
    of = (world.sub.oid, world.rel("a").srrelid)
    for life in range(2):
        worker = Expiring(world, *range(10), snapshot_expiry_batches=12, snapshot_retain_last=1)
        worker.clock.now += 1000 * life
        worker.worker.writer._upkeep._vacuumed -= 60
        worker.dest.rows = (1_200_000, 400_000)
        worker.play(12)
    assert recorded(world) == {
        COMPACTION: LakeUpkeep(*of, COMPACTION, 2, 1_110_000_000),
        AUTOVACUUM: LakeUpkeep(*of, AUTOVACUUM, 2, 1_101_000_000),
        EXPIRY: LakeUpkeep(*of, EXPIRY, 2, 1_110_000_000),
    }


def test_a_batch_without_upkeep_stores_nothing_of_it(world: Subscribed) -> None:
    written: list[str] = []

    def trace(statement: str) -> None:
        if "lake_upkeep" in statement:
            written.append(statement.split()[0])

    worker = Expiring(world)
    world.store._connection.set_trace_callback(trace)
    worker.play(25)
    world.store._connection.set_trace_callback(None)
    assert worker.dest.compacted == [10, 20]
    assert written == ["INSERT", "INSERT"]


def test_what_fails_is_told_without_its_detail_until_it_goes_well(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    """The log has that."""
    worker = Expiring(world, *range(10), snapshot_expiry_batches=12, snapshot_retain_last=1)
    worker.dest.error = ReplicationError("the lake failed", detail="a file")
    of = (world.sub.oid, world.rel("a").srrelid)
    worker.dest.failing = True
    worker.play(11)  # its branch is not used any more in the turn in which the first one failed
    assert recorded(world) == {
        kind: LakeUpkeep(*of, kind, failed=failed, error="the lake failed")
        for kind, failed in ((EXPIRY, 110_000_000), (COMPACTION, 111_000_000))
    }
    assert [getattr(record, "DETAIL", None) for record in caplog.records[-2:]] == ["a file"] * 2
    worker.dest.failing = False
    worker.play(10)
    assert recorded(world)[COMPACTION] == LakeUpkeep(*of, COMPACTION, 1, 121_000_000)
    assert recorded(world)[EXPIRY].error == "the lake failed"  # it has not been tried again
    worker.play(1)
    assert recorded(world)[EXPIRY] == LakeUpkeep(*of, EXPIRY, 1, 122_000_000)


@pytest.mark.parametrize(("error", "told"), [(FamilyProcessGone, False), (ConnectionFailure, True)])
def test_a_server_that_went_away_is_no_failure_of_upkeep(
    world: Subscribed, error: type[ReplicationError], told: bool
) -> None:
    worker = Expiring(world)
    worker.dest.failing, worker.dest.error = True, error("lost the lake server")
    worker.play(10)
    assert worker.dest.compacted == [10]
    assert bool(recorded(world)) is told


@pytest.mark.parametrize("failing", [False, True])
def test_a_batch_goes_on_where_what_was_done_cannot_be_counted(
    world: Subscribed, caplog: pytest.LogCaptureFixture, failing: bool
) -> None:
    worker = Expiring(world)
    worker.dest.failing = failing

    def refuse(_: LakeUpkeep) -> None:
        raise IoError("no space", sqlstate="53100")

    worker.worker.writer._upkeep._record = refuse
    worker.play(11)
    assert len(world.rows("a")) == 11
    assert "sqlstate=53100 no space" in caplog.text
    assert recorded(world) == {}


def branches(dest: Kept) -> set[str]:
    return set(dest.lake.tables[LakeIdent("public", "a")].refs) - {"main"}
