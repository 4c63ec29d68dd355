"""``pgsub reset-stats``: PostgreSQL's function ``pg_stat_reset_subscription_stats``.

A worker counts in the transaction that makes a batch durable. Counts after a reset are therefore of
batches that became durable after the reset.
"""

from __future__ import annotations

import time

from catalog.errcodes import UndefinedObject
from catalog.store_sqlite import CatalogStore


def reset_subscription_stats(name: str | None, store: CatalogStore) -> None:
    """Zero the counters of a subscription, or of all, and store the time; 42704 if missing."""
    with store.transaction():
        subs = store.subscriptions() if name is None else [store.subscription_by_name(name)]
        now = time.time_ns() // 1000
        for sub in subs:
            if sub is None:
                raise UndefinedObject(f'subscription "{name}" does not exist')
            store.reset_subscription_stats(sub.oid, now)
