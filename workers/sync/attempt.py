"""Begin an attempt to copy a table, and undo the attempt before.

An attempt may fail again and again, so an attempt leaves nothing for long: the next attempt drops
the branches, the snapshots that only the branches led to, and the files, committed or not. Files of
a copy that readers may have seen on ``main`` go when the grace of readers is over. ``main`` gets a
snapshot (the fence) only if the attempt before may have been publishing. For that, an
attempt stores the position of its copy (``lake_lsn``) before the fast-forward::

    d, lake_lsn 0/0    killed in the copy             branch, snapshots and files go; main stays
    d, lake_lsn 0/900  killed around the fast-forward the fence first; then main is set back
"""

from __future__ import annotations

import logging
import uuid
from functools import partial

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, SyncSlot
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import BRANCH_PREFIX, LakeIdent, LakeTable
from workers.process import failpoints
from workers.sync import permanent_slot
from workers.sync.context import SyncContext
from workers.tables.maintenance.expired_files import list_expired, listed_files

log = logging.getLogger(__name__)


def begin_attempt(context: SyncContext, rel: SubscriptionRel) -> SubscriptionRel:
    """Undo an earlier attempt, then store ``d`` with this attempt's copy id and base."""
    store, sub = context.store, context.sub
    lake = context.dest.table(LakeIdent(rel.lake_schema, rel.lake_table))
    if lake is not None:
        lake = undo_published_attempt(sub, rel, lake, context.dest, store)
        # After a power cut main would have the old copy, and no row the old copy's id any more.
        context.dest.make_durable([lake.ident])
    with store.transaction():
        store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
        if sub.sync_slot is SyncSlot.PERMANENT:
            permanent_slot.begin_origin(store, sub, rel)
        else:  # the slot of an earlier attempt may have been permanent
            store.origin_drop(origin_name(sub.oid, rel.srrelid))
        return store.update_rel(
            rel.srsubid,
            rel.srrelid,
            epoch=str(uuid.uuid4()),
            attempt=rel.attempt + 1,
            base_snapshot=lake.snapshot_id if lake else None,
            lake_lsn=InvalidXLogRecPtr,
            copied=False,
        )


def undo_published_attempt(
    sub: Subscription,
    rel: SubscriptionRel,
    lake: LakeTable,
    dest: Destination,
    store: CatalogStore,
) -> LakeTable:
    """Undo a published copy that was never stored as s, or that a worker in f cannot use.

    Without a publication the attempt's branches and files are removed, and ``main`` stays as it is.

    The fence comes first. A dead worker may have left a fast-forward in flight. Either the
    fast-forward landed before the fence, and the undo sees the copy, or the fast-forward cannot
    land any more. A table that left the subscription and came back needs the fence too: the new row
    lacks the copy id of the old copy. The branches are dropped before main is set back, because
    from the base a fast-forward to a branch would be possible again.

    In a shared lake table a copy replaces the rows of its source only. So main is not set back, and
    rows that other sources have published since then stay.
    """
    prefix = branches_of(sub, rel.srrelid) if source_of(sub, rel) else BRANCH_PREFIX
    if not _may_be_publishing(rel, lake):
        dest.drop_branches(lake.ident, prefix=prefix)
        _discard(rel, dest, lake.ident, store, may_be_read=False)
        return lake
    failpoints.reach("tablesync.before_fence")
    fenced = dest.fence(lake.ident)
    failpoints.reach("tablesync.fenced")
    dest.drop_branches(lake.ident, prefix=prefix)
    if source_of(sub, rel):
        _discard(rel, dest, lake.ident, store, may_be_read=True)
        return fenced
    copied = fenced.stamp
    while _is_published(rel, fenced) and fenced.stamp == copied:
        if rel.base_snapshot is None:
            raise ObjectNotInPrerequisiteState(
                f'lake table "{lake.ident}" holds a copy that cannot be taken back',
                hint="DROP TABLE it with pgsub sql, then wait for the copy to start again.",
            )
        log.info("action=undo_copy relid=%d table=%s", rel.srrelid, lake.ident)
        dest.rollback(lake.ident, rel.base_snapshot)
        # From the base a late fast-forward could land again, if the lake's catalog compares only
        # the current snapshot of main.
        fenced = dest.fence(lake.ident)
    _discard(rel, dest, lake.ident, store, may_be_read=True)
    return fenced


def _discard(
    rel: SubscriptionRel,
    dest: Destination,
    ident: LakeIdent,
    store: CatalogStore,
    *,
    may_be_read: bool,
) -> None:
    """Remove the files of the attempt before, whatever ended the attempt.

    ``may_be_read``: ``main`` may have been at the copy. A query may still read the files of the
    copy's snapshots, so the files are listed, and go when the grace of readers is over. Files of
    the copy on no list go now: no snapshot ever had the files.

    The files of any other table stay. In ``i`` the row has no copy id, or has the copy id that a
    command stored for the next copy: the row names no attempt whose files could be removed. The
    files of a table that was copied whole are files of ``main``.
    """
    if rel.epoch is None or rel.srsubstate not in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY):
        return
    if not may_be_read:
        dest.discard_copy(ident, rel.epoch)
        return
    dest.discard_copy(ident, rel.epoch, partial(list_expired, store, rel.srsubid, ident))
    dest.discard_files(ident, rel.epoch, listed_files(store, ident))


def _may_be_publishing(rel: SubscriptionRel, lake: LakeTable) -> bool:
    """May a dead worker have a fast-forward of the table in flight, or have published the copy?

    A row in ``i`` does not tell: the table may have left the subscription during a copy. A data
    directory of an earlier version has no position in ``d``, so ``main`` is looked at, too.
    """
    in_copy = rel.srsubstate is SubRelState.DATASYNC and rel.lake_lsn == InvalidXLogRecPtr
    return not in_copy or _is_published(rel, lake)


def _is_published(rel: SubscriptionRel, lake: LakeTable) -> bool:
    """True if ``main`` has the copy of the attempt before."""
    started = rel.srsubstate in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY)
    stamp = lake.stamp
    if not started or stamp is None:
        return False
    return stamp.epoch == rel.epoch and stamp.lsn != InvalidXLogRecPtr
