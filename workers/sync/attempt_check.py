"""Is this copy still wanted, and is it still of this publisher?"""

from __future__ import annotations

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.publisher.identify import check_same_publisher


def still_ours(store: CatalogStore, rel: SubscriptionRel) -> SubscriptionRel:
    """The table's row, if it is still this attempt's.

    A table that left and came back has a row again, with another epoch, and so has one that is to
    be copied anew: this copy is nobody's.
    """
    stored = store.rel(rel.srsubid, rel.srrelid)
    if stored is None or stored.epoch != rel.epoch:
        raise WorkerExit("the table has left the subscription, or is to be copied anew")
    return stored


def still_fits(store: CatalogStore, sub: Subscription, rel: SubscriptionRel) -> SubscriptionRel:
    """``still_ours``, and the subscription goes on from where ``sub`` was: before each step that
    counts, and in the transaction that stores it."""
    check_same_publisher(sub, store.subscription(sub.oid))
    return still_ours(store, rel)
