"""A table on its way from ``i`` to ``r`` on a permanent slot, without Spark and PostgreSQL.

The sync worker is the real one, its lake is in memory. The publisher is a list: transaction ``n``
ends at ``100 * n`` and inserts the row ``(n, n)``; a copy is what was committed when its slot was
made. Deaths are exceptions at named places, after which nothing of the worker goes on.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SyncSlot, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from tests.workers.subscribed import COLUMNS, FINGERPRINT, Subscribed
from tests.workers.transactions import batch, relation, row
from workers.apply import publisher_link
from workers.changes.columns_of_copy import ColumnsOfCopy
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.segment import Segment
from workers.lake.sources import source_of, with_source_column
from workers.lake.table import MAIN, SHARED, SOURCE_COLUMN, LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.process.latch import Latch
from workers.process.worker_process import WorkerProcess
from workers.proto.messages import Insert, Message
from workers.publisher.interfaces import SystemIdentity
from workers.publisher.replication_slots import RemoteSlot
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.batch import Batch
from workers.stream.start import Stream
from workers.sync import catch_up, permanent_slot, worker
from workers.sync.copied_rows import CopiedRows

RELATION = relation(1, "a", "id", "v")
IDENT = LakeIdent("public", "a")
SYSID, TIMELINE, DATOID = "7", 1, 16384
OTHER = "other"


class Killed(BaseException):
    """The worker is dead from here on."""


class Late(MemoryDestination):
    """Its worker dies in its ``at``-th fast-forward, which may land any time later."""

    def __init__(self, lake: MemoryLake, *, at: int) -> None:
        super().__init__(lake)
        self.left = at

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        self.left -= 1
        if self.left:
            return super().publish(ident, branch, stamp)
        self.late = (ident, branch, stamp)
        raise Killed

    def land(self) -> None:
        super().publish(*self.late)


@dataclass(slots=True)
class Publisher:
    """What was committed, and where its slots stand; every transaction of table a."""

    committed: int = 0
    slots: dict[str, LSN] = field(default_factory=dict)
    made: int = 0
    failover: bool = False

    @property
    def position(self) -> LSN:
        """A little after the last commit, as a keepalive says it."""
        return LSN(100 * self.committed + 50)

    def transactions(self, after: int, upto: int | None = None) -> Batch:
        """Transactions ``after`` + 1 and the following."""
        upto = self.committed if upto is None else upto
        numbers = range(after + 1, upto + 1)
        changes: list[list[Message]] = [[RELATION, Insert(1, row(str(n), str(n)))] for n in numbers]
        return batch(*changes, after=100 * after)

    # -- as a connection ----------------------------------------------------------------------

    server_version = 18

    def identify_system(self) -> SystemIdentity:
        return SystemIdentity(SYSID, TIMELINE, self.position, "db", DATOID)

    def end_streaming(self) -> None: ...

    def drop_slot(self, name: str, *, missing_ok: bool = False) -> None:
        assert missing_ok
        self.slots.pop(name, None)

    def close(self) -> None: ...


@dataclass(slots=True)
class Streaming:
    """The stream of a slot, as spool and receiver: one transaction per batch, then a keepalive."""

    publisher: Publisher
    slot: str
    after: int
    remember: Callable[[LSN], None]

    def take(self, _bytes: int, _rows: int) -> Batch | None:
        if self.after >= self.publisher.committed:
            return None
        self.after += 1
        return self.publisher.transactions(self.after - 1, self.after)

    def idle_position(self) -> LSN | None:
        if self.after < self.publisher.committed:
            return None
        self.confirm(self.publisher.position)
        return self.publisher.position

    def mark_durable(self, end_lsn: LSN) -> None:
        self.confirm(end_lsn)

    def confirm(self, lsn: LSN) -> None:
        self.remember(lsn)
        failpoints.reach("feedback remembered")
        if self.slot in self.publisher.slots:  # it is a permanent one
            self.publisher.slots[self.slot] = lsn
        failpoints.reach("feedback sent")

    def raise_if_failed(self) -> None: ...

    def stop(self) -> None: ...

    def close(self) -> None: ...


@dataclass(slots=True)
class Link:
    """The launcher, and an apply worker that has gated up to ``gated`` and answers at once."""

    gated: LSN = InvalidXLogRecPtr
    states: list[str] = field(default_factory=list)
    waited: LSN = InvalidXLogRecPtr
    latch: Latch = field(default_factory=Latch)
    shutdown_requested: threading.Event = field(default_factory=threading.Event)

    def set_relstate(self, _subid: int, _relid: int, state: SubRelState, lsn: LSN | None) -> None:
        self.states.append(str(state))
        if state == SubRelState.SYNCWAIT:
            assert lsn is not None
            self.waited = lsn

    def find(self, _subid: int, relid: int) -> Any:
        if not relid:
            return SimpleNamespace(last_recv_time=True)
        answer = LSN(max(self.waited, self.gated))
        return SimpleNamespace(relstate=SubRelState.CATCHUP, relstate_lsn=answer)

    def catalog_change(self) -> int | None:
        return None

    def acknowledge_catalog(self, _change: int | None) -> None: ...

    def wakeup(self, *_who: int) -> None: ...

    def report(self, **_progress: Any) -> None: ...


@dataclass(slots=True)
class Synchronised:
    """One table, its publisher, and a worker after the other."""

    world: Subscribed
    data_dir: Path
    publisher: Publisher = field(default_factory=Publisher)
    link: Link = field(default_factory=Link)
    copies: int = 0
    copies_whole: bool = True
    die_at: str | None = None
    at_place: dict[str, Callable[[], object]] = field(default_factory=dict)
    reached: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        store, old = self.world.store, self.rel
        self.world.sub = store.update_subscription(
            old.srsubid,
            sync_slot=SyncSlot.PERMANENT,
            subuuid=str(uuid.uuid4()),
            sysid=SYSID,
            timeline=TIMELINE,
            datoid=DATOID,
        )
        store.delete_rel(old.srsubid, old.srrelid)
        store.insert_rel(replace(old, srsubstate=SubRelState.INIT, srsublsn=None, copied=False))

    def share(self) -> None:
        """The lake table is another source's as well, which has a row in it."""
        self.world.declare("a", shared=True)
        lake = self.world.lake
        lake.tables.clear()
        MemoryDestination(lake).create_table(
            IDENT,
            with_source_column(COLUMNS),
            owner=SHARED,
            relid=self.rel.srrelid,
            stamp=Stamp("pg_0", LSN(0), "", LSN(0), OTHER),
        )
        self.other_publishes()

    def other_publishes(self) -> None:
        """A row more of the other source's, and its position, on what ``main`` shows."""
        table = self.world.lake.tables[IDENT]
        rows = self.world.lake.rows(IDENT)
        number = 1 + len(self.rows(OTHER))
        mine = {"id": number, "v": 0, SOURCE_COLUMN: OTHER}
        stamp = Stamp("pg_0", LSN(number), "", LSN(0), OTHER)
        self.world.lake.commit(table, MAIN, [*rows, mine], stamp)

    @property
    def source(self) -> str:
        return source_of(self.world.sub, self.rel)

    @property
    def rel(self) -> SubscriptionRel:
        return self.world.rel("a")

    @property
    def slot(self) -> str:
        return sync_slot_name(
            self.world.sub.oid, self.rel.srrelid, system_identifier(self.world.sub)
        )

    @property
    def origin(self) -> LSN | None:
        found = self.world.store.origin_by_name(origin_name(self.world.sub.oid, self.rel.srrelid))
        return None if found is None else found.remote_lsn

    @property
    def stamp(self) -> Stamp:
        found = MemoryDestination(self.world.lake).table(IDENT)
        assert found is not None
        stamp = found.position(self.source)
        assert stamp is not None
        return stamp

    def reach(self, place: str) -> None:
        """What ``failpoints.reach`` is while it is played."""
        self.reached.append(place)
        if place in self.at_place:
            self.at_place.pop(place)()
        if place == self.die_at:
            self.die_at = None
            raise Killed

    def play(self, patch: pytest.MonkeyPatch) -> None:
        """Put the publisher and the deaths in the place of the real ones."""
        patch.setattr(failpoints, "reach", self.reach)
        patch.setattr(publisher_link, "connect_publisher", lambda *_: self.publisher)
        patch.setattr(publisher_link, "watch_standby", lambda *_: (StandbyWatch(None), None))
        patch.setattr(worker, "check_own_server", lambda *_: None)
        patch.setattr(worker, "create_sync_slot", self._create_slot)
        patch.setattr(worker, "drop_sync_slot", self._drop_slot)
        patch.setattr(worker, "copy_table", self._copy_table)
        patch.setattr(worker, "catchup_forms", lambda *_: None)
        patch.setattr(publisher_link, "fetch_published", lambda *_: self.world.published_tables())
        patch.setattr(
            publisher_link, "ask_identities", lambda *asked: self.world.identities(asked[-1])
        )
        patch.setattr(catch_up, "start_stream", self._start_stream)
        patch.setattr(permanent_slot, "fetch_slot", self._fetch_slot)

    def worker(self, dest: MemoryDestination | None = None) -> None:
        """The next sync worker, to its end; ``Killed`` if it is to die on the way."""
        sub = self.world.store.subscription(self.world.sub.oid)
        assert sub is not None
        generation = self.world.store.next_generation(sub.oid)
        link = cast("Any", self.link)
        process = WorkerProcess(
            self.data_dir, sub.oid, self.rel.srrelid, generation, self.world.store, link, Settings()
        )
        dest = dest or MemoryDestination(self.world.lake)
        worker.LogicalRepSyncTableStart(process, sub, self.rel, dest)

    def rows(self, source: str | None = None) -> list[tuple[int, int]]:
        """What readers see of this source, or of another one."""
        wanted = self.source if source is None else source
        rows = self.world.lake.rows(IDENT)
        return sorted((r["id"], r["v"]) for r in rows if r.get(SOURCE_COLUMN, "") == wanted)

    def published(self, upto: int | None = None) -> list[tuple[int, int]]:
        last = self.publisher.committed if upto is None else upto
        return [(n, n) for n in range(1, last + 1)]

    # -- the publisher's part -----------------------------------------------------------------

    def _create_slot(
        self, conn: Publisher, slot: str, _timeout: float, *, temporary: bool, failover: bool
    ) -> LSN:
        assert slot not in conn.slots
        conn.made += 1
        conn.failover = failover
        if not temporary:
            conn.slots[slot] = conn.position
        return conn.position

    def _drop_slot(self, conn: Publisher, slot: str) -> None:
        conn.slots.pop(slot, None)

    def _fetch_slot(self, conn: Publisher, slot: str) -> RemoteSlot | None:
        at = conn.slots.get(slot)
        return None if at is None else RemoteSlot(False, None, at, is_pgoutput_here=True)

    def _copy_table(
        self,
        process: WorkerProcess,
        conn: Publisher,
        _sub: Any,
        rel: SubscriptionRel,
        dest: MemoryDestination,
        branch: str,
        start: LSN,
    ) -> tuple[SubscriptionRel, LakeTable, ColumnsOfCopy, CopiedRows]:
        self.copies += 1
        source = self.source
        nowhere = Stamp("pg_0", LSN(0), rel.epoch or "", LSN(0))
        lake = dest.table(IDENT) or dest.create_table(
            IDENT, COLUMNS, owner="u", relid=rel.srrelid, stamp=nowhere
        )
        rel = process.store.update_rel(
            rel.srsubid,
            rel.srrelid,
            base_snapshot=lake.snapshot_id,
            floor=start,
            fingerprint=FINGERPRINT,
        )
        dest.create_branch(IDENT, branch)
        failpoints.reach("tablesync.branch_created")
        columns = ("id", "v")
        stamp = Stamp("pg_0", start, rel.epoch or "", start, source)
        if rel.recopy or source:
            emptied = Segment(columns, truncate=True, source=source)
            dest.write(IDENT, branch, [emptied], stamp)
        numbers = pa.array(range(1, conn.committed + 1), pa.int64())
        rows = pa.table({"c0": numbers, "c1": numbers.cast(pa.int32())})
        staged = dest.stage(rows.to_batches(), rows.schema)
        waiting = Segment(columns, append=staged, source=source)
        copied = CopiedRows(dest, rel, branch, rows.num_rows, waiting)
        failpoints.reach("tablesync.range_copied")
        conn.committed += 1  # after the snapshot
        return replace(rel, copied=self.copies_whole), lake, ColumnsOfCopy(), copied

    def _start_stream(
        self, conn: Publisher, _sub: Any, slot: str, start: LSN, *_rest: Any, **words: Any
    ) -> Stream:
        after = max(conn.slots.get(slot, start), start) // 100
        streaming = cast("Any", Streaming(conn, slot, after, words["remember_flush"]))
        return Stream(cast("Any", conn), streaming, streaming)
