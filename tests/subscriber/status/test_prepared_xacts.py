"""The view of prepared transactions."""

from __future__ import annotations

from pathlib import Path

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from subscriber.status.prepared_xacts import pg_prepared_xacts
from subscriber.status.view_columns import PG_PREPARED_XACTS
from tests.workers.prepared import keep
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts


def test_what_is_prepared_is_listed_with_both_names(tmp_path: Path) -> None:
    store = CatalogStore.open(tmp_path)
    sub = store.insert_subscription(Subscription("s", "host=db", ("p",), subuuid="u"))
    assert pg_prepared_xacts(store, "lake") == []
    xact = PreparedXact("theirs", 7, LSN(1), LSN(2), 0, changes=3)
    keep(PreparedXacts(tmp_path, "u", sub.oid), xact)
    (row,) = pg_prepared_xacts(store, "lake")
    assert tuple(row) == tuple(PG_PREPARED_XACTS)
    assert (row["gid"], row["remote_gid"]) == (f"pg_gid_{sub.oid}_7", "theirs")
    assert str(row["prepared"]).startswith("2000-01-01 00:00:00")
    assert (row["database"], row["prepare_lsn"], row["changes"]) == ("lake", 1, 3)
    store.close()


def test_a_catalog_in_memory_has_no_folder() -> None:
    assert pg_prepared_xacts(CatalogStore.open(":memory:"), "lake") == []
