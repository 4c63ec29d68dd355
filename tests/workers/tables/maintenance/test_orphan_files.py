"""When orphan files are looked for, what is stored of it, and that no batch waits."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    IoError,
    LakeBroken,
    ReplicationError,
    RequiredProcessGone,
)
from catalog.lake_maintenance import COMPACTION, LakeMaintenance, LakeUpkeep
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from config.limits import ORPHAN_POLL_SECONDS
from tests.workers.subscribed import Subscribed
from workers.lake.effects import Orphans
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import SHARED, Identity, LakeIdent
from workers.tables.maintenance.expired_files import FileRemoval
from workers.tables.maintenance.orphan_files import OrphanRemoval

DAY = 86400.0
MICROSECONDS = 10**6
MARGIN = 60.0  # for a lake server whose clock is behind


class Folders(MemoryDestination):
    """A lake that remembers what was asked; ``answer`` is what a removal comes to."""

    def __init__(self, lake: MemoryLake) -> None:
        super().__init__(lake, identity=Identity(1))
        self.asked: list[tuple[str, float]] = []
        self.owners: list[str] = []
        self.answer: Callable[[], Orphans] = Orphans

    def remove_orphans(
        self, ident: LakeIdent, *, owner: str, older_than: float, **_: Any
    ) -> Orphans:
        self.asked.append((ident.table, older_than))
        self.owners.append(owner)
        return self.answer()


@dataclass(slots=True)
class Worker:
    """An apply worker's removal, with a clock that stands still, and is set by ``ahead``."""

    world: Subscribed
    dest: Folders
    now: float = 1_000_000 * DAY
    ahead: float = 0.0
    settings: Settings = field(default_factory=Settings)
    beside: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(1))
    removal: OrphanRemoval = field(init=False)

    def __post_init__(self) -> None:
        self.start()

    def start(self) -> None:
        """As a successor of the one before."""
        self.removal = OrphanRemoval(
            self.dest,
            self.world.store,
            self.world.sub,
            self.beside,
            FileRemoval(self.dest, self.world.store, self.world.sub.oid, self.beside.submit),
            clock=lambda: self.now + self.ahead,
            monotonic=lambda: self.now,
        )

    def turn(self, later: float = ORPHAN_POLL_SECONDS) -> None:
        """What the loop does, after so many seconds; a removal that it begins has ended then."""
        self.now += later
        self.removal.turn(self.world.store.rels(self.world.sub.oid), self.settings)
        if self.removal._removal is not None:
            wait([self.removal._removal.answer])

    def remove(self) -> None:
        """From when the tables are counted until the end of the first removal is stored."""
        self.turn()
        self.turn(DAY)
        self.turn()
        self.turn()

    def set(self, **settings: Any) -> None:
        self.settings = Settings.model_validate(settings)

    def stored(self, name: str = "a") -> LakeMaintenance:
        relid = self.world.rel(name).srrelid
        stored = self.world.store.lake_maintenance(self.world.sub.oid)
        return next(each for each in stored if each.relid == relid)


@pytest.fixture
def worker(world: Subscribed) -> Iterator[Worker]:
    made = Worker(world, Folders(world.lake))
    yield made
    made.removal.close()


def test_a_table_has_its_turn_once_in_each_interval(worker: Worker) -> None:
    worker.turn()  # from now on they are counted
    worker.turn(DAY - 1)
    assert worker.dest.asked == []
    worker.turn()
    assert worker.dest.asked == [("a", worker.now - 3 * DAY - MARGIN)]
    worker.turn()  # its end is noted; a rest, then the next table
    worker.turn()
    assert [table for table, _ in worker.dest.asked] == ["a", "b"]
    for _ in range(5):
        worker.turn()
    assert len(worker.dest.asked) == 2
    worker.turn(DAY)
    assert len(worker.dest.asked) == 3


def test_workers_that_live_an_hour_look_as_often_as_one_that_lives_on(worker: Worker) -> None:
    for _ in range(3 * 24):
        worker.removal.close()
        worker.start()
        for _ in range(4):
            worker.turn(900)
    assert [table for table, _ in worker.dest.asked].count("a") in (2, 3)


def test_a_worker_rests_before_its_first_look(worker: Worker) -> None:
    worker.turn(ORPHAN_POLL_SECONDS - 1)
    assert worker.world.store.lake_maintenance(worker.world.sub.oid) == []


def test_the_rest_is_shorter_where_there_are_many_tables(worker: Worker) -> None:
    worker.set(orphan_removal_interval="100s")
    worker.turn()
    worker.turn(100)
    worker.turn(50)  # notes the end of the first
    worker.turn(49)
    assert len(worker.dest.asked) == 1
    worker.turn(1)
    assert len(worker.dest.asked) == 2


def test_off_is_off(worker: Worker) -> None:
    worker.set(orphan_removal_interval=0)
    for _ in range(3):
        worker.turn(30 * DAY)
    assert worker.dest.asked == []
    worker.set(orphan_removal_interval="1h", orphan_removal_min_age="7d")  # it is not restarted
    worker.turn()
    worker.turn(3600)
    assert worker.dest.asked == [("a", worker.now - 7 * DAY - MARGIN)]


@pytest.mark.parametrize("age", ["23h", 0, 86399])
def test_no_age_of_less_than_a_day_can_be_set(age: str | int) -> None:
    with pytest.raises(ValueError, match="outside the valid range"):
        Settings.model_validate({"orphan_removal_min_age": age})


def test_no_batch_waits_for_one_that_takes_long(worker: Worker) -> None:
    go = threading.Event()

    def slowly() -> Orphans:
        assert go.wait(20)
        return Orphans(5)

    worker.dest.answer = slowly
    worker.turn()
    rels = worker.world.store.rels(worker.world.sub.oid)
    worker.now += DAY
    for _ in range(3):  # returns, and begins no second one
        worker.removal.turn(rels, worker.settings)
        worker.now += DAY
    running = worker.removal._removal
    assert running is not None
    assert not running.answer.done()
    assert worker.stored().reason == "it is under way, or was cut off"
    assert worker.stored("b").reason is None
    go.set()
    wait([running.answer])
    worker.removal.turn(rels, worker.settings)
    assert len(worker.dest.asked) == 1
    worker.turn()
    assert (worker.stored().reason, worker.stored().orphan_files) == (None, 5)


def test_what_is_stored_adds_up(worker: Worker) -> None:
    worker.dest.answer = lambda: Orphans(27)
    worker.turn()
    since = int(worker.now * MICROSECONDS)
    assert worker.stored() == LakeMaintenance(
        worker.world.sub.oid, worker.world.rel("a").srrelid, since
    )
    assert not worker.stored().tried
    for turn in (1, 2):
        worker.turn(DAY)
        for _ in range(3):  # it has ended; that is stored, and the other one begins; that, too
            worker.turn()
        assert worker.stored().orphan_removals == turn
        assert worker.stored().orphan_files == 27 * turn
        assert worker.stored().tried


def test_a_table_that_is_left_alone_says_why(worker: Worker) -> None:
    worker.dest.answer = lambda: Orphans(left="not ours")
    worker.remove()
    assert (worker.stored().orphan_removals, worker.stored().reason) == (0, "not ours")
    assert worker.stored().tried


def _failing(error: Exception) -> Callable[[], Orphans]:
    def fail() -> Orphans:
        raise error

    return fail


def test_an_error_is_told_and_ends_nothing(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    worker.dest.answer = _failing(ReplicationError("the lake failed", sqlstate="58030"))
    worker.remove()
    assert "action=orphans" in caplog.text
    assert "58030" in caplog.text
    assert worker.stored().reason == "the lake failed"
    worker.dest.answer = Orphans
    worker.turn(DAY)
    for _ in range(3):  # after the other one
        worker.turn()
    assert (worker.stored().orphan_removals, worker.stored().reason) == (1, None)


def test_a_bug_is_told_without_what_it_touched_and_ends_nothing(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    worker.dest.answer = _failing(ValueError("the value of a row"))
    worker.remove()
    assert "unexpected ValueError at test_orphan_files.py:" in caplog.text
    assert "the value of a row" not in caplog.text
    assert "Traceback" not in caplog.text
    assert (worker.stored().reason or "").startswith("unexpected ValueError")


def test_a_lake_server_that_is_lost_is_told(
    worker: Worker, caplog: pytest.LogCaptureFixture
) -> None:
    lost = RequiredProcessGone("lost the lake server", detail="gRPC status UNAVAILABLE.")
    worker.dest.answer = _failing(lost)
    worker.remove()
    assert "08006" in caplog.text
    assert worker.stored().reason == "lost the lake server"


def test_a_lake_server_that_has_to_be_started_again_ends_the_worker(worker: Worker) -> None:
    """As it does when a batch meets it; nobody else tells the launcher."""
    worker.dest.answer = _failing(LakeBroken("the lake server cannot go on"))
    worker.turn()
    worker.turn(DAY)
    with pytest.raises(LakeBroken):
        worker.turn()
    worker.removal.close()
    assert worker.stored().reason == "the lake server cannot go on"


def test_a_catalog_that_refuses_is_told_and_tried_again(
    worker: Worker, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.dest.answer = lambda: Orphans(5)
    worker.turn()
    full = IoError("could not use the catalog", sqlstate="53100")
    with monkeypatch.context() as patched:
        patched.setattr(worker.world.store, "put_lake_maintenance", _refusing(full))
        worker.turn(DAY)
        assert worker.dest.asked == []  # not before that is stored
        assert "53100" in caplog.text
    worker.turn()
    assert len(worker.dest.asked) == 1
    with monkeypatch.context() as patched:
        patched.setattr(worker.world.store, "put_lake_maintenance", _refusing(full))
        worker.turn()
        worker.turn()
    worker.turn()
    assert (worker.stored().orphan_removals, worker.stored().orphan_files) == (1, 5)


def _refusing(error: Exception) -> Callable[[LakeMaintenance], None]:
    def refuse(_: LakeMaintenance) -> None:
        raise error

    return refuse


def test_one_that_takes_the_lake_server_with_it_waits_for_its_next_turn(worker: Worker) -> None:
    worker.dest.answer = _failing(ConnectionFailure("lost the lake server"))
    worker.turn()
    worker.turn(DAY)
    worker.removal.close()
    worker.start()
    for _ in range(10):
        worker.turn()
    assert [table for table, _ in worker.dest.asked] == ["a", "b"]


def test_a_table_that_is_not_ready_is_not_looked_at(worker: Worker) -> None:
    """Nor one that two tables are written to, of which one is being copied."""
    store, subid = worker.world.store, worker.world.sub.oid
    copied = SubscriptionRel(subid, 0, SubRelState.INIT, None, "public", "c", "public", "a")
    relid = store.insert_rel(copied).srrelid
    worker.turn()
    for _ in range(4):
        worker.turn(DAY)
    assert {table for table, _ in worker.dest.asked} == {"b"}
    store.delete_rel(subid, relid)
    worker.turn(DAY)
    worker.turn(DAY)
    worker.turn(DAY)
    assert {table for table, _ in worker.dest.asked} == {"a", "b"}


def test_tables_of_one_lake_table_have_one_turn(worker: Worker) -> None:
    store, subid = worker.world.store, worker.world.sub.oid
    second = SubscriptionRel(subid, 0, SubRelState.READY, None, "public", "c", "public", "a")
    relid = store.insert_rel(second).srrelid
    worker.turn()
    worker.turn(DAY)
    worker.turn()
    worker.turn()
    assert [table for table, _ in worker.dest.asked] == ["a", "b"]
    assert {each.relid: each.orphan_removals for each in store.lake_maintenance(subid)} == {
        worker.world.rel("a").srrelid: 1,
        worker.world.rel("b").srrelid: 0,  # its end is noted in the next turn
        relid: 1,
    }


def test_the_lake_is_told_whose_the_table_must_be(worker: Worker) -> None:
    worker.world.declare("b", shared=True)
    worker.start()
    worker.turn()
    worker.turn(DAY)
    worker.turn()
    worker.turn()
    assert worker.dest.owners == [worker.world.sub.subuuid, SHARED]


def test_what_is_stored_goes_with_the_table(worker: Worker) -> None:
    store, rel = worker.world.store, worker.world.rel("a")
    worker.turn()
    kept = worker.stored()
    store.delete_rel(rel.srsubid, rel.srrelid)
    assert rel.srrelid not in [each.relid for each in store.lake_maintenance(rel.srsubid)]
    store.put_lake_maintenance(kept)  # by a worker that does not know it yet
    assert rel.srrelid not in [each.relid for each in store.lake_maintenance(rel.srsubid)]


def test_upkeep_of_the_same_table_is_counted_beside(worker: Worker) -> None:
    """It is known here only what is about orphan files, and that is written as a whole."""
    store, rel = worker.world.store, worker.world.rel("a")
    worker.turn()
    done = LakeUpkeep(rel.srsubid, rel.srrelid, COMPACTION, 1, 5)
    store.add_lake_upkeep(done)
    for later in (DAY, ORPHAN_POLL_SECONDS, ORPHAN_POLL_SECONDS):
        worker.turn(later)
    assert worker.stored().orphan_removals == 1
    assert store.lake_upkeep(rel.srsubid) == [done]


def test_a_clock_that_was_set_back_holds_nothing_up(worker: Worker) -> None:
    worker.turn()
    worker.ahead = -300 * DAY
    worker.turn()
    worker.turn(3600)
    assert len(worker.dest.asked) == 1


@pytest.mark.parametrize("ahead", [-4 * DAY, 3601, 4 * DAY])
def test_nothing_begins_within_an_hour_after_the_clock_was_set(
    worker: Worker, ahead: float
) -> None:
    """A file that was written before, for a commit that is still to come, has another age now."""
    worker.turn()
    worker.turn(DAY - 120)
    worker.ahead = ahead
    for _ in range(60):
        worker.turn(60)
    assert worker.dest.asked == []
    worker.turn(60)
    assert len(worker.dest.asked) == 1


def test_a_clock_that_is_a_little_off_is_none_that_was_set(worker: Worker) -> None:
    worker.turn()
    worker.ahead = 3500
    worker.turn(DAY)
    assert len(worker.dest.asked) == 1


def test_what_is_stored_is_read_once(worker: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten thousand tables one has its turn every nine seconds."""
    store, reads, commits = worker.world.store, itertools.count(), Commits()
    read = store.lake_maintenance

    def counted(subid: int) -> list[LakeMaintenance]:
        next(reads)
        return read(subid)

    monkeypatch.setattr(store, "lake_maintenance", counted)
    worker.turn()
    worker.turn(DAY)
    store._connection.set_trace_callback(commits)
    for _ in range(6):
        worker.turn()
    store._connection.set_trace_callback(None)
    assert len(worker.dest.asked) == 2
    assert next(reads) == 1
    assert commits.seen == 2  # one has ended and the other begins, and that has ended


class Commits:
    """Counts the transactions of a store's connection."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, statement: str) -> None:
        self.seen += statement == "COMMIT"


def test_what_a_worker_knew_at_its_end_is_stored(worker: Worker) -> None:
    worker.dest.answer = lambda: Orphans(5)
    worker.turn()
    worker.turn(DAY)
    worker.turn()
    worker.removal.close()
    assert (worker.stored().orphan_removals, worker.stored().orphan_files) == (1, 5)
