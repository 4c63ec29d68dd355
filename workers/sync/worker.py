"""The table-sync worker: one per table being synchronised, from ``i`` to ``s``.

PostgreSQL's ``tablesync.c``. What is told here is the generation with temporary slots (PostgreSQL
10 to 13): copy and catch-up are one step for readers, and a crash anywhere before ``s`` does the
whole table again. ``workers.sync.permanent_slot`` tells where the other one differs, in which the
slot is permanent and the copy, once finished (``f``), is not made again.

1. Catalog ``d``, with a new epoch, the attempt's number and the *base*: the snapshot ``main`` has.
2. A transaction on the publisher, and in it a temporary slot whose snapshot it uses. The slot's
   consistent point is where the copy ends and the stream will begin.
3. The table is locked against rewriting (ACCESS SHARE) before it is measured, until every range
   is copied; then its relfilenode must be the one it was. Copied rows go to a branch of the lake
   table, added to the base or, in a copy that was asked for again, to nothing; readers of ``main``
   see nothing of it.
4. Memory ``w`` at the consistent point, and the apply worker is woken. It answers ``c`` at the
   position its own gate has reached, and closes no batch until this worker is done. If it dies
   first, the next apply worker answers.
5. The slot is streamed, this table's changes only, until the position of ``c`` is reached, be it
   by a transaction or by a keepalive. What was received beyond is thrown away.
6. The branch's last snapshot is stamped with the position reached; ``main`` is fast-forwarded;
   ``s`` is stored; memory ``s``; the stream ends and the slot vanishes with the connection.

Why this order at the end (a crash between any two must be harmless)::

    crash                       catalog  main           what the successor does
    before the fast-forward     d        base           drops the branch, copies again
    between it and s            d        base + copy    sets main back to base, copies again: the
                                                        apply worker, seeing d, has been dropping
                                                        this table's changes meanwhile
    after s                     s        copy at s      exits at once; the apply worker makes it r

A worked trace, the apply worker in front: copied at 8; w(8); the apply worker's gate is at 10, so
c(10); streaming 8..10 finds one transaction ending at 9 for this table; a keepalive at 10 ends the
catch-up; stamp 10, fast-forward, s(10). The apply worker goes on at 10 and this table's changes in
transactions whose commit record starts at or after 10 are its own.
"""

from __future__ import annotations

import logging
from functools import partial

from catalog.errcodes import error_context
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, SyncSlot, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from workers.apply.apply_batch import Applier
from workers.apply.table_checks import TableChecks
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.publisher.binary_columns import catchup_forms
from workers.publisher.connect import connect_publisher
from workers.publisher.connection import WalReceiverConn
from workers.publisher.identify import check_own_server
from workers.publisher.password_required import check_connected, check_conninfo
from workers.publisher.second_connection import ask_identities, fetch_published
from workers.publisher.standby_watch import StandbyWatch, watch_standby
from workers.publisher.sync_slot import create_sync_slot, drop_sync_slot
from workers.sync import permanent_slot
from workers.sync.attempt import _begin_attempt
from workers.sync.attempt_check import still_fits
from workers.sync.catch_up import _catch_up, _wait_for_catchup
from workers.sync.copy_table import copy_table
from workers.sync.table_writer import SyncWriter
from workers.tables.shared_tables import publish_table_copy
from workers.tables.writer import LakeWriter

log = logging.getLogger(__name__)


def table_sync_worker_main(process: WorkerProcess) -> None:
    """``TablesyncWorkerMain``."""
    sub = process.subscription()
    rel = process.store.rel(sub.oid, process.relid)
    if rel is None or rel.srsubstate in (SubRelState.SYNCDONE, SubRelState.READY):
        raise WorkerExit("the table is synchronised already, or left the subscription")
    dest = process.lake.open(process.settings)
    process.applying = True
    with error_context(f'synchronising table "{rel.nspname}.{rel.relname}"'):
        LogicalRepSyncTableStart(process, sub, rel, dest)
        process.lake.hand_over_session()


def LogicalRepSyncTableStart(  # noqa: N802 (PostgreSQL's name)
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel, dest: Destination
) -> None:
    """Steps 1 to 6 of the essay above, or those of ``workers.sync.permanent_slot``."""
    failpoints.reach("tablesync.started")
    slot = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    check_conninfo(sub, process.settings)
    conn = connect_publisher(sub, slot, process.interrupted)
    check_connected(conn, sub, process.settings)
    standby: WalReceiverConn | None = None
    try:
        watch, standby = watch_standby(
            conn, sub, process.interrupted, process.settings.wal_receiver_timeout
        )
        check_own_server(conn, sub)
        start: LSN | None = None
        if rel.srsubstate is SubRelState.FINISHEDCOPY:
            start = permanent_slot.resume(process.store, conn, sub, rel, slot, dest)
        if start is not None or sub.sync_slot is SyncSlot.PERMANENT:
            _permanent(process, conn, slot, sub, rel, dest, watch, start)
        else:
            _temporary(process, conn, slot, sub, rel, dest, watch)
    finally:
        conn.close()
        if standby is not None:
            standby.close()


def _temporary(
    process: WorkerProcess,
    conn: WalReceiverConn,
    slot: str,
    sub: Subscription,
    rel: SubscriptionRel,
    dest: Destination,
    watch: StandbyWatch,
) -> None:
    """Everything on one branch, which is shown at the end."""
    writer = LakeWriter(
        dest,
        process.store,
        sub,
        generation=process.generation,
        origin=origin_name(sub.oid),
        threads=1,
    )
    branch = writer.new_branch_name(_prefix(sub, rel))
    rel, lake, start = _copy(process, conn, slot, sub, rel, dest, branch)
    writer.adopt_branch(rel, lake, branch, start)
    caught_up = _wait_for_catchup(process, sub, rel, start)
    applier = _applier(process, conn, sub, rel, writer, start)
    done = partial(_store_syncdone, process, applier, rel, dest, branch)
    _catch_up(process, conn, slot, applier, caught_up, rel, watch, lambda _: None, done)


def _permanent(
    process: WorkerProcess,
    conn: WalReceiverConn,
    slot: str,
    sub: Subscription,
    rel: SubscriptionRel,
    dest: Destination,
    watch: StandbyWatch,
    start: LSN | None,
) -> None:
    """A copy that is shown when it is done, or was (``start``), then batch after batch."""
    store, generation = process.store, process.generation
    writer = SyncWriter(
        dest, store, sub, rel.srrelid, generation=generation, data_dir=process.data_dir
    )
    if start is None:
        new_branch = partial(writer.new_branch_name, _prefix(sub, rel))
        branch = new_branch()
        rel, _, start = _copy(process, conn, slot, sub, rel, dest, branch)
        rel = permanent_slot.store_finishedcopy(process, sub, rel, dest, branch, start, new_branch)
    caught_up = _wait_for_catchup(process, sub, rel, start)
    applier = _applier(process, conn, sub, rel, writer, start, publishes_each_batch=True)
    remember = partial(permanent_slot.remember_flush, store, sub, rel, watch)

    def done(s_lsn: LSN) -> None:
        permanent_slot.store_syncdone(process, sub, writer, rel, s_lsn)
        _after_syncdone(process, sub, rel, dest, s_lsn)

    _catch_up(process, conn, slot, applier, caught_up, rel, watch, remember, done)
    permanent_slot.drop_slot(store, conn, sub, rel)


def _prefix(sub: Subscription, rel: SubscriptionRel) -> str:
    return branches_of(sub, rel.srrelid) if source_of(sub, rel) else ""


def _copy(
    process: WorkerProcess,
    conn: WalReceiverConn,
    slot: str,
    sub: Subscription,
    rel: SubscriptionRel,
    dest: Destination,
    branch: str,
) -> tuple[SubscriptionRel, LakeTable, LSN]:
    """Steps 1 to 3: the table's row, what ``main`` shows, and where the copy on the branch ends."""
    if process.store.origin_by_name(origin_name(sub.oid, rel.srrelid)) is not None:
        # Before anything of the attempt before is undone: from here on it must not go on.
        drop_sync_slot(conn, slot)
    rel = _begin_attempt(process, sub, rel, dest)
    failpoints.reach("tablesync.datasync_stored")
    process.link.set_relstate(sub.oid, rel.srrelid, SubRelState.DATASYNC, None)
    permanent = sub.sync_slot is SyncSlot.PERMANENT
    start = create_sync_slot(
        conn,
        slot,
        process.settings.create_slot_timeout,
        temporary=not permanent,
        failover=permanent and sub.subfailover,
    )
    failpoints.reach("tablesync.slot_created")
    rel, lake = copy_table(process, conn, sub, rel, dest, branch, start)
    failpoints.reach("tablesync.copied")
    check_own_server(conn, sub)  # a standby may have been promoted under the copy
    return rel, lake, start


def _applier(
    process: WorkerProcess,
    conn: WalReceiverConn,
    sub: Subscription,
    rel: SubscriptionRel,
    writer: LakeWriter,
    start: LSN,
    *,
    publishes_each_batch: bool = False,
) -> Applier:
    return Applier(
        process.store,
        sub,
        writer,
        TableChecks(
            partial(fetch_published, sub, conn, process.interrupted),
            partial(ask_identities, sub, conn, process.interrupted),
        ),
        own_relid=rel.srrelid,
        publishes_each_batch=publishes_each_batch,
        decided_lsn=start,
        binary=catchup_forms(conn, sub, process.interrupted),
    )


def _store_syncdone(
    process: WorkerProcess,
    applier: Applier,
    rel: SubscriptionRel,
    dest: Destination,
    branch: str,
    s_lsn: LSN,
) -> None:
    """Stamp, fast-forward, s in the catalog, s in memory: in this order (step 6)."""
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    sub, source = applier.sub, source_of(applier.sub, rel)
    stamp = Stamp(origin_name(rel.srsubid), s_lsn, rel.epoch or "", rel.floor, source)
    dest.write(ident, branch, [], stamp)
    failpoints.reach("tablesync.caught_up")
    store = process.store
    still_fits(store, sub, rel)
    new_branch = partial(applier.writer.new_branch_name, _prefix(sub, rel))
    publish_table_copy(dest, process.data_dir, ident, branch, stamp, new_branch)
    failpoints.reach("tablesync.published")
    with store.transaction():
        # If not, main is set back by the next attempt, which finds d: see identify_publisher. Who
        # found meanwhile that the table is published differently stored another fingerprint.
        fingerprint = still_fits(store, sub, rel).fingerprint
        copied = applier.rels[rel.nspname, rel.relname].copied and fingerprint == rel.fingerprint
        store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.SYNCDONE, s_lsn, Setter.TABLESYNC)
        store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=s_lsn, copied=copied, recopy=False)
    failpoints.reach("tablesync.syncdone_stored")
    _after_syncdone(process, sub, rel, dest, s_lsn)


def _after_syncdone(
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel, dest: Destination, s_lsn: LSN
) -> None:
    """``s`` in memory; the apply worker goes on, and a shared table is rid of our branches."""
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
    if source_of(sub, rel):  # nobody else drops them, and they hold what they lead to
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        dest.drop_branches(ident, prefix=branches_of(sub, rel.srrelid))
