"""What the catalog keeps of the upkeep of lake tables."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from catalog.lake_maintenance import (
    COMPACTION,
    EXPIRY,
    LakeMaintenance,
    LakeUpkeep,
    LakeWriter,
)
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore

SUB = Subscription("mysub", "host=db", ("pub",), subuuid="u", subslotname="mysub")


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    yield store
    store.close()


def add_table(store: CatalogStore, subid: int) -> SubscriptionRel:
    rel = SubscriptionRel(subid, 0, SubRelState.INIT, None, "public", "a", "public", "a")
    return store.insert_rel(rel)


@pytest.fixture
def rel(store: CatalogStore) -> SubscriptionRel:
    """A table whose orphan files were looked for."""
    added = add_table(store, store.insert_subscription(SUB).oid)
    store.put_lake_maintenance(orphans(added))
    return added


def orphans(rel: SubscriptionRel) -> LakeMaintenance:
    return LakeMaintenance(rel.srsubid, rel.srrelid, 7, 2, 30, "not ours")


def done(rel: SubscriptionRel, kind: str, at: int) -> LakeUpkeep:
    return LakeUpkeep(rel.srsubid, rel.srrelid, kind, times=1, done=at)


def failed(rel: SubscriptionRel, kind: str, at: int) -> LakeUpkeep:
    return LakeUpkeep(rel.srsubid, rel.srrelid, kind, failed=at, error="it did")


def test_upkeep_is_counted_by_kind(store: CatalogStore, rel: SubscriptionRel) -> None:
    for each in (done(rel, EXPIRY, 5), done(rel, COMPACTION, 6), done(rel, EXPIRY, 8)):
        store.add_lake_upkeep(each)
    assert store.lake_upkeep(rel.srsubid) == [
        LakeUpkeep(rel.srsubid, rel.srrelid, COMPACTION, 1, 6),
        LakeUpkeep(rel.srsubid, rel.srrelid, EXPIRY, 2, 8),
    ]
    assert store.lake_upkeep(rel.srsubid + 1) == []


def test_an_error_stays_until_that_kind_goes_well(
    store: CatalogStore, rel: SubscriptionRel
) -> None:
    kept = LakeUpkeep(rel.srsubid, rel.srrelid, EXPIRY, 1, 5, 9, "it did")
    for each in (done(rel, EXPIRY, 5), failed(rel, EXPIRY, 9), done(rel, COMPACTION, 10)):
        store.add_lake_upkeep(each)
    assert store.lake_upkeep(rel.srsubid)[1] == kept
    store.add_lake_upkeep(failed(rel, EXPIRY, 12))
    assert store.lake_upkeep(rel.srsubid)[1] == replace(kept, failed=12)
    store.add_lake_upkeep(done(rel, EXPIRY, 13))
    assert store.lake_upkeep(rel.srsubid)[1] == LakeUpkeep(rel.srsubid, rel.srrelid, EXPIRY, 2, 13)


def test_orphan_files_and_upkeep_do_not_overwrite_each_other(
    store: CatalogStore, rel: SubscriptionRel
) -> None:
    store.add_lake_upkeep(done(rel, EXPIRY, 5))
    store.put_lake_maintenance(replace(orphans(rel), since=9))
    store.add_lake_upkeep(done(rel, EXPIRY, 6))
    assert store.lake_maintenance(rel.srsubid) == [replace(orphans(rel), since=9)]
    assert [each.times for each in store.lake_upkeep(rel.srsubid)] == [2]


def test_upkeep_goes_with_the_table_and_does_not_come_back(
    store: CatalogStore, rel: SubscriptionRel
) -> None:
    store.add_lake_upkeep(done(rel, EXPIRY, 5))
    store.delete_rel(rel.srsubid, rel.srrelid)
    store.add_lake_upkeep(done(rel, EXPIRY, 6))  # by a worker that does not know it yet
    assert store.lake_upkeep(rel.srsubid) == []
    assert add_table(store, rel.srsubid).srrelid == rel.srrelid
    assert store.lake_upkeep(rel.srsubid) == []
    store.add_lake_upkeep(done(rel, EXPIRY, 7))
    assert store.lake_upkeep(rel.srsubid) == [done(rel, EXPIRY, 7)]
    store.delete_subscription(rel.srsubid)
    assert store.lake_upkeep(rel.srsubid) == []


def test_errors_that_are_forgotten_leave_the_counts(
    store: CatalogStore, rel: SubscriptionRel
) -> None:
    for each in (done(rel, EXPIRY, 5), failed(rel, EXPIRY, 9), failed(rel, COMPACTION, 9)):
        store.add_lake_upkeep(each)
    store.forget_maintenance_errors(rel.srsubid, rel.srrelid)
    assert store.lake_upkeep(rel.srsubid) == [done(rel, EXPIRY, 5)]


def test_the_last_writer_of_a_table_stays_as_long_as_the_table(
    store: CatalogStore, rel: SubscriptionRel
) -> None:
    chosen = LakeWriter(rel.srsubid, rel.srrelid, "auto", "files", "It can.")
    store.put_lake_writer(replace(chosen, relid=rel.srrelid + 1))  # the table has left
    assert store.lake_writers(rel.srsubid) == []
    store.put_lake_writer(chosen)
    assert store.lake_writers(rel.srsubid) == [chosen]
    version = store.data_version()
    store.put_lake_writer(chosen)
    assert store.data_version() == version  # no worker reads the catalog again for it
    other = replace(chosen, asked="spark", writer="spark", reason="So.")
    store.put_lake_writer(other)
    assert store.lake_writers(rel.srsubid) == [other]
    store.delete_rel(rel.srsubid, rel.srrelid)
    assert store.lake_writers(rel.srsubid) == []
