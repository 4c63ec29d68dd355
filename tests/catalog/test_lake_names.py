"""What is kept of lake tables is forgotten only while nobody has a use for the row."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from tests.subscriber.status.subscribed import subscribed


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    with closing(CatalogStore.open(":memory:")) as opened:
        yield opened


def test_the_durable_file_of_a_table_that_came_again_stays(store: CatalogStore) -> None:
    store.put_lake_durable([("public", "t", "file:/1"), ("public", "u", "file:/2")])
    store.put_lake_durable([("public", "t", "file:/3")])
    store.forget_lake_durable("public", "t", "file:/1")
    store.forget_lake_durable("public", "u", "file:/2")
    assert store.lake_durable() == [("public", "t", "file:/3")]


def test_the_oid_of_a_table_that_a_subscription_has_stays(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    store.forget_lake_relation(rel.srrelid)
    assert store.unused_lake_relations() == []
    store.delete_subscription(sub.oid)
    assert store.unused_lake_relations() == [(rel.srrelid, rel.lake_schema, rel.lake_table)]
    store.forget_lake_relation(rel.srrelid)
    assert store.unused_lake_relations() == []


def test_a_former_owner_goes_alone(store: CatalogStore) -> None:
    for uuid in ("one", "two"):
        sub = store.insert_subscription(Subscription("mysub", "host=db", ("pub",), subuuid=uuid))
        store.delete_subscription(sub.oid)
    assert store.former_owners() == {"one", "two"}
    store.forget_former_owner("one")
    assert store.former_owners() == {"two"}
