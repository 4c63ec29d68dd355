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

from catalog.errcodes import ObjectNotInPrerequisiteState, ReplicationError, error_context
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Stream as Streaming
from catalog.pg_subscription import Subscription
from config.limits import SLOT_POLL_SECONDS
from workers.apply.apply_batch import Applier
from workers.apply.loop import LogicalRepApplyLoop
from workers.apply.progress import remember_flush, report_feedback, stored_origin
from workers.apply.publisher_link import connected_publisher, table_checks
from workers.apply.reload import reread_subscription
from workers.lake.destination import Destination
from workers.process.worker_process import WorkerProcess
from workers.publisher.binary_columns import BinaryForms, RestartAsText, stream_forms
from workers.publisher.connection import WalReceiverConn
from workers.publisher.identify import identify_publisher
from workers.publisher.replication_slots import fetch_slot
from workers.publisher.same_server import start_position
from workers.publisher.standby_watch import StandbyWatch
from workers.stream.start import start_stream, starting_on_slot
from workers.tables.maintenance.orphan_files import OrphanRemoval
from workers.tables.maintenance.schedule import Maintenance
from workers.tables.table_locks import TableLocks
from workers.tables.writer import LakeWriter

log = logging.getLogger(__name__)
"""Seconds an idle turn waits; PostgreSQL's constant. Every event wakes it earlier."""


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
    dest = process.lake.open(process.settings)
    beside = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
    orphans = OrphanRemoval(dest, store, sub, beside)
    writer = _writer(process, dest, sub, beside)
    writer.settle_in_flight(process.ident_of)
    origin = stored_origin(store, sub)
    try:
        needed = _connected(process, sub, slot, origin, writer, orphans)
        if needed is not None:
            log.info("action=text_needed subid=%d the stream starts again: %s", sub.oid, needed)
            process.applying = False
            # As it is by now: what the first stream confirmed is no slot that somebody else moved.
            sub, origin = reread_subscription(store, sub), stored_origin(store, sub)
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
    try:
        with connected_publisher(process, sub, sub.subname) as (conn, watch):
            sub, process.publisher_lsn_at_start = identify_publisher(
                conn, process.store, sub, origin
            )
            if as_text:
                _wait_for_slot(process, conn, slot)
            binary = None if as_text else stream_forms(conn, sub, process.interrupted)
            _stream(process, conn, slot, sub, writer, watch, orphans, binary)
    except RestartAsText as needed:
        # Not an exception any more: it holds the batch that could not be read.
        return str(needed)
    return None


def _wait_for_slot(process: WorkerProcess, conn: WalReceiverConn, slot: str) -> None:
    """Until the walsender of the connection before has noticed its end, for some seconds."""
    until = time.monotonic() + process.settings.wal_retrieve_retry_interval
    while time.monotonic() < until and not process.interrupted():
        found = fetch_slot(conn, slot)
        if found is None or not found.active:
            return
        process.link.latch.wait(SLOT_POLL_SECONDS)


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
    start = start_position(stored_origin(store, sub), store.rels(sub.oid))
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
            report=lambda stats: report_feedback(link, stats),
            remember_flush=lambda lsn: remember_flush(store, sub.oid, lsn, watch),
            binary=binary is not None,
        )
    try:
        log_streaming(sub)
        # What a predecessor confirmed it had gated: for a table that was being copied its
        # changes up to there are gone, so no sync worker may be told to stop before.
        known = store.subscription(sub.oid) or sub
        decided_lsn = LSN(max(start, sub.max_flush_lsn, known.max_flush_lsn))
        checks = table_checks(process, sub, conn)
        applier = Applier(store, sub, writer, checks, decided_lsn=decided_lsn, binary=binary)
        process.applying = True
        LogicalRepApplyLoop(process, applier, stream, watch, orphans)
    except ReplicationError as error:
        if error is stream.receiver.error and _may_be_binary_format_error(error, binary):
            raise RestartAsText(error.primary) from error
        raise
    finally:
        stream.end()


def _may_be_binary_format_error(error: ReplicationError, binary: BinaryForms | None) -> bool:
    """Whether a publisher's error may be one that it has with binary values alone.

    There are types whose values have no binary form inside of arrays; the publisher finds out when
    it sends one, of whatever table that was ever published. Not what ends a connection, and no full
    disk, the publisher's or that of our spool.
    """
    others = ("08", "53", "57", "58")
    return binary is not None and not binary.binary_required and error.code[:2] not in others


def _writer(
    process: WorkerProcess, dest: Destination, sub: Subscription, beside: Executor
) -> LakeWriter:
    """Expiries are done ``beside`` the batches, and have locks of their own."""
    maintenance = Maintenance(
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
        maintenance=maintenance,
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
