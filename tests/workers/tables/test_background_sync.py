"""Batches that a thread stores: in order, a few at most, and never after an error."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pytest

from catalog.errcodes import IoError
from catalog.pg_lsn import LSN
from config.limits import UNSTORED_BATCHES
from workers.lake.table import LakeIdent
from workers.tables.background_sync import BackgroundSync, PublishedBatch

PATIENCE = 20.0


def published(lsn: int) -> PublishedBatch:
    return PublishedBatch([1], [LakeIdent("public", "a")], LSN(lsn), f"at {lsn}", lambda: None)


@dataclass
class Disk:
    """Stores groups of batches; each group waits until the disk is ``quick``."""

    quick: threading.Event = field(default_factory=threading.Event)
    begun: threading.Event = field(default_factory=threading.Event)
    groups: list[list[int]] = field(default_factory=list)
    error: Exception | None = None
    woken: int = 0

    def store(self, batches: Sequence[PublishedBatch]) -> None:
        self.begun.set()
        assert self.quick.wait(PATIENCE)
        if self.error is not None:
            raise self.error
        self.groups.append([int(each.end_lsn) for each in batches])

    def wake(self) -> None:
        self.woken += 1


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def sync(disk: Disk) -> Iterator[BackgroundSync]:
    made = BackgroundSync(disk.store, disk.wake)
    yield made
    disk.quick.set()
    made.end()


def test_batches_that_came_meanwhile_are_stored_together(disk: Disk, sync: BackgroundSync) -> None:
    sync.put(published(100))
    assert disk.begun.wait(PATIENCE)
    sync.put(published(200))
    sync.put(published(300))
    disk.quick.set()
    sync.wait_until_stored()
    assert disk.groups == [[100], [200, 300]]
    sync.end()
    assert disk.woken == 2


def test_calls_are_made_behind_their_batches_and_in_order(disk: Disk, sync: BackgroundSync) -> None:
    made: list[tuple[int, int]] = []

    def note(number: int) -> None:
        made.append((number, len(disk.groups)))

    sync.when_stored(lambda: note(0))
    assert made == [(0, 0)], "nothing waits"
    sync.put(published(100))
    assert disk.begun.wait(PATIENCE)
    sync.when_stored(lambda: note(1))
    sync.put(published(200))
    sync.when_stored(lambda: note(2))
    sync.when_stored(lambda: note(3))
    assert made == [(0, 0)]
    disk.quick.set()
    sync.wait_until_stored()
    assert made == [(0, 0), (1, 1), (2, 2), (3, 2)]


def test_a_call_that_comes_during_a_call_is_made_behind_it(
    disk: Disk, sync: BackgroundSync
) -> None:
    """The thread is done with the batch, and not yet with what comes behind."""
    made: list[int] = []
    inside, go_on = threading.Event(), threading.Event()

    def first() -> None:
        inside.set()
        assert go_on.wait(PATIENCE)
        made.append(1)

    sync.put(published(100))
    sync.when_stored(first)
    disk.quick.set()
    assert inside.wait(PATIENCE)
    sync.when_stored(lambda: made.append(2))
    assert made == []
    go_on.set()
    sync.wait_until_stored()
    assert made == [1, 2]


def test_only_a_few_batches_wait(disk: Disk, sync: BackgroundSync) -> None:
    for number in range(UNSTORED_BATCHES):
        sync.wait_for_room()
        sync.put(published(100 * (number + 1)))
    room = threading.Event()

    def one_more() -> None:
        sync.wait_for_room()
        room.set()

    waiting = threading.Thread(target=one_more)
    waiting.start()
    assert disk.begun.wait(PATIENCE)
    assert not room.wait(0.05)
    disk.quick.set()
    assert room.wait(PATIENCE)
    waiting.join()


def test_an_error_ends_the_worker_wherever_it_looks_and_nothing_is_stored_afterwards(
    disk: Disk, sync: BackgroundSync
) -> None:
    disk.error = IoError("could not synchronise", sqlstate="53100")
    made: list[int] = []
    sync.put(published(100))
    sync.when_stored(lambda: made.append(100))
    sync.raise_if_failed()
    disk.quick.set()
    for look in (sync.wait_until_stored, sync.wait_for_room, sync.raise_if_failed):
        with pytest.raises(IoError, match="could not synchronise"):
            look()
    disk.error = None
    sync.put(published(200))
    sync.when_stored(lambda: made.append(200))
    sync.end()
    assert (disk.groups, made, disk.woken) == ([], [], 1)


def test_the_end_stores_what_waits(disk: Disk, sync: BackgroundSync) -> None:
    sync.put(published(100))
    assert disk.begun.wait(PATIENCE)
    sync.put(published(200))
    disk.quick.set()
    sync.end()
    assert disk.groups == [[100], [200]]
    sync.put(published(300))  # the stream starts again as text
    sync.wait_until_stored()
    assert disk.groups[2:] == [[300]]


def test_the_end_raises_no_error(disk: Disk, sync: BackgroundSync) -> None:
    disk.error = IoError("could not synchronise")
    disk.quick.set()
    sync.put(published(100))
    sync.end()
    with pytest.raises(IoError):
        sync.raise_if_failed()


def test_without_batches_there_is_no_thread(disk: Disk, sync: BackgroundSync) -> None:
    sync.wait_for_room()
    sync.wait_until_stored()
    sync.end()
    assert not disk.begun.is_set()
    assert sync._thread is None
