"""When an expiry is due, and that no batch waits for an expiry."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.lake_maintenance import EXPIRY
from catalog.pg_subscription_rel import SubRelState
from config.guc import Settings
from tests.workers.maintained import A, Expiring, RecordingLake, branches, is_free, play, recorded
from tests.workers.sharing import Make, insert
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, row
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import Identity, LakeIdent
from workers.proto.messages import Insert
from workers.tables.maintenance.schedule import Maintenance
from workers.tables.table_locks import TableLocks


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


def test_batches_go_on_beside_an_expiry_and_no_other_is_asked_for(world: Subscribed) -> None:
    """What is known of the table's snapshots is counted on meanwhile."""
    worker = Expiring(world, snapshot_expiry_batches=10, snapshot_retain_last=1)
    worker.background.held = True
    assert worker.play(35) == []
    assert len(worker.background.waiting) == 1
    assert len(world.rows("a")) == 35
    assert EXPIRY not in recorded(world)
    worker.background.go()
    worker.worker.writer.note_ended_expiries([world.rel("a")])
    assert recorded(world)[EXPIRY].times == 1
    worker.background.held = False
    assert worker.play(1) == [35, 36]


@pytest.mark.parametrize("gone", [True, False], ids=["gone", "copied again"])
def test_an_expiry_that_waits_does_not_begin_when_its_table_is_not_ready(
    world: Subscribed, gone: bool
) -> None:
    worker = Expiring(world, snapshot_expiry_batches=10, snapshot_retain_last=1)
    worker.background.held = True
    worker.play(12)
    again = replace(world.rel("a"), srsubstate=SubRelState.INIT)
    worker.worker.writer.note_ended_expiries([] if gone else [again])
    worker.background.go()
    assert worker.dest.expired == []
    assert EXPIRY not in recorded(world)


def test_a_branch_is_used_on_when_an_expiry_failed(world: Subscribed) -> None:
    """It has nothing to do with that; the failure is shown."""
    worker = Expiring(world, snapshot_expiry_batches=10, snapshot_retain_last=1, autovacuum=False)
    worker.play(9)
    before = branches(worker.dest)
    worker.dest.failing = True
    assert worker.play(3) == [11]
    assert branches(worker.dest) == before
    assert recorded(world)[EXPIRY].error == "no"


def test_a_shared_table_s_snapshots_go_while_no_other_source_has_its_turn(
    lake: MemoryLake, sharing: Make, tmp_path: Path
) -> None:
    free: list[bool] = []

    def look(operation: str) -> None:
        if operation == "expire":
            free.extend(map(is_free, (tmp_path / "locks").iterdir()))

    dest = MemoryDestination(lake, identity=Identity(1), failpoint=look)
    worker = sharing("a1", data_dir=tmp_path).worker(dest)
    asked = Settings(snapshot_expiry_batches=1, snapshot_retain_last=1, snapshot_retain_age=0)
    worker.writer.maintenance = Maintenance(
        dest, settings=lambda: asked, locks=TableLocks(tmp_path)
    )
    for key in range(12):
        worker.apply_batch(batch([A, Insert(1, row(str(key), "1"))], after=100 * key))
        worker.writer.maintain_changed_tables(worker.rels.values())
    assert free
    assert not any(free)
    assert all(map(is_free, (tmp_path / "locks").iterdir()))


def test_snapshots_of_a_shared_table_count_whoever_made_them(
    lake: MemoryLake, sharing: Make, tmp_path: Path
) -> None:
    """Ten batches of one worker's, and eight times as many of another's."""
    kept: list[int] = []

    class Watched(MemoryDestination):
        def expire(self, ident: LakeIdent, **given: Any) -> int:
            kept.append(len(self.lake.tables[ident].snapshots))
            return super().expire(ident, **given)

    dest = Watched(lake, identity=Identity(1))
    one, other = sharing("1", data_dir=tmp_path), sharing("2", data_dir=tmp_path)
    few, many = one.worker(dest), other.worker()
    asked = Settings(snapshot_expiry_batches=80, snapshot_retain_last=1)
    few.writer.maintenance = Maintenance(dest, settings=lambda: asked, locks=TableLocks(tmp_path))
    for key in range(12):
        for n in range(8):
            number = 8 * key + n
            many.apply_batch(batch([A, insert(number, 1)], after=100 * number))
        few.apply_batch(batch([A, insert(key, 1)], after=100 * key))
        few.writer.maintain_changed_tables(few.rels.values())
    assert len(kept) == 1
    assert 80 <= kept[0] <= 100


def test_their_turn_is_over_before_anything_is_tended(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []

    class Watched(RecordingLake):
        def compact(self, *given: Any, **named: Any) -> int:
            seen.append("compact")
            return super().compact(*given, **named)

        def expire(self, *given: Any, **named: Any) -> int:
            seen.append("expire")
            return super().expire(*given, **named)

    dest = Watched(world.lake)
    worker = world.worker(dest)
    monkeypatch.setattr(TableLocks, "release", lambda locks: seen.append("release"))
    asked = Settings(snapshot_expiry_batches=1, snapshot_retain_last=1)
    worker.writer.maintenance = Maintenance(dest, settings=lambda: asked)
    play(worker, dest, 10)
    assert seen[-4:] == ["release", "expire", "release", "compact"]  # the expiry has its own
