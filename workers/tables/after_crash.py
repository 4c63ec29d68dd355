"""After a crash: fence the tables a dead worker was publishing.

A worker killed while publishing leaves a list of tables (``in_flight``), and perhaps a fast-forward
still under way in the lake. The successor commits an empty snapshot, the fence, on ``main`` of
every listed table. A late fast-forward either came before the fence, and is seen, or is refused:
``main`` is no ancestor of the late branch any more. Afterwards the successor can trust the tables'
positions and drop the dead worker's branches.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import BRANCH_PREFIX, LakeIdent
from workers.process import failpoints
from workers.tables.parallel import wait_for_all

log = logging.getLogger(__name__)


def settle_in_flight(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    ident_of: Callable[[int], LakeIdent | None],
    threads: Executor,
) -> None:
    """Fence every table of the list, put the tables' files onto the disk, then clear the list.

    ``ident_of`` names the lake table of a relid; None for a table no longer subscribed.
    """
    unfinished = store.in_flight(sub.oid)
    fence = partial(fence_unfinished_table, dest, store, sub)
    fenced = wait_for_all(
        threads.submit(fence, relid, lsn, ident_of(relid)) for relid, lsn in unfinished
    )
    # The dead worker may have published a batch without putting the files onto the disk. From now
    # on the worker skips the batch, and confirms positions behind the batch.
    dest.make_durable([ident for ident in fenced if ident is not None])
    store.clear_in_flight(sub.oid, [relid for relid, _ in unfinished])


def fence_unfinished_table(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    relid: int,
    lsn: LSN,
    ident: LakeIdent | None,
) -> LakeIdent | None:
    """Fence a table, then drop the dead worker's branches. Returns None for a missing table."""
    if ident is None or dest.table(ident) is None:
        return None
    failpoints.reach("apply.before_fence")
    dest.fence(ident)
    failpoints.reach("apply.fenced")
    rel = store.rel(sub.oid, relid)
    if rel is not None:
        prefix = branches_of(sub) if source_of(sub, rel) else BRANCH_PREFIX
        dest.drop_branches(ident, prefix=prefix)
    log.info("action=fence relid=%d lsn=%s table=%s", relid, lsn, ident)
    return ident
