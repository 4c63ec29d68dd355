"""``sync_slot: permanent``: the slot outlives the worker, so a finished copy is not made again.

PostgreSQL has permanent slots since version 14. The differences from ``workers.sync.worker``:

* The slot is permanent, and the table has an origin ``pg_<subid>_<relid>`` from ``d`` on.
* A complete copy is published, and ``f`` is stored with the origin at the slot's consistent point.
* From ``f`` on a sync worker is an apply worker of one table. Every batch is published. The table's
  position says which transactions the table has. The origin says where to ask for more.
* The next worker finds ``f``, and goes on.

*Why the copy is published at f*, and not held back on the branch until ``s``. A successor must not
trust a branch: a commit of the dead worker may still land on the branch, because an append has no
validation. The fence is an empty snapshot on ``main``. The fence ends every call that could still
change ``main``, and makes every older branch unpublishable, also the branch of the copy. So rows
can only survive a worker in ``main``. Readers see the copy at the consistent point, then the table
catching up, as in PostgreSQL. Readers never see the table go back: a copy that replaces an older
copy ends later.

``main`` and SQLite are written separately, and a worker may die between any two writes. *base* is
the snapshot of ``main`` before the attempt, P the consistent point, L the position in ``main``, O
the origin::

    died after                catalog  main        slot      the successor
    origin made, d stored     d        base        none      copies; the origin is used again
    slot made                 d        base        at P      drops the slot, new epoch, copies again
    rows copied to a branch   d        base        at P      the same; the branch is dropped
    copy published            d        base+copy   at P      the same; main is set back to base
                                                             first: the copy is not adopted
    f stored, O = P           f        L = P       at P      fences, reads L, w at max(O, L)
    w, c                      f        L = P       <= O      the same; the answer c is asked anew
    a batch published         f        L > O       <= O      the same: the table has all up to L,
                                                             and the origin moves to L
    the origin stored         f        L = O       <= O      the same
    feedback remembered       f        L <= O      <= O      the same: no change between L and O
                                                             concerns the table
    s published               f        L = s       <= O      the same, and ends at
                                                             c = max(s, decided)
    s stored, origin dropped  s        L = s       exists    exits at once; the transaction of s
                                                             has listed the slot as leaked, and
                                                             the next command drops the slot
    slot dropped              s        L = s       none      the next command forgets the slot

No row is lost: a worker asks for everything after max(O, L). The slot confirms at most O, and O is
stored before feedback is sent. No row is doubled: L is read behind a fence, and a transaction that
ends at or before L is skipped. While no sync worker runs, the apply worker drops the table's
changes, and the apply worker's position moves on. The next answer c is the apply worker's position,
and the slot still has all the dropped changes.

A worked trace. Copied at 8, f(8); the worker streams 8..20, publishes 12 and dies before the origin
is stored. The apply worker has decided 40 by then. The next worker: f, O = 8, fence, L = 12; w(12);
c = max(12, 40) = 40; the slot, confirmed at 8, sends everything after 12; at 40 the worker has
caught up: s(40).

*The conditions of f may fail.* The slot may have been dropped, invalidated, or moved on by a
foreign client. The positions may belong to a former server. The transaction that stores a new
server or timeline also sets the origins back to 0/0 (``CatalogStore.update_subscription``). Every
transaction of this module that stores a position compares the publisher identity again
(``workers.publisher.identify``). So an origin other than 0/0 belongs to the server of the apply
worker. If a condition fails, the table goes back to ``d``: ``main`` is set back to base, and the
copy is made again. A lake table at an unexpected position is 55000, as anywhere.

*s is stored before the slot is dropped.* If the slot were dropped first, a death in between would
leave ``f`` without a slot. With ``s`` first, a death leaves a slot, and the slot holds WAL back. So
the transaction of ``s`` also lists the slot as leaked, until the slot is known to be gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from catalog.errcodes import ReplicationError, at_fault
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import NOT_SUSPENDED, Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.lake.column_changes import ColumnChange
from workers.lake.sources import source_of
from workers.lake.table import LakeIdent, Stamp
from workers.process import failpoints
from workers.publisher.identify import check_same_publisher
from workers.publisher.replication_slots import RemoteSlot, fetch_slot
from workers.sync.attempt_check import check_attempt_and_publisher, store_publication
from workers.sync.context import SyncContext
from workers.sync.copied_rows import CopiedRows
from workers.sync.table_writer import SyncWriter
from workers.tables.position import check_position
from workers.tables.shared_tables import publish_table_copy
from workers.tables.written import store_durable

log = logging.getLogger(__name__)


def begin_origin(store: CatalogStore, sub: Subscription, rel: SubscriptionRel) -> None:
    """Create the origin, in the transaction that stores ``d``; it announces a slot.

    If a slot of the same name was listed as leaked, the slot belongs to the new attempt now.
    """
    name = origin_name(sub.oid, rel.srrelid)
    if store.origin_by_name(name) is None:
        store.origin_create(name)
    store.forget_leaked_slot_of_server(_left(sub, rel))


def store_finishedcopy(
    context: SyncContext,
    rel: SubscriptionRel,
    rows: CopiedRows,
    origin_startpos: LSN,
    new_branch: Callable[[], str],
    changes: Sequence[ColumnChange] = (),
) -> SubscriptionRel:
    """Write the position, fast-forward ``main``, store ``f``, in this order; return the new row."""
    store, dest, sub = context.store, context.dest, context.sub
    origin, ident, branch = origin_name(sub.oid, rel.srrelid), rows.ident, rows.branch
    stamp = Stamp(origin, origin_startpos, rel.epoch or "", rel.floor, source_of(sub, rel))
    store_publication(context, rel, origin_startpos)
    rows.write(stamp, published_next=not (changes or stamp.source))
    publish_table_copy(dest, context.process.data_dir, ident, branch, stamp, new_branch, changes)
    failpoints.reach("tablesync.copy_published")
    durable = dest.make_durable([ident])
    with store.transaction():
        store_durable(store, durable)
        # If this check fails, the next attempt finds d, and sets main back.
        now = check_attempt_and_publisher(store, sub, rel)
        copied = rel.copied and now.fingerprint == rel.fingerprint
        store.set_rel_state(sub.oid, rel.srrelid, SubRelState.FINISHEDCOPY, None, Setter.TABLESYNC)
        stored = store.update_rel(sub.oid, rel.srrelid, lake_lsn=origin_startpos, copied=copied)
        where = f"copy of {ident}"
        store.origin_advance(origin, origin_startpos, where, go_backward=True)
    failpoints.reach("tablesync.finishedcopy_stored")
    log.info("action=finished_copy subid=%d relid=%d lsn=%s", sub.oid, rel.srrelid, origin_startpos)
    return stored


def resume(context: SyncContext, rel: SubscriptionRel) -> LSN | None:
    """Return the position where a table in ``f`` goes on; None if the copy has to be made again.

    Raises 55000 if the lake table has an unexpected position.
    """
    store, conn, sub, dest = context.store, context.conn, context.sub, context.dest
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    known = store.origin_lsn(origin_name(sub.oid, rel.srrelid))
    reason = unfit(known, fetch_slot(conn, context.slot))
    if reason is None and dest.table(ident) is None:
        reason = "its lake table is gone"
    if reason is None:
        failpoints.reach("tablesync.before_fence")
        fenced = dest.fence(ident)
        failpoints.reach("tablesync.fenced")
        with at_fault(rel):
            held = check_position(rel, fenced, sub.subname, source_of(sub, rel))
        dest.make_durable([ident])  # the worker before may have died before that
        start = LSN(max(known, held.lsn))
        stands = conn.identify_system().xlogpos
        if stands >= start:
            _store_start(store, sub, rel, start)
            return start
        reason = f"the publisher stands at {stands}, before {start}"
    log.warning(
        'action=copy_again subid=%d relid=%d table "%s.%s" cannot go on from its finished copy: %s',
        sub.oid,
        rel.srrelid,
        rel.nspname,
        rel.relname,
        reason,
    )
    return None


def unfit(known: LSN, slot: RemoteSlot | None) -> str | None:
    """Return why a slot cannot send everything after ``known``; None for a usable slot. Pure."""
    if known == InvalidXLogRecPtr:
        return "its position was another server's or timeline's"
    if slot is None:
        return "its replication slot is gone"
    if not slot.is_pgoutput_here:
        return "its replication slot is somebody else's"
    if slot.invalidation is not None:
        return f"its replication slot was invalidated ({slot.invalidation})"
    if slot.confirmed_flush_lsn is None or slot.confirmed_flush_lsn > known:
        return f"its replication slot stands at {slot.confirmed_flush_lsn}, beyond {known}"
    return None


def _store_start(store: CatalogStore, sub: Subscription, rel: SubscriptionRel, start: LSN) -> None:
    """Move the origin to the table's position, unless the publisher has changed by now."""
    with store.transaction():
        check_attempt_and_publisher(store, sub, rel)
        where = f"LSN {start} of {rel.lake_schema}.{rel.lake_table}"
        store.origin_advance(origin_name(sub.oid, rel.srrelid), start, where)


def remember_flush(context: SyncContext, rel: SubscriptionRel, lsn: LSN) -> None:
    """Store a flush position as the origin, before the position is confirmed to the publisher.

    An origin behind the confirmed position would look as if a foreign client had moved the slot.
    If the table is synchronised, or is to be copied again, the origin stays.
    """
    context.watch.check()
    store, sub = context.store, context.sub
    with store.transaction():
        stored = store.rel(sub.oid, rel.srrelid)
        if stored is None or stored.epoch != rel.epoch:
            return
        if stored.srsubstate is SubRelState.FINISHEDCOPY:
            check_same_publisher(sub, store.subscription(sub.oid))
            store.origin_advance(origin_name(sub.oid, rel.srrelid), lsn, f"LSN {lsn}")


def store_syncdone(
    context: SyncContext, writer: SyncWriter, rel: SubscriptionRel, s_lsn: LSN
) -> None:
    """Publish the last position; in one transaction store ``s``, drop the origin, list the slot.

    The stored value of the column ``copied`` stays.
    """
    store, sub = context.store, context.sub
    subid, relid = sub.oid, rel.srrelid
    failpoints.reach("tablesync.caught_up")

    def store_s() -> None:
        store.set_rel_state(subid, relid, SubRelState.SYNCDONE, s_lsn, Setter.TABLESYNC)
        store.update_rel(subid, relid, recopy=False, **NOT_SUSPENDED)
        store.end_copy_of_change(subid, relid, time.time_ns() // 1000)
        store.origin_drop(origin_name(subid, relid))
        store.put_leaked_slot(_left(sub, rel))

    writer.finish(rel, s_lsn, store_s)
    failpoints.reach("tablesync.syncdone_stored")


def drop_slot(context: SyncContext, rel: SubscriptionRel) -> None:
    """End the stream and drop the slot; if the drop fails, the slot stays listed as leaked."""
    conn, left = context.conn, _left(context.sub, rel)
    try:
        conn.end_streaming()
        conn.drop_slot(left.slot_name, missing_ok=True)
    except ReplicationError as error:
        log.warning(
            "action=leaked_slot subid=%d sqlstate=%s %s; the next command drops it",
            context.sub.oid,
            error.code,
            replace(left, reason=error.primary).stays,
        )
        return
    failpoints.reach("tablesync.slot_dropped")
    context.store.forget_leaked_slot_of_server(left)


def _left(sub: Subscription, rel: SubscriptionRel) -> LeakedSlot:
    """Describe the table's slot as a leaked slot."""
    name = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    return leaked_slot(sub, name, "its table is synchronised")
