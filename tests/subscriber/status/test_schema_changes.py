"""The view of followed changes, with the copies that changes waited for."""

from __future__ import annotations

from datetime import UTC, datetime

from catalog.pg_lsn import LSN
from catalog.store_sqlite import CatalogStore
from tests.subscriber.status.subscribed import rows, subscribed

AT = 1_763_000_000_000_001


def test_a_followed_change(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    said = ['column "a" added', 'column "b" dropped']
    store.add_schema_change(sub.oid, rel.srrelid, AT, LSN(500), said)
    store.end_copy_of_change(sub.oid, rel.srrelid, AT + 5_000_000)
    (row,) = rows("schema_changes", store)
    assert row == {
        "subid": sub.oid,
        "subname": "mysub",
        "relid": rel.srrelid,
        "relation": "public.a",
        "changed_time": datetime(2025, 11, 13, 2, 13, 20, 1, UTC),
        "lsn": LSN(500),
        "description": 'column "a" added; column "b" dropped',
        "copy_state": None,
        "copy_seconds": None,
    }


def test_a_change_with_a_copy(store: CatalogStore) -> None:
    sub, rel = subscribed(store)
    store.add_schema_change(sub.oid, rel.srrelid, AT, LSN(500), ["rewritten"], copies=True)
    (row,) = rows("schema_changes", store)
    assert (row["copy_state"], row["copy_seconds"]) == ("running", None)
    store.end_copy_of_change(sub.oid, rel.srrelid, AT + 5_000_000)
    store.end_copy_of_change(sub.oid, rel.srrelid, AT + 9_000_000)
    (row,) = rows("schema_changes", store)
    assert (row["copy_state"], row["copy_seconds"]) == ("done", 5)
