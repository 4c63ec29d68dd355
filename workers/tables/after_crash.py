"""What a predecessor left of a batch that it was publishing."""

from __future__ import annotations

import logging

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import BRANCH_PREFIX, LakeIdent
from workers.process import failpoints

log = logging.getLogger(__name__)


def settle(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    relid: int,
    lsn: LSN,
    ident: LakeIdent | None,
) -> None:
    """Fence a table, so that its position can be read, and drop the predecessor's branches."""
    if ident is None or dest.table(ident) is None:
        return
    failpoints.reach("apply.before_fence")
    dest.fence(ident)
    failpoints.reach("apply.fenced")
    rel = store.rel(sub.oid, relid)
    if rel is not None:
        prefix = branches_of(sub) if source_of(sub, rel) else BRANCH_PREFIX
        dest.drop_branches(ident, prefix=prefix)
    log.info("action=fence relid=%d lsn=%s table=%s", relid, lsn, ident)
