"""PostgreSQL's 025_rep_changes_for_schema: what TABLES IN SCHEMA publishes comes and goes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first, n_min_max
from tests.servers import every_version

TABLES = (
    "CREATE SCHEMA {s}",
    "CREATE TABLE {s}.tab1 (a int)",
    "CREATE TABLE {s}.tab2 (a int)",
    "CREATE TABLE {s}.tab1_parent (a int PRIMARY KEY, b text) PARTITION BY LIST (a)",
    "CREATE TABLE tab1_child1 PARTITION OF {s}.tab1_parent FOR VALUES IN (1, 2, 3)",
    "CREATE TABLE tab1_child2 PARTITION OF {s}.tab1_parent FOR VALUES IN (4, 5, 6)",
)
CHILDREN = ("tab1_child1", "tab1_child2")


@pytest.fixture(scope="module", params=every_version(16, 18, since=15))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t025_{request.param}")
    schema = f"{flow.name}_sch1"
    flow.both(*(words.format(s=schema) for words in TABLES))
    flow.pub.run(
        f"INSERT INTO {schema}.tab1 SELECT generate_series(1, 10)",
        f"INSERT INTO {schema}.tab2 SELECT generate_series(1, 10)",
        f"INSERT INTO {schema}.tab1_parent VALUES (1), (4)",
        f"CREATE PUBLICATION tap_pub_schema FOR TABLES IN SCHEMA {schema}",
    )
    name = flow.subscribe("tap_sub_schema", ["tap_pub_schema"])
    flow.checkpoint("copy", f"{schema}.tab1", f"{schema}.tab2", *CHILDREN)
    flow.both(f"CREATE TABLE {schema}.tab3 (a int)")
    flow.pub.run(
        f"INSERT INTO {schema}.tab1 SELECT generate_series(11, 20)",
        f"INSERT INTO {schema}.tab1_parent VALUES (2), (5)",
        f"INSERT INTO {schema}.tab3 SELECT generate_series(1, 10)",
    )
    flow.checkpoint("stream", f"{schema}.tab1", f"{schema}.tab2", *CHILDREN)
    flow.facts["before refresh"] = _tables(flow)
    flow.facts["native before refresh"] = flow.sub.value(f"SELECT count(*) FROM {schema}.tab3")
    flow.alter(name, "REFRESH PUBLICATION")
    flow.catch_up()
    flow.pub.run(f"INSERT INTO {schema}.tab3 VALUES (11)")
    _leave(flow, name, schema)
    return flow


def _leave(flow: Flow, name: str, schema: str) -> None:
    """Tables leave the schema, then the schema its publication."""
    flow.checkpoint("refreshed", f"{schema}.tab3")
    flow.pub.run(
        f"ALTER TABLE {schema}.tab3 SET SCHEMA {flow.name}", "INSERT INTO tab3 VALUES (12)"
    )
    flow.checkpoint("moved", f"{schema}.tab3")
    flow.pub.run(f"DROP TABLE {schema}.tab2")
    flow.catch_up()
    flow.facts["dropped"] = _tables(flow)
    flow.alter(name, "REFRESH PUBLICATION")
    flow.facts["dropped and refreshed"] = _tables(flow)
    flow.pub.run(
        f"INSERT INTO {schema}.tab1 VALUES (21)",
        f"ALTER PUBLICATION tap_pub_schema DROP TABLES IN SCHEMA {schema}",
        f"INSERT INTO {schema}.tab1 VALUES (22)",
    )
    flow.checkpoint("schema left", f"{schema}.tab1")


def _tables(flow: Flow) -> list[dict[str, str]]:
    """State letters by table, natively and here."""
    return [
        {table: letter for (_, _, table), letter in letters.items()} for letters in flow.letters()
    ]


def _ready(*tables: str) -> dict[str, str]:
    return dict.fromkeys((*tables, *CHILDREN), "r")


def test_s_025_1_tables_of_a_schema_are_copied(flow: Flow) -> None:
    """The partitions of one of them lie in another schema."""
    for table in ("tab1", "tab2"):
        assert n_min_max(flow.same("copy", f"{flow.name}_sch1.{table}")) == (10, 1, 10)
    assert [first(flow.same("copy", child)) for child in CHILDREN] == [[1], [4]]


def test_s_025_2_and_streamed(flow: Flow) -> None:
    assert n_min_max(flow.same("stream", f"{flow.name}_sch1.tab1")) == (20, 1, 20)
    assert n_min_max(flow.same("stream", f"{flow.name}_sch1.tab2")) == (10, 1, 10)
    assert [first(flow.same("stream", child)) for child in CHILDREN] == [[1, 2], [4, 5]]


def test_s_025_3_a_new_table_waits_for_refresh(flow: Flow) -> None:
    native, ours = flow.facts["before refresh"]
    assert ours == native == _ready("tab1", "tab2")
    assert flow.facts["native before refresh"] == 0


def test_s_025_4_and_is_copied_and_streamed_after_it(flow: Flow) -> None:
    assert n_min_max(flow.same("refreshed", f"{flow.name}_sch1.tab3")) == (11, 1, 11)


def test_a_table_that_moves_to_another_schema_sends_nothing_more(flow: Flow) -> None:
    assert n_min_max(flow.same("moved", f"{flow.name}_sch1.tab3")) == (11, 1, 11)


def test_s_025_6_a_table_that_was_dropped_leaves_at_the_next_refresh(flow: Flow) -> None:
    """So does the one that has moved to another schema."""
    native, ours = flow.facts["dropped"]
    assert ours == native == _ready("tab1", "tab2", "tab3")
    native, ours = flow.facts["dropped and refreshed"]
    assert ours == native == _ready("tab1")


def test_s_025_7_the_schema_leaves_between_two_inserts(flow: Flow) -> None:
    assert n_min_max(flow.same("schema left", f"{flow.name}_sch1.tab1")) == (21, 1, 21)
