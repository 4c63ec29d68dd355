"""PostgreSQL's 100_bugs: what once went wrong.

Left out: S-100-1, -4, -10 (publisher's or heap's affairs), -9 (the client's own tests), -11 (no
triggers), -12 (a subscription that never connected).
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t100")
    _unlogged_tables(flow)
    _dropped_columns(flow)
    _slot_made_before(flow)
    _failing_row_filter(flow)
    return flow


@pytest.fixture(scope="module", params=every_version(18, since=15))
def fast_default(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t100_{request.param}")
    flow.both("CREATE TABLE tab_default (a int)", "ALTER TABLE tab_default REPLICA IDENTITY FULL")
    flow.pub.run(
        "INSERT INTO tab_default VALUES (1), (2)",
        "ALTER TABLE tab_default ADD COLUMN b bool DEFAULT false",
        "INSERT INTO tab_default VALUES (3, true)",
        "CREATE PUBLICATION pub_default FOR TABLE tab_default",
    )
    flow.sub.run("ALTER TABLE tab_default ADD COLUMN b bool DEFAULT false")
    flow.subscribe("default", ["pub_default"])
    flow.catch_up()
    flow.pub.run("DELETE FROM tab_default WHERE a = 1", "UPDATE tab_default SET a = 4 WHERE a = 2")
    flow.checkpoint("fast default", "tab_default")
    return flow


def _unlogged_tables(flow: Flow) -> None:
    flow.both("CREATE TABLE plain (a int)", "CREATE UNLOGGED TABLE unlogged (a int)")
    flow.pub.run("CREATE PUBLICATION pub_all FOR ALL TABLES")
    name = flow.subscribe("all", ["pub_all"])
    flow.catch_up()
    flow.pub.run(
        "CREATE TEMP TABLE temporary (a int)",
        "INSERT INTO temporary VALUES (1)",
        "INSERT INTO unlogged VALUES (1)",
        "INSERT INTO plain VALUES (1)",
    )
    flow.checkpoint("unlogged", "plain")
    flow.facts["tables"] = flow.lake_tables()
    flow.drop(name)
    flow.pub.run("DROP PUBLICATION pub_all", "DROP TABLE plain", "DROP TABLE unlogged")


def _dropped_columns(flow: Flow) -> None:
    flow.both(
        "CREATE TABLE dropped_cols (a int, b_drop int, c int)",
        "ALTER TABLE dropped_cols REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        "CREATE PUBLICATION pub_dropped FOR TABLE dropped_cols",
        "INSERT INTO dropped_cols VALUES (1, 1, 1)",
    )
    name = flow.subscribe("dropped", ["pub_dropped"])
    flow.catch_up()
    flow.both("ALTER TABLE dropped_cols DROP COLUMN b_drop")
    flow.pub.run("UPDATE dropped_cols SET a = 100")
    flow.checkpoint("dropped", "dropped_cols")
    flow.drop(name)


def _slot_made_before(flow: Flow) -> None:
    """Rows committed before, during and after each copy, under a slot older than all of them.

    The second table joins the publication, and is copied, while both are written.
    """
    flow.both("CREATE TABLE t (a int)", "CREATE TABLE t2 (a int)")
    flow.pub.run(
        "INSERT INTO t SELECT generate_series(1, 1000)",
        "INSERT INTO t2 SELECT generate_series(1, 1000)",
        "CREATE PUBLICATION pub_slot FOR TABLE t",
    )
    for suffix in ("", "_native"):
        create = "SELECT pg_create_logical_replication_slot(%s, 'pgoutput')"
        flow.pub.execute(create, (f"t100_slot{suffix}",))
    flow.pub.run("INSERT INTO t SELECT generate_series(1001, 2000)")
    copied = threading.Event()
    writer = threading.Thread(target=_write, args=(flow, copied))
    writer.start()
    try:
        name = flow.subscribe(
            "slot", ["pub_slot"], slot_name="t100_slot", create_slot=False, copy_data=True
        )
        written = [_last(flow)]
        flow.pub.run("ALTER PUBLICATION pub_slot ADD TABLE t2")
        flow.alter(name, "REFRESH PUBLICATION")
        written.append(_last(flow))
        flow.catch_up()
        written.append(_last(flow))
    finally:
        copied.set()
        writer.join()
    flow.facts["written"] = written
    flow.checkpoint("slot", "t", "t2")
    flow.facts["published"] = [
        flow.pub.execute(f"SELECT a FROM {table} ORDER BY a") for table in ("t", "t2")
    ]
    flow.drop(name)


def _failing_row_filter(flow: Flow) -> None:
    """A filter divides by a value of a row that INSERT … ON CONFLICT brings."""
    flow.both("CREATE TABLE tab_upsert (a int PRIMARY KEY, b text)")
    flow.pub.run(
        "CREATE PUBLICATION pub_filter FOR TABLE tab_upsert WHERE (100 / a > 0)",
        "CREATE PUBLICATION pub_plain FOR TABLE tab_upsert",
    )
    name = flow.subscribe("filter", ["pub_filter"])
    flow.catch_up()
    flow.pub.run(
        "INSERT INTO tab_upsert VALUES (1, 'one') ON CONFLICT DO NOTHING",
        "INSERT INTO tab_upsert VALUES (0, repeat('x', 10000)), (2, 'two') ON CONFLICT DO NOTHING",
        "INSERT INTO tab_upsert VALUES (1, 'uno') ON CONFLICT (a) DO UPDATE SET b = excluded.b",
    )
    flow.wait_failing(name)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    flow.facts["filter states"] = flow.same_letters(name)
    flow.alter(name, "SET PUBLICATION pub_plain")
    flow.checkpoint("no filter", "tab_upsert")
    flow.drop(name)


def _write(flow: Flow, copied: threading.Event) -> None:
    """A row a transaction into the one table, four at a time into the other."""
    numbers = itertools.count(2001)
    with flow.pub.connect() as connection:
        while not copied.is_set():
            number = next(numbers)
            connection.execute("INSERT INTO t VALUES (%s)", (number,))
            if number % 4 == 0:
                connection.execute(
                    "INSERT INTO t2 SELECT generate_series(%s::int, %s::int)", (number, number + 3)
                )


def _last(flow: Flow) -> int:
    """What was written last to the table that joins."""
    return int(flow.pub.value("SELECT max(a) FROM t2"))


def test_s_100_2_temporary_and_unlogged_tables_send_nothing(flow: Flow) -> None:
    assert flow.same("unlogged", "plain") == [(1,)]
    assert "unlogged" not in flow.facts["tables"]


def test_s_100_3_a_slot_older_than_the_copy_loses_and_doubles_nothing(flow: Flow) -> None:
    """Neither does a table that joins later, by REFRESH."""
    for table, published in zip(("t", "t2"), flow.facts["published"], strict=True):
        assert sorted(flow.same("slot", table)) == published
    written = flow.facts["written"]
    assert written == sorted(set(written)), "rows came at each step"


def test_s_100_7_dropped_columns_under_identity_full(flow: Flow) -> None:
    assert flow.same("dropped", "dropped_cols") == [(100, 1)]


def test_s_100_8_a_column_added_with_a_fast_default(fast_default: Flow) -> None:
    assert fast_default.same("fast default", "tab_default") == [(3, True), (4, False)]


def test_s_100_13_a_row_filter_that_fails_stops_the_stream(flow: Flow) -> None:
    """It is tried again; without the filter nothing is missing, and nothing comes twice."""
    assert "division by zero" in flow.facts["log"]
    assert flow.facts["filter states"] == {"tab_upsert": "r"}
    rows = [(a, b[:3]) for a, b in flow.same("no filter", "tab_upsert")]
    assert rows == [(0, "xxx"), (1, "uno"), (2, "two")]
