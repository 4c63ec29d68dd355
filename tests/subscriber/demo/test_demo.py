from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from rich.console import Console

from catalog.errcodes import ConnectionFailure, InsufficientPrivilege, ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.demo import demo
from subscriber.demo.display import DemoView
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from subscriber.demo.progress import Meter, Reading, TableProgress
from subscriber.demo.proof import Digest, Verdict, lake_query, publisher_query, verdicts
from subscriber.demo.workload import ORDERS, TABLES, Workload, fill
from tests.fix_publisher import Database
from tests.waiting import wait_until
from workers.process import log as server_log


def test_the_shop_is_large_enough_and_its_workload_changes_every_kind(
    publisher: EmbeddedPublisher, database: Database
) -> None:
    with publisher.connect(database.name) as connection:
        fill(connection)
    counts = {
        table.name: database.value(f"SELECT count(*) FROM shop.{table.name}") for table in TABLES
    }
    assert counts == {table.name: table.rows for table in TABLES}
    assert max(counts.values()) >= 200_000

    workload = Workload(lambda: database.dsn, rate=500)
    workload.start()
    wait_until(lambda: workload.by_kind["deleted"] > 5 or workload.error, 30)
    workload.stop()
    assert workload.error is None
    assert min(workload.by_kind[kind] for kind in ("inserted", "updated", "deleted")) > 0
    assert database.value("SELECT count(*) FROM shop.orders") > ORDERS

    answers = database.execute(publisher_query())
    assert [name for name, _, _ in answers] == [table.name for table in TABLES]
    before = {name: total for name, _, total in answers}
    database.execute("UPDATE shop.orders SET note = '' WHERE id = 1")  # NULL is not ''
    after = {name: total for name, _, total in database.execute(publisher_query())}
    assert {name for name in before if before[name] != after[name]} == {"orders"}


def test_the_proof_sees_a_difference() -> None:
    here = [(table.name, 2, "10") for table in TABLES]
    there = [{"name": table.name, "n": 2, "digest": "10"} for table in TABLES]
    assert all(verdict.equal for verdict in verdicts(here, there))
    there[1]["digest"] = "11"
    there[2]["n"] = "3"
    unequal = [verdict.table for verdict in verdicts(here, there) if not verdict.equal]
    assert unequal == [TABLES[1].name, TABLES[2].name]


def test_both_queries_read_every_column() -> None:
    for table in TABLES:
        for column in table.columns:
            assert column.name in publisher_query()
            assert column.name in lake_query()


def test_rates_and_lag_are_those_of_the_confirmed_position(tmp_path: Path) -> None:
    now, lsn, confirmed, rows = 0.0, 100, 100, 0
    meter = Meter(
        tmp_path,
        "sub",
        {"t": 10},
        lambda: (LSN(lsn), LSN(confirmed)),
        lambda: rows,
        clock=lambda: now,
    )
    assert meter.read().lag_seconds == 0.0
    for step in range(1, 5):  # a second and 100 rows each; nothing is confirmed
        now, lsn, rows = float(step), 100 + 10 * step, 100 * step
        reading = meter.read()
    assert (reading.lag_bytes, reading.lag_seconds, reading.applied_rate) == (40, 3.0, 0.0)
    now, confirmed = 5.0, 130
    reading = meter.read()
    assert (reading.lag_bytes, reading.lag_seconds) == (10, 1.0)
    assert reading.applied_rate == pytest.approx(100.0)  # 300 rows in the last 3 s
    assert reading.phase == "starting"
    assert not reading.synced


def test_without_a_terminal_lines_are_plain() -> None:
    text = io.StringIO()
    view = DemoView(Console(file=text, width=200))
    tables = (
        TableProgress("orders", "d", 50, 100, 25.0, 2.0),
        TableProgress("products", "r", 10, 10, None, None),
    )
    with view:
        view.show(Reading(4.0, "running", tables, 12.0, 2048, 0.5), "60 transactions/s")
        view.show(Reading(4.5, "running", tables, 12.0, 2048, 0.5), "too soon")
    view.verdict([Verdict("orders", Digest(1, "5"), Digest(1, "6"))])
    first, second = text.getvalue().splitlines()
    assert "[  4.0 s] orders d 50%  products r" in first
    assert "12 rows/s applied, lag 2,048 B, 0.5 s" in first
    assert "DIFFERENT" in second
    assert "\x1b" not in text.getvalue()


def test_the_last_error_is_shown_when_it_changes() -> None:
    text = io.StringIO()
    view = DemoView(Console(file=text, width=200))
    tables = (TableProgress("orders", "d", 0, 100, None, None),)
    denied = 'table "orders": 42501: permission denied for "a[b]" (HINT: Grant it.)'
    with view:
        for moment, error in enumerate([None, denied, denied, None, denied]):
            view.show(Reading(float(moment), "running", tables, 0.0, 0, 0.0, error), "shop")
    assert text.getvalue().count(f"ERROR:  {denied}\n") == 2
    on_terminal = io.StringIO()
    with DemoView(Console(file=on_terminal, width=120, force_terminal=True)) as view:
        view.show(Reading(1.0, "running", tables, 0.0, 0, 0.0, denied), "shop")
    assert f"ERROR:  {denied}" in on_terminal.getvalue()


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


def test_on_a_terminal_there_is_a_table_with_bars() -> None:
    text = io.StringIO()
    console = Console(file=text, width=120, force_terminal=True)
    tables = (TableProgress("orders", "d", 50, 100, 25.0, 2.0),)
    with DemoView(console) as view:
        view.show(Reading(4.0, "running", tables, 12.0, 20480, 0.5), "60 transactions/s")
    assert "is being copied" in text.getvalue()
    assert "━" in text.getvalue()


def test_a_folder_that_no_demo_made_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "precious").write_text("rows")
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        demo.run_demo(tmp_path)
    assert caught.value.hint
    assert (tmp_path / "precious").read_text() == "rows"
