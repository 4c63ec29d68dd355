"""The publisher's types of tables in the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

import pytest

from catalog.changed_text import StoredTextTypes
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore

SUB = Subscription("mysub", "host=db", ("pub",), subuuid="u", subslotname="mysub")


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    with closing(CatalogStore.open(":memory:")) as store:
        yield store


def subscribed(store: CatalogStore) -> StoredTextTypes:
    """The types of a table under copy id "one"."""
    sub = store.insert_subscription(SUB)
    rel = SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", "a", "public", "a")
    rel = store.insert_rel(replace(rel, epoch="one"))
    return StoredTextTypes(sub.oid, rel.srrelid, "one", "{}")


def test_types_belong_to_a_copy_and_go_with_the_table(store: CatalogStore) -> None:
    row = subscribed(store)
    assert store.text_types(row.subid, row.relid) is None
    changed = row.changed("{1}", ["a label"], now=5)
    for each in (row, changed):
        store.put_text_types(each)
        assert store.text_types(row.subid, row.relid) == each
    assert store.changed_text() == [changed]
    store.update_rel(row.subid, row.relid, epoch="two")
    assert (store.text_types(row.subid, row.relid), store.changed_text()) == (None, [])
    store.put_text_types(changed)  # of a worker that does not know of the new copy yet
    assert store.text_types(row.subid, row.relid) is None
    store.put_text_types(replace(row, epoch="two"))
    assert store.text_types(row.subid, row.relid) == replace(row, epoch="two")
    store.delete_rel(row.subid, row.relid)
    assert store.text_types(row.subid, row.relid) is None
    store.put_text_types(row)  # the table has left


def test_changes_of_a_long_life_stay_few() -> None:
    row = StoredTextTypes(1, 2, "one", "{}")
    for number in range(100):
        row = row.changed("{}", [f"change {number}", "always the same"], now=10 + number)
    assert row.since == 10
    assert len(row.changes) <= 10
    assert "change 99" in row.detail
    assert row.changed("{new}", [], now=500).changes == row.changes
    assert StoredTextTypes(1, 2, "one", "{}").changed("{}", [], now=5).since is None
