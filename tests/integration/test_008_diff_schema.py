"""PostgreSQL's 008_diff_schema: the lake's table has columns of its own."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow
from tests.twin import native_rows, native_state
from tests.waiting import wait_until

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
    _refusals(flow)
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
    flow.lake("UPDATE {t}.test_tab2 SET b = 1")
    flow.pub.run(
        "ALTER TABLE test_tab2 REPLICA IDENTITY FULL",
        "UPDATE test_tab2 SET a = 2",
        "INSERT INTO test_tab2 VALUES (3)",
        "DELETE FROM test_tab2 WHERE a = 3",
    )
    flow.pgsub.wait("t008_tap_sub")
    log = flow.twin.server.log_file
    stopped = wait_until(
        lambda: NOT_SENT in log.read_text(errors="replace"), 60, flow.twin.log_tail
    )
    flow.facts["natively stopped"] = stopped, native_rows(flow.sub, "test_tab2")
    flow.facts["updated here"] = flow.pgsub.rows("t008", "test_tab2", ["a", "b"])
    flow.sub.run("ALTER TABLE test_tab2 DROP COLUMN b")
    flow.checkpoint("key dropped", "test_tab2", columns=SHARED)


NOT_SENT = (
    "publisher did not send replica identity column expected by the logical replication target"
    ' relation "t008.test_tab2"'
)
MISSING = (
    'logical replication target relation "t008.test_tab4" is missing replicated columns: "b", "c"'
)


def _columns_missing(flow: Flow) -> None:
    """The twin's table never had them, CREATE does not look; ours has lost them since."""
    flow.pub.run(
        "CREATE TABLE test_tab4 (a int PRIMARY KEY, b int, c int)",
        "INSERT INTO test_tab4 VALUES (1, 2, 3)",
        "CREATE PUBLICATION tap_pub4 FOR TABLE test_tab4",
    )
    flow.sub.run("CREATE TABLE test_tab4 (a int PRIMARY KEY)")
    flow.lake("CREATE TABLE {t}.test_tab4 (a int, b int, c int)")
    adopted = {"test_tab4": {"adopt": True}}
    name = flow.subscribe("late", ["tap_pub4"], tables=adopted, enabled=False)
    flow.lake("ALTER TABLE {t}.test_tab4 DROP COLUMNS (b, c)")
    flow.alter(name, "ENABLE")
    flow.wait_failing(name, "sync_error_count")
    ours = flow.states(name)["test_tab4"]
    flow.facts["states"] = ours, native_state(flow.sub, "test_tab4")
    logs = (flow.pgsub.log_file, flow.twin.server.log_file)
    flow.facts["said"] = [log.read_text(errors="replace").count(MISSING) for log in logs]
    # Each attempt of a worker commits to the table, and Iceberg does not repeat an ALTER TABLE that
    # another commit came before.
    flow.alter(name, "DISABLE")
    flow.sub.run("ALTER TABLE test_tab4 ADD COLUMN b int, ADD COLUMN c int")
    flow.lake("ALTER TABLE {t}.test_tab4 ADD COLUMNS (b int, c int)")
    flow.alter(name, "ENABLE")
    flow.checkpoint("columns there", "test_tab4")
    flow.drop(name)


REFUSED: dict[str, dict[str, str | bool]] = {
    "columns missing": {"adopt": True},
    "not adopted": {},
    "of a subscription here": {"to": "t008.test_tab", "adopt": True},
    "of a subscription elsewhere": {"to": "t008.elsewhere", "adopt": True},
}


def _refusals(flow: Flow) -> None:
    flow.lake(
        "CREATE TABLE {t}.elsewhere (a int, b int, c int) TBLPROPERTIES ('pgsub.owner' = 'other')"
    )
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    for label, spec in REFUSED.items():
        name = f"{flow.name}_refused"
        tables = {"t008.test_tab3": spec}
        ran = flow.pgsub.create(name, flow.pub.dsn, ["tap_pub3"], tables=tables, status=1)
        left = [row for row in flow.pgsub.status("pg_subscription") if row["subname"] == name]
        flow.facts[label] = ran.stdout + ran.stderr
        flow.facts[f"{label}: left"] = (flow.pub.value(slots, (name,)), left)
    flow.facts["lake"] = flow.lake_tables()


def test_s_008_1_the_copy_fills_local_columns_by_their_defaults(flow: Flow) -> None:
    assert len(flow.same("copy", "test_tab")) == 2
    assert flow.facts["copy"] == flow.facts["native copy"] == (2, 2, 2)


def test_s_008_2_an_update_leaves_local_columns(flow: Flow) -> None:
    """H-16."""
    assert len(flow.same("update", "test_tab")[0][1]) == 64
    assert flow.facts["update"] == flow.facts["native update"] == (2, 2, 2)


def test_s_008_4_an_insert_fills_defaults(flow: Flow) -> None:
    assert [row[0] for row in flow.same("insert", "test_tab")] == [2, 3]
    assert flow.facts["insert"] == flow.facts["native insert"] == (2, 2, 2)


def test_s_008_5_a_local_column_is_added_later(flow: Flow) -> None:
    assert flow.same("column added", "test_tab2") == [(1,)]


def test_s_008_5_as_a_key_it_stops_updates_natively_only(flow: Flow) -> None:
    """A lake table has no key: what the publisher sends finds the row, local values stay."""
    assert flow.facts["natively stopped"] == (True, [(1, 1)])
    assert flow.facts["updated here"] == [(2, 1)]
    assert flow.same("key dropped", "test_tab2") == [(2,)]


@pytest.mark.parametrize("label", REFUSED)
def test_a_refusal_leaves_nothing(flow: Flow, label: str) -> None:
    assert "HINT:" in flow.facts[label]
    assert "Traceback" not in flow.facts[label]
    assert flow.facts[f"{label}: left"] == (0, [])
    assert flow.facts["lake"] == {*(f"test_tab{n}" for n in ("", 2, 3, 4)), "elsewhere"}


def test_s_008_6_a_target_without_published_columns_is_refused_naming_them(flow: Flow) -> None:
    assert "ERROR:  55000: " in flow.facts["columns missing"]
    assert '"b"' in flow.facts["columns missing"]
    assert '"c"' in flow.facts["columns missing"]


def test_s_008_6_a_copy_into_it_names_them_and_is_tried_until_they_are_there(flow: Flow) -> None:
    assert flow.facts["states"] == ("d", "d")
    ours, native = flow.facts["said"]
    assert ours > 1
    assert native > 1
    assert flow.same("columns there", "test_tab4") == [(1, 2, 3)]


def test_a_lake_table_in_the_way_is_not_written_to(flow: Flow) -> None:
    exists = 'ERROR:  42P07: lake table "t008.test_tab3" already exists'
    assert exists in flow.facts["not adopted"]
    ours = 'ERROR:  55006: lake table "t008.test_tab" belongs to subscription "t008_tap_sub"'
    assert ours in flow.facts["of a subscription here"]
    theirs = 'ERROR:  55006: lake table "t008.elsewhere" is written by another subscription'
    assert theirs in flow.facts["of a subscription elsewhere"]
