"""PostgreSQL's 008_diff_schema: the lake's table has columns of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.integration.flow import Flow

SHARED = {"test_tab": ["a", "b"], "test_tab2": ["a"]}


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t008")
    flow.pub.run(
        "CREATE TABLE test_tab (a int PRIMARY KEY, b varchar)",
        "INSERT INTO test_tab VALUES (1, 'foo'), (2, 'bar')",
        "CREATE TABLE test_tab2 (a int)",
        "CREATE TABLE test_tab3 (a int PRIMARY KEY, b int, c int)",
        "CREATE PUBLICATION tap_pub FOR TABLE test_tab, test_tab2",
        "CREATE PUBLICATION tap_pub3 FOR TABLE test_tab3",
    )
    flow.sub.run(
        "CREATE TABLE test_tab (a int PRIMARY KEY, b text, c timestamptz DEFAULT now(),"
        " d bigint DEFAULT 999)",
        "CREATE TABLE test_tab2 (a int)",
    )
    flow.lake("CREATE NAMESPACE IF NOT EXISTS {t}")
    flow.lake("CREATE TABLE {t}.test_tab (a int, b string, c timestamp, d bigint)")
    flow.lake("CREATE TABLE {t}.test_tab3 (a int)")
    defaults = {"c": "current_timestamp()", "d": "999"}
    flow.subscribe(
        "tap_sub", ["tap_pub"], tables={"test_tab": {"adopt": True, "defaults": defaults}}
    )
    _checkpoint(flow, "copy")
    flow.pub.run("UPDATE test_tab SET b = encode(sha256(b::bytea), 'hex')")
    _checkpoint(flow, "update")
    flow.sub.run("UPDATE test_tab SET c = 'epoch'::timestamptz + 987654321 * interval '1s'")
    flow.lake("UPDATE {t}.test_tab SET c = TIMESTAMP '2001-04-19 04:25:21'")
    flow.pub.run("INSERT INTO test_tab VALUES (3, 'three')", "DELETE FROM test_tab WHERE a = 1")
    _checkpoint(flow, "insert")
    _column_added(flow)
    _columns_missing(flow)
    return flow


def _checkpoint(flow: Flow, label: str) -> None:
    flow.checkpoint(label, "test_tab", columns=SHARED)
    counts = "SELECT count(*), count(c), count(*) FILTER (WHERE d = 999) FROM {t}.test_tab"
    [row] = flow.lake(counts)
    flow.facts[label] = tuple(row.values())
    flow.facts[f"native {label}"] = flow.sub.execute(counts.replace("{t}.", ""))[0]


def _column_added(flow: Flow) -> None:
    flow.sub.run("ALTER TABLE test_tab2 ADD COLUMN b serial PRIMARY KEY")
    flow.lake("ALTER TABLE {t}.test_tab2 ADD COLUMN b int")
    flow.pub.run("INSERT INTO test_tab2 VALUES (1)")
    flow.checkpoint("column added", "test_tab2", columns=SHARED)


def _columns_missing(flow: Flow) -> None:
    name = f"{flow.name}_missing"
    refused = flow.pgsub.create(
        name, flow.pub.dsn, ["tap_pub3"], tables={"t008.test_tab3": {"adopt": True}}, status=1
    )
    flow.facts["refused"] = refused.stdout + refused.stderr
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    left = [row for row in flow.pgsub.status("pg_subscription") if row["subname"] == name]
    flow.facts["left"] = (flow.pub.value(slots, (name,)), left)


def test_s_008_1_the_copy_fills_local_columns_by_their_defaults(flow: Flow) -> None:
    assert len(flow.same("copy", "test_tab")) == 2
    assert flow.facts["copy"] == flow.facts["native copy"] == (2, 2, 2)


def test_s_008_2_an_update_leaves_local_columns(flow: Flow) -> None:
    assert len(flow.same("update", "test_tab")[0][1]) == 64
    assert flow.facts["update"] == flow.facts["native update"] == (2, 2, 2)


def test_s_008_4_an_insert_fills_defaults(flow: Flow) -> None:
    assert [row[0] for row in flow.same("insert", "test_tab")] == [2, 3]
    assert flow.facts["insert"] == flow.facts["native insert"] == (2, 2, 2)


def test_s_008_5_a_local_column_is_added_later(flow: Flow) -> None:
    assert flow.same("column added", "test_tab2") == [(1,)]


def test_s_008_6_a_target_without_published_columns_is_refused_naming_them(flow: Flow) -> None:
    assert '"b"' in flow.facts["refused"]
    assert '"c"' in flow.facts["refused"]
    assert "Traceback" not in flow.facts["refused"]
    assert flow.facts["left"] == (0, [])
