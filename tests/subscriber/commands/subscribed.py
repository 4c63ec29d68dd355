"""The row and the tables of a subscription of twins."""

from __future__ import annotations

from catalog.pg_subscription import (
    Subscription,
)
from tests.subscriber.twins import (
    Around,
)


def row(world: Around) -> Subscription:
    found = world.store.subscription_by_name("mysub")
    assert found is not None
    return found


def names(world: Around) -> list[tuple[str, str]]:
    return [(rel.relname, rel.srsubstate) for rel in world.store.rels(row(world).oid)]
