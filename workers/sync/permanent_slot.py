"""``sync_slot: permanent``: a copy that is not made again, because its slot outlives its worker.

PostgreSQL's generation since version 14. What differs from ``workers.sync.worker``:

* the slot is permanent, and the table has an origin ``pg_<subid>_<relid>`` from ``d`` on;
* the copy is shown when it is complete, and ``f`` is stored with the origin at the slot's
  consistent point;
* from there on a sync worker is an apply worker of one table: each batch is shown by itself, the
  table's own position says what it holds, and the origin where to ask for more;
* the next worker finds ``f``, and goes on.

*Why the copy is shown at f*, and not kept on its branch until ``s``. A successor must not believe
a branch: a commit that its dead predecessor sent may still land on it, an append validates nothing.
The fence, an empty snapshot on ``main``, settles what can still happen to ``main``, and makes every
older branch unpublishable, that of the copy among them. So what is to survive a worker has to be in
``main``. Readers see the copy at its consistent point, then the table catching up, as they do in
PostgreSQL. They never see it go back: a copy that replaces an older one ends later than that stood.

The two writes that are not one, ``main`` and SQLite, and every death between two of them. *base* is
what ``main`` held before the attempt, P the consistent point, L the position in ``main``, O the
origin::

    died after                catalog  main        slot      what the successor does
    origin made, d stored     d        base        none      copies; the origin is used again
    slot made                 d        base        at P      drops the slot, new epoch, copies again
    rows copied to a branch   d        base        at P      the same; the branch is dropped
    copy shown                d        base+copy   at P      the same; main is set back to base
                                                             first: the copy is not adopted
    f stored, O = P           f        L = P       at P      fences, reads L, w at max(O, L)
    w, c                      f        L = P       <= O      the same; the answer c is asked anew
    a batch shown             f        L > O       <= O      the same: L says what the table holds,
                                                             the origin follows it
    its origin stored         f        L = O       <= O      the same
    feedback remembered       f        L <= O      <= O      the same: what lies between L and O
                                                             does not concern the table
    s shown                   f        L = s       <= O      the same, and at c = max(s, gated)
                                                             it is done
    s stored, origin dropped  s        L = s       there     exits at once; the slot is among the
                                                             leaked ones, where the same
                                                             transaction put it: the next command
                                                             drops it
    slot dropped              s        L = s       none      the next command forgets it

Nothing is lost: a worker asks for what lies after max(O, L), and the slot confirms no more than O,
which is stored before it is sent. Nothing is doubled: L is read behind a fence, and what ends at or
before it is skipped. While nobody runs, the apply worker drops the table's changes, and its
position moves on; the answer c of the next one says how far, and the slot has them all.

A worked trace. Copied at 8, f(8); the worker streams 8..20, shows 12 and dies before its origin is
stored. The apply worker has gated 40 by then. The next worker: f, O = 8, fence, L = 12; w(12);
c = max(12, 40) = 40; the slot, confirmed at 8, sends what came after 12; at 40 it is done: s(40).

*What f rests on may be gone.* The slot was dropped, invalidated, or moved on by somebody else; or
the positions are another server's. ``CatalogStore.update_subscription`` sets the origins back to
0/0 in the transaction that stores another server or timeline, and every transaction here that
stores a position compares the world once more (see ``workers.publisher.identify``), so an origin
that is not 0/0 is one of the server that the apply worker streams from. If anything of it does not
hold, the table goes back to ``d``: ``main`` is set back to base and the copy made again. A lake
table that is not what was left there is 55000, as anywhere.

*s before the slot is dropped.* The other way round, a death in between would leave ``f`` without a
slot. This way it leaves a slot, which holds WAL back; so it is listed as leaked, in the transaction
that stores ``s``, until it is known to be gone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace

from catalog.errcodes import ReplicationError
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.lake.sources import source_of
from workers.lake.table import LakeIdent, Stamp
from workers.process import failpoints
from workers.publisher.identify import check_same_publisher
from workers.publisher.replication_slots import RemoteSlot, fetch_slot
from workers.sync.attempt_check import check_attempt_and_publisher
from workers.sync.context import SyncContext
from workers.sync.table_writer import SyncWriter
from workers.tables.position import check_position
from workers.tables.shared_tables import publish_table_copy

log = logging.getLogger(__name__)


def begin_origin(store: CatalogStore, sub: Subscription, rel: SubscriptionRel) -> None:
    """In the transaction that stores ``d``: the origin, which also says that there may be a slot.

    A slot of this name that was listed as leaked is this attempt's from now on.
    """
    name = origin_name(sub.oid, rel.srrelid)
    if store.origin_by_name(name) is None:
        store.origin_create(name)
    store.forget_leaked_slot_of_server(_left(sub, rel))


def store_finishedcopy(
    context: SyncContext,
    rel: SubscriptionRel,
    branch: str,
    origin_startpos: LSN,
    new_branch: Callable[[], str],
) -> SubscriptionRel:
    """Stamp, fast-forward, ``f`` in the catalog, in this order; the row as it is then."""
    store, dest, sub = context.store, context.dest, context.sub
    origin, ident = origin_name(sub.oid, rel.srrelid), LakeIdent(rel.lake_schema, rel.lake_table)
    stamp = Stamp(origin, origin_startpos, rel.epoch or "", rel.floor, source_of(sub, rel))
    dest.write(ident, branch, [], stamp)
    check_attempt_and_publisher(store, sub, rel)
    publish_table_copy(dest, context.process.data_dir, ident, branch, stamp, new_branch)
    failpoints.reach("tablesync.copy_published")
    with store.transaction():
        # If not, main is set back by the next attempt, which finds d.
        copied = (
            rel.copied
            and check_attempt_and_publisher(store, sub, rel).fingerprint == rel.fingerprint
        )
        store.set_rel_state(sub.oid, rel.srrelid, SubRelState.FINISHEDCOPY, None, Setter.TABLESYNC)
        stored = store.update_rel(sub.oid, rel.srrelid, lake_lsn=origin_startpos, copied=copied)
        where = f"copy of {ident}"
        store.origin_advance(origin, origin_startpos, where, go_backward=True)
    failpoints.reach("tablesync.finishedcopy_stored")
    log.info("action=finished_copy subid=%d relid=%d lsn=%s", sub.oid, rel.srrelid, origin_startpos)
    return stored


def resume(context: SyncContext, rel: SubscriptionRel) -> LSN | None:
    """Where a table in ``f`` goes on; None if its copy has to be made again.

    Raises 55000 if the lake table is not what was left there.
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
        held = check_position(rel, fenced, sub.subname, source_of(sub, rel))
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
    """Why a slot cannot send everything after ``known``, None if it can. Pure."""
    if known == InvalidXLogRecPtr:
        return "its position was another server's or timeline's"
    if slot is None:
        return "its replication slot is gone"
    if not slot.ours:
        return "its replication slot is somebody else's"
    if slot.invalidation is not None:
        return f"its replication slot was invalidated ({slot.invalidation})"
    if slot.confirmed_flush_lsn is None or slot.confirmed_flush_lsn > known:
        return f"its replication slot stands at {slot.confirmed_flush_lsn}, beyond {known}"
    return None


def _store_start(store: CatalogStore, sub: Subscription, rel: SubscriptionRel, start: LSN) -> None:
    """The origin follows the table, unless the world is another one by now."""
    with store.transaction():
        check_attempt_and_publisher(store, sub, rel)
        where = f"LSN {start} of {rel.lake_schema}.{rel.lake_table}"
        store.origin_advance(origin_name(sub.oid, rel.srrelid), start, where)


def remember_flush(context: SyncContext, rel: SubscriptionRel, lsn: LSN) -> None:
    """The origin is never behind what was confirmed: the slot would look moved by somebody else.

    Nothing is stored for a table that has come to its end, or is to be copied again.
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
    """Stamp and show, then ``s``, the end of the origin and the slot as a leaked one, at once.

    What is known of the table's keys stays as it is stored.
    """
    store, sub = context.store, context.sub
    subid, relid = sub.oid, rel.srrelid
    failpoints.reach("tablesync.caught_up")

    def store_s() -> None:
        store.set_rel_state(subid, relid, SubRelState.SYNCDONE, s_lsn, Setter.TABLESYNC)
        store.update_rel(subid, relid, recopy=False)
        store.origin_drop(origin_name(subid, relid))
        store.put_leaked_slot(_left(sub, rel))

    writer.finish(rel, s_lsn, store_s)
    failpoints.reach("tablesync.syncdone_stored")


def drop_slot(context: SyncContext, rel: SubscriptionRel) -> None:
    """End the stream and drop the slot; one that cannot be dropped now stays among the leaked."""
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
    """The table's slot, as one that stays on the publisher."""
    name = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    return leaked_slot(sub, name, "its table is synchronised")
