"""PostgreSQL's 013_partition: changes under the leaf's identity, or under the root's.

Left out: S-013-3 (triggers), -22 (who wrote a row), -25 (identity of local objects). S-013-12 needs
a publisher of 16 or newer, as all here are.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow, first
from tests.servers import every_version
from tests.waiting import wait_until

LEAVES = ("tab1_1", "tab1_2", "tab1_def")


@pytest.fixture(scope="module", params=every_version(18, since=16))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t013_{request.param}")
    _leaf_identity(flow)
    _one_target(flow)
    _via_root(flow)
    _via_root_dml(flow)
    _columns_change(flow)
    _rows_gone_under_the_root(flow)
    _target_changes(flow)
    return flow


def _leaf_identity(flow: Flow) -> None:
    flow.pub.run(
        "CREATE TABLE tab1 (a int PRIMARY KEY, b text) PARTITION BY LIST (a)",
        "CREATE TABLE tab1_1 (b text, a int NOT NULL)",  # another column order than the root's
        "ALTER TABLE tab1 ATTACH PARTITION tab1_1 FOR VALUES IN (1, 2, 3)",
        "CREATE TABLE tab1_2 PARTITION OF tab1 FOR VALUES IN (4, 5, 6)",
        "CREATE TABLE tab1_def PARTITION OF tab1 DEFAULT",
        "CREATE PUBLICATION pub1 FOR TABLE tab1",
    )
    flow.sub.run(*(f"CREATE TABLE {leaf} (a int PRIMARY KEY, b text)" for leaf in LEAVES))
    flow.subscribe("sub1", ["pub1"])
    flow.catch_up()
    flow.pub.run("INSERT INTO tab1 VALUES (1)", "INSERT INTO tab1_1 (a) VALUES (3)")
    flow.pub.run("INSERT INTO tab1_2 VALUES (5)", "INSERT INTO tab1 VALUES (0)")
    flow.checkpoint("insert", *LEAVES)
    flow.pub.run("UPDATE tab1 SET a = 2 WHERE a = 1", "UPDATE tab1 SET a = 6 WHERE a = 5")
    flow.checkpoint("inside a leaf", *LEAVES)
    flow.pub.run("UPDATE tab1 SET a = 1 WHERE a = 0", "UPDATE tab1 SET a = 4 WHERE a = 1")
    flow.checkpoint("across leaves", *LEAVES)
    flow.pub.run("DELETE FROM tab1 WHERE a IN (2, 3, 5)", "DELETE FROM tab1_2")
    flow.checkpoint("delete", *LEAVES)
    flow.pub.run("INSERT INTO tab1 VALUES (1), (2), (5)", "TRUNCATE tab1_2")
    flow.checkpoint("truncate a leaf", *LEAVES)
    flow.pub.run("TRUNCATE tab1")
    flow.checkpoint("truncate the root", *LEAVES)
    _rows_gone(flow)


def _rows_gone(flow: Flow) -> None:
    [name] = flow.subscriptions
    flow.pub.run("INSERT INTO tab1 VALUES (1, 'foo'), (4, 'bar'), (10, 'baz')")
    flow.catch_up()
    for leaf in LEAVES:
        flow.sub.run(f"DELETE FROM {leaf}")
        flow.lake(f"DELETE FROM {{t}}.{leaf}")
    flow.pub.run("UPDATE tab1 SET b = 'quux' WHERE a = 4")
    flow.catch_up()  # in one batch with the DELETE the UPDATE would leave no trace
    flow.pub.run("DELETE FROM tab1")
    flow.checkpoint("rows gone", *LEAVES)
    flow.facts["rows gone"] = _missing(flow, name)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)


def _missing(flow: Flow, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """update_missing and delete_missing, here and natively, once the latter shows any."""
    columns = ("confl_update_missing", "confl_delete_missing")
    stats = flow.pgsub.status("pg_stat_subscription_stats")
    [ours] = [tuple(row[each] for each in columns) for row in stats if row["subname"] == name]
    query = f"SELECT {', '.join(columns)} FROM pg_stat_subscription_stats WHERE subname = %s"
    values = (f"{name}_native",)

    def native() -> tuple[int, ...] | None:
        [counted] = flow.sub.execute(query, values)
        return counted if all(counted) else None

    return ours, wait_until(native, 60, "the twin's counters")


def _one_target(flow: Flow) -> None:
    """Leaves sent as themselves, all of them to one lake table, as to one partitioned table."""
    leaves = {
        "tab5_1": "FOR VALUES IN (1, 2, 3)",
        "tab5_2": "FOR VALUES IN (4, 5, 6)",
        "tab5_def": "DEFAULT",
    }
    flow.both(
        "CREATE TABLE tab5 (a int PRIMARY KEY, b text) PARTITION BY LIST (a)",
        *(f"CREATE TABLE {leaf} PARTITION OF tab5 {bound}" for leaf, bound in leaves.items()),
    )
    flow.pub.run("CREATE PUBLICATION pub5 FOR TABLE tab5", "INSERT INTO tab5 VALUES (1), (0)")
    target = {"to": f"{flow.name}.tab5", "shared": True}
    flow.subscribe("sub5", ["pub5"], tables=dict.fromkeys(leaves, target))
    flow.catch_up()
    flow.pub.run("INSERT INTO tab5 VALUES (3), (5)")
    flow.checkpoint("one target", "tab5")
    for new, old in ((6, 5), (4, 6), (6, 4)):
        flow.pub.run(f"UPDATE tab5 SET a = {new} WHERE a = {old}")
    flow.checkpoint("inside, one target", "tab5")
    flow.pub.run("UPDATE tab5 SET a = 2 WHERE a = 0", "UPDATE tab5 SET a = 4 WHERE a = 2")
    flow.checkpoint("across, one target", "tab5")
    flow.pub.run("TRUNCATE tab5_1")
    flow.checkpoint("one leaf truncated", "tab5")
    flow.pub.run("INSERT INTO tab5 VALUES (1)", "DELETE FROM tab5 WHERE a = 4")
    flow.checkpoint("delete, one target", "tab5")


def _via_root(flow: Flow) -> None:
    root = "WITH (publish_via_partition_root = true)"
    flow.pub.run(
        "CREATE TABLE tab2 (a int PRIMARY KEY, b text) PARTITION BY LIST (a)",
        "CREATE TABLE tab2_1 (b text, a int NOT NULL)",
        "ALTER TABLE tab2 ATTACH PARTITION tab2_1 FOR VALUES IN (0, 1, 2, 3)",
        "CREATE TABLE tab2_2 PARTITION OF tab2 FOR VALUES IN (5, 6)",
        "CREATE TABLE tab3 (a int PRIMARY KEY, b text) PARTITION BY LIST (a)",
        "CREATE TABLE tab3_1 PARTITION OF tab3 FOR VALUES IN (0, 1, 2, 3, 5, 6)",
        "CREATE TABLE tab4 (a int PRIMARY KEY) PARTITION BY LIST (a)",
        "CREATE TABLE tab4_1 PARTITION OF tab4 FOR VALUES IN (-1, 0, 1) PARTITION BY LIST (a)",
        "CREATE TABLE tab4_1_1 PARTITION OF tab4_1 FOR VALUES IN (-1, 0, 1)",
        f"CREATE PUBLICATION pub_viaroot FOR TABLE tab2, tab2_1, tab3_1 {root}",
        f"CREATE PUBLICATION pub_top FOR TABLE tab4 {root}",
        f"CREATE PUBLICATION pub_lower_level FOR TABLE tab4_1 {root}",
        "INSERT INTO tab2 VALUES (1)",
        "INSERT INTO tab4 VALUES (-1)",
    )
    flow.sub.run(
        "CREATE TABLE tab2 (a int PRIMARY KEY, b text)",
        "CREATE TABLE tab3_1 (a int PRIMARY KEY, b text)",
        "CREATE TABLE tab4 (a int PRIMARY KEY)",
        "CREATE TABLE tab4_1 (a int PRIMARY KEY)",
    )
    flow.subscribe("viaroot", ["pub_viaroot"])
    swapped = flow.subscribe("lower", ["pub_top", "pub_lower_level"])
    flow.checkpoint("root copy", "tab2", "tab3_1", "tab4")
    flow.facts["tables"] = flow.lake_tables()
    flow.facts["lower"] = flow.same_letters(swapped)


def _via_root_dml(flow: Flow) -> None:
    flow.pub.run(
        "INSERT INTO tab2 VALUES (0), (3), (5)",
        "INSERT INTO tab3 VALUES (1), (0), (3), (5)",
        "INSERT INTO tab4 VALUES (0)",
    )
    flow.checkpoint("root insert", "tab2", "tab3_1", "tab4")
    flow.pub.run("UPDATE tab2 SET a = 6 WHERE a = 5", "UPDATE tab3 SET a = 6 WHERE a = 5")
    flow.checkpoint("root update", "tab2", "tab3_1")
    flow.pub.run("UPDATE tab2 SET a = 2 WHERE a = 6", "UPDATE tab3 SET a = 2 WHERE a = 6")
    flow.checkpoint("across, as the root", "tab2", "tab3_1")
    flow.pub.run("DELETE FROM tab2", "DELETE FROM tab3")
    flow.checkpoint("root delete", "tab2", "tab3_1")
    flow.pub.run("INSERT INTO tab2 VALUES (1), (2), (5)", "TRUNCATE tab2_1")
    flow.checkpoint("leaf truncate, as the root", "tab2")
    flow.pub.run("TRUNCATE tab2")
    flow.checkpoint("root truncate", "tab2")

    flow.drop(flow.subscriptions[-1])
    flow.sub.run("TRUNCATE tab4, tab4_1")
    flow.lake("DELETE FROM {t}.tab4")
    flow.subscribe("swapped", ["pub_lower_level", "pub_top"], tables={"tab4": {"adopt": True}})
    flow.catch_up()
    flow.pub.run("INSERT INTO tab4 VALUES (1)")
    flow.checkpoint("list swapped", "tab4")


def _columns_change(flow: Flow) -> None:
    """S-013-24 without a column that leaves: the publisher's order of columns changes."""
    flow.pub.run(
        "INSERT INTO tab2 VALUES (1, 'one')",
        "ALTER TABLE tab2 ADD COLUMN c int",
        "ALTER TABLE tab2 DROP COLUMN c",
        "INSERT INTO tab2 VALUES (2, 'two')",
        "UPDATE tab2 SET b = 'eins' WHERE a = 1",
    )
    flow.checkpoint("columns change", "tab2")


def _rows_gone_under_the_root(flow: Flow) -> None:
    flow.sub.run("DELETE FROM tab2")
    flow.lake("DELETE FROM {t}.tab2")
    flow.pub.run("UPDATE tab2 SET b = 'quux' WHERE a = 2", "DELETE FROM tab2 WHERE a = 1")
    flow.checkpoint("rows gone under the root", "tab2")
    flow.facts["rows gone under the root"] = _missing(flow, f"{flow.name}_viaroot")
    flow.facts["log"] += flow.pgsub.log_tail(10_000)


def _target_changes(flow: Flow) -> None:
    """Columns of the target, then of the publisher, are dropped and added again."""
    flow.pub.run(
        "CREATE TABLE tab6 (a int NOT NULL, b int)",
        "CREATE UNIQUE INDEX tab6_a_idx ON tab6 (a)",
        "ALTER TABLE tab6 REPLICA IDENTITY USING INDEX tab6_a_idx",
        "CREATE PUBLICATION pub6 FOR TABLE tab6",
    )
    flow.sub.run(
        "CREATE TABLE tab6 (a int NOT NULL, b int, c int) PARTITION BY LIST (a)",
        "CREATE TABLE tab6_1 PARTITION OF tab6 DEFAULT",
        "CREATE UNIQUE INDEX tab6_a_idx ON tab6 (a)",
        "ALTER TABLE tab6 REPLICA IDENTITY USING INDEX tab6_a_idx",
        "ALTER TABLE tab6_1 REPLICA IDENTITY USING INDEX tab6_1_a_idx",
    )
    flow.lake("CREATE TABLE {t}.tab6 (a int, b int, c int)")
    # As the twin: a column that is dropped and added again keeps its old values.
    natively = {"adopt": True, "on_schema_change": "stop"}
    flow.subscribe("sub6", ["pub6"], tables={"tab6": natively})
    flow.pub.run("INSERT INTO tab6 VALUES (1, 1)", "UPDATE tab6 SET a = 2 WHERE a = 1")
    flow.checkpoint("before the target changes", "tab6")
    flow.sub.run(
        "ALTER TABLE tab6 DETACH PARTITION tab6_1",
        "ALTER TABLE tab6_1 DROP COLUMN b",
        "ALTER TABLE tab6_1 ADD COLUMN b int",
        "ALTER TABLE tab6 ATTACH PARTITION tab6_1 DEFAULT",
    )
    flow.lake("ALTER TABLE {t}.tab6 DROP COLUMN b")
    flow.lake("ALTER TABLE {t}.tab6 ADD COLUMN b int")
    flow.pub.run("UPDATE tab6 SET a = 3 WHERE a = 2")
    flow.checkpoint("the target has changed", "tab6")
    flow.pub.run(
        "ALTER TABLE tab6 DROP COLUMN b, ADD COLUMN c int",
        "ALTER TABLE tab6 ADD COLUMN b int",
        "UPDATE tab6 SET c = 1 WHERE a = 3",
    )
    flow.checkpoint("the publisher has changed", "tab6")


def _leaves(flow: Flow, label: str) -> dict[str, list[int]]:
    return {leaf: first(flow.same(label, leaf)) for leaf in LEAVES}


def test_s_013_1_changes_carry_the_leaf_s_identity(flow: Flow) -> None:
    """H-17: a leaf has another column order than its root."""
    assert _leaves(flow, "insert") == {"tab1_1": [1, 3], "tab1_2": [5], "tab1_def": [0]}
    assert "tab1" not in flow.facts["tables"]


def test_s_013_2_leaves_into_one_table(flow: Flow) -> None:
    assert first(flow.same("one target", "tab5")) == [0, 1, 3, 5]
    assert first(flow.same("across, one target", "tab5")) == [1, 3, 4, 6]
    assert first(flow.same("one leaf truncated", "tab5")) == [4, 6]
    assert first(flow.same("delete, one target", "tab5")) == [1, 6]
    assert not {"tab5_1", "tab5_2", "tab5_def"} & flow.facts["tables"]


def test_s_013_5_an_update_that_comes_back(flow: Flow) -> None:
    assert first(flow.same("inside, one target", "tab5")) == [0, 1, 3, 6]


def test_s_013_4_an_update_inside_a_leaf(flow: Flow) -> None:
    assert _leaves(flow, "inside a leaf") == {"tab1_1": [2, 3], "tab1_2": [6], "tab1_def": [0]}


def test_s_013_6_an_update_across_leaves_is_a_delete_and_an_insert(flow: Flow) -> None:
    assert _leaves(flow, "across leaves") == {"tab1_1": [2, 3], "tab1_2": [4, 6], "tab1_def": []}


def test_s_013_7_deletes_through_root_and_leaf(flow: Flow) -> None:
    assert _leaves(flow, "delete") == {"tab1_1": [], "tab1_2": [], "tab1_def": []}


def test_s_013_8_truncate_of_one_leaf(flow: Flow) -> None:
    assert _leaves(flow, "truncate a leaf") == {"tab1_1": [1, 2], "tab1_2": [], "tab1_def": []}


def test_s_013_9_truncate_of_the_root_lists_its_leaves(flow: Flow) -> None:
    assert _leaves(flow, "truncate the root") == {"tab1_1": [], "tab1_2": [], "tab1_def": []}


def test_s_013_10_missing_rows_are_told_of_under_the_leaf_s_name(flow: Flow) -> None:
    ours, native = flow.facts["rows gone"]
    assert ours == native == (1, 3)
    told = _told(flow, LEAVES)
    assert told == {
        *(("tab1_2", "update_missing"), ("tab1_2", "delete_missing")),
        *(("tab1_1", "delete_missing"), ("tab1_def", "delete_missing")),
    }
    assert _leaves(flow, "rows gone") == {"tab1_1": [], "tab1_2": [], "tab1_def": []}


def _told(flow: Flow, tables: Sequence[str]) -> set[tuple[str, str]]:
    line = rf'conflict detected on relation "{flow.name}\.(\w+)": conflict=(\w+)'
    found = re.findall(line, flow.facts["log"])
    return {(table, conflict) for table, conflict in found if table in tables}


def test_s_013_21_missing_rows_under_the_root(flow: Flow) -> None:
    ours, native = flow.facts["rows gone under the root"]
    assert ours == native == (1, 1)
    told = _told(flow, ("tab2", "tab2_1", "tab2_2"))
    assert told == {("tab2", "update_missing"), ("tab2", "delete_missing")}


def test_s_013_11_a_leaf_listed_with_its_root_is_sent_once(flow: Flow) -> None:
    assert first(flow.same("root copy", "tab2")) == [1]
    assert "tab2_1" not in flow.facts["tables"]
    assert {"tab2", "tab3_1"} <= flow.facts["tables"]


def test_s_013_12_only_the_topmost_ancestor_is_copied(flow: Flow) -> None:
    assert first(flow.same("root copy", "tab4")) == [-1]
    assert flow.facts["lower"] == {"tab4": "r"}


def test_s_013_13_inserts_through_the_root(flow: Flow) -> None:
    assert first(flow.same("root insert", "tab2")) == [0, 1, 3, 5]
    assert first(flow.same("root insert", "tab3_1")) == [0, 1, 3, 5]
    assert first(flow.same("root insert", "tab4")) == [-1, 0]


def test_s_013_14_the_order_of_the_publications_does_not_matter(flow: Flow) -> None:
    """H-23."""
    assert first(flow.same("list swapped", "tab4")) == [-1, 0, 1]


def test_s_013_16_an_update_across_leaves_under_the_root(flow: Flow) -> None:
    assert first(flow.same("root update", "tab2")) == [0, 1, 3, 6]
    assert first(flow.same("across, as the root", "tab2")) == [0, 1, 2, 3]
    assert first(flow.same("across, as the root", "tab3_1")) == [0, 1, 2, 3]


def test_s_013_17_deletes_under_the_root(flow: Flow) -> None:
    assert flow.same("root delete", "tab2") == flow.same("root delete", "tab3_1") == []


def test_s_013_18_truncate_of_a_leaf_is_not_sent_under_the_root(flow: Flow) -> None:
    assert first(flow.same("leaf truncate, as the root", "tab2")) == [1, 2, 5]


def test_s_013_19_truncate_of_the_root_is(flow: Flow) -> None:
    assert flow.same("root truncate", "tab2") == []


def test_s_013_23_the_target_s_columns_are_dropped_and_added_again(flow: Flow) -> None:
    """H-21: they are in another order then, and what was in the dropped one is gone."""
    assert flow.same("before the target changes", "tab6") == [(2, 1, None)]
    assert flow.same("the target has changed", "tab6") == [(3, 1, None)]


def test_s_013_24_the_publisher_s_columns_come_and_go(flow: Flow) -> None:
    """H-21."""
    assert flow.same("columns change", "tab2") == [(1, "eins"), (2, "two")]
    assert flow.same("the publisher has changed", "tab6") == [(3, None, 1)]
