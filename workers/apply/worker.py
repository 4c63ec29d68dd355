"""The apply worker: one per subscription, applies the publisher's transactions.

PostgreSQL's ``worker.c``. Changes arrive transaction by transaction, in commit order. PostgreSQL's
worker applies a transaction row by row and commits. This worker takes *batches of whole
transactions*: while the lake is busy with one batch, the receive thread collects the next. So an
idle lake takes a single transaction at once, and a busy lake takes thousands together. Every
position is the end LSN of a commit; transactions are applied whole or skipped whole.

One turn of the loop, at a batch boundary:

1. The subscription is read again if the catalog changed. The worker ends if the subscription is
   gone or disabled, or if a change needs a new connection or a new start.
2. ``process_syncing_tables_for_apply`` decides about tables that are not ready. While a table is in
   ``c``, no batch is closed; receiving, spooling and feedback go on.
3. A batch is taken. For each table the gate decides, transaction by transaction. The remaining
   changes are cut, folded, and written to the tables' branches.
4. When every branch is complete the batch is published, the origin moves, and the transactions
   become durable: the receive thread reports them to the publisher at once.

A worked trace. Tables a (r) and b (s at 300); the flush list is empty, decided = durable = 250::

    received  C 260 (a), C 310 (a, b), C 350 (b)      flush list 260 310 350
    batch     260 310 350; decided = 350
    gate      a takes all; b takes the commits at or after 300: 310 and 350
    write     a's branch: 260 310 → stamp 350;  b's branch: 310 350 → stamp 350
    publish   in_flight {a, b}; ff a; ff b; origin 350; in_flight {}
    durable   350; feedback flush = 350; b: durable ≥ 300, so r is stored

An error that is the fault of a transaction must not stop the transactions before, nor leave a part
of the transaction in any table. So ``workers.apply.apply_batch`` cuts the batch.

An error ends the process. The launcher starts a successor. The successor closes the Spark sessions
of the dead worker, fences the tables in flight, and asks the publisher for everything after the
origin. A transaction that a table has already is skipped by the table's position.
"""

from __future__ import annotations

import logging
import time
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import closing
from functools import partial

from catalog.errcodes import ObjectNotInPrerequisiteState, ReplicationError, error_context
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Stream as Streaming
from catalog.pg_subscription import Subscription
from config.limits import SLOT_POLL_SECONDS
from workers.apply.apply_batch import Applier
from workers.apply.known_fault import KnownFault
from workers.apply.loop import LogicalRepApplyLoop
from workers.apply.parallel.apply_threads import ParallelApply
from workers.apply.parallel.file_notes import FileNotes
from workers.apply.progress import (
    remember_flush,
    report_atomic_publish,
    report_feedback,
    stored_origin,
)
from workers.apply.publisher_link import (
    catalog_watch,
    connected_publisher,
    ddl_key,
    rename_watch,
    schema_follower,
    table_checks,
)
from workers.apply.reload import reread_subscription
from workers.apply.two_phase import TwoPhase, asks_two_phase, enable_two_phase
from workers.freed_memory import keep_none
from workers.lake.destination import Destination
from workers.process.worker_process import WorkerProcess
from workers.publisher.binary_columns import (
    BinaryForms,
    RestartAsText,
    any_forms,
    stream_forms,
)
from workers.publisher.connection import WalReceiverConn
from workers.publisher.identify import identify_publisher
from workers.publisher.replication_slots import fetch_slot
from workers.publisher.same_server import start_position
from workers.publisher.standby_watch import StandbyWatch
from workers.publisher.table_shape import TableShape
from workers.stream.prepared_xacts import PreparedXacts
from workers.stream.start import Stream, start_stream, starting_on_slot
from workers.tables.leaked_branches import drop_leaked_branches
from workers.tables.maintenance.expired_files import FileRemoval
from workers.tables.maintenance.orphan_files import OrphanRemoval
from workers.tables.maintenance.schedule import Maintenance
from workers.tables.rename_tables import settle_renames
from workers.tables.table_locks import TableLocks
from workers.tables.writer import LakeWriter

log = logging.getLogger(__name__)


def apply_worker_main(process: WorkerProcess) -> None:
    """``ApplyWorkerMain``: open the lake, fence a dead worker's batch, stream, loop."""
    keep_none()  # before a thread of the worker uses Arrow
    store = process.store
    sub = process.subscription()
    slot = sub.subslotname
    if slot is None:
        raise ObjectNotInPrerequisiteState(
            "subscription has no replication slot set",
            hint=f'Disable the subscription with "pgsub disable {sub.subname}".',
        )
    dest = process.lake.open(process.settings)
    sub = settle_renames(dest, store, sub)
    beside = ThreadPoolExecutor(1, thread_name_prefix="maintenance")
    files = FileRemoval(dest, store, sub.oid, beside.submit)
    orphans = OrphanRemoval(dest, store, sub, beside, files)
    writer = _writer(process, dest, sub, beside, files)
    writer.settle_in_flight()
    beside.submit(report_atomic_publish, process.link, dest)
    drop_leaked_branches(store, lambda idents: list(map(dest.table, idents)), lambda: dest)
    FileNotes(process.data_dir, sub.oid).sweep(dest, store)
    origin = stored_origin(store, sub)
    try:
        needed = _connected(process, sub, slot, origin, writer, orphans)
        if needed is not None:
            log.info("action=text_needed subid=%d the stream starts again: %s", sub.oid, needed)
            process.applying = False
            # Read again: the first stream has confirmed positions and so moved the slot.
            sub, origin = reread_subscription(store, sub), stored_origin(store, sub)
            _connected(process, sub, slot, origin, writer, orphans, as_text=True)
    finally:
        orphans.close()
        beside.shutdown(wait=False, cancel_futures=True)  # a running task ends with the session
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
    """Stream on a new connection until told to stop; the reason if the stream must restart as text.

    A restart needs a new connection: a walsender begins a second logical stream on a connection and
    ends the stream at once. The end of a connection also ends the transaction that is being sent.
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
        # The exception must not live on: its traceback holds the batch that could not be read.
        return str(needed)
    return None


def _wait_for_slot(process: WorkerProcess, conn: WalReceiverConn, slot: str) -> None:
    """Wait some seconds at most until the last connection's walsender has released the slot."""
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
    """Start replication at the origin, and run the loop."""
    store, link = process.store, process.link
    origin, rels = stored_origin(store, sub), store.rels(sub.oid)
    start = start_position(origin, rels)
    xacts = PreparedXacts(process.data_dir, sub.subuuid, sub.oid)
    xacts.sweep(origin)
    enables = asks_two_phase(sub, rels, conn.server_version)
    key = ddl_key(process, sub, conn)
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
            two_phase=enables,
            messages=bool(key) or any(rel.holds_messages for rel in rels),
        )
    try:
        if enables:
            sub = enable_two_phase(store, sub)
        # A dead worker had decided all transactions that it confirmed, and dropped the changes of
        # tables that were being copied. So no sync worker may be told to stop before that position.
        known = store.subscription(sub.oid) or sub
        decided_lsn = LSN(max(start, sub.max_flush_lsn, known.max_flush_lsn))
        checks = table_checks(process, sub, conn)
        applier = Applier(store, sub, writer, checks, decided_lsn=decided_lsn, binary=binary)
        applier.relmap.told.key = key
        shapes: list[TableShape] = []
        applier.schema = schema_follower(process, sub, conn, writer, shapes)
        applier.renames = rename_watch(process, sub, conn)
        applier.known_fault = KnownFault(store, sub.oid)
        applier.known_fault.passed(decided_lsn)
        process.applying = True
        forms = partial(any_forms, conn, sub, process.interrupted)
        two_phase = TwoPhase(applier, xacts, forms, server_version=conn.server_version)
        with (
            catalog_watch(process, sub, conn, shapes, told=bool(key)) as catalog,
            closing(_parallel(process, sub, applier, stream)) as parallel,
        ):
            LogicalRepApplyLoop(
                process, applier, stream, watch, orphans, catalog, two_phase, parallel
            )
    except ReplicationError as error:
        if error is stream.receiver.error and _may_be_binary_format_error(error, binary):
            raise RestartAsText(error.primary) from error
        raise
    finally:
        writer.end_storing()  # the last feedback confirms what is published
        stream.end()


def _parallel(
    process: WorkerProcess, sub: Subscription, applier: Applier, stream: Stream
) -> ParallelApply:
    """The threads that write transactions in progress; none if the subscription asks for none."""

    def most() -> int:
        asked = sub.substream is Streaming.PARALLEL
        return process.settings.max_parallel_apply_workers_per_subscription if asked else 0

    return ParallelApply(
        applier,
        stream.spool,
        applier.writer.dest,
        FileNotes(process.data_dir, sub.oid),
        most=most,
        report=process.link.report,
        wake=process.link.latch.set,
    )


def _may_be_binary_format_error(error: ReplicationError, binary: BinaryForms | None) -> bool:
    """True if a publisher's error may be about the binary format, and may not come with text.

    Some types have no binary form inside of arrays. The publisher finds out only when sending a
    value, of any table that was ever published. Excluded are errors that end a connection, and a
    full disk on the publisher or under the spool.
    """
    others = ("08", "53", "57", "58")
    return binary is not None and not binary.binary_required and error.code[:2] not in others


def _writer(
    process: WorkerProcess,
    dest: Destination,
    sub: Subscription,
    beside: Executor,
    files: FileRemoval,
) -> LakeWriter:
    """Build the writer. Expiries run in thread ``beside`` with separate locks."""
    maintenance = Maintenance(
        dest,
        beside.submit,
        lambda: process.settings,
        process.store.add_lake_upkeep,
        locks=TableLocks(process.data_dir),
        files=files,
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
        wake=process.link.latch.set,
    )
