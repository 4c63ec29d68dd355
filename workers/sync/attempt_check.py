"""Is this copy still wanted, and are its positions still those of this publisher?

While a table is copied, commands go on: the table may leave the subscription, be copied again, or
the subscription may go on from another server. Each step of a copy that readers or other workers
see is preceded by these checks, and the transaction that stores the step repeats them.
"""

from __future__ import annotations

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.publisher.identify import check_same_publisher


def check_same_attempt(store: CatalogStore, rel: SubscriptionRel) -> SubscriptionRel:
    """Return the table's row if it is still this attempt's; end the worker if not.

    A table that left and came back has a row again, with another copy id (``epoch``). So has a
    table that is to be copied anew. In both cases nobody wants this copy any more.
    """
    stored = store.rel(rel.srsubid, rel.srrelid)
    if stored is None or stored.epoch != rel.epoch:
        raise WorkerExit("the table has left the subscription, or is to be copied anew")
    return stored


def check_attempt_and_publisher(
    store: CatalogStore, sub: Subscription, rel: SubscriptionRel
) -> SubscriptionRel:
    """``check_same_attempt``, and the subscription still streams from the server of ``sub``."""
    check_same_publisher(sub, store.subscription(sub.oid))
    return check_same_attempt(store, rel)
