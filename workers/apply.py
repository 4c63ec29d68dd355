"""The apply worker: one per subscription, it applies what the publisher committed.

PostgreSQL's ``worker.c``. Changes arrive transaction by transaction, in commit order. Where the
native worker applies a transaction row by row and commits it, this one takes *batches of whole
transactions*: while the lake is busy with one batch, the receive thread collects the next, so an
idle lake takes a single transaction at once and a busy one thousands together. A position is only
ever the end LSN of a commit; transactions are applied whole or skipped whole.

One turn of the loop, at a batch boundary:

1. The subscription is read again if the catalog changed: gone or disabled ends the worker, as does
   any change that needs another connection or another start.
2. ``process_syncing_tables_for_apply`` decides about tables that are not ready. While one of them
   is in ``c`` no batch is closed; receiving, spooling and feedback go on.
3. A batch is taken. For each table the gate decides, transaction by transaction; what is left is
   cut, folded, and written to the tables' branches.
4. When every branch is complete the batch is published, the origin moves, and the transactions
   become durable: the receive thread reports them to the publisher at once.

A worked trace. Tables a (r) and b (s at 300); the flush list is empty, gated = durable = 250::

    received  C 260 (a), C 310 (a, b), C 350 (b)      flush list 260 310 350
    batch     260 310 350; gated = 350
    gate      a takes all; b takes what commits at or after 300: 310 and 350
    write     a's branch: 260 310 → stamp 350;  b's branch: 310 350 → stamp 350
    publish   in_flight {a, b}; ff a; ff b; origin 350; in_flight {}
    durable   350; feedback flush = 350; b: durable ≥ 300, so r is stored

An error that one transaction is to blame for must not stop the ones before it, nor leave a part of
it anywhere: the batch is cut before that transaction, the first part is published, then the
transaction is tried alone, so that the error names its finish LSN.

An error ends the process. The launcher starts a successor, which closes the Spark sessions of
this one, fences the tables in flight, and asks the publisher for everything after the origin;
what a table already holds it skips by its own LSN.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from catalog.errcodes import (
    ObjectNotInPrerequisiteState,
    ReplicationError,
    error_context,
)
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Stream as Streaming
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import Setter, SubRelState
from catalog.store_sqlite import CatalogStore
from workers import failpoints
from workers.applier import Applier
from workers.batch_delay import delay_after, wait_for_more
from workers.bgworker import LauncherLink
from workers.binary_forms import BinaryForms, TextNeeded, stream_forms
from workers.identify_publisher import identify_publisher
from workers.lake.destination import Destination
from workers.lake_writer import LakeWriter
from workers.orphans import OrphanRemoval
from workers.password_required import check_connected, check_conninfo
from workers.process import WorkerProcess
from workers.receive import ReceiveStats
from workers.remote_slots import fetch_slot
from workers.reread import reload_settings, reread_subscription
from workers.same_publisher import start_position
from workers.shared_targets import TableLocks
from workers.standby_watch import StandbyWatch, watch_standby
from workers.stream import (
    Stream,
    ask_identities,
    connect_publisher,
    fetch_published,
    start_stream,
    starting_on_slot,
)
from workers.syncutils import (
    AnswerCatchup,
    AwaitSyncDone,
    LaunchSync,
    SetReady,
    SyncWorkerState,
    process_syncing_tables_for_apply,
)
from workers.upkeep import Upkeep
from workers.walreceiver import WalReceiverConn

log = logging.getLogger(__name__)

NAPTIME_PER_CYCLE: Final = 1.0
"""Seconds an idle turn waits; PostgreSQL's constant. Every event wakes it earlier."""

_SLOT_POLL: Final = 0.05


@dataclass(slots=True)
class _SyncTracker:
    """When sync workers of which table were last asked for; only this process knows."""

    last_start: dict[int, float] = field(default_factory=dict)


def apply_worker_main(process: WorkerProcess) -> None:
    """``ApplyWorkerMain``: attach, settle what a predecessor left, stream, loop."""
    store = process.store
    sub = process.subscription()
    slot = sub.subslotname
    if slot is None:
        raise ObjectNotInPrerequisiteState(
            "subscription has no replication slot set",
            hint=f'Disable the subscription with "pgsub disable {sub.subname}".',
        )
    dest = process.open_lake()
    beside = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
    orphans = OrphanRemoval(dest, store, sub, beside)
    writer = _writer(process, dest, sub, beside)
    writer.settle_in_flight(process.ident_of)
    origin = _origin_position(store, sub)
    check_conninfo(sub, process.settings)
    try:
        needed = _connected(process, sub, slot, origin, writer, orphans)
        if needed is not None:
            log.info("action=text_needed subid=%d the stream starts again: %s", sub.oid, needed)
            process.applying = False
            # As it is by now: what the first stream confirmed is no slot that somebody else moved.
            sub, origin = reread_subscription(store, sub), _origin_position(store, sub)
            _connected(process, sub, slot, origin, writer, orphans, as_text=True)
    finally:
        orphans.close()
        beside.shutdown(wait=False, cancel_futures=True)  # what runs ends with its Spark session
        writer.close()


def _connected(
    process: WorkerProcess,
    sub: Subscription,
    slot: str,
    origin: LSN,
    writer: LakeWriter,
    orphans: OrphanRemoval,
    *,
    as_text: bool = False,
) -> str | None:
    """On a connection of its own, until told to stop, or why it has to be another one, of text.

    A walsender begins a second logical stream on a connection, and ends it at once. And the end of
    the connection ends the transaction that it is sending.
    """
    conn = connect_publisher(sub, sub.subname, process.interrupted)
    standby: WalReceiverConn | None = None
    try:
        check_connected(conn, sub, process.settings)
        watch, standby = watch_standby(
            conn, sub, process.interrupted, process.settings.wal_receiver_timeout
        )
        sub, process.behind = identify_publisher(conn, process.store, sub, origin)
        if as_text:
            _wait_for_slot(process, conn, slot)
        binary = None if as_text else stream_forms(conn, sub, process.interrupted)
        _stream(process, conn, slot, sub, writer, watch, orphans, binary)
    except TextNeeded as needed:
        # Not an exception any more: it holds the batch that could not be read.
        return str(needed)
    finally:
        conn.close()
        if standby is not None:
            standby.close()
    return None


def _wait_for_slot(process: WorkerProcess, conn: WalReceiverConn, slot: str) -> None:
    """Until the walsender of the connection before has noticed its end, for some seconds."""
    until = time.monotonic() + process.settings.wal_retrieve_retry_interval
    while time.monotonic() < until and not process.interrupted():
        found = fetch_slot(conn, slot)
        if found is None or not found.active:
            return
        process.link.latch.wait(_SLOT_POLL)


def _stream(
    process: WorkerProcess,
    conn: WalReceiverConn,
    slot: str,
    sub: Subscription,
    writer: LakeWriter,
    watch: StandbyWatch,
    orphans: OrphanRemoval,
    binary: BinaryForms | None,
) -> None:
    """Everything from START_REPLICATION on, from where the origin stands by now."""
    store, link = process.store, process.link
    start = start_position(_origin_position(store, sub), store.rels(sub.oid))
    with (
        error_context(f'starting replication on slot "{slot}"'),
        starting_on_slot(conn, sub, slot, process.settings.wal_retrieve_retry_interval),
    ):
        stream = start_stream(
            conn,
            sub,
            slot,
            start,
            process.settings,
            process.spool_dir,
            wake_main=link.latch.set,
            report=lambda stats: _feedback_sent(link, stats),
            remember_flush=lambda lsn: _remember_flush(store, sub.oid, lsn, watch),
            binary=binary is not None,
        )
    try:
        log_streaming(sub)
        # What a predecessor confirmed it had gated: for a table that was being copied its
        # changes up to there are gone, so no sync worker may be told to stop before.
        known = store.subscription(sub.oid) or sub
        gated = LSN(max(start, sub.max_flush_lsn, known.max_flush_lsn))
        published = partial(fetch_published, sub, conn, process.interrupted)
        identities = partial(ask_identities, sub, conn, process.interrupted)
        applier = Applier(store, sub, writer, published, identities, gated=gated, binary=binary)
        process.applying = True
        LogicalRepApplyLoop(process, applier, stream, watch, orphans)
    except ReplicationError as error:
        if error is stream.receiver.error and _may_be_the_form_s(error, binary):
            raise TextNeeded(error.primary) from error
        raise
    finally:
        stream.end()


def _may_be_the_form_s(error: ReplicationError, binary: BinaryForms | None) -> bool:
    """Whether a publisher's error may be one that it has with binary values alone.

    There are types whose values have no binary form inside of arrays; the publisher finds out when
    it sends one, of whatever table that was ever published. Not what ends a connection, and no full
    disk, the publisher's or that of our spool.
    """
    others = ("08", "53", "57", "58")
    return binary is not None and not binary.insists and error.code[:2] not in others


def _writer(
    process: WorkerProcess, dest: Destination, sub: Subscription, beside: Executor
) -> LakeWriter:
    """Expiries are done ``beside`` the batches, and have locks of their own."""
    upkeep = Upkeep(
        dest,
        beside.submit,
        lambda: process.settings,
        process.store.add_lake_upkeep,
        locks=TableLocks(process.data_dir),
    )
    return LakeWriter(
        dest,
        process.store,
        sub,
        generation=process.generation,
        origin=origin_name(sub.oid),
        threads=process.settings.lake_commit_workers,
        locks=TableLocks(process.data_dir),
        upkeep=upkeep,
    )


def log_streaming(sub: Subscription) -> None:
    """Say once per worker that ``streaming`` has no effect yet; start_options leaves it out."""
    if sub.substream is not Streaming.OFF:
        log.info(
            "action=streaming_off subid=%d streaming = %s runs as off: a transaction is received "
            "when it commits",
            sub.oid,
            sub.substream.name.lower(),
        )


def _remember_flush(store: CatalogStore, subid: int, lsn: LSN, watch: StandbyWatch) -> None:
    watch.check()
    failpoints.reach("apply.before_feedback")
    with store.transaction():
        sub = store.subscription(subid)
        if sub is not None and lsn > sub.max_flush_lsn:
            store.update_subscription(subid, max_flush_lsn=lsn)
    failpoints.reach("apply.flush_remembered")


def _feedback_sent(link: LauncherLink, stats: ReceiveStats) -> None:
    failpoints.reach("apply.feedback_sent")
    report_stream(link, stats)


def _origin_position(store: CatalogStore, sub: Subscription) -> LSN:
    """How far the subscription's batches are; 0/0 before the first."""
    name = origin_name(sub.oid)
    origin = store.origin_by_name(name)
    if origin is None:
        store.origin_create(name)
        return InvalidXLogRecPtr
    return origin.remote_lsn


def report_stream(link: LauncherLink, stats: ReceiveStats) -> None:
    """Tell the launcher what pg_stat_subscription and spools show."""
    link.report(
        last_lsn=stats.last_lsn,
        last_send_time=stats.last_send_time,
        last_recv_time=stats.last_recv_time,
        reply_lsn=stats.reply_lsn,
        reply_time=stats.reply_time,
        flush_lsn=stats.flush_lsn,
        spool_bytes=stats.spool_bytes,
        paused_since=stats.paused_since,
    )


def LogicalRepApplyLoop(  # noqa: N802 (PostgreSQL's name)
    process: WorkerProcess,
    applier: Applier,
    stream: Stream,
    watch: StandbyWatch,
    orphans: OrphanRemoval,
) -> None:
    """Turn after turn until told to stop; raises what ends the worker."""
    latch = process.link.latch
    tracker = _SyncTracker()
    seen_version = -1
    while True:
        if process.interrupted():
            return
        stream.receiver.raise_if_failed()
        reload_settings(process, stream)
        # Sync workers first, the catalog second. A worker that is gone stored s before it went,
        # so a catalog read after seeing it gone shows the s; the other way round, a table would
        # be gated by its old d while its sync worker had already stopped at s.
        sync_workers = _sync_workers(process, applier)
        change = process.link.catalog_change()
        version = applier.store.data_version()
        if version != seen_version or change is not None:
            seen_version = version
            maybe_reread_subscription(process, applier)
            applier.read_rels()
            process.link.acknowledge_catalog(change)
            continue
        orphans.turn(applier.rels.values(), process.settings)
        applier.writer.upkeep.turn(applier.rels.values())
        idle = stream.receiver.idle_position()
        if idle is not None:
            if idle > applier.gated:
                watch.check()
                applier.gated = idle
            process.nothing_left(idle)
        if _process_syncing_tables(process, applier, stream, tracker, sync_workers):
            latch.wait(NAPTIME_PER_CYCLE)
            continue
        settings = process.settings
        batch = stream.spool.take(settings.batch_max_bytes, settings.batch_max_rows)
        if batch is None:
            process.close_unused_sessions()
            applier.writer.rest(applier.rels.values())
            latch.wait(NAPTIME_PER_CYCLE)
            continue
        failpoints.reach("apply.batch_taken")
        watch.check()
        applier.apply_batch(batch)
        stream.receiver.mark_durable(batch.last_end)
        process.went_well()
        applier.writer.tend(applier.rels.values())
        applier.writer.rest(applier.rels.values())
        delay = delay_after(batch, settings.batch_delay, settings.batch_max_rows)
        if delay and all(rel.srsubstate == SubRelState.READY for rel in applier.rels.values()):
            wait_for_more(latch, delay, partial(_is_enough, process, stream))


def _is_enough(process: WorkerProcess, stream: Stream) -> bool:
    """Whether there is a whole batch, or something else to be done than to wait for one."""
    waiting = sum(stream.spool.size()) >= process.settings.batch_max_bytes
    return waiting or process.interrupted() or process.link.catalog_change() is not None


def maybe_reread_subscription(process: WorkerProcess, applier: Applier) -> None:
    """Raises ``WorkerExit`` when the worker must end or start again because of a change."""
    applier.sub = reread_subscription(process.store, applier.sub)


def _sync_workers(process: WorkerProcess, applier: Applier) -> dict[int, SyncWorkerState]:
    """What the slots of this subscription's sync workers say, if any table needs one."""
    if all(rel.srsubstate == SubRelState.READY for rel in applier.rels.values()):
        return {}
    return {
        worker.relid: SyncWorkerState(
            worker.relid,
            SubRelState(worker.relstate) if worker.relstate else None,
            worker.relstate_lsn,
        )
        for worker in process.link.workers(applier.sub.oid)
        if worker.relid
    }


def _process_syncing_tables(
    process: WorkerProcess,
    applier: Applier,
    stream: Stream,
    tracker: _SyncTracker,
    workers: dict[int, SyncWorkerState],
) -> bool:
    """Carry out what the pure function decides; True while no batch may be closed."""
    unready = [rel for rel in applier.rels.values() if rel.srsubstate != SubRelState.READY]
    if not unready:
        return False
    subid, link = applier.sub.oid, process.link
    actions = process_syncing_tables_for_apply(
        unready,
        workers,
        gated=applier.gated,
        durable=stream.receiver.flush_position(),
        now=time.monotonic(),
        last_start=tracker.last_start,
        max_sync_workers=process.settings.max_sync_workers_per_subscription,
        retry_interval=process.settings.wal_retrieve_retry_interval,
    )
    waiting = False
    for action in actions:
        match action:
            case SetReady(relid, lsn):
                _set_ready(applier, relid, lsn)
            case LaunchSync(relid):
                tracker.last_start[relid] = time.monotonic()
                link.launch_sync(subid, relid)
            case AnswerCatchup(relid, lsn):
                link.set_relstate(subid, relid, SubRelState.CATCHUP, lsn)
                waiting = True
            case AwaitSyncDone():
                waiting = True
    return waiting


def _set_ready(applier: Applier, relid: int, lsn: LSN) -> None:
    """s → r; a row that a command removed, or set back to i, stays so."""
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
