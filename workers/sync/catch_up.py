"""Wait for `c`, then stream up to the apply worker's position."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.limits import NAPTIME_PER_CYCLE_SECONDS
from workers.apply.apply_batch import Applier
from workers.apply.handover import process_syncing_tables_for_sync
from workers.apply.progress import report_stream
from workers.apply.reload import reload_settings, reread_subscription
from workers.process import failpoints
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.publisher.identify import check_same_publisher
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.start import Stream, start_stream
from workers.sync.attempt_check import check_same_attempt
from workers.sync.context import SyncContext


def _nothing() -> None: ...


def wait_for_catchup(
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel, start: LSN
) -> LSN:
    """Set w, then wait until the apply worker answers c; return the position of c.

    PostgreSQL's ``wait_for_worker_state_change``, with a difference. PostgreSQL's sync worker ends
    with the apply worker, and the temporary slot vanishes. A copy of hours is lost then. Here the
    sync worker waits until the next apply worker finds w and answers. The wait has a limit, because
    the slot holds WAL back meanwhile.
    """
    link, subid = process.link, sub.oid
    patience = max(
        process.settings.sync_handover_timeout, process.settings.wal_retrieve_retry_interval
    )
    alone_since: float | None = None
    link.set_relstate(subid, rel.srrelid, SubRelState.SYNCWAIT, start)
    failpoints.reach("tablesync.waiting")
    while not process.interrupted():
        change = link.catalog_change()
        # Read the answer first and the catalog second. The apply worker has read the catalog before
        # the answer. So the checks below see at least the subscription that the apply worker saw.
        own, apply = link.find(subid, rel.srrelid), link.find(subid, 0)
        check_same_attempt(process.store, rel)
        now = reread_subscription(process.store, sub, (rel.nspname, rel.relname))
        check_same_publisher(sub, now)
        link.acknowledge_catalog(change)
        if own is not None and own.relstate == SubRelState.CATCHUP and own.relstate_lsn is not None:
            return own.relstate_lsn
        if apply is not None:
            link.wakeup(subid, 0)
        if apply is not None and apply.last_recv_time:  # the apply worker streams
            alone_since = None
        elif alone_since is None:
            alone_since = time.monotonic()
        elif time.monotonic() - alone_since > patience:
            raise WorkerExit("no apply worker has come; the next one has it started again")
        link.latch.wait(NAPTIME_PER_CYCLE_SECONDS)
    raise WorkerExit("told to stop")


def catch_up(
    context: SyncContext,
    applier: Applier,
    caught_up: LSN,
    rel: SubscriptionRel,
    remember_flush: Callable[[LSN], None],
    store_syncdone: Callable[[LSN], None],
    before_batch: Callable[[], None] = _nothing,
) -> None:
    """Stream to the position of c (step 5), then call ``store_syncdone`` with the position.

    ``before_batch`` is called before each batch.
    """
    process = context.process
    process.process_config_file()  # the copy may have taken hours
    stream = start_stream(
        context.conn,
        applier.sub,
        context.slot,
        applier.decided_lsn,
        process.settings,
        process.spool_dir,
        wake_main=process.link.latch.set,
        report=lambda stats: report_stream(process.link, stats),
        remember_flush=remember_flush,
        binary=applier.binary is not None,
    )
    try:
        applier.rels = {(rel.nspname, rel.relname): rel}
        _read_skip(process, applier)  # the copy may have taken hours, and the answer to w
        while True:
            done = process_syncing_tables_for_sync(
                SubRelState.CATCHUP, caught_up, applier.decided_lsn
            )
            if done is not None:
                break
            one_turn(process, applier, stream, rel, context.watch, before_batch)
        store_syncdone(done)
    finally:
        stream.end()


def _read_skip(process: WorkerProcess, applier: Applier) -> None:
    """Read ``subskiplsn`` again: a withdrawn SKIP must not skip a transaction in one table only."""
    now = process.store.subscription(applier.sub.oid)
    if now is not None:
        applier.sub = replace(applier.sub, subskiplsn=now.subskiplsn)


def one_turn(
    process: WorkerProcess,
    applier: Applier,
    stream: Stream,
    rel: SubscriptionRel,
    watch: StandbyWatch,
    before_batch: Callable[[], None] = _nothing,
) -> None:
    """Apply one batch to the branch, or take over an idle stream's position, or wait."""
    if process.interrupted():
        raise WorkerExit("told to stop")
    change = process.link.catalog_change()
    if change is not None:
        check_same_attempt(process.store, rel)
        _read_skip(process, applier)
        process.link.acknowledge_catalog(change)
    stream.receiver.raise_if_failed()
    reload_settings(process, stream)
    idle = stream.receiver.idle_position()
    if idle is not None and idle > applier.decided_lsn:
        watch.check()
        applier.decided_lsn = idle
        return
    settings = process.settings
    batch = stream.spool.take(settings.batch_max_bytes, settings.batch_max_rows)
    if batch is None:
        process.link.latch.wait(NAPTIME_PER_CYCLE_SECONDS)
        return
    watch.check()
    applier.work_mem = settings.apply_work_mem
    before_batch()
    applier.apply_batch(batch)
    stream.receiver.mark_durable(batch.last_end)
