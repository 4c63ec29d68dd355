"""Compaction and vacuum are due by counts that begin with the files of the opened table."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState
from config.guc import Settings
from config.limits import FIRST_MAINTENANCE_BATCHES
from tests.workers.maintained import A, Clock, Expiring, RecordingLake, branches, play
from tests.workers.sharing import Make
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, row
from workers.apply.apply_batch import Applier
from workers.lake.effects import FileSizes
from workers.lake.memory.lake import MemoryLake
from workers.proto.messages import Insert
from workers.tables.maintenance import schedule
from workers.tables.maintenance.schedule import Maintenance


@pytest.mark.parametrize(("small_from", "due"), [(10_000, [10, 20]), (1, [100, 200])])
def test_small_files_are_looked_at_every_ten_small_batches_or_hundred_large(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, small_from: int, due: list[int]
) -> None:
    monkeypatch.setattr(schedule, "SMALL_BATCH_ROWS", small_from)
    dest = RecordingLake(world.lake)
    worker = world.worker(dest)
    worker.writer.maintenance = Maintenance(dest, clock=Clock())
    play(worker, dest, due[-1] + 1)
    assert dest.compacted == due


def test_small_files_take_a_tenth_of_the_time(world: Subscribed) -> None:
    """A rewrite of two seconds is followed by eighteen without one."""
    dest, clock = RecordingLake(world.lake), Clock()
    dest.takes = lambda: setattr(clock, "now", clock.now + 2)
    worker = world.worker(dest)
    worker.writer.maintenance = Maintenance(dest, clock=clock)
    for _ in range(40):
        play(worker, dest, 1)
        clock.now += 1
    assert dest.compacted == [10, 28]


def test_a_table_that_is_not_ready_has_no_upkeep(world: Subscribed) -> None:
    key = (world.sub.oid, world.rel("a").srrelid)
    world.store.set_rel_state(*key, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
    world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    world.store.set_rel_state(*key, SubRelState.SYNCDONE, LSN(1), Setter.TABLESYNC)
    worker = Expiring(world, snapshot_expiry_batches=10, snapshot_retain_last=1)
    worker.worker.writer.maintenance._last_vacuum -= 60
    worker.dest.rows = (1_200_000, 400_000)
    worker.play(12)
    assert len(world.rows("a")) == 12
    assert (worker.dest.compacted, worker.dest.vacuumed, worker.dest.expired) == ([], [], [])


def test_files_are_rewritten_by_the_sizes_of_the_settings(world: Subscribed) -> None:
    worker = Expiring(
        world,
        compaction_batches=30,
        compaction_small_size="2MB",
        compaction_target_size="32MB",
        autovacuum_max_size="256MB",
    )
    worker.play(7)
    assert worker.dest.compacted == [3, 6]
    assert worker.dest.sizes == FileSizes(small=2 << 20, whole=32 << 20, at_once=256 << 20)


def test_workers_that_are_killed_early_keep_a_table_all_the_same(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seven lives of sixty batches: snapshots as after one life of four hundred."""
    monkeypatch.setattr(schedule, "SMALL_BATCH_ROWS", 1)
    held, expiries, compactions = 0, 0, 0
    for life in range(7):
        dest = RecordingLake(world.lake, snapshots=range(held), files=held)
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
    """A tag may hold snapshots, and large files need no upkeep."""
    dest = RecordingLake(world.lake, snapshots=range(690), files=5000)
    worker = world.worker(dest)
    play(worker, dest, FIRST_MAINTENANCE_BATCHES - 1)
    assert dest.expired == []
    play(worker, dest, 1)
    assert dest.expired == [FIRST_MAINTENANCE_BATCHES]


def test_an_expiry_is_due_at_once_with_twice_the_snapshots(world: Subscribed) -> None:
    """Else a worker whose lives are all short would leave a snapshot with each batch for ever."""
    dest = RecordingLake(world.lake, snapshots=range(700))
    play(world.worker(dest), dest, 1)
    assert dest.expired == [1]


def test_a_branch_whose_upkeep_failed_is_not_used_again(world: Subscribed) -> None:
    dest = RecordingLake(world.lake)
    worker = world.worker(dest)
    play(worker, dest, 9)
    (branch,) = branches(dest)
    dest.failing = True
    play(worker, dest, 1)
    assert dest.compacted == [10]
    play(worker, dest, 1)
    assert branches(dest) != {branch}
    assert len(world.rows("a")) == 11


def vacuumed(world: Subscribed, dest: RecordingLake) -> tuple[Applier, Clock]:
    """A worker whose first minute is over, on a table that is due."""
    worker, clock = world.worker(dest), Clock()
    worker.writer.maintenance = Maintenance(dest, clock=clock)
    clock.now += 60
    dest.rows = (1_200_000, 400_000)
    return worker, clock


def test_files_with_dead_rows_are_rewritten_until_none_is_left(world: Subscribed) -> None:
    """Once in a minute while there are some; what is left then is no reason to look again."""
    dest = RecordingLake(world.lake)
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
    dest = RecordingLake(world.lake)
    worker, clock = vacuumed(world, dest)
    play(worker, dest, 1)
    clock.now += 60
    dest.rows = (10, 1)
    play(worker, dest, 1)
    dest.rows = (1_200_000, 400_000)
    play(worker, dest, 1)
    assert dest.vacuumed == [1, 3]


def test_a_vacuum_that_fails_rests_before_it_is_tried_again(world: Subscribed) -> None:
    dest = RecordingLake(world.lake)
    worker, clock = vacuumed(world, dest)
    dest.failing = True
    play(worker, dest, 3)
    assert dest.vacuumed == [1]
    assert len(world.rows("a")) == 3
    clock.now += 60
    play(worker, dest, 1)
    assert dest.vacuumed == [1, 4]


def test_a_worker_does_not_begin_with_a_vacuum(world: Subscribed) -> None:
    dest = RecordingLake(world.lake)
    worker = world.worker(dest)
    worker.writer.maintenance = Maintenance(dest, clock=Clock())
    dest.rows = (1_200_000, 400_000)
    play(worker, dest, 3)
    assert dest.vacuumed == []


def test_autovacuum_off_rewrites_nothing(world: Subscribed) -> None:
    expiry = {"snapshot_expiry_batches": 14, "snapshot_retain_last": 1}
    dest, settings = RecordingLake(world.lake), [Settings(autovacuum=False, **expiry)]
    worker, clock = world.worker(dest), Clock()
    worker.writer.maintenance = Maintenance(dest, settings=lambda: settings[0], clock=clock)
    clock.now += 60
    dest.rows = (1_200_000, 400_000)
    play(worker, dest, 20)
    assert (dest.compacted, dest.vacuumed, dest.expired) == ([], [], [15])
    settings[0] = Settings()
    play(worker, dest, 1)
    assert (dest.compacted, dest.vacuumed) == ([21], [21])


def test_a_shared_table_s_vacuum_that_fails_is_tried_once(lake: MemoryLake, sharing: Make) -> None:
    """On the branch that was made for the batch; the batch gets another, without naps, too."""
    shared, dest = sharing("a1"), RecordingLake(lake)
    dest.rows, dest.failing = (1_200_000, 400_000), True
    worker = shared.worker(dest)
    worker.writer.maintenance = Maintenance(dest, settings=lambda: Settings(autovacuum_naptime=0))
    for key in (1, 2):
        dest.batches += 1
        worker.apply_batch(batch([A, Insert(1, row(str(key), "1"))], after=100 * key))
    assert dest.vacuumed == [2]
    assert shared.rows() == [(1, 1), (2, 1)]
