"""The table-sync worker takes one table from ``i`` to ``s``; every table has a worker of its own.

PostgreSQL's ``tablesync.c``. The steps below are those of temporary slots (PostgreSQL 10 to 13).
Readers see copy and catch-up as a single step, and after a crash anywhere before ``s`` the whole
table is copied again. With a permanent slot a finished copy (``f``) is not made again;
``workers.sync.permanent_slot`` has the differences.

1. The worker stores ``d`` in the catalog, with a new copy id, the attempt's number and the *base*:
   the snapshot of ``main``.
2. The worker begins a transaction on the publisher, and in the transaction creates a temporary slot
   with a snapshot. The copy ends, and the stream begins, at the slot's consistent point.
3. The worker locks the table against rewriting (ACCESS SHARE), then measures the table, and holds
   the lock until every range is copied. Then the relfilenode must be unchanged. The rows of a
   table of one range begin to arrive while the lake table is made. Copied rows go to a branch of
   the lake table. The branch starts from the base, or empty if the table is copied anew. Readers
   of ``main`` do not see the branch.
4. The worker sets ``w`` in the launcher's memory, at the consistent point, and wakes the apply
   worker. The apply worker answers ``c`` at the apply worker's decided position, and closes no
   batch until the sync worker is done. If the apply worker dies first, the next one answers.
5. The worker streams the slot, and applies the table's changes only, until a transaction or a
   keepalive reaches the position of ``c``. The worker throws away everything received beyond.
6. The branch's last snapshot gets the position reached; ``main`` is fast-forwarded; the lake
   table's files are put onto the disk; the catalog gets ``s``; the launcher's memory gets ``s``;
   the stream ends, and the slot vanishes with the connection. Rows that no commit has yet
   (``workers.sync.copied_rows``) come with the position, and ``main`` moves by the same commit.

The order of step 6 makes a crash between any two writes harmless::

    crash                       catalog  main           the successor
    before the fast-forward     d        base           drops the branch, copies again
    after it, before s          d        base + copy    sets main back to base, copies again: the
                                                        apply worker has seen d, and has dropped
                                                        the table's changes meanwhile
    after s                     s        copy at s      exits at once; the apply worker stores r

A worked trace, the apply worker in front: the copy ends at 8; w(8); the apply worker has decided
10 and answers c(10); the stream 8..10 has one transaction of the table, with end 9; a keepalive at
10 ends the catch-up; position 10, fast-forward, s(10). The apply worker goes on at 10: a
transaction's changes of the table are applied if the commit record starts at 10 or later.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from functools import partial

from catalog.errcodes import at_fault, error_context
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, SyncSlot, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import NOT_SUSPENDED, Setter, SubRelState, SubscriptionRel
from workers.apply.apply_batch import Applier
from workers.apply.publisher_link import connected_publisher, rename_watch, table_checks
from workers.changes.columns_of_copy import ColumnsOfCopy
from workers.lake.column_changes import ColumnChange
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import LakeIdent, LakeTable
from workers.process import failpoints
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.publisher.binary_columns import catchup_forms
from workers.publisher.fingerprint import published_as
from workers.publisher.identify import check_own_server
from workers.publisher.slot_wait import telling_waits
from workers.publisher.sync_slot import create_sync_slot, drop_sync_slot
from workers.sync import permanent_slot
from workers.sync.attempt import begin_attempt
from workers.sync.attempt_check import check_attempt_and_publisher, store_publication
from workers.sync.catch_up import catch_up, wait_for_catchup
from workers.sync.columns_of_copy import with_options
from workers.sync.context import SyncContext
from workers.sync.copied_columns import CopiedColumns
from workers.sync.copied_rows import CopiedRows
from workers.sync.copy_table import copy_table
from workers.sync.renamed import following_name
from workers.sync.suspend import suspending
from workers.sync.table_writer import SyncWriter
from workers.tables.position import stamp_at
from workers.tables.rename_tables import settle_rename_of
from workers.tables.shared_tables import publish_table_copy
from workers.tables.writer import LakeWriter
from workers.tables.written import store_durable

log = logging.getLogger(__name__)


def table_sync_worker_main(process: WorkerProcess) -> None:
    """Synchronise the process's table (PostgreSQL's ``TablesyncWorkerMain``)."""
    sub = process.subscription()
    rel = process.store.rel(sub.oid, process.relid)
    if rel is None or rel.srsubstate is SubRelState.SYNCDONE or not rel.awaits_sync:
        raise WorkerExit("the table is synchronised already, suspended, or left the subscription")
    dest = process.lake.open(process.settings)
    sub = settle_rename_of(dest, process.store, sub, rel.srrelid)
    rel = process.store.rel(sub.oid, rel.srrelid) or rel
    process.applying = True
    synchronising = error_context(f'synchronising table "{rel.nspname}.{rel.relname}"')
    with suspending(process, sub, rel, dest), synchronising:
        LogicalRepSyncTableStart(process, sub, rel, dest)
        process.lake.hand_over_session()


def LogicalRepSyncTableStart(  # noqa: N802 (PostgreSQL's name)
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel, dest: Destination
) -> None:
    """Do steps 1 to 6 of the module's text, or the steps of ``workers.sync.permanent_slot``."""
    failpoints.reach("tablesync.started")
    slot = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    with connected_publisher(process, sub, slot) as (conn, watch):
        check_own_server(conn, sub)
        context = SyncContext(process, conn, watch, slot, sub, dest)
        start: LSN | None = None
        if rel.srsubstate is SubRelState.FINISHEDCOPY:
            start = permanent_slot.resume(context, rel)
        if start is not None or sub.sync_slot is SyncSlot.PERMANENT:
            _permanent(context, rel, start)
        else:
            _temporary(context, rel)


def _temporary(context: SyncContext, rel: SubscriptionRel) -> None:
    """Copy and catch up on a single branch, then publish the branch."""
    process, sub = context.process, context.sub
    writer = LakeWriter(
        context.dest,
        context.store,
        sub,
        generation=process.generation,
        origin=origin_name(sub.oid),
        threads=1,
    )
    branch = writer.new_branch_name(_branch_prefix(sub, rel))
    rel, lake, start, columns, rows = _copy(context, rel, branch)
    options = columns.options(sub.table_options(rel.nspname, rel.relname))
    writer.read_as(with_options(sub, rel, options))
    writer.adopt_branch(rel, lake, branch, start)
    with rows.discarded_on_error():
        caught_up = wait_for_catchup(process, sub, rel, start)
        applier = _applier(context, rel, writer, start)
        changes = columns.at_publication(lake.columns)
        done = partial(_store_syncdone, context, applier, rel, rows, changes)
        before = partial(rows.write_before_batch, stamp_at(rel, start, source_of(sub, rel)))
        catch_up(context, applier, caught_up, rel, lambda _: None, done, before)


def _permanent(context: SyncContext, rel: SubscriptionRel, start: LSN | None) -> None:
    """Publish the complete copy, then batch after batch.

    ``start`` is the position to go on from; None without a usable finished copy.
    """
    process, sub = context.process, context.sub
    writer = SyncWriter(
        context.dest,
        context.store,
        sub,
        rel.srrelid,
        generation=process.generation,
        data_dir=process.data_dir,
    )
    if start is None:
        new_branch = partial(writer.new_branch_name, _branch_prefix(sub, rel))
        branch = new_branch()
        rel, lake, start, columns, rows = _copy(context, rel, branch)
        changes = columns.at_publication(lake.columns)
        with rows.discarded_on_error():
            rel = permanent_slot.store_finishedcopy(context, rel, rows, start, new_branch, changes)
    caught_up = wait_for_catchup(process, sub, rel, start)
    applier = _applier(context, rel, writer, start, publishes_each_batch=True)
    remember = partial(permanent_slot.remember_flush, context, rel)

    def done(s_lsn: LSN) -> None:
        permanent_slot.store_syncdone(context, writer, rel, s_lsn)
        _after_syncdone(context, rel, s_lsn)

    catch_up(context, applier, caught_up, rel, remember, done)
    permanent_slot.drop_slot(context, rel)


def _branch_prefix(sub: Subscription, rel: SubscriptionRel) -> str:
    """Return the prefix of the worker's branches in a shared lake table; else an empty text."""
    return branches_of(sub, rel.srrelid) if source_of(sub, rel) else ""


def _copy(
    context: SyncContext, rel: SubscriptionRel, branch: str
) -> tuple[SubscriptionRel, LakeTable, LSN, ColumnsOfCopy, CopiedRows]:
    """Do steps 1 to 3: return the row, the lake table, the position of the copy, columns, rows.

    The columns are those that change when the copy is published.
    """
    process, conn, sub, slot = context.process, context.conn, context.sub, context.slot
    if context.store.origin_by_name(origin_name(sub.oid, rel.srrelid)) is not None:
        # Drop the slot before begin_attempt undoes the copy of the attempt before: without a slot,
        # the attempt before cannot go on.
        drop_sync_slot(conn, slot)
    with at_fault(rel):
        rel = begin_attempt(context, rel)
    failpoints.reach("tablesync.datasync_stored")
    process.link.set_relstate(sub.oid, rel.srrelid, SubRelState.DATASYNC, None)
    permanent = sub.sync_slot is SyncSlot.PERMANENT
    with telling_waits(sub, conn, slot, lambda text: process.link.report(phase=text)):
        start = create_sync_slot(
            conn,
            slot,
            process.settings.create_slot_timeout,
            temporary=not permanent,
            failover=permanent and sub.subfailover,
        )
    process.link.report(phase=None)
    failpoints.reach("tablesync.slot_created")
    watch = rename_watch(process, sub, conn, copies=True)
    with at_fault(rel), following_name(watch, context.store, sub, rel, start):
        rel, lake, columns, rows = copy_table(process, conn, sub, rel, context.dest, branch, start)
    with rows.discarded_on_error():
        failpoints.reach("tablesync.copied")
        check_own_server(conn, sub)  # a standby may have been promoted during the copy
    return rel, lake, start, columns, rows


def _applier(
    context: SyncContext,
    rel: SubscriptionRel,
    writer: LakeWriter,
    start: LSN,
    *,
    publishes_each_batch: bool = False,
) -> Applier:
    process, conn, sub = context.process, context.conn, context.sub
    return Applier(
        context.store,
        sub,
        writer,
        table_checks(process, sub, conn),
        renames=rename_watch(process, sub, conn, copies=True),
        own_relid=rel.srrelid,
        publishes_each_batch=publishes_each_batch,
        decided_lsn=start,
        binary=catchup_forms(conn, sub, process.interrupted),
        schema=CopiedColumns(context.store, writer),
    )


def _store_syncdone(
    context: SyncContext,
    applier: Applier,
    rel: SubscriptionRel,
    rows: CopiedRows,
    changes: Sequence[ColumnChange],
    s_lsn: LSN,
) -> None:
    """Write the position, fast-forward ``main``, store ``s``, set ``s`` in memory (step 6)."""
    store, dest, sub = context.store, context.dest, applier.sub
    ident, branch = rows.ident, rows.branch
    stamp = stamp_at(rel, s_lsn, source_of(sub, rel))
    store_publication(context, rel, s_lsn)
    rows.write(stamp, published_next=not (changes or stamp.source))
    failpoints.reach("tablesync.caught_up")
    check_attempt_and_publisher(store, sub, rel)
    new_branch = partial(applier.writer.new_branch_name, _branch_prefix(sub, rel))
    publish_table_copy(dest, context.process.data_dir, ident, branch, stamp, new_branch, changes)
    failpoints.reach("tablesync.published")
    durable = dest.make_durable([ident])
    with store.transaction():
        store_durable(store, durable)
        # If the check fails, the next attempt finds d, and sets main back (identify_publisher). A
        # command may have found the table published differently: the fingerprint differs then.
        stored = check_attempt_and_publisher(store, sub, rel)
        copied = applier.rels[rel.nspname, rel.relname].copied
        copied = copied and published_as(stored.fingerprint) == published_as(rel.fingerprint)
        store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.SYNCDONE, s_lsn, Setter.TABLESYNC)
        done = {"lake_lsn": s_lsn, "copied": copied, "recopy": False, **NOT_SUSPENDED}
        store.update_rel(rel.srsubid, rel.srrelid, **done)
        store.end_copy_of_change(rel.srsubid, rel.srrelid, time.time_ns() // 1000)
    failpoints.reach("tablesync.syncdone_stored")
    _after_syncdone(context, rel, s_lsn)


def _after_syncdone(context: SyncContext, rel: SubscriptionRel, s_lsn: LSN) -> None:
    """Set ``s`` in memory, wake the apply worker, drop the worker's branches of a shared table.

    No other worker drops the branches, and a branch keeps snapshots from expiry.
    """
    process, sub = context.process, context.sub
    process.link.set_relstate(rel.srsubid, rel.srrelid, SubRelState.SYNCDONE, s_lsn)
    process.link.wakeup(rel.srsubid, 0)
    process.note_progress()
    log.info(
        'action=sync_done subid=%d relid=%d lsn=%s table synchronisation worker for "%s.%s" '
        "has finished",
        rel.srsubid,
        rel.srrelid,
        s_lsn,
        rel.nspname,
        rel.relname,
    )
    if source_of(sub, rel):
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        context.dest.drop_branches(ident, prefix=branches_of(sub, rel.srrelid))
