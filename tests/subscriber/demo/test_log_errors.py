"""The last errors of the log."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from catalog.errcodes import ConnectionFailure, InsufficientPrivilege
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.demo.progress import Meter
from workers.process import log as server_log


@pytest.fixture
def _own_log(tmp_path: Path) -> Iterator[None]:
    server_log.setup("tablesync 16384/16390", tmp_path)
    yield
    root = logging.getLogger()
    for handler in [each for each in root.handlers if hasattr(each, "_owned")]:
        root.removeHandler(handler)
        handler.close()


@pytest.mark.usefixtures("_own_log")
def test_a_reading_has_the_error_of_a_table_that_is_not_copied(tmp_path: Path) -> None:
    now = 0.0
    store = CatalogStore.open(tmp_path)
    sub = store.insert_subscription(Subscription("sub", "host=db", ("p",), subuuid="u"))
    rel = store.insert_rel(
        SubscriptionRel(sub.oid, 0, SubRelState.INIT, None, "shop", "orders", "shop", "orders")
    )
    meter = Meter(tmp_path, "sub", {"orders": 10}, lambda: (LSN(1), None), int, clock=lambda: now)
    meter._store = store
    assert meter.read().error is None
    denied = InsufficientPrivilege('permission denied for table "orders"', hint="Grant it.")
    server_log.report(denied, subid=sub.oid, relid=rel.srrelid)
    server_log.report(InsufficientPrivilege("of a table that left"), relid=1)
    now = 1000.0
    shown = 'table "orders": 42501: permission denied for table "orders" (HINT: Grant it.)'
    assert meter.read().error == shown
    server_log.report(ConnectionFailure("lost the connection"), subid=sub.oid, relid=0)
    now = 1001.0
    assert meter.read().error == "08006: lost the connection"
    now = 1050.0
    assert meter.read().error == shown
    for state, lsn in ((SubRelState.DATASYNC, None), (SubRelState.SYNCDONE, LSN(5))):
        store.set_rel_state(sub.oid, rel.srrelid, state, lsn, Setter.TABLESYNC)
    assert meter.read().error is None
    meter.close()
