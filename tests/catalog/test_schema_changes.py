"""The remembered columns of tables, and the changes that the lake followed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from catalog.pg_lsn import LSN
from catalog.schema_changes import SchemaChange, StoredShape
from catalog.store_sqlite import CatalogStore
from tests.subscriber.status.subscribed import subscribed


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    with closing(CatalogStore.open(":memory:")) as store:
        yield store


def test_columns_are_those_of_the_present_copy(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    store.update_rel(sub.oid, rel.srrelid, epoch="one")
    store.put_columns(sub.oid, rel.srrelid, "one", "{}")
    assert store.columns(sub.oid, rel.srrelid) == "{}"
    store.put_columns(sub.oid, rel.srrelid, "late", "[]")
    assert store.columns(sub.oid, rel.srrelid) == "{}"
    store.update_rel(sub.oid, rel.srrelid, epoch="two")
    assert store.columns(sub.oid, rel.srrelid) is None


def test_the_newest_changes_of_a_table_are_kept_and_go_with_it(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    for n in range(30):
        store.add_schema_change(sub.oid, rel.srrelid, n, LSN(n), [f"change {n}"])
    found = store.schema_changes()
    assert [change.changed for change in found] == list(range(10, 30))
    assert found[-1] == SchemaChange(sub.oid, rel.srrelid, 29, LSN(29), ("change 29",))
    store.delete_rel(sub.oid, rel.srrelid)
    assert store.schema_changes() == []


def test_a_captured_shape_goes_with_its_copy_and_with_other_triggers(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    store.update_rel(sub.oid, rel.srrelid, epoch="one")
    stored = StoredShape(LSN(7), "{}", 4, using=True)
    for triggers, kept in (("1/2", False), ("1/2", True), ("1/3", False), (None, False)):
        store.put_ddl_capture(sub.oid, triggers)
        found = store.captured_shape(sub.oid, rel.srrelid)
        assert found == (stored if kept else None)
        assert store.ddl_capture() == ({} if triggers is None else {sub.oid: triggers})
        store.put_captured_shape(sub.oid, rel.srrelid, "one", stored)
    store.put_ddl_capture(sub.oid, "1/2")
    store.put_captured_shape(sub.oid, rel.srrelid, "one", stored)
    store.update_rel(sub.oid, rel.srrelid, epoch="two")
    assert store.captured_shape(sub.oid, rel.srrelid) is None
