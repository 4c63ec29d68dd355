"""Check that a copy is still wanted, and that its positions belong to the current publisher.

While a sync worker copies a table, users go on with commands. A command may take the table out of
the subscription, have the table copied again, or move the subscription to another server. So the
worker runs the checks before every step of the copy that readers or other workers can see, and
again inside the catalog transaction that stores the step.
"""

from __future__ import annotations

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.publisher.identify import check_same_publisher
from workers.sync.context import SyncContext


def check_same_attempt(store: CatalogStore, rel: SubscriptionRel) -> SubscriptionRel:
    """Return the table's row if the row has the worker's copy id (``epoch``); else end the worker.

    A table that left the subscription and came back has a new row with a new copy id. A command
    that asks for a new copy stores a new copy id too. In both cases the worker's copy is obsolete.
    """
    stored = store.rel(rel.srsubid, rel.srrelid)
    if stored is None or stored.epoch != rel.epoch:
        raise WorkerExit("the table has left the subscription, or is to be copied anew")
    return stored


def check_attempt_and_publisher(
    store: CatalogStore, sub: Subscription, rel: SubscriptionRel
) -> SubscriptionRel:
    """Check the attempt, and check that the subscription still streams from the server of ``sub``.

    Returns the table's row, as ``check_same_attempt`` does.
    """
    check_same_publisher(sub, store.subscription(sub.oid))
    return check_same_attempt(store, rel)


def store_publication(context: SyncContext, rel: SubscriptionRel, at: LSN) -> None:
    """Check the attempt and the publisher, and store that the copy is about to be published.

    ``at`` is the position of the copy; ``workers.sync.attempt`` says what the position is for.
    """
    with context.store.transaction():
        check_attempt_and_publisher(context.store, context.sub, rel)
        context.store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=at)
