"""``synchronous_commit = off``: workers die and power fails while batches wait for the disk.

Two batches. The thread that puts batches onto the disk stands still at some place, and the worker
goes on to the second batch. Then everything ends. No confirmed row is lost, no row is there twice.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from catalog.errcodes import ConnectionFailure, IoError
from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState
from tests.workers.looping import LinkTwin, Loop, inserts
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply.apply_batch import Applier
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.proto.messages import Insert, Message, Update
from workers.stream.batch import Batch
from workers.tables.background_sync import BackgroundSync

A, B = relation(1, "a", "id", "v"), relation(2, "b", "id", "v")
CHANGES: list[list[Message]] = [
    [A, B, Insert(1, row("1", "1")), Insert(2, row("1", "1"))],
    [Insert(1, row("2", "2"))],
    [A, B, Insert(1, row("3", "3")), Update(1, None, None, row("1", "9"))],
    [Insert(2, row("2", "2"))],
]
Rows = list[tuple[int, ...]]
ROWS: dict[int, tuple[Rows, Rows]] = {
    0: ([], []),
    200: ([(1, 1), (2, 2)], [(1, 1)]),
    400: ([(1, 9), (2, 2), (3, 3)], [(1, 1), (2, 2)]),
}
TABLES = [LakeIdent("public", name) for name in ("a", "b")]
PATIENCE = 20.0
PLACES = [
    "apply.table_written",
    "apply.branches_written",
    "apply.in_flight_stored",
    "apply.one_table_published",
    "apply.all_tables_published",
    "nowhere",
]
OF_THE_THREAD = [*failpoints.BACKGROUND, "apply.origin_advanced"]
ENDS = ["kill", "cut", "a was written", "b was written"]


@dataclass
class Dying:
    """The worker dies at a place of its second batch, while the thread stands at ``thread_at``.

    The thread makes its first group durable afterwards if ``stores_first``, and dies then.
    """

    place: str
    thread_at: str
    stores_first: bool
    stands: threading.Event = field(default_factory=threading.Event)
    go_on: threading.Event = field(default_factory=threading.Event)
    worker_dies: bool = False

    def reach(self, name: str) -> None:
        if threading.current_thread().name != "sync":
            if self.worker_dies and name == self.place:
                raise ConnectionFailure("died")
        elif self.stands.is_set():
            if name == failpoints.BACKGROUND[0]:
                raise ConnectionFailure("no second group")
        elif name == self.thread_at:
            self.stands.set()
            assert self.go_on.wait(PATIENCE)
            if not self.stores_first:
                raise ConnectionFailure("died")

    @contextlib.contextmanager
    def armed(self) -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(failpoints, "reach", self.reach)
            yield


def worker_of(world: Subscribed) -> Applier:
    world.sub = world.store.update_subscription(world.sub.oid, subsynccommit="off")
    return world.worker()


def apply(worker: Applier, received: Batch, confirmed: list[int]) -> None:
    """As a turn of the loop does."""
    worker.apply_batch(received)
    worker.writer.when_stored(lambda: confirmed.append(int(received.last_end)))


def rows(world: Subscribed) -> tuple[Rows, Rows]:
    return world.rows("a"), world.rows("b")


def end(world: Subscribed, how: str) -> None:
    """``kill`` leaves what the kernel has in memory; a power cut leaves what is on the disk."""
    if how != "kill":
        world.lake.make_durable([each for each in TABLES if how.startswith(each.table + " ")])
        world.lake.power_cut()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("thread_at", OF_THE_THREAD)
def test_nothing_confirmed_is_lost_and_nothing_is_doubled(place: str, thread_at: str) -> None:
    for stores_first, how in itertools.product((False, True), ENDS):
        world = Subscribed()
        try:
            _dies_and_comes_back(world, Dying(place, thread_at, stores_first), how)
        finally:
            world.close()


def _dies_and_comes_back(world: Subscribed, dying: Dying, how: str) -> None:
    world.lake.make_durable(TABLES)
    worker = worker_of(world)
    confirmed: list[int] = []
    first, second = batch(*CHANGES[:2]), batch(*CHANGES[2:], after=200)
    with dying.armed():
        apply(worker, first, confirmed)
        assert dying.stands.wait(PATIENCE)
        assert confirmed == [], "the batch was confirmed before it was stored"
        dying.worker_dies = True
        with contextlib.suppress(ConnectionFailure):
            apply(worker, second, confirmed)
        if not dying.stores_first:
            end(world, how)
        dying.go_on.set()
        worker.writer.end_storing()
    if dying.stores_first:
        end(world, how)
    stored = int(world.position())
    assert stored >= max([0, *confirmed])
    for table, had in zip(rows(world), ROWS[stored], strict=True):
        assert keys(table) >= keys(had), "what was confirmed is lost"

    successor = worker_of(world)
    confirmed = []
    for received in (first, second):
        if received.last_end > stored:
            apply(successor, received, confirmed)
    assert rows(world) == ROWS[400]
    successor.writer.wait_until_stored()
    assert [stored, *confirmed][-1] == 400
    assert world.store.in_flight(world.sub.oid) == []
    world.lake.power_cut()
    assert rows(world) == ROWS[400], "what was confirmed was not on the disk"


def keys(table: Rows) -> set[int]:
    return {each[0] for each in table}


def test_the_worker_goes_on_while_the_disk_is_slow(world: Subscribed) -> None:
    """Readers see both batches, the publisher hears of none; then of both, in order."""
    dying = Dying("nowhere", failpoints.BACKGROUND[0], stores_first=True)
    worker = worker_of(world)
    confirmed: list[int] = []
    with dying.armed():
        apply(worker, batch(*CHANGES[:2]), confirmed)
        assert dying.stands.wait(PATIENCE)
        apply(worker, batch(*CHANGES[2:], after=200), confirmed)
        assert rows(world) == ROWS[400]
        assert (world.position(), confirmed) == (LSN(0), [])
    dying.go_on.set()
    worker.writer.wait_until_stored()
    assert (world.position(), confirmed) == (LSN(400), [200, 400])


def test_a_table_of_a_later_batch_stays_on_the_list(world: Subscribed) -> None:
    """A successor has to fence the table, and to put the table onto the disk."""
    place = "apply.in_flight_stored"
    dying = Dying(place, failpoints.BACKGROUND[0], stores_first=True)
    worker = worker_of(world)
    with dying.armed():
        worker.apply_batch(batch(*CHANGES[:2]))
        assert dying.stands.wait(PATIENCE)
        dying.worker_dies = True
        with pytest.raises(ConnectionFailure):
            worker.apply_batch(batch(CHANGES[2], after=200))
        dying.go_on.set()
        worker.writer.end_storing()
    assert world.position() == 200
    relid = world.rel("a").srrelid
    assert world.store.in_flight(world.sub.oid) == [(relid, LSN(300))]


@pytest.fixture
def waited_for(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The places of the worker and of the thread, in order.

    The thread stands at its first place until the worker waits for the thread.
    """
    places: list[str] = []
    dying = Dying("nowhere", failpoints.BACKGROUND[0], stores_first=True)
    wait = BackgroundSync.wait_until_stored

    def reach(name: str) -> None:
        places.append(name)
        dying.reach(name)

    def wait_until_stored(sync: BackgroundSync) -> None:
        if sync._waiting:
            assert dying.stands.wait(PATIENCE)
            dying.go_on.set()
        wait(sync)

    monkeypatch.setattr(failpoints, "reach", reach)
    monkeypatch.setattr(BackgroundSync, "wait_until_stored", wait_until_stored)
    monkeypatch.setattr(BackgroundSync, "end", lambda _: dying.go_on.set())
    return places


def test_a_skipped_transaction_waits_for_the_batches_before(
    world: Subscribed, waited_for: list[str]
) -> None:
    """Else the next batch would find ``subskiplsn`` as it was."""
    worker = worker_of(world)
    worker.apply_batch(batch(*CHANGES[:2]))
    worker.sub = world.store.update_subscription(world.sub.oid, subskiplsn=LSN(299))
    worker.apply_batch(batch(CHANGES[2], after=200))
    found = world.store.subscription(world.sub.oid)
    assert found is not None
    assert (found.subskiplsn, world.position()) == (LSN(0), LSN(300))
    assert rows(world) == ROWS[200]
    assert waited_for.count("apply.origin_advanced") == 2
    assert waited_for[-1] == "apply.origin_advanced", "the worker waited for the SKIP too"


def test_a_change_of_the_value_waits_for_the_batches_before(
    world: Subscribed, waited_for: list[str]
) -> None:
    worker = worker_of(world)
    confirmed: list[int] = []
    apply(worker, batch(*CHANGES[:2]), confirmed)
    worker.sub = world.store.update_subscription(world.sub.oid, subsynccommit="on")
    apply(worker, batch(*CHANGES[2:], after=200), confirmed)
    assert (world.position(), confirmed) == (LSN(400), [200, 400])
    stored = waited_for.index("apply.origin_advanced")
    assert waited_for[stored + 1 :].count("apply.in_flight_stored") == 1


def test_all_batches_of_a_group_are_stored(world: Subscribed) -> None:
    dying = Dying("nowhere", failpoints.BACKGROUND[0], stores_first=True)
    worker = worker_of(world)
    with dying.armed():
        worker.apply_batch(batch(*CHANGES[:2]))
        assert dying.stands.wait(PATIENCE)
    missing: list[Message] = [A, Update(1, None, None, row("7", "7"))]
    worker.apply_batch(batch(CHANGES[2], after=200))
    worker.apply_batch(batch(missing, after=300))
    worker.apply_batch(batch(CHANGES[3], after=400))
    dying.go_on.set()
    worker.writer.wait_until_stored()
    assert (world.rel("a").lake_lsn, world.rel("b").lake_lsn) == (LSN(400), LSN(500))
    assert world.position() == 500
    assert world.store.in_flight(world.sub.oid) == []
    assert world.store.subscription_stats(world.sub.oid).confl_update_missing == 1


def test_a_suspended_table_keeps_what_readers_saw(world: Subscribed, waited_for: list[str]) -> None:
    """The gate drops the table's changes from now on, so no change comes again."""
    world.lake.make_durable(TABLES)
    world.declare("b", on_error="suspend")
    worker = worker_of(world)
    worker.apply_batch(batch([B, Insert(2, row("1", "1"))]))
    worker.apply_batch(batch([B, Insert(2, row("2", "99999999999"))], after=100))
    assert world.rel("b").suspended
    world.lake.power_cut()
    assert world.rows("b") == [(1, 1)]
    assert "apply.origin_advanced" in waited_for


@pytest.mark.parametrize("value", ["on", "local", "remote_write", "remote_apply"])
def test_with_every_other_value_the_worker_waits(world: Subscribed, value: str) -> None:
    world.sub = world.store.update_subscription(world.sub.oid, subsynccommit=value)
    worker = world.worker()
    worker.apply_batch(batch(*CHANGES[:2]))
    assert world.position() == 200
    world.lake.power_cut()
    assert rows(world) == ROWS[200]
    assert "sync" not in [each.name for each in threading.enumerate()]


def test_the_error_of_the_thread_ends_the_worker(world: Subscribed) -> None:
    dying = Dying("nowhere", failpoints.BACKGROUND[1], stores_first=False)
    worker = worker_of(world)
    confirmed: list[int] = []
    with dying.armed():
        apply(worker, batch(*CHANGES[:2]), confirmed)
        assert dying.stands.wait(PATIENCE)
        dying.go_on.set()
        with pytest.raises(ConnectionFailure, match="died"):
            worker.writer.wait_until_stored()
        with pytest.raises(ConnectionFailure, match="died"):
            apply(worker, batch(*CHANGES[2:], after=200), confirmed)
    assert (world.position(), confirmed) == (LSN(0), [])


@dataclass(slots=True)
class Launcher(LinkTwin):
    """Says something to the worker once the first batch is published; notes what is stored then."""

    world: Any = None
    places: list[str] = field(default_factory=list)
    says: int | None = None
    stored: list[int] = field(default_factory=list)

    def catalog_change(self) -> int | None:
        return self.says if "apply.all_tables_published" in self.places else None

    def acknowledge_catalog(self, seq: int | None) -> None:
        if seq is not None:
            self._note()

    def workers(self, _subid: int) -> list[Any]:
        return []

    def launch_sync(self, _subid: int, _relid: int) -> None:
        self._note()

    def _note(self) -> None:
        self.stored.append(int(self.world.position()))
        self.shutdown_requested.set()


@pytest.fixture
def launcher(loop: Loop, waited_for: list[str]) -> Launcher:
    """Of a worker that does not wait for the disk."""
    world, stop = loop.world, loop.process.link.shutdown_requested
    world.sub = world.store.update_subscription(world.sub.oid, subsynccommit="off")
    made = Launcher(shutdown_requested=stop, world=world, places=waited_for)
    loop.process.link = cast("Any", made)
    return made


def test_a_command_is_answered_when_no_batch_waits(loop: Loop, launcher: Launcher) -> None:
    launcher.says = 7
    loop.run(*inserts(0, 2))
    assert launcher.stored[:1] == [100]


def test_a_copy_begins_when_no_batch_waits(
    loop: Loop, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch may hold rows of the table."""
    reach, rel = failpoints.reach, loop.world.rel("b")

    def copied_again(name: str) -> None:
        reach(name)
        if name == "apply.all_tables_published":
            loop.world.store.set_rel_state(
                rel.srsubid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS
            )

    monkeypatch.setattr(failpoints, "reach", copied_again)
    loop.run(*inserts(0, 1))
    assert launcher.stored == [100]


def test_a_worker_that_is_told_to_stop_confirms_what_it_published(
    loop: Loop, launcher: Launcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    reach = failpoints.reach

    def stop(name: str) -> None:
        reach(name)
        if name == "apply.all_tables_published":
            launcher.shutdown_requested.set()

    monkeypatch.setattr(failpoints, "reach", stop)
    loop.run(*inserts(0, 1))
    assert loop.receiver.durable == [100]


def test_an_idle_worker_hears_of_the_error_of_the_thread(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: Any) -> Any:
        if threading.current_thread().name == "sync":
            raise IoError("could not synchronise", sqlstate="53100")

    world = loop.world
    world.sub = world.store.update_subscription(world.sub.oid, subsynccommit="off")
    monkeypatch.setattr(MemoryDestination, "make_durable", full)
    world.store.put_last_error(LastError(world.sub.oid, 0, 1, "53100", "could not synchronise"))
    with pytest.raises(IoError, match="could not synchronise"):
        loop.run(*inserts(0, 1))
    assert (world.position(), loop.receiver.durable) == (LSN(0), [])
    assert world.store.last_errors(), "nothing went well: the next attempt waits longer"


def test_everything_is_confirmed_in_order(loop: Loop) -> None:
    world = loop.world
    world.sub = world.store.update_subscription(world.sub.oid, subsynccommit="off")
    loop.run(*inserts(0, 9))
    assert loop.receiver.durable == [100 * number for number in range(1, 10)]
    assert world.position() == 900
