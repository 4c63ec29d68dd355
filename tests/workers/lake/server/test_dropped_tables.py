"""The catalog keeps rows for the lake's tables, and not for every name that there ever was."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from tests.workers.lake.server.torn_tables import IDENT, TornLake, empty
from workers.lake.metadata.snapshots import OWNER
from workers.lake.server.dropped_tables import forget_what_left
from workers.lake.server.set_back import set_embedded_tables_back
from workers.lake.storage.local_path import local_path

DAYS = 100
FORGETTING = [
    forget_what_left,
    lambda data_dir, store: set_embedded_tables_back(data_dir),
]


@pytest.fixture
def lake(tmp_path: Path) -> TornLake:
    return TornLake(tmp_path)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[CatalogStore]:
    with closing(CatalogStore.open(tmp_path)) as opened:
        yield opened


def subscribe(store: CatalogStore, uuid: str, *tables: str) -> Subscription:
    sub = store.insert_subscription(Subscription("mysub", "host=db", ("pub",), subuuid=uuid))
    for name in tables:
        rel = SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "public", name, "public", name)
        store.insert_rel(rel)
    return sub


def drop_many(store: CatalogStore, *uuids: str) -> None:
    """Subscriptions come and go, more of them than the lake has tables."""
    for uuid in (*uuids, "dropped", "dropped too"):
        store.delete_subscription(subscribe(store, uuid).oid)


def give_to(lake: TornLake, uuid: str) -> str:
    """The table has another owner; its metadata file then."""
    with lake.table.transaction() as change:
        change.set_properties({OWNER: uuid})
    return lake.pointer.location


@pytest.mark.parametrize("forget", FORGETTING, ids=["a table leaves", "a start"])
def test_a_table_of_every_day_leaves_no_row(
    lake: TornLake, store: CatalogStore, forget: Callable[[Path, CatalogStore], None]
) -> None:
    """A table comes with each day, and the owner of the lake drops it a day later."""
    sub = subscribe(store, "u", "t", *(f"day{number}" for number in range(DAYS)))
    oids = {rel.lake_table: rel.srrelid for rel in store.rels(sub.oid)}
    store.put_lake_durable(
        (rel.lake_schema, rel.lake_table, f"file:/{rel.lake_table}") for rel in store.rels(sub.oid)
    )
    lake.catalog.create_table(f"public.day{DAYS - 1}", pa.schema([("id", pa.int64())]))
    for name, oid in oids.items():
        if name not in ("t", "day0"):
            store.delete_rel(sub.oid, oid)
    forget(lake.data_dir, store)
    there = {"t", f"day{DAYS - 1}"}
    assert {table for _, table, _ in store.lake_durable()} == there
    kept = [table for _, _, table in store.unused_lake_relations()]
    assert kept == [f"day{DAYS - 1}"], "the table may return"
    assert [rel.lake_table for rel in store.rels(sub.oid)] == ["t", "day0"], "day0 is not made yet"


def test_a_dropped_subscription_is_kept_while_it_owns_a_table(
    lake: TornLake, store: CatalogStore
) -> None:
    """The owners before count until the present owner is on the disk."""
    store.put_lake_durable([(IDENT.schema, IDENT.table, give_to(lake, "durable"))])
    give_to(lake, "before")
    give_to(lake, "now")
    drop_many(store, "durable", "before", "now")
    forget_what_left(lake.data_dir, store)
    assert store.former_owners() == {"durable", "before", "now"}


def test_few_dropped_subscriptions_cost_no_look_at_the_tables(
    lake: TornLake, store: CatalogStore
) -> None:
    store.delete_subscription(subscribe(store, "one").oid)
    forget_what_left(lake.data_dir, store)
    assert store.former_owners() == {"one"}


def test_an_owner_that_cannot_be_read_may_be_anybody(lake: TornLake, store: CatalogStore) -> None:
    drop_many(store)
    empty(local_path(lake.pointer.location))
    forget_what_left(lake.data_dir, store)
    assert len(store.former_owners()) == 2


@pytest.mark.parametrize(
    "elsewhere",
    [
        {"lake": {"catalog": {"type": "rest", "uri": "http://lake"}}},
        {"spark": {"remote": "sc://s"}},
    ],
    ids=["a catalog", "a server"],
)
def test_the_tables_of_another_lake_are_not_known(
    lake: TornLake, store: CatalogStore, elsewhere: dict[str, dict[str, object]]
) -> None:
    store.put_settings(elsewhere)
    store.put_lake_durable([("public", "other", "file:/other")])
    drop_many(store)
    forget_what_left(lake.data_dir, store)
    assert [table for _, table, _ in store.lake_durable()] == ["other"]
    assert len(store.former_owners()) == 2


def test_a_catalog_that_cannot_be_read_stops_no_command(
    lake: TornLake, store: CatalogStore
) -> None:
    store.put_lake_durable([("public", "other", "file:/other")])
    lake.file.write_bytes(b"no database" * 100)
    forget_what_left(lake.data_dir, store)
    assert [table for _, table, _ in store.lake_durable()] == ["other"]
