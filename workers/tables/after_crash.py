"""After a crash: fence the tables a dead worker was publishing.

A worker killed while publishing leaves a list of tables (``in_flight``), and perhaps a fast-forward
still under way in the lake. The successor commits an empty snapshot, the fence, on ``main`` of
every listed table. A late fast-forward either came before the fence, and is seen, or is refused:
``main`` is no ancestor of the late branch any more. Afterwards the successor can trust the tables'
positions and drop the dead worker's branches.

The positions behind the fences are stored as published. The dead worker may have died between a
fast-forward and the storing, and the successor skips in that table what the table holds already.
Without the stored position nobody would notice that main of the table is set back later.
"""

from __future__ import annotations

import logging
from concurrent.futures import Executor
from functools import partial

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import BRANCH_PREFIX, LakeIdent, LakeTable
from workers.process import failpoints
from workers.tables.parallel import wait_for_all

log = logging.getLogger(__name__)


def settle_in_flight(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    threads: Executor,
) -> None:
    """Fence every table of the list, put the tables' files onto the disk, then clear the list."""
    unfinished = store.in_flight(sub.oid)
    fence = partial(fence_unfinished_table, dest, store, sub)
    fenced = wait_for_all(threads.submit(fence, relid, lsn) for relid, lsn in unfinished)
    # The dead worker may have published a batch without putting the files onto the disk. From now
    # on the worker skips the batch, and confirms positions behind the batch.
    dest.make_durable([table.ident for table in fenced if table is not None])
    with store.transaction():
        for (relid, _), table in zip(unfinished, fenced, strict=True):
            if table is not None:
                _store_published(store, sub, relid, table)
        store.clear_in_flight(sub.oid, [relid for relid, _ in unfinished])


def _store_published(store: CatalogStore, sub: Subscription, relid: int, table: LakeTable) -> None:
    """Store the position of a fenced table that the apply worker writes to."""
    rel = store.rel(sub.oid, relid)
    if rel is None or rel.srsubstate not in (SubRelState.SYNCDONE, SubRelState.READY):
        return
    stamp = table.position(source_of(sub, rel))
    if stamp is not None and stamp.epoch == rel.epoch and stamp.lsn > rel.lake_lsn:
        store.update_rel(sub.oid, relid, lake_lsn=stamp.lsn)


def fence_unfinished_table(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    relid: int,
    lsn: LSN,
) -> LakeTable | None:
    """Fence a table, drop the dead worker's branches, return the table.

    None if the table has left the subscription, or if the lake table is missing.
    """
    rel = store.rel(sub.oid, relid)
    if rel is None:
        return None
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    if dest.table(ident) is None:
        return None
    failpoints.reach("apply.before_fence")
    table = dest.fence(ident)
    failpoints.reach("apply.fenced")
    prefix = branches_of(sub) if source_of(sub, rel) else BRANCH_PREFIX
    dest.drop_branches(ident, prefix=prefix)
    log.info("action=fence relid=%d lsn=%s table=%s", relid, lsn, ident)
    return table
