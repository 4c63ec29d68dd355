"""The apply loop with its lake in memory and nobody at the other end of its stream."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from catalog.last_error import LastError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from config.guc import Settings
from tests.workers.looping import A, B, LinkTwin, Loop, inserts
from tests.workers.standby_twin import StandbyTwin
from tests.workers.subscribed import EPOCH, Subscribed
from tests.workers.transactions import batch, put, row
from workers.apply import standstill
from workers.apply.loop import SyncTracker, _is_enough, _set_ready
from workers.lake.effects import Orphans
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, LakeIdent, Stamp
from workers.process.worker_exit import WorkerExit
from workers.process.worker_slots import LogicalRepWorker, WorkerType
from workers.proto.messages import Insert, Message
from workers.publisher.changing_text import TextType, TextTypes
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.receiver import ReceiveLimits
from workers.tables.maintenance.expiry import SnapshotExpiry
from workers.tables.maintenance.orphan_files import OrphanRemoval
from workers.tables.writer import LakeWriter


def test_types_are_compared_before_the_first_batch(loop: Loop) -> None:
    world = loop.world
    stored: list[bool] = []
    for name, relid in (("a", 1), ("b", 2)):
        world.store.update_rel(world.sub.oid, world.rel(name).srrelid, remote_relid=relid)
        loop.types[relid] = TextTypes(numbers={"id": 1})

    then = loop.receiver.then

    def look() -> None:
        stored.append(world.store.text_types(world.sub.oid, world.rel("a").srrelid) is not None)
        then()

    loop.receiver.then = look
    loop.run(*inserts(0, 2))
    assert stored == [True, True]


def test_text_that_changes_between_two_looks_is_told_before_the_batch(loop: Loop) -> None:
    """The next look without a batch is ten seconds away."""
    world = loop.world
    told: list[int] = []
    world.store.update_rel(world.sub.oid, world.rel("a").srrelid, remote_relid=1)

    def label(text: str) -> None:
        stage = TextType("e", "stage", {"16402": text})
        loop.types[1] = TextTypes({"v": (16400,)}, {16400: stage}, {"id": 1, "v": 2})

    then = loop.receiver.then

    def rename() -> None:
        told.append(len(world.store.changed_text()))
        label("open")
        then()

    label("new")
    loop.receiver.then = rename
    loop.run(*inserts(0, 2))
    assert told == [0, 1]


def test_orphan_files_are_looked_for_beside_the_batches(loop: Loop) -> None:
    asked = threading.Event()

    def clock() -> float:  # a day passes with each batch
        return 86400.0 * (1_000_000 + len(loop.receiver.durable))

    class Folders(MemoryDestination):
        def remove_orphans(self, ident: LakeIdent, **given: Any) -> Orphans:
            asked.set()
            return super().remove_orphans(ident, **given)

    loop.orphans.close()
    loop.orphans = OrphanRemoval(
        Folders(loop.world.lake),
        loop.world.store,
        loop.world.sub,
        loop.orphans._background,
        loop.orphans._files,
        clock,
        clock,
    )
    loop.run(*inserts(0, 5))
    assert asked.wait(20)
    assert loop.receiver.durable == [100, 200, 300, 400, 500]


def test_each_turn_hears_how_expiries_ended(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    heard: list[list[int]] = []
    relids = [loop.world.rel(name).srrelid for name in ("a", "b")]

    def turn(_: SnapshotExpiry, rels: Iterable[SubscriptionRel]) -> None:
        heard.append([rel.srrelid for rel in rels])

    monkeypatch.setattr(SnapshotExpiry, "note_ended", turn)
    loop.run(*inserts(0, 3))
    assert len(heard) >= 3
    assert all(sorted(each) == relids for each in heard)


def test_the_publisher_hears_of_a_batch_before_its_upkeep(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A COMMIT that waits for the lake (synchronous_standby_names) waits for no rewrite."""
    heard: list[int] = []
    monkeypatch.setattr(
        LakeWriter, "maintain_changed_tables", lambda *_: heard.append(loop.receiver.durable[-1])
    )
    loop.run(*inserts(0, 3))
    assert heard == loop.receiver.durable == [100, 200, 300]


def test_an_error_is_over_once_its_transaction_cannot_come(loop: Loop) -> None:
    """A keepalive before it says nothing."""
    process, store = loop.process, loop.process.store
    store.put_last_error(LastError(process.subid, 0, 1, "55000", "it failed", None, None))
    process.publisher_lsn_at_start = LSN(500)
    told: list[int] = []

    class Idle(list[LSN]):
        def pop(self, at: Any = -1) -> LSN:
            told.append(len(store.last_errors()))
            if len(self) == 1:
                loop.process.link.shutdown_requested.set()
            return super().pop(at)

    loop.receiver.idles = Idle([LSN(400), LSN(499), LSN(500), LSN(500)])
    loop.run()
    assert told == [1, 1, 1, 0]


def test_a_batch_holds_as_many_changes_as_the_setting_says(loop: Loop) -> None:
    loop.run(*inserts(0, 3))
    assert loop.receiver.durable == [100, 200, 300]


@pytest.mark.parametrize(
    ("batch_delay", "max_rows", "waits"),
    [("1h", 100, [True]), ("1h", 7, []), (0, 100, [])],
    ids=["told to stop", "more is there", "switched off"],
)
def test_behind_many_small_transactions_the_worker_waits_for_more(
    loop: Loop,
    monkeypatch: pytest.MonkeyPatch,
    batch_delay: Any,
    max_rows: int,
    waits: list[bool],
) -> None:
    """As long as the setting says; whoever waits is told when there is enough."""
    told: list[tuple[float, bool]] = []

    def waited(latch: Any, seconds: float, enough: Any) -> None:
        assert latch is loop.process.link.latch
        told.append((seconds, enough()))

    monkeypatch.setattr("workers.apply.loop.wait_for_more", waited)
    monkeypatch.setattr("workers.apply.batch_delay.BATCH_DELAY_TRANSACTIONS", 2)
    loop.say(batch_max_rows=max_rows, batch_delay=batch_delay)
    loop.run(*inserts(0, 7))
    assert loop.receiver.durable == [700]
    assert [enough for _, enough in told] == waits
    assert all(seconds == 3600 for seconds, _ in told)


def test_a_full_batch_is_not_waited_for(loop: Loop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not _is_enough(loop.process, loop.stream)
    put(loop.stream.spool, batch(*inserts(0, 2000)))
    loop.process.settings = Settings.model_validate({"batch_max_bytes": "64kB"})
    assert _is_enough(loop.process, loop.stream)
    loop.process.settings = Settings.model_validate({"batch_max_bytes": "1MB"})
    assert not _is_enough(loop.process, loop.stream)
    monkeypatch.setattr(LinkTwin, "catalog_change", lambda self: 1)
    assert _is_enough(loop.process, loop.stream), "a command waits for its answer"


@pytest.mark.parametrize("sync", [False, True], ids=["apply", "sync"])
def test_changed_settings_count_in_the_middle_of_the_stream(loop: Loop, sync: bool) -> None:
    loop.process.relid = loop.world.rel("a").srrelid if sync else 0
    before = loop.receiver.then

    def reload() -> None:
        if len(loop.receiver.durable) == 2:
            loop.say(
                batch_max_rows=100,
                wal_receiver_timeout="5s",
                wal_receiver_status_interval="1s",
                spool_memory="1MB",
                spool_max_size="2MB",
            )
        before()

    loop.receiver.then = reload
    loop.run(*inserts(0, 6))
    assert loop.receiver.durable == [100, 200, 600]
    assert loop.receiver.limits == ReceiveLimits(5.0, 1.0, 30.0, 2 << 20)
    assert loop.process.settings.spool_memory == 1 << 20


def test_skip_counts_from_the_next_batch_on(loop: Loop) -> None:
    before = loop.receiver.then

    def skip() -> None:
        if len(loop.receiver.durable) == 1:
            loop.world.store.update_subscription(loop.world.sub.oid, subskiplsn=LSN(299))
        before()

    loop.receiver.then = skip
    loop.run(*inserts(0, 4))
    assert loop.receiver.durable == [100, 200, 300, 400]
    assert [key for key, _ in loop.world.rows("a")] == [0, 1, 3]
    sub = loop.world.store.subscription(loop.world.sub.oid)
    assert sub is not None
    assert sub.subskiplsn == 0


def test_nothing_received_after_a_promotion_is_applied(loop: Loop) -> None:
    """It may be of the new timeline; the next worker finds out."""
    loop.watch = StandbyWatch(StandbyTwin(2))
    with pytest.raises(WorkerExit, match="timeline has changed"):
        loop.run(*inserts(0, 3))
    assert loop.receiver.durable == [100, 200]
    assert [key for key, _ in loop.world.rows("a")] == [0, 1]


def synced(world: Subscribed) -> tuple[int, int]:
    """Table a in s at 300."""
    rel = world.rel("a")
    key = rel.srsubid, rel.srrelid
    world.store.delete_rel(*key)
    world.store.insert_rel(replace(rel, srsubstate=SubRelState.INIT))
    world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    world.store.set_rel_state(*key, SubRelState.SYNCDONE, LSN(300), Setter.TABLESYNC)
    return key


def test_a_table_that_a_command_set_back_does_not_become_ready(world: Subscribed) -> None:
    key = synced(world)
    applier = world.worker()
    world.store.set_rel_state(*key, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
    _set_ready(applier, key[1], LSN(300))
    assert world.rel("a").srsubstate == "i"
    assert applier.rels["public", "a"].srsubstate == "i"


def test_a_table_that_has_left_does_not_become_ready(world: Subscribed) -> None:
    """H-7."""
    key = synced(world)
    applier = world.worker()
    world.store.delete_rel(*key)
    _set_ready(applier, key[1], LSN(300))
    assert set(applier.rels) == {("public", "b")}


def test_a_table_becomes_ready(world: Subscribed) -> None:
    key = synced(world)
    applier = world.worker()
    _set_ready(applier, key[1], LSN(400))
    assert (world.rel("a").srsubstate, world.rel("a").srsublsn) == ("r", LSN(400))
    assert applier.rels["public", "a"].srsubstate == "r"


def test_an_error_is_over_once_a_batch_is_durable(loop: Loop) -> None:
    loop.world.store.put_last_error(LastError(loop.world.sub.oid, 0, 1, "08006", "lost"))
    loop.run(*inserts(0, 1))
    assert loop.world.store.last_errors() == []


@dataclass(slots=True)
class Copying(LinkTwin):
    """A launcher with a sync worker of table a; ``workers`` is asked for it once a turn.

    It is in ``d`` until that many batches are durable, then in ``w`` at ``waits_at``; answered
    with ``c`` it takes three turns to ``s`` there. Row n was inserted up to 100 * (n + 1).
    """

    loop: Any = None
    batches: int = 0
    waits_at: LSN = InvalidXLogRecPtr
    caught: LSN | None = None
    durable: list[int] = field(default_factory=list)
    turns: int = 3

    def workers(self, _subid: int) -> list[Any]:
        self.latch.set()  # there is something to look at in every turn
        rel = self.loop.world.rel("a")
        if not self.turns:
            return []
        if self.caught is None:
            waits = len(self.loop.receiver.durable) >= self.batches
            state = ("w", self.waits_at) if waits else ("d", None)
        else:
            state = ("c", self.caught)
            assert self.loop.receiver.durable == self.durable, "a batch was closed"
            self.turns -= 1
            if not self.turns:
                self._done(rel.srsubid, rel.srrelid, self.caught)
                return []
        return [_sync_worker(rel, *state)]

    def set_relstate(self, _subid: int, _relid: int, state: SubRelState, lsn: LSN) -> None:
        assert (state, self.caught) == (SubRelState.CATCHUP, None)
        self.caught = lsn
        self.durable = list(self.loop.receiver.durable)

    def _done(self, subid: int, relid: int, at: LSN) -> None:
        world = self.loop.world
        rows = [{"id": key, "v": 0} for key in range(at // 100)]
        stamp = Stamp(origin_name(subid), at, EPOCH, at)
        world.lake.commit(world.lake.tables[LakeIdent("public", "a")], MAIN, rows, stamp)
        world.store.set_rel_state(subid, relid, SubRelState.SYNCDONE, at, Setter.TABLESYNC)
        world.store.update_rel(subid, relid, lake_lsn=at, floor=at)


def _sync_worker(rel: SubscriptionRel, state: str, lsn: LSN | None) -> LogicalRepWorker:
    kind, key = WorkerType.TABLESYNC, (rel.srsubid, rel.srrelid)
    return LogicalRepWorker(1, 1, kind, *key, relstate=state, relstate_lsn=lsn)


@pytest.mark.parametrize(
    ("batches", "waits_at", "caught"),
    [(40, 500, 20_000), (1, 50_050, 50_050)],
    ids=["apply worker in front", "sync worker in front"],
)
def test_no_batch_is_closed_while_a_table_catches_up(
    loop: Loop, batches: int, waits_at: int, caught: int
) -> None:
    """A thousand transactions wait meanwhile; each is the copy's or the apply worker's, once."""
    loop.say(batch_max_rows=10)  # five of them
    rel = loop.world.rel("a")
    key = rel.srsubid, rel.srrelid
    loop.world.store.delete_rel(*key)
    loop.world.store.insert_rel(replace(rel, srsubstate=SubRelState.INIT))
    loop.world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    stop = loop.process.link.shutdown_requested
    copying = Copying(shutdown_requested=stop, loop=loop, batches=batches, waits_at=LSN(waits_at))
    loop.process.link = cast("Any", copying)
    values = [row(str(number), "0") for number in range(1000)]
    changes: list[list[Message]] = [[A, B, Insert(1, each), Insert(2, each)] for each in values]
    loop.run(*changes)
    assert copying.caught == caught
    assert len(copying.durable) == batches
    assert len(loop.receiver.durable) == 200
    for table in ("a", "b"):
        assert [number for number, _ in loop.world.rows(table)] == list(range(1000)), table
    assert loop.world.rel("a").srsubstate == "r"


def test_the_batch_in_hand_is_reported_until_it_is_durable(loop: Loop) -> None:
    """A monitor sees the age of the oldest change that the lake lacks, also in a long batch."""
    loop.run(*inserts(0, 2))
    reports = cast("LinkTwin", loop.process.link).reports
    times = [each["applying_commit_time"] for each in reports if "applying_commit_time" in each]
    assert [bool(time) for time in times] == [True, False] * (len(times) // 2)
    assert times
    assert {"atomic_publish": False} in reports


def test_a_table_with_the_error_of_the_attempt_before_waits_longer() -> None:
    """Each attempt is begun with the error that the one before left, if any."""
    tracker = SyncTracker()

    def failed(message: str, sqlstate: str = "23505", detail: str | None = None) -> LastError:
        return LastError(1, 7, 0, sqlstate, message, detail)

    said = failed("a key is there twice", detail="One row.")
    tracker.begin(7, None)
    assert tracker.intervals(5.0, [said]) == {}, "the first error"
    tracker.begin(7, said)
    assert tracker.intervals(5.0, [failed(said.message, detail="Two rows.")]) == {7: 10.0}
    tracker.begin(7, said)
    assert tracker.intervals(5.0, [said]) == {7: 20.0}
    assert tracker.intervals(5.0, [failed("another")]) == {}
    assert tracker.intervals(5.0, []) == {}, "a command has the table copied again"
    tracker.forget_errors()
    assert tracker.intervals(5.0, [said]) == {}
    tracker.begin(7, failed("no route", "08006"))
    assert tracker.intervals(5.0, [failed("no route", "08006")]) == {}


def test_the_next_attempt_of_a_table_is_told_once_for_each_failure() -> None:
    tracker = SyncTracker()
    first = LastError(1, 7, 5, "23505", "a key is there twice")
    second = replace(first, failures=2)
    assert tracker.next_attempts({}, [first], 0.0) == {}, "the steady interval"
    tracker.begin(7, first)
    tracker.last_start[7] = 100.0
    assert tracker.next_attempts({7: 10.0}, [second], 103.0) == {7: 7.0}
    assert tracker.next_attempts({7: 10.0}, [second], 104.0) == {}
    assert tracker.next_attempts({7: 20.0}, [replace(first, failures=3)], 104.0) == {7: 16.0}
    assert tracker.next_attempts({7: 20.0}, [replace(first, since=6)], 104.0) == {7: 16.0}


def test_a_sync_worker_without_a_sign_is_stopped(
    loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Frozen in c: all tables would wait for ever."""
    monkeypatch.setattr(standstill, "SYNC_STANDSTILL_SECONDS", 0.01)
    rel = loop.world.rel("a")
    key = rel.srsubid, rel.srrelid
    loop.world.store.delete_rel(*key)
    loop.world.store.insert_rel(replace(rel, srsubstate=SubRelState.INIT))
    loop.world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    frozen = _sync_worker(rel, "c", LSN(5))
    stopped: list[tuple[int, int]] = []

    class Frozen(LinkTwin):
        def workers(self, _subid: int) -> list[LogicalRepWorker]:
            return [frozen]

        def stop_sync(self, subid: int, relid: int) -> None:
            stopped.append((subid, relid))
            self.shutdown_requested.set()

    link = Frozen(shutdown_requested=loop.process.link.shutdown_requested)
    loop.process.link = cast("Any", link)
    loop.run()
    assert stopped == [key]
