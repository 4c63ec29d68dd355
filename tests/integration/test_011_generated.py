"""PostgreSQL's 011_generated, as far as the target generates; what the publisher does is in 003.

Left out: S-011-3 (triggers). PostgreSQL's one table has three beside it: identity FULL, a column
of the target's own that an expression uses, and a large value that an UPDATE does not send.
"""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import SETTINGS
from tests.integration.flow import Flow
from tests.waiting import wait_until

TABLES = ("tab1", "tab_full", "tab_own", "tab_large")
NATIVE = (
    "CREATE TABLE tab1 (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 22) STORED,"
    " c int GENERATED ALWAYS AS (a * 33) VIRTUAL)",
    "CREATE TABLE tab_full (a int, t text, g text GENERATED ALWAYS AS (a::text || t) STORED)",
    "ALTER TABLE tab_full REPLICA IDENTITY FULL",
    "CREATE TABLE tab_own (a int PRIMARY KEY, own int DEFAULT 7,"
    " g int GENERATED ALWAYS AS (a + own) STORED)",
    "CREATE TABLE tab_large (id int PRIMARY KEY, v text, large text,"
    " g text GENERATED ALWAYS AS (v || right(large, 3)) STORED)",
)
OURS: dict[str, dict[str, Any]] = {
    "tab1": {"generated": {"b": "a * 22", "c": "a * 33"}},
    "tab_full": {"generated": {"g": "CAST(a AS STRING) || t"}},
    "tab_own": {"adopt": True, "defaults": {"own": "7"}, "generated": {"g": "a + own"}},
    "tab_large": {"generated": {"g": "v || right(large, 3)"}},
}
REFUSED = (
    'logical replication target relation "t011.t1" has incompatible generated columns: "c2", "c3"'
)


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t011")
    flow.sub.run(*NATIVE)
    flow.pub.run(
        "CREATE TABLE tab1 (a int PRIMARY KEY, b int GENERATED ALWAYS AS (a * 2) STORED)",
        "CREATE TABLE tab_full (a int, t text)",
        "ALTER TABLE tab_full REPLICA IDENTITY FULL",
        "CREATE TABLE tab_own (a int PRIMARY KEY)",
        "CREATE TABLE tab_large (id int PRIMARY KEY, v text, large text)",
        "ALTER TABLE tab_large ALTER large SET STORAGE EXTERNAL",
        "INSERT INTO tab1 (a) VALUES (1), (2), (3)",
        "INSERT INTO tab_full VALUES (1, 'x'), (1, 'x'), (2, NULL)",
        "INSERT INTO tab_own VALUES (1), (2)",
        "INSERT INTO tab_large VALUES (1, 'a', repeat('large', 20000)), (2, 'b', NULL)",
        f"CREATE PUBLICATION pub FOR TABLE {', '.join(TABLES)}",
    )
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    flow.lake("CREATE TABLE {t}.tab_own (a int, own int, g int)")
    flow.subscribe("sub", ["pub"], tables=OURS)
    flow.checkpoint("copy", *TABLES)
    flow.facts["columns"] = flow.pgsub.arrow("t011", "tab1").column_names
    flow.sub.run("UPDATE tab_own SET own = 100 WHERE a = 1")
    flow.lake("UPDATE {t}.tab_own SET own = 100 WHERE a = 1")
    flow.pub.run(
        "INSERT INTO tab1 (a) VALUES (4), (5)",
        "INSERT INTO tab_full VALUES (3, 'y')",
        "INSERT INTO tab_own VALUES (3)",
        "INSERT INTO tab_large VALUES (3, 'c', repeat('c', 3))",
    )
    flow.checkpoint("insert", *(set(TABLES) - {"tab_own"}))
    flow.pub.run(
        "UPDATE tab1 SET a = 6 WHERE a = 5",
        "UPDATE tab_full SET t = 'z' WHERE ctid = (SELECT min(ctid) FROM tab_full WHERE a = 1)",
        "UPDATE tab_own SET a = a + 10",
        "UPDATE tab_large SET v = 'new' WHERE id = 1",
        "UPDATE tab_large SET id = 20, large = 'now' WHERE id = 2",
    )
    flow.checkpoint("update", *TABLES)
    _incompatible(flow)
    return flow


def _incompatible(flow: Flow) -> None:
    """First in the copy, then in the stream; each side is told to generate no more in its way."""
    flow.pub.run(
        "CREATE TABLE t1 (c1 int PRIMARY KEY, c2 int, c3 int GENERATED ALWAYS AS (c1 * 2) STORED)",
        "INSERT INTO t1 VALUES (1)",
        "CREATE PUBLICATION pub1 FOR TABLE t1 (c1, c2, c3)",
    )
    flow.sub.run(
        "CREATE TABLE t1 (c1 int PRIMARY KEY, c2 int GENERATED ALWAYS AS (c1 + 2) STORED,"
        " c3 int GENERATED ALWAYS AS (c1 + 2) STORED)"
    )
    generated = {"t011.t1": {"generated": {"c2": "c1 + 2", "c3": "c1 + 2"}}}
    created = flow.pgsub.create("t011_no", flow.pub.dsn, ["pub1"], tables=generated, status=1)
    flow.facts["created"] = created.stderr
    _publish(flow, "c1")
    tables = {"t1": generated["t011.t1"]}
    name = flow.subscribe("sub1", ["pub1"], tables=tables, enabled=False)
    _publish(flow, "c1, c2, c3")
    flow.alter(name, "ENABLE")
    flow.wait_failing(name, "sync_error_count")
    flow.facts["states"] = flow.same_letters(name)
    flow.facts["copy"] = _errors(flow, name)
    flow.facts["lake"] = flow.lake_tables()
    _publish(flow, "c1")
    flow.checkpoint("t1 copied", "t1")
    _publish(flow, "c1, c2, c3")
    flow.pub.run("INSERT INTO t1 VALUES (2, 0)")
    flow.wait_failing(name)
    flow.facts["apply"] = _errors(flow, name)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    flow.facts["native log"] = flow.twin.server.log_file.read_text(errors="replace")
    flow.sub.run("ALTER TABLE t1 ALTER c2 DROP EXPRESSION, ALTER c3 DROP EXPRESSION")
    _up_without_generated(flow, name)
    flow.checkpoint("t1 plain", "t1")


def _publish(flow: Flow, columns: str) -> None:
    flow.pub.run(f"ALTER PUBLICATION pub1 SET TABLE t1 ({columns})")


def _errors(flow: Flow, name: str) -> list[tuple[str, str]]:
    rows = [row for row in flow.pgsub.status("last_errors") if row["subname"] == name]
    return [(row["sqlstate"], row["message"]) for row in rows]


def _up_without_generated(flow: Flow, name: str) -> None:
    """The file says otherwise now, and ``up`` reads it anew."""
    file = flow.pgsub.scratch / "up.yaml"
    before = file.read_text()
    entry = {"connection": flow.pub.dsn, "publication": ["pub1"]}
    flow.pgsub.file({"subscriptions": {name: entry}, "settings": SETTINGS}, "up.yaml")
    flow.pgsub.launcher.send_signal(signal.SIGHUP)
    said = f'subscription "{name}" was brought in line: tables'
    wait_until(lambda: said in flow.pgsub.log_tail(10_000), 120, flow.pgsub.log_tail)
    file.write_text(before)


def test_s_011_1_the_copy_computes_what_the_target_generates(flow: Flow) -> None:
    """What the publisher generates does not come."""
    assert flow.facts["columns"] == ["a", "b", "c"]
    assert flow.same("copy", "tab1") == [(1, 22, 33), (2, 44, 66), (3, 66, 99)]
    assert flow.same("copy", "tab_full") == [(1, "x", "1x"), (1, "x", "1x"), (2, None, None)]
    assert flow.same("copy", "tab_own") == [(1, 7, 8), (2, 7, 9)]
    assert [row[3] for row in flow.same("copy", "tab_large")] == ["arge", None]


def test_s_011_2_so_do_inserts(flow: Flow) -> None:
    assert flow.same("insert", "tab1")[3:] == [(4, 88, 132), (5, 110, 165)]
    assert flow.same("insert", "tab_full")[-1] == (3, "y", "3y")
    assert flow.same("insert", "tab_large")[2] == (3, "c", "ccc", "cccc")


def test_s_011_2_and_updates(flow: Flow) -> None:
    """Of the key, of one of two equal rows, and of what is beside a large value that stays."""
    assert flow.same("update", "tab1")[3:] == [(4, 88, 132), (6, 132, 198)]
    assert flow.same("update", "tab_full")[:2] == [(1, "x", "1x"), (1, "z", "1z")]
    found = {row[0]: row[3] for row in flow.same("update", "tab_large")}
    assert found == {1: "newrge", 20: "bnow", 3: "cccc"}


def test_s_011_2_with_a_column_of_the_target_s_own(flow: Flow) -> None:
    assert flow.same("update", "tab_own") == [(11, 100, 111), (12, 7, 19), (13, 7, 20)]


def test_s_011_10_create_refuses_published_columns_that_are_generated(flow: Flow) -> None:
    assert f"ERROR:  55000: {REFUSED}" in flow.facts["created"]


def test_s_011_10_the_copy_stops_and_names_them_all(flow: Flow) -> None:
    assert flow.facts["copy"] == [("55000", REFUSED)]
    assert flow.facts["states"] == {"t1": "d"}
    assert "t1" not in flow.facts["lake"]
    assert flow.same("t1 copied", "t1") == [(1, 3, 3)]


def test_s_011_10_so_does_apply(flow: Flow) -> None:
    assert flow.facts["apply"] == [("55000", REFUSED)]
    assert flow.facts["log"].count(REFUSED) > 3
    assert flow.facts["native log"].count(REFUSED) > 3
    assert flow.same("t1 plain", "t1") == [(1, 3, 3), (2, 0, 4)]
