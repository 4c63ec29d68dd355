"""PostgreSQL's 028_row_filter: filters in the copy and in the stream."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first, n_min_max
from tests.servers import every_version

ROOT = "WITH (publish_via_partition_root = true)"
TOAST = "repeat('1234567890', 200)"

SCHEMA = (
    "CREATE TABLE rf_1 (a int PRIMARY KEY, b text)",
    "ALTER TABLE rf_1 REPLICA IDENTITY FULL",
    "CREATE TABLE rf_2 (c int PRIMARY KEY)",
    "CREATE TABLE rf_3 (a int PRIMARY KEY, b boolean)",
    "CREATE TABLE rf_4 (c int PRIMARY KEY)",
    "CREATE TABLE rf_toast (a text NOT NULL, b text NOT NULL)",
    "ALTER TABLE rf_toast ALTER COLUMN a SET STORAGE EXTERNAL",
    "CREATE UNIQUE INDEX rf_toast_ri ON rf_toast (a, b)",
    "ALTER TABLE rf_toast REPLICA IDENTITY USING INDEX rf_toast_ri",
    "CREATE TABLE rf_inherited (a int)",
    "CREATE TABLE rf_child (b text) INHERITS (rf_inherited)",
)
PARTITIONED = (
    "CREATE TABLE rf_partitioned (a int PRIMARY KEY, b int) PARTITION BY RANGE (a)",
    "CREATE TABLE rf_less_10k (LIKE rf_partitioned)",
    "ALTER TABLE rf_partitioned ATTACH PARTITION rf_less_10k FOR VALUES FROM (MINVALUE) TO (10000)",
    "CREATE TABLE rf_greater_10k (LIKE rf_partitioned)",
    "ALTER TABLE rf_partitioned ATTACH PARTITION rf_greater_10k"
    " FOR VALUES FROM (10000) TO (MAXVALUE)",
    "CREATE TABLE rf_partitioned_2 (a int PRIMARY KEY, b int) PARTITION BY RANGE (a)",
    "CREATE TABLE rf_partition (LIKE rf_partitioned_2)",
    "ALTER TABLE rf_partitioned_2 ATTACH PARTITION rf_partition DEFAULT",
    "CREATE TABLE rf_parent_sync (a int) PARTITION BY RANGE (a)",
    "CREATE TABLE rf_child_sync PARTITION OF rf_parent_sync FOR VALUES FROM (1) TO (20)",
    "CREATE TABLE rf_viaroot (a int) PARTITION BY RANGE (a)",
    "CREATE TABLE rf_viaroot_1 PARTITION OF rf_viaroot FOR VALUES FROM (1) TO (20)",
)
FLAT = (
    "CREATE TABLE rf_less_10k (a int PRIMARY KEY, b int)",
    "CREATE TABLE rf_greater_10k (a int PRIMARY KEY, b int)",
    "CREATE TABLE rf_partition (a int PRIMARY KEY, b int)",
    "CREATE TABLE rf_parent_sync (a int)",
    "CREATE TABLE rf_viaroot (a int)",
)
LISTED_BEFORE_16 = ("rf_child_sync", "rf_viaroot_1")
"""Partitions of which an older publisher says that they are published beside their roots: H-24."""

PUBLICATIONS = (
    "CREATE PUBLICATION p_1 FOR TABLE rf_1 WHERE (a > 1000 AND b <> 'filtered')",
    "CREATE PUBLICATION p_2 FOR TABLE rf_2 WHERE (c % 2 = 0), rf_3",
    "CREATE PUBLICATION p_3 FOR TABLE rf_2 WHERE (c % 3 = 0), rf_3 WHERE (b)",
    "CREATE PUBLICATION p_4a FOR TABLE rf_partitioned, rf_less_10k WHERE (a < 6000)",
    "CREATE PUBLICATION p_4b FOR TABLE rf_4",
    "CREATE PUBLICATION p_5a FOR TABLE rf_partitioned_2",
    "CREATE PUBLICATION p_5b FOR TABLE rf_partition WHERE (a > 10)",
    f"CREATE PUBLICATION p_toast FOR TABLE rf_toast WHERE (a = {TOAST} AND b < '10')",
    "CREATE PUBLICATION p_inherits FOR TABLE rf_inherited WHERE (a > 15)",
    f"CREATE PUBLICATION p_parent_sync FOR TABLE rf_parent_sync WHERE (a > 15) {ROOT}",
    "CREATE PUBLICATION p_child_sync FOR TABLE rf_child_sync WHERE (a < 15)",
    f"CREATE PUBLICATION p_viaroot_1 FOR TABLE rf_viaroot WHERE (a > 15) {ROOT}",
    f"CREATE PUBLICATION p_viaroot_2 FOR TABLE rf_viaroot_1 WHERE (a < 15) {ROOT}",
    "CREATE PUBLICATION p_generated FOR TABLE rf_generated WHERE (y > 4) WITH (publish = 'insert')",
)
COPIED = (
    "INSERT INTO rf_1 SELECT x, 'test ' || x FROM generate_series(990, 1002) x",
    "INSERT INTO rf_1 VALUES (1, 'not replicated'), (1500, 'filtered'), (1980, 'not filtered')",
    "INSERT INTO rf_2 SELECT generate_series(1, 20)",
    "INSERT INTO rf_3 SELECT x, x % 3 = 0 FROM generate_series(1, 10) x",
    "INSERT INTO rf_4 SELECT generate_series(1, 10)",
    "INSERT INTO rf_partitioned VALUES (1, 100), (7000, 101), (15000, 102), (5500, 300)",
    "INSERT INTO rf_less_10k VALUES (2, 200), (6005, 201)",
    "INSERT INTO rf_greater_10k VALUES (16000, 103)",
    "INSERT INTO rf_partitioned_2 VALUES (1, 1), (20, 20)",
    f"INSERT INTO rf_toast VALUES ({TOAST}, '1234567890')",
    "INSERT INTO rf_inherited VALUES (10), (20)",
    "INSERT INTO rf_child VALUES (0, '0'), (30, '30'), (40, '40')",
    "INSERT INTO rf_parent_sync VALUES (14), (16)",
    "INSERT INTO rf_generated VALUES (1), (2), (3)",
)
STREAMED = (
    "INSERT INTO rf_1 VALUES (800, 'test 800'), (1600, 'test 1600'), (1601, 'test 1601'),"
    " (1602, 'filtered'), (1700, 'test 1700')",
    "UPDATE rf_1 SET b = NULL WHERE a = 1600",
    "UPDATE rf_1 SET b = 'test 1601 updated' WHERE a = 1601",
    "UPDATE rf_1 SET b = 'test 1602 updated' WHERE a = 1602",
    "DELETE FROM rf_1 WHERE a = 1700",
    "INSERT INTO rf_2 VALUES (21), (22), (23), (24), (25)",
    "INSERT INTO rf_4 VALUES (0), (11), (12)",
    "INSERT INTO rf_inherited VALUES (14), (16)",
    "INSERT INTO rf_child VALUES (13, '13'), (17, '17')",
    "INSERT INTO rf_viaroot VALUES (14), (15), (16)",
    "UPDATE rf_toast SET b = '1'",
    "INSERT INTO rf_generated VALUES (4), (5)",
)
TABLES = (
    "rf_1", "rf_2", "rf_3", "rf_4", "rf_less_10k", "rf_greater_10k", "rf_partition", "rf_toast",
    "rf_inherited", "rf_child", "rf_parent_sync", "rf_viaroot", "rf_generated",
)  # fmt: skip


@pytest.fixture(scope="module", params=every_version(18, since=15))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t028_{request.param}")
    if request.param < 16:
        flow.twin_only.update((*LISTED_BEFORE_16, "part"))
    _filters_or_none(flow)
    flow.both(*SCHEMA)
    flow.pub.run(*PARTITIONED)
    flow.sub.run(*FLAT)
    if request.param < 16:
        flow.sub.run(*(f"CREATE TABLE {leaf} (a int)" for leaf in LISTED_BEFORE_16))
    flow.pub.run(
        "CREATE TABLE rf_generated (x int PRIMARY KEY, y int GENERATED ALWAYS AS (x * 2) STORED)"
    )
    flow.sub.run("CREATE TABLE rf_generated (x int PRIMARY KEY)")
    flow.pub.run(*PUBLICATIONS, *COPIED)
    names = [words.split()[2] for words in PUBLICATIONS]
    flow.subscribe("sub", names)
    columns = {"rf_inherited": ["a"]}
    flow.checkpoint("copy", *TABLES, columns=columns)
    flow.facts["tables"] = flow.lake_tables()
    flow.pub.run(*STREAMED)
    flow.checkpoint("stream", *TABLES, columns=columns)
    return flow


def _filters_or_none(flow: Flow) -> None:
    """A filter beside FOR ALL TABLES, and beside TABLES IN SCHEMA, is none."""
    other = f"{flow.name}_x"
    flow.both(
        f"CREATE SCHEMA {other}",
        f"CREATE TABLE {other}.tab_x (x int PRIMARY KEY)",
        "CREATE TABLE tab_x (x int PRIMARY KEY)",
    )
    flow.pub.run(
        "INSERT INTO tab_x VALUES (0), (5), (10), (15), (20)",
        f"INSERT INTO {other}.tab_x VALUES (0), (5), (10), (15), (20)",
        "CREATE PUBLICATION p_x FOR TABLE tab_x WHERE (x > 10)",
        "CREATE PUBLICATION p_forall FOR ALL TABLES",
    )
    name = flow.subscribe("all", ["p_x", "p_forall"])
    flow.checkpoint("all tables", "tab_x")
    flow.pub.run("INSERT INTO tab_x VALUES (30), (1)")
    flow.checkpoint("all tables, stream", "tab_x")
    flow.drop(name)
    flow.pub.run("DROP PUBLICATION p_forall")
    flow.sub.run(f"TRUNCATE {other}.tab_x")
    flow.lake(f"DELETE FROM lake.{other}.tab_x")

    flow.pub.run(
        "CREATE TABLE tab_part (x int PRIMARY KEY) PARTITION BY RANGE (x)",
        f"CREATE TABLE {other}.part PARTITION OF tab_part DEFAULT",
        "INSERT INTO tab_part VALUES (9), (20)",
        f"CREATE PUBLICATION p_tab FOR TABLE {other}.tab_x WHERE (x > 10)",
        "CREATE PUBLICATION p_part FOR TABLE tab_part WHERE (x > 10)"
        " WITH (publish_via_partition_root = true)",
        f"CREATE PUBLICATION p_schema FOR TABLES IN SCHEMA {other}",
    )
    flow.sub.run("CREATE TABLE tab_part (x int PRIMARY KEY)", f"CREATE TABLE {other}.part (x int)")
    adopt = {f"{other}.tab_x": {"adopt": True}}
    name = flow.subscribe("schema", ["p_tab", "p_part", "p_schema"], tables=adopt)
    flow.checkpoint("in schema", f"{other}.tab_x", "tab_part")
    flow.pub.run(
        f"INSERT INTO {other}.tab_x VALUES (30), (1)", "INSERT INTO tab_part VALUES (5), (25)"
    )
    flow.checkpoint("in schema, stream", f"{other}.tab_x", "tab_part")
    flow.drop(name)
    flow.pub.run("DROP PUBLICATION p_schema", "DROP PUBLICATION p_part", "DROP PUBLICATION p_tab")


def test_s_028_1_or_for_all_tables_is_no_filter_in_the_copy(flow: Flow) -> None:
    assert len(flow.same("all tables", "tab_x")) == 5


def test_s_028_2_nor_in_the_stream(flow: Flow) -> None:
    assert len(flow.same("all tables, stream", "tab_x")) == 7


def test_s_028_3_or_tables_in_schema_is_no_filter_in_the_copy(flow: Flow) -> None:
    assert len(flow.same("in schema", f"{flow.name}_x.tab_x")) == 5


def test_s_028_4_nor_in_the_stream_but_a_root_s_filter_holds(flow: Flow) -> None:
    assert len(flow.same("in schema, stream", f"{flow.name}_x.tab_x")) == 7
    assert first(flow.same("in schema, stream", "tab_part")) == [20, 25]


def test_s_028_5_two_conditions_in_the_copy(flow: Flow) -> None:
    assert first(flow.same("copy", "rf_1")) == [1001, 1002, 1980]


def test_s_028_6_filters_of_two_publications_are_ored(flow: Flow) -> None:
    assert n_min_max(flow.same("copy", "rf_2")) == (13, 2, 20)


def test_s_028_7_one_filtered_and_one_not_is_all(flow: Flow) -> None:
    assert n_min_max(flow.same("copy", "rf_3")) == (10, 1, 10)


def test_s_028_8_an_unfiltered_table(flow: Flow) -> None:
    assert len(flow.same("copy", "rf_4")) == 10


def test_s_028_9_leaf_filters_hold_when_the_root_is_not_published(flow: Flow) -> None:
    assert first(flow.same("copy", "rf_less_10k")) == [1, 2, 5500]
    assert first(flow.same("copy", "rf_greater_10k")) == [15000, 16000]


def test_s_028_10_a_root_without_and_a_leaf_with_a_filter_is_none(flow: Flow) -> None:
    assert flow.same("copy", "rf_partition") == [(1, 1), (20, 20)]


def test_s_028_11_a_filter_on_a_large_value(flow: Flow) -> None:
    assert flow.same("copy", "rf_toast") == []


def test_s_028_12_a_parent_is_copied_without_its_children(flow: Flow) -> None:
    native, ours = flow.recorded["copy", "rf_inherited"]
    child = flow.same("copy", "rf_child")
    assert first(native) == [20, 30, 40]  # the parent's own and the children's
    assert first(ours) == [20]
    assert first(child) == [30, 40]


def test_s_028_13_the_root_s_filter_wins_over_the_leaf_s(flow: Flow) -> None:
    assert first(flow.same("copy", "rf_parent_sync")) == [16]
    assert "rf_child_sync" not in flow.facts["tables"]


def test_s_028_14_a_filter_on_a_generated_column(flow: Flow) -> None:
    assert first(flow.same("copy", "rf_generated")) == [3]


def test_s_028_15_17_18_changes_that_pass_enter_and_leave_the_filter(flow: Flow) -> None:
    rows: dict[int, str] = dict(flow.same("stream", "rf_1"))
    assert sorted(rows) == [1001, 1002, 1601, 1602, 1980]
    assert rows[1601] == "test 1601 updated"
    assert rows[1602] == "test 1602 updated"


def test_s_028_19_ored_filters_in_the_stream(flow: Flow) -> None:
    assert n_min_max(flow.same("stream", "rf_2")) == (16, 2, 24)
    assert n_min_max(flow.same("stream", "rf_4")) == (13, 0, 12)


def test_s_028_21_parent_and_child_in_the_stream(flow: Flow) -> None:
    native, ours = flow.recorded["stream", "rf_inherited"]
    assert first(native) == [16, 17, 20, 30, 40]
    assert first(ours) == [16, 20]
    assert first(flow.same("stream", "rf_child")) == [17, 30, 40]


def test_s_028_22_an_unchanged_large_value_that_enters_the_filter_is_sent(flow: Flow) -> None:
    [(a, b)] = flow.same("stream", "rf_toast")
    assert a == "1234567890" * 200
    assert b == "1"


def test_s_028_23_only_the_topmost_ancestor_s_filter(flow: Flow) -> None:
    """H-23."""
    assert first(flow.same("stream", "rf_viaroot")) == [16]
    assert "rf_viaroot_1" not in flow.facts["tables"]


def test_s_028_24_a_filter_on_a_generated_column_in_the_stream(flow: Flow) -> None:
    assert first(flow.same("stream", "rf_generated")) == [3, 4, 5]
