"""A subscription with a table, and the rows of a view."""

from __future__ import annotations

from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.status.views import view
from workers.process.worker_slots import LogicalRepWorker


def subscribed(store: CatalogStore) -> tuple[Subscription, SubscriptionRel]:
    sub = store.insert_subscription(
        Subscription(
            "mysub",
            "host=db",
            ("pub", "other pub"),
            subuuid="u",
            subslotname="mysub",
            subcreate=SubCreate.READY,
        )
    )
    rel = store.insert_rel(
        SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", "a", "public", "a")
    )
    store.origin_create("pg_16384")
    return sub, rel


def rows(name: str, store: CatalogStore, *workers: LogicalRepWorker) -> list[dict[str, object]]:
    found = view(name)
    made = found.rows(store, workers)
    assert all(tuple(row) == found.columns for row in made)
    return made
