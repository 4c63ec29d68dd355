"""The apply worker's loop: one turn at each batch boundary."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState
from config.limits import NAPTIME_PER_CYCLE_SECONDS
from workers.apply.apply_batch import Applier
from workers.apply.batch_delay import delay_after, wait_for_more
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.handover import (
    AnswerCatchup,
    AwaitSyncDone,
    LaunchSync,
    SetReady,
    SyncWorkerState,
    process_syncing_tables_for_apply,
)
from workers.apply.parallel.apply_threads import ParallelApply
from workers.apply.progress import report_end_of_batch
from workers.apply.reload import reload_settings, reread_subscription
from workers.apply.standstill import StandstillWatch
from workers.apply.two_phase import TwoPhase
from workers.process import failpoints
from workers.process.retry import retries_steadily, retry_delay
from workers.process.worker_process import WorkerProcess
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.batch import Batch
from workers.stream.start import Stream
from workers.tables.maintenance.orphan_files import OrphanRemoval

log = logging.getLogger(__name__)


@dataclass(slots=True)
class SyncTracker:
    """The time of the last request for a sync worker, by relid, and signs of awaited workers.

    ``errors`` are the errors that the tables had then, and ``repeats`` counts the attempts in turn
    that brought the error of the attempt before. ``shown`` are the errors with a stored time of the
    next attempt.
    """

    last_start: dict[int, float] = field(default_factory=dict)
    errors: dict[int, LastError] = field(default_factory=dict)
    repeats: dict[int, int] = field(default_factory=dict)
    shown: dict[int, LastError] = field(default_factory=dict)
    standstill: StandstillWatch = field(default_factory=StandstillWatch)

    def begin(self, relid: int, error: LastError | None) -> None:
        """Note a request for a table that ``error`` has stopped so far."""
        before = self.errors.pop(relid, None)
        repeats = self.repeats.pop(relid, 0)
        self.last_start[relid] = time.monotonic()
        if error is not None and not retries_steadily(error.sqlstate):
            self.errors[relid] = error
            self.repeats[relid] = repeats + (before is not None and before.is_repeated_by(error))

    def intervals(self, interval: float, errors: Sequence[LastError]) -> dict[int, float]:
        """The times to wait of tables whose last attempt brought the same error once more."""
        return {
            error.relid: retry_delay(interval, self.repeats[error.relid] + 1)
            for error in errors
            if error.relid in self.errors and self.errors[error.relid].is_repeated_by(error)
        }

    def next_attempts(
        self, later: Mapping[int, float], errors: Sequence[LastError], now: float
    ) -> dict[int, float]:
        """The seconds until the next attempt of each table in ``later``, once for every failure."""
        due = {}
        for error in errors:
            known = self.shown.get(error.relid)
            new = known is None or (known.since, known.failures) != (error.since, error.failures)
            if new and error.relid in later:
                self.shown[error.relid] = error
                due[error.relid] = self.last_start[error.relid] + later[error.relid] - now
        return due

    def forget_errors(self) -> None:
        """Try failing tables again in the steady interval: a user changed something."""
        self.errors.clear()
        self.repeats.clear()


def LogicalRepApplyLoop(  # noqa: N802 (PostgreSQL's name)
    process: WorkerProcess,
    applier: Applier,
    stream: Stream,
    watch: StandbyWatch,
    orphans: OrphanRemoval,
    catalog: CatalogWatch,
    two_phase: TwoPhase,
    parallel: ParallelApply,
) -> None:
    """Run turn after turn until the worker is told to stop, or an error ends it."""
    latch = process.link.latch
    tracker, seen_version = SyncTracker(), -1
    while True:
        if process.interrupted():
            applier.writer.wait_until_stored()
            return
        stream.receiver.raise_if_failed()
        applier.writer.raise_if_failed()
        if reload_settings(process, stream):
            tracker.forget_errors()
        # Read the sync workers first and the catalog second. A sync worker stores s and then goes.
        # So a catalog that is read after the worker is gone shows s. In the other order the gate
        # would see the old d although the sync worker had stopped at s already.
        sync_workers = _sync_workers(process, applier)
        change = process.link.catalog_change()
        version = applier.store.data_version()
        if version != seen_version or change is not None:
            seen_version = version
            if change is not None:
                tracker.forget_errors()
                applier.writer.wait_until_stored()  # a command answers when no batch is under way
            maybe_reread_subscription(process, applier)
            applier.read_rels()
            process.link.acknowledge_catalog(change)
            continue
        orphans.turn(applier.rels.values(), process.settings)
        applier.writer.note_ended_expiries(applier.rels.values())
        idle = stream.receiver.idle_position()
        if idle is not None:
            if idle > applier.decided_lsn:
                watch.check()
                applier.decided_lsn = idle
            process.note_idle(idle)
        if _process_syncing_tables(process, applier, stream, tracker, sync_workers):
            latch.wait(NAPTIME_PER_CYCLE_SECONDS)
            continue
        two_phase.restart_when_ready()
        catalog.turn(applier)
        parallel.turn()
        settings = process.settings
        batch = stream.spool.take(settings.batch_max_bytes, settings.batch_max_rows)
        if batch is None:
            process.lake.close_unused_sessions()
            applier.writer.maintain_idle_table(applier.rels.values())
            latch.wait(NAPTIME_PER_CYCLE_SECONDS)
            continue
        failpoints.reach("apply.batch_taken")
        watch.check()
        catalog.before_batch(applier)
        applier.work_mem = settings.apply_work_mem
        applier.default_on_error = settings.default_on_error
        process.link.report(applying_commit_time=batch.first_commit_time)
        prepared_changes = two_phase.apply_batch(batch, settings.batch_max_bytes)
        parallel.end_batch()
        report_end_of_batch(process.link, applier.writer.dest)
        applier.writer.when_stored(partial(_note_durable, process, stream, batch.last_end))
        applier.writer.maintain_changed_tables(applier.rels.values())
        applier.writer.maintain_idle_table(applier.rels.values())
        _wait_for_more(process, applier, stream, batch, prepared_changes)


def _wait_for_more(
    process: WorkerProcess, applier: Applier, stream: Stream, batch: Batch, prepared_changes: int
) -> None:
    """Let the next batch collect, behind a batch of many transactions."""
    settings = process.settings
    delay = delay_after(
        batch, settings.batch_delay, settings.batch_max_rows, prepared_changes=prepared_changes
    )
    if delay and not any(rel.awaits_sync for rel in applier.rels.values()):
        wait_for_more(process.link.latch, delay, partial(_is_enough, process, stream))


def _note_durable(process: WorkerProcess, stream: Stream, end_lsn: LSN) -> None:
    """Let the receive thread confirm a batch that is stored; the worker made progress."""
    stream.receiver.mark_durable(end_lsn)
    process.note_progress()


def _is_enough(process: WorkerProcess, stream: Stream) -> bool:
    """True if a whole batch waits, or if the worker has to do more than wait for a batch."""
    waiting = stream.spool.waiting() >= process.settings.batch_max_bytes
    return waiting or process.interrupted() or process.link.catalog_change() is not None


def maybe_reread_subscription(process: WorkerProcess, applier: Applier) -> None:
    """Read the subscription again; ``WorkerExit`` if a change ends or restarts the worker."""
    applier.sub = reread_subscription(process.store, applier.sub)


def _sync_workers(process: WorkerProcess, applier: Applier) -> dict[int, SyncWorkerState]:
    """Read the slots of the subscription's sync workers, unless no table awaits one."""
    if not any(rel.awaits_sync for rel in applier.rels.values()):
        return {}
    return {
        worker.relid: SyncWorkerState(
            worker.relid,
            SubRelState(worker.relstate) if worker.relstate else None,
            worker.relstate_lsn,
            (worker.pid, worker.relstate, worker.last_lsn, worker.last_recv_time, worker.flush_lsn),
        )
        for worker in process.link.workers(applier.sub.oid)
        if worker.relid
    }


def _process_syncing_tables(
    process: WorkerProcess,
    applier: Applier,
    stream: Stream,
    tracker: SyncTracker,
    workers: dict[int, SyncWorkerState],
) -> bool:
    """Carry out the decisions of ``process_syncing_tables_for_apply``.

    True while no batch may be closed.
    """
    rels = applier.rels.values()
    unready = [r for r in rels if r.awaits_sync or r.srsubstate is SubRelState.SYNCDONE]
    if not unready:
        return False
    subid, link = applier.sub.oid, process.link
    interval = process.settings.wal_retrieve_retry_interval
    errors = [error for error in applier.store.last_errors() if error.subid == subid]
    now, later = time.monotonic(), tracker.intervals(interval, errors)
    for relid, wait in tracker.next_attempts(later, errors, now).items():
        applier.store.put_next_attempt(subid, relid, time.time_ns() // 1000 + int(wait * 1e6))
    actions = process_syncing_tables_for_apply(
        unready,
        workers,
        decided_lsn=applier.decided_lsn,
        durable=stream.receiver.flush_position(),
        now=now,
        last_start=tracker.last_start,
        max_sync_workers=process.settings.max_sync_workers_per_subscription,
        retry_interval=interval,
        retry_later=later,
    )
    waiting = False
    for action in actions:
        match action:
            case SetReady(relid, lsn):
                _set_ready(applier, relid, lsn)
            case LaunchSync(relid):
                applier.writer.wait_until_stored()  # the copy follows every batch of the table
                tracker.begin(relid, next((e for e in errors if e.relid == relid), None))
                link.launch_sync(subid, relid)
            case AnswerCatchup(relid, lsn):
                link.set_relstate(subid, relid, SubRelState.CATCHUP, lsn)
                waiting = True
            case AwaitSyncDone(relid):
                waiting = True
                if tracker.standstill.stands_still(relid, workers[relid].sign, time.monotonic()):
                    log.warning(
                        "action=sync_standstill subid=%d relid=%d the sync worker gives no sign "
                        "while it catches up; it is stopped, and the table is synchronised again",
                        subid,
                        relid,
                    )
                    link.stop_sync(subid, relid)
    return waiting


def _set_ready(applier: Applier, relid: int, lsn: LSN) -> None:
    """Store r for a table in s; a row that a command removed or set back to i is left alone."""
    failpoints.reach("apply.before_ready")
    store, subid = applier.store, applier.sub.oid
    with store.transaction():
        stored = store.rel(subid, relid)
        if stored is None or stored.srsubstate != SubRelState.SYNCDONE:
            applier.read_rels()
            return
        rel = store.set_rel_state(subid, relid, SubRelState.READY, lsn, Setter.APPLY)
    failpoints.reach("apply.ready_stored")
    applier.rels[(rel.nspname, rel.relname)] = rel
    log.info(
        'action=table_ready subid=%d relid=%d lsn=%s table "%s.%s" is ready',
        applier.sub.oid,
        relid,
        lsn,
        rel.nspname,
        rel.relname,
    )
