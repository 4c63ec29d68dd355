"""The loop of a worker whose lake is in memory, with nobody at the other end of its stream."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

from catalog.pg_lsn import LSN
from config.guc import Settings
from tests.workers.subscribed import Subscribed
from tests.workers.text_questions import TextPublisher
from tests.workers.transactions import batch, put, relation, row
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.loop import LogicalRepApplyLoop
from workers.apply.name_watch import NameWatch
from workers.apply.parallel.apply_threads import ParallelApply
from workers.apply.parallel.file_notes import FileNotes
from workers.apply.text_watch import TextWatch
from workers.apply.two_phase import TwoPhase
from workers.lake.memory.destination import MemoryDestination
from workers.process.latch import Latch
from workers.process.worker_process import WorkerProcess
from workers.proto.messages import Insert, Message
from workers.publisher.binary_columns import BinaryForms
from workers.publisher.changing_text import TextTypes
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.prepared_xacts import PreparedXacts
from workers.stream.receiver import ReceiveLimits
from workers.stream.spool import Spool
from workers.stream.start import Stream
from workers.sync.catch_up import one_turn
from workers.tables.maintenance.expired_files import FileRemoval
from workers.tables.maintenance.orphan_files import OrphanRemoval

A = relation(1, "a", "id", "v")
B = relation(2, "b", "id", "v")


@dataclass(slots=True)
class LinkTwin:
    """A launcher that says nothing."""

    latch: Latch = field(default_factory=Latch)
    shutdown_requested: threading.Event = field(default_factory=threading.Event)
    reports: list[dict[str, Any]] = field(default_factory=list)

    def report(self, **stats: Any) -> None:
        self.reports.append(stats)

    def catalog_change(self) -> int | None:
        return None

    def acknowledge_catalog(self, seq: int | None) -> None:
        assert seq is None


@dataclass(slots=True)
class ReceiverTwin:
    """Counts what becomes durable; ``then`` runs after each batch. ``idles`` are the positions that
    it is idle at, turn by turn."""

    stop: threading.Event
    limits: ReceiveLimits
    durable: list[int] = field(default_factory=list)
    then: Any = lambda: None
    idles: list[LSN] = field(default_factory=list)

    def raise_if_failed(self) -> None:
        return

    def idle_position(self) -> LSN | None:
        return self.idles.pop(0) if self.idles else None

    def flush_position(self) -> LSN:
        return LSN(self.durable[-1] if self.durable else 0)

    def mark_durable(self, end_lsn: LSN) -> None:
        self.durable.append(int(end_lsn))
        self.then()

    def set_limits(self, limits: ReceiveLimits) -> None:
        self.limits = limits


@dataclass(slots=True)
class Loop:
    """A worker's loop; it ends when everything of ``received`` is durable."""

    world: Subscribed
    process: WorkerProcess
    stream: Stream
    receiver: ReceiverTwin
    orphans: OrphanRemoval
    watch: StandbyWatch = field(default_factory=lambda: StandbyWatch(None))
    types: dict[int, TextTypes] = field(default_factory=dict)

    def say(self, **settings: Any) -> None:
        """What the launcher stores when it reads the file again."""
        self.world.store.put_settings({"settings": settings})

    def run(self, *transactions: list[Message]) -> None:
        if transactions:
            put(self.stream.spool, batch(*transactions))
        if not self.process.relid:
            worker = self.world.worker()
            catalog = CatalogWatch(
                NameWatch(self.world.store, lambda _: {}),
                TextWatch(self.world.store, TextPublisher(self.types)),
            )
            sub = self.world.sub
            xacts = PreparedXacts(self.process.data_dir, sub.subuuid, sub.oid)
            two_phase = TwoPhase(worker, xacts, lambda: BinaryForms(lambda _: {}))
            notes = FileNotes(self.process.data_dir, sub.oid)
            parallel = ParallelApply(
                worker,
                self.stream.spool,
                worker.writer.dest,
                notes,
                most=lambda: 0,
                report=lambda **_: None,
                wake=self.process.link.latch.set,
            )
            LogicalRepApplyLoop(
                self.process,
                worker,
                self.stream,
                self.watch,
                self.orphans,
                catalog,
                two_phase,
                parallel,
            )
            return
        applier = self.world.worker()
        while not self.process.interrupted():
            one_turn(self.process, applier, self.stream, self.world.rel("a"), self.watch)


@contextmanager
def a_loop(folder: Path) -> Iterator[Loop]:
    """Of a worker with two tables, until it ends."""
    world = Subscribed()
    link = LinkTwin()
    settings = Settings.model_validate({"batch_max_rows": 1})
    world.store.put_settings({"settings": {"batch_max_rows": 1}})
    process = WorkerProcess(folder, world.sub.oid, 0, 1, world.store, cast("Any", link), settings)
    spool = Spool(folder, memory_limit=1 << 20, segment_bytes=1 << 20)
    receiver = ReceiverTwin(link.shutdown_requested, ReceiveLimits(60.0, 10.0, 30.0, 1 << 30))
    stream = Stream(cast("Any", None), spool, cast("Any", receiver))
    beside = ThreadPoolExecutor(1)
    dest = MemoryDestination(world.lake)
    files = FileRemoval(dest, world.store, world.sub.oid, beside.submit)
    orphans = OrphanRemoval(dest, world.store, world.sub, beside, files)
    made = Loop(world, process, stream, receiver, orphans)

    def stop_at_the_end() -> None:
        if spool.is_empty():
            link.shutdown_requested.set()

    receiver.then = stop_at_the_end
    yield made
    beside.shutdown()
    orphans.close()
    world.close()


def inserts(first: int, count: int) -> list[list[Message]]:
    return [[A, Insert(1, row(str(key), "0"))] for key in range(first, first + count)]
