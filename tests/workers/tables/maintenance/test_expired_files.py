"""When the files of expired snapshots go, and what an expiry of a worker does with them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errcodes import IoError, LakeBroken, ReplicationError
from config.guc import Settings
from config.limits import FILE_REMOVAL_POLL_SECONDS, LIST_GIVEN_UP_SECONDS
from tests.workers.subscribed import Subscribed
from workers.lake.effects import Counts, Effect, ListFiles
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import Identity, LakeIdent
from workers.tables.maintenance.expired_files import FileRemoval
from workers.tables.maintenance.jobs import run_now
from workers.tables.maintenance.schedule import Maintenance

HOUR = 3600.0
A = LakeIdent("public", "a")
B = LakeIdent("public", "b")


class Files(MemoryDestination):
    """A lake that remembers which files were removed; ``fails`` may raise."""

    def __init__(self, lake: MemoryLake) -> None:
        super().__init__(lake, identity=Identity(1))
        self.removed: list[tuple[str, list[str]]] = []
        self.listed: list[bool] = []
        self.fails: Callable[[], None] = lambda: None

    def remove_files(self, ident: LakeIdent, table_uuid: str, files: Sequence[str]) -> int:
        self.fails()
        self.removed.append((ident.table, list(files)))
        return super().remove_files(ident, table_uuid, files)

    def expire(self, ident: LakeIdent, *, list_files: ListFiles | None = None, **given: Any) -> int:
        self.listed.append(list_files is not None)
        if list_files is not None:
            list_files("uuid", ["of an expiry"])
        return super().expire(ident, list_files=list_files, **given)


@dataclass(slots=True)
class Worker:
    """The removal of an apply worker at a given time."""

    world: Subscribed
    dest: Files
    now: float = 1e9
    settings: Settings = field(default_factory=Settings)
    removal: FileRemoval = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As a successor of the one before."""
        clock = lambda: self.now  # noqa: E731 - two clocks alike
        self.removal = FileRemoval(
            self.dest, self.world.store, self.world.sub.oid, run_now, clock, clock
        )

    def turn(self, later: float) -> list[tuple[str, list[str]]]:
        """What went after so many seconds more; a turn begins a removal, the next hears of it."""
        self.now += later
        before = len(self.dest.removed)
        self.removal.turn(self.settings)
        self.removal.turn(self.settings)
        return self.dest.removed[before:]


@pytest.fixture
def worker(world: Subscribed) -> Worker:
    return Worker(world, Files(world.lake))


def test_files_go_when_the_grace_is_over_and_not_before(worker: Worker) -> None:
    worker.removal.list_files(A, "uuid", ["1", "2"])
    assert worker.turn(HOUR - 1) == []
    assert worker.removal.listed(A) == {"1", "2"}
    assert worker.turn(FILE_REMOVAL_POLL_SECONDS) == [("a", ["1", "2"])]
    assert worker.removal.listed(A) == set()
    assert worker.turn(HOUR) == []


def test_a_killed_worker_s_lists_are_its_successor_s(worker: Worker) -> None:
    """Killed in the removal too: the files are asked for again."""
    worker.removal.list_files(A, "uuid", ["1"])

    def die() -> None:
        raise KeyboardInterrupt

    worker.dest.fails = die
    with pytest.raises(KeyboardInterrupt):
        worker.turn(HOUR + FILE_REMOVAL_POLL_SECONDS)
    worker.dest.fails = lambda: None
    worker.start()
    assert worker.turn(FILE_REMOVAL_POLL_SECONDS) == [("a", ["1"])]


def test_a_worker_that_lives_for_seconds_removes_files_too(worker: Worker) -> None:
    worker.removal.list_files(A, "uuid", ["1"])
    worker.now += HOUR
    worker.start()
    assert worker.turn(FILE_REMOVAL_POLL_SECONDS / 2) == [("a", ["1"])]


def test_a_file_on_a_younger_list_of_the_table_waits_for_that_one(worker: Worker) -> None:
    """The first expiry died before its commit; what it listed was read until the second."""
    worker.removal.list_files(A, "uuid", ["1", "2"])
    worker.removal.list_files(B, "uuid", ["1"])
    worker.now += 1800
    worker.removal.list_files(A, "uuid", ["2", "3"])
    assert worker.turn(1801) == [("a", ["1"]), ("b", ["1"])]
    assert worker.turn(1800) == [("a", ["2", "3"])]


def test_a_table_that_left_and_a_dropped_subscription_are_no_hindrance(
    worker: Worker, world: Subscribed
) -> None:
    rel = world.rel("a")
    worker.removal.list_files(A, "uuid", ["1"])
    world.store.delete_rel(rel.srsubid, rel.srrelid)
    other = FileRemoval(worker.dest, world.store, 99, run_now, lambda: 0.0, lambda: 0.0)
    other.list_files(B, "uuid", ["2"])  # of a subscription that is gone
    assert worker.turn(2 * HOUR) == [("b", ["2"]), ("a", ["1"])]


def test_a_list_that_fails_lets_others_pass_and_is_given_up_after_a_day(worker: Worker) -> None:
    worker.removal.list_files(A, "uuid", ["1"])
    worker.removal.list_files(B, "uuid", ["2"])
    errors: list[Exception] = [IoError("no")]

    def fail_first() -> None:
        if errors:
            raise errors.pop()

    worker.dest.fails = fail_first
    assert worker.turn(2 * HOUR) == []
    assert worker.turn(FILE_REMOVAL_POLL_SECONDS) == [("b", ["2"])]
    errors.append(IoError("no"))
    worker.turn(FILE_REMOVAL_POLL_SECONDS)  # all were tried: from the beginning again
    worker.turn(FILE_REMOVAL_POLL_SECONDS)
    assert worker.removal.listed(A) == {"1"}
    errors.append(IoError("no"))
    for _ in range(2):
        worker.turn(LIST_GIVEN_UP_SECONDS)
    assert worker.removal.listed(A) == set()
    assert worker.dest.removed == [("b", ["2"])]


def test_a_broken_lake_server_ends_the_worker(worker: Worker) -> None:
    worker.removal.list_files(A, "uuid", ["1"])

    def fail() -> None:
        raise LakeBroken("broken")

    worker.dest.fails = fail
    with pytest.raises(ReplicationError, match="broken"):
        worker.turn(2 * HOUR)


@pytest.mark.parametrize("grace", [3600.0, 0.0])
def test_an_expiry_lists_its_files_unless_there_is_no_grace(worker: Worker, grace: float) -> None:
    settings = Settings(snapshot_expiry_batches=1, snapshot_retain_last=1, file_grace=grace)
    maintenance = Maintenance(worker.dest, run_now, settings=lambda: settings, files=worker.removal)
    table = worker.world.rel("a")
    lake = worker.dest.table(A)
    assert lake is not None
    opened: Any = SimpleNamespace(rel=table, lake=lake, source=None, branch=None)
    maintenance.opened(table.srrelid, lake)
    for _ in range(11):
        maintenance.expiry.published(A, Effect(A, "b", Counts(), commits=1))
    maintenance.expiry.begin_due([opened])
    assert worker.dest.listed == [bool(grace)]
    assert worker.removal.listed(A) == ({"of an expiry"} if grace else set())
