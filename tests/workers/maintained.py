"""A worker whose lake records maintenance, and expiries that wait until a test lets them run."""

from __future__ import annotations

import fcntl
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

from catalog.errcodes import ReplicationError
from catalog.lake_maintenance import LakeUpkeep
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.lake.effects import Counts, Effect, FileSizes
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import Identity, LakeIdent, LakeTable
from workers.proto.messages import Insert
from workers.tables.maintenance.jobs import Job, run_now
from workers.tables.maintenance.schedule import Maintenance

A = relation(1, "a", "id", "v")


class RecordingLake(MemoryDestination):
    """A lake whose tables hold snapshots of given times and a given number of files. Records after
    which batch each kind of maintenance ran, and the arguments of expiries."""

    def __init__(
        self, lake: MemoryLake, *, snapshots: Sequence[float] = (), files: int = 0
    ) -> None:
        super().__init__(lake, identity=Identity(1))
        self.holds = (snapshots, files)
        self.compacted: list[int] = []
        self.expired: list[int] = []
        self.kept: list[tuple[int, float]] = []
        self.vacuumed: list[int] = []
        self.rewrites: list[int] = []
        self.rows = (0, 0)
        self.batches = 0
        self.failing = False
        self.takes: Callable[[], None] = lambda: None
        self.error = ReplicationError("no")

    def table(self, ident: LakeIdent) -> LakeTable | None:
        found = super().table(ident)
        snapshots, files = self.holds
        return found and replace(found, snapshots=snapshots, files=files)

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, deleted_share: float | None = None
    ) -> int:
        self.sizes = sizes
        self.takes()
        if deleted_share is None:
            self.compacted.append(self.batches)
        else:
            self.vacuumed.append(self.batches)
        if self.failing:
            raise self.error
        super().compact(ident, branch, sizes)
        return self.rewrites.pop() if self.rewrites and deleted_share else 0

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        rows, dead = self.rows
        return [replace(counts, rows=rows, deleted=dead) for counts in super().count(effects)]

    def expire(self, ident: LakeIdent, *, retain: int, age: float = 0.0, **given: Any) -> int:
        self.expired.append(self.batches)
        self.kept.append((retain, age))
        if self.failing:
            raise self.error
        return super().expire(ident, retain=retain, age=age, **given)


def play(worker: Applier, dest: RecordingLake, batches: int) -> None:
    for _ in range(batches):
        dest.batches += 1
        inserted = Insert(1, row(str(dest.batches), "1"))
        worker.apply_batch(batch([A, inserted], after=100 * dest.batches))
        worker.writer.maintain_changed_tables(worker.rels.values())


class Clock:
    """A clock that a test sets."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


class Background:
    """Runs jobs at once, or, while ``held``, one after the other when ``go`` is called."""

    def __init__(self) -> None:
        self.held = False
        self.waiting: list[tuple[Job, Future[int | ReplicationError]]] = []

    def submit(self, job: Job) -> Future[int | ReplicationError]:
        if not self.held:
            return run_now(job)
        answer: Future[int | ReplicationError] = Future()
        self.waiting.append((job, answer))
        return answer

    def go(self) -> None:
        for job, answer in self.waiting:
            if answer.set_running_or_notify_cancel():
                answer.set_result(job())
        self.waiting.clear()


class Expiring:
    """A worker on table a whose expiry settings may change while it runs; a second to a batch."""

    def __init__(self, world: Subscribed, *snapshots: float, **settings: Any) -> None:
        self.dest, self.clock = RecordingLake(world.lake, snapshots=snapshots), Clock()
        self.dest.batches = len(world.rows("a"))  # of the lives before
        self.worker = world.worker(self.dest)
        self.background = Background()
        self.set(**settings)
        self.worker.writer.maintenance = Maintenance(
            self.dest,
            self.background.submit,
            lambda: self.settings,
            world.store.add_lake_upkeep,
            clock=self.clock,
            now=self.clock,
        )

    def set(self, **settings: Any) -> None:
        """Settings in force from now on."""
        self.settings = Settings.model_validate(settings)

    def play(self, batches: int) -> list[int]:
        """After which batches there was an expiry so far."""
        for _ in range(batches):
            self.clock.now += 1
            play(self.worker, self.dest, 1)
        return self.dest.expired


def is_free(lock: Path) -> bool:
    """Does no worker hold the lock?"""
    with lock.open("r+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def recorded(world: Subscribed) -> dict[str, LakeUpkeep]:
    """The outcomes that the catalog has of table a, by kind."""
    known = world.store.lake_upkeep(world.sub.oid)
    assert {each.relid for each in known} <= {world.rel("a").srrelid}
    return {each.kind: each for each in known}


def branches(dest: RecordingLake) -> set[str]:
    return set(dest.lake.tables[LakeIdent("public", "a")].refs) - {"main"}
