"""PostgreSQL's 031_column_list: publications that hold some columns of a table.

The file there has one publication after another in one subscription; here one subscription has all
of them from the start, since each is about tables of its own. What needs FOR ALL TABLES has a
database of its own. A lake table that we make has the listed columns only, so rows are compared
in these; the twin's other columns are to be NULL.

In statements and names t031 stands for the flow's name.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from workers.proto import decode
from workers.proto.messages import Delete, Update

VIA_ROOT = "WITH (publish_via_partition_root = true)"
IN_LEAVES = "PARTITION BY LIST (a)"

TABLES = (
    'CREATE TABLE tab1 (a int PRIMARY KEY, "B" int, c int)',
    "CREATE TABLE tab2 (a int PRIMARY KEY, b varchar, c int)",
    'CREATE TABLE tab3 ("a\'" int PRIMARY KEY, "B" varchar, "c\'" int)',
    "CREATE TYPE test_typ AS ENUM ('blue', 'red')",
    "CREATE TABLE tab4 (a int PRIMARY KEY, b test_typ, c int, d text)",
    "CREATE TABLE tab5 (a int PRIMARY KEY, b int, c int, d int)",
    "CREATE TABLE tab6 (a int PRIMARY KEY, b int, c int, d int)",
    "CREATE TABLE tab7 (a int PRIMARY KEY, b int, c int, d int)",
    f"CREATE TABLE test_part (a int PRIMARY KEY, b text, c timestamptz) {IN_LEAVES}",
    "CREATE TABLE test_part_1 PARTITION OF test_part FOR VALUES IN (1, 2, 3, 4, 5, 6)",
    f"CREATE TABLE test_part_2 PARTITION OF test_part FOR VALUES IN (7, 8, 9, 10) {IN_LEAVES}",
    "CREATE TABLE test_part_2_1 PARTITION OF test_part_2 FOR VALUES IN (7, 8, 9, 10)",
    f"CREATE TABLE test_part_b (a int, b int) {IN_LEAVES}",
    f"CREATE TABLE test_part_c (a int, b int, c int) {IN_LEAVES}",
    f"CREATE TABLE test_part_d (a int, b int) {IN_LEAVES}",
    "CREATE TABLE test_part_d_1 PARTITION OF test_part_d FOR VALUES IN (1, 3)",
    "ALTER TABLE test_part_d_1 ADD PRIMARY KEY (a)",
    "CREATE TABLE test_root (a int PRIMARY KEY, b int, c int) PARTITION BY RANGE (a)",
    "CREATE TABLE test_root_1 PARTITION OF test_root FOR VALUES FROM (1) TO (10)",
    "CREATE TABLE test_root_2 PARTITION OF test_root FOR VALUES FROM (10) TO (20)",
    "CREATE SCHEMA t031_x",
    "CREATE TABLE t031_x.test_mix_3 (a int PRIMARY KEY, b int, c int)",
    "CREATE SCHEMA t031_s",
    f"CREATE TABLE t031_s.t (a int, b int, c int) {IN_LEAVES}",
    "CREATE TABLE t_1 PARTITION OF t031_s.t DEFAULT",
    f"CREATE TABLE u (a int, b int, c int) {IN_LEAVES}",
    f"CREATE TABLE u_1 PARTITION OF u DEFAULT {IN_LEAVES}",
    "CREATE TABLE u_2 PARTITION OF u_1 DEFAULT",
    f"CREATE TABLE v (a int, b int, c int) {IN_LEAVES}",
    f"CREATE TABLE v_1 PARTITION OF v DEFAULT {IN_LEAVES}",
    "CREATE TABLE v_2 PARTITION OF v_1 DEFAULT",
    "CREATE TABLE test_mix_1 (a int PRIMARY KEY, b int, c int)",
)
PUBLISHERS = (
    f"CREATE TABLE test_part_a (a int, b int, c int) {IN_LEAVES}",
    "CREATE TABLE test_mix_4"
    " (a int PRIMARY KEY, b int, c int, d int GENERATED ALWAYS AS (a + 1) STORED)",
    "ALTER TABLE test_mix_4 DROP COLUMN c",
)
TWINS = (
    f"CREATE TABLE test_part_a (b int, a int) {IN_LEAVES}",
    "CREATE TABLE test_mix_4 (a int PRIMARY KEY, b int, c int, d int)",
)
PUBLICATIONS = (
    'CREATE PUBLICATION pub1 FOR TABLE tab1 (a, "B"), tab3 ("a\'", "c\'"), test_part (a, b),'
    f" tab4 (a, b, d) {VIA_ROOT}",
    "CREATE PUBLICATION pub2 FOR TABLE tab5 (a, b)",
    "CREATE PUBLICATION pub3 FOR TABLE tab5 (a, b)",
    "CREATE PUBLICATION pub4 FOR TABLE tab6 (a, b)",
    "CREATE PUBLICATION pub5 FOR TABLE tab7 (a, b)",
    "CREATE PUBLICATION pub6"
    f" FOR TABLE test_part_a (b, a), test_part_a_1 (a), test_part_a_2 (b) {VIA_ROOT}",
    f"CREATE PUBLICATION pub7 FOR TABLE test_part_b (a, b) {VIA_ROOT}",
    "CREATE PUBLICATION pub8 FOR TABLE test_part_c, test_part_c_1 (a, c), test_part_c_2 (a, b)",
    f"CREATE PUBLICATION pub9 FOR TABLE test_part_d (a) {VIA_ROOT}",
    f"CREATE PUBLICATION pub_root FOR TABLE test_root (a) {VIA_ROOT}",
    "CREATE PUBLICATION pub_root_1 FOR TABLE test_root_1 (a, b)",
    "CREATE PUBLICATION pub_mix_5 FOR TABLE t031_x.test_mix_3 (a, b, c)",
    "CREATE PUBLICATION pub_mix_6 FOR TABLES IN SCHEMA t031_x",
    "CREATE PUBLICATION pub_u FOR TABLE u_1 (a), u_2 WITH (publish_via_partition_root)",
    "CREATE PUBLICATION pub_v FOR TABLE v_1 (a), v_2 (b) WITH (publish_via_partition_root)",
    "CREATE PUBLICATION pub_mix_7 FOR TABLE test_mix_4 (a, b)",
    "CREATE PUBLICATION pub_mix_8 FOR TABLE test_mix_4",
    "CREATE PUBLICATION pub_s FOR TABLES IN SCHEMA t031_s",
    "CREATE PUBLICATION pub_t1 FOR TABLE t_1 (a, b, c)",
)
COPIED = (
    "INSERT INTO tab1 VALUES (1, 2, 3), (4, 5, 6)",
    "INSERT INTO tab2 VALUES (1, 'abc', 3)",
    "INSERT INTO tab3 VALUES (1, '2', 3), (4, '5', 6)",
    "INSERT INTO tab4 VALUES (1, 'red', 3, 'oh my'), (2, 'blue', 4, 'hello')",
    "INSERT INTO tab5 VALUES (1, 11, 111, 1111), (2, 22, 222, 2222)",
    "INSERT INTO tab6 VALUES (1, 22, 333, 4444)",
    "INSERT INTO tab7 VALUES (1, 22, 333, 4444)",
    "INSERT INTO test_part VALUES (1, 'abc', now()), (2, 'bcd', now()), (7, 'abc', now())",
    "INSERT INTO test_part_a VALUES (1, 3), (6, 4)",
    "INSERT INTO test_part_b VALUES (1, 1), (6, 2)",
    "INSERT INTO test_part_c VALUES (1, 3, 5), (2, 4, 6)",
    "INSERT INTO test_part_d VALUES (1, 2)",
    "INSERT INTO test_root VALUES (1, 2, 3), (10, 20, 30)",
    "INSERT INTO t031_x.test_mix_3 VALUES (1, 2, 3)",
    "INSERT INTO t031_s.t VALUES (1, 2, 3)",
    "INSERT INTO u VALUES (1, 2, 3)",
    "INSERT INTO v VALUES (1, 2, 3)",
    "INSERT INTO test_mix_4 VALUES (1, 2)",
)
STREAMED = (
    "INSERT INTO tab1 VALUES (2, 3, 4), (5, 6, 7)",
    "INSERT INTO tab3 VALUES (2, '3', 4), (5, '6', 7)",
    "INSERT INTO tab4 VALUES (3, 'red', 5, 'foo'), (4, 'blue', 6, 'bar')",
    "INSERT INTO tab5 VALUES (3, 33, 333, 3333), (4, 44, 444, 4444)",
    "INSERT INTO tab6 VALUES (2, 33, 444, 5555)",
    "UPDATE tab6 SET b = b * 2, c = c * 3, d = d * 4",
    "INSERT INTO tab7 VALUES (2, 33, 444, 5555)",
    "UPDATE tab7 SET b = b * 2, c = c * 3, d = d * 4",
    "INSERT INTO test_part VALUES (3, 'xxx', now()), (9, 'zzz', now())",
    "INSERT INTO test_part_a VALUES (2, 5), (7, 6)",
    "INSERT INTO test_part_b VALUES (2, 3), (7, 4)",
    "INSERT INTO test_part_c VALUES (3, 7, 8), (4, 9, 10)",
    "INSERT INTO test_part_d VALUES (3, 4)",
    "INSERT INTO test_root VALUES (2, 3, 4), (11, 21, 31)",
    "INSERT INTO t031_x.test_mix_3 VALUES (4, 5, 6)",
    "INSERT INTO t031_s.t VALUES (4, 5, 6)",
    "INSERT INTO u VALUES (4, 5, 6)",
    "INSERT INTO v VALUES (4, 5, 6)",
    "INSERT INTO test_mix_4 VALUES (3, 4)",
)
CHANGED = (
    'UPDATE tab1 SET "B" = 2 * "B" WHERE a = 1',
    "UPDATE tab1 SET c = 2 * c WHERE a = 4",
    'UPDATE tab3 SET "B" = "B" || \' updated\' WHERE "a\'" = 4',
    'UPDATE tab3 SET "c\'" = 2 * "c\'" WHERE "a\'" = 1',
    "UPDATE tab4 SET b = 'blue', c = c * 2, d = d || ' updated' WHERE a = 1",
    "INSERT INTO tab2 VALUES (2, 'def', 6)",
    "UPDATE tab2 SET c = 5 WHERE a = 1",
    "UPDATE tab2 SET b = 'xyz' WHERE a = 2",
    "INSERT INTO tab6 VALUES (3, 55, 666, 8888)",
    "UPDATE tab6 SET b = b * 2, c = c * 3, d = d * 4",
    "INSERT INTO tab7 VALUES (3, 55, 666, 7777)",
    "UPDATE tab7 SET b = b * 2, c = c * 3, d = d * 4",
    "ALTER TABLE tab7 DROP CONSTRAINT tab7_pkey",
    "INSERT INTO tab7 VALUES (4, 77, 888, 9999)",
    "ALTER TABLE tab7 ADD PRIMARY KEY (b, a)",
    "UPDATE tab7 SET b = b * 2, c = c * 3, d = d * 4",
    "DELETE FROM tab7 WHERE a = 1",
    "TRUNCATE test_part_c",
    "INSERT INTO test_part_c VALUES (1, 3, 5), (2, 4, 6)",
    "INSERT INTO t031_s.t VALUES (7, 8, 9)",
)
LISTS = {
    "tab1": ["a", "B"],
    "tab2": ["a", "b"],
    "tab3": ["a'", "c'"],
    "tab4": ["a", "b", "d"],
    "tab5": ["a", "b"],
    "tab6": ["a", "b"],
    "tab7": ["a", "b"],
    "test_part": ["a", "b"],
    "test_part_a": ["a", "b"],
    "test_part_b": ["a", "b"],
    "test_part_c_1": ["a", "c"],
    "test_part_c_2": ["a", "b"],
    "test_part_d": ["a"],
    "test_root": ["a"],
    "t031_x.test_mix_3": ["a", "b", "c"],
    "t_1": ["a", "b", "c"],
    "u_1": ["a"],
    "v_1": ["a"],
    "test_mix_4": ["a", "b"],
}
"""The columns that are published of each table, under the name it is sent by."""

DIFFERENT = (
    'cannot use different column lists for table "t031.test_mix_1" in different publications'
)


def own(flow: Flow, *statements: str) -> list[str]:
    """The statements with the flow's name."""
    return [words.replace("t031", flow.name) for words in statements]


@pytest.fixture(scope="module", params=every_version(18, since=15))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t031_{request.param}")
    lists = dict(zip(own(flow, *LISTS), LISTS.values(), strict=True))
    flow.both(*own(flow, *TABLES))
    flow.pub.run(*PUBLISHERS)
    flow.sub.run(*TWINS)
    flow.both(
        *_keyed_leaves("test_part_a", "1, 2, 3, 4, 5", "6, 7, 8, 9, 10"),
        *_keyed_leaves("test_part_b", "1, 2, 3, 4, 5", "6, 7, 8, 9, 10"),
        *_keyed_leaves("test_part_c", "1, 3", "2, 4"),
    )
    flow.pub.run(*own(flow, *PUBLICATIONS, *COPIED))
    names = [words.split()[2] for words in PUBLICATIONS]
    if request.param < 16:
        names.remove("pub_root_1")  # the native subscriber would copy its table twice: H-24
        names.remove("pub_mix_8")  # no list and a list of all columns are not the same there
    name = flow.subscribe("lists", names)
    sent = [table for table in lists if table != "tab2"]
    flow.checkpoint("copy", *sent, columns=lists)
    flow.facts["tables"] = flow.lake_tables()
    flow.facts["columns"] = {
        table: flow.pgsub.arrow(*flow.qualified(table)).column_names for table in sent
    }
    flow.pub.run(*own(flow, *STREAMED))
    flow.checkpoint("stream", *sent, columns=lists)
    _change_lists(flow, name, names)
    flow.pub.run(*own(flow, *CHANGED))
    flow.checkpoint("changed", *lists, columns=lists)
    flow.facts["unlisted"] = flow.sub.value("SELECT count(c) + count(d) FROM tab6")
    flow.drop(name)
    _lists_that_differ(flow)
    return flow


@pytest.fixture(scope="module", params=every_version(18, since=15))
def every_table(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t031_all_{request.param}")
    flow.both("CREATE TABLE test_mix_2 (a int PRIMARY KEY, b int, c int)")
    flow.pub.run(
        "CREATE PUBLICATION pub_mix_3 FOR TABLE test_mix_2 (a, b, c)",
        "CREATE PUBLICATION pub_mix_4 FOR ALL TABLES",
        "INSERT INTO test_mix_2 VALUES (1, 2, 3)",
    )
    flow.subscribe("mix", ["pub_mix_3", "pub_mix_4"])
    flow.checkpoint("copy", "test_mix_2")
    flow.pub.run("INSERT INTO test_mix_2 VALUES (4, 5, 6)")
    flow.checkpoint("stream", "test_mix_2")
    return flow


def _keyed_leaves(table: str, first: str, second: str) -> list[str]:
    """Two partitions, identified by the one and by the other column."""
    return [
        words
        for number, values, key in ((1, first, "a"), (2, second, "b"))
        for words in (
            f"CREATE TABLE {table}_{number} PARTITION OF {table} FOR VALUES IN ({values})",
            f"ALTER TABLE {table}_{number} ADD PRIMARY KEY ({key})",
            f"ALTER TABLE {table}_{number} REPLICA IDENTITY USING INDEX {table}_{number}_pkey",
        )
    ]


def _change_lists(flow: Flow, name: str, names: list[str]) -> None:
    """Other keys, another list, a table that joins, another order of the publications."""
    flow.both("ALTER TABLE tab6 DROP CONSTRAINT tab6_pkey", "ALTER TABLE tab6 ADD PRIMARY KEY (b)")
    flow.pub.run(
        "ALTER TABLE tab7 DROP CONSTRAINT tab7_pkey",
        "ALTER TABLE tab7 ADD PRIMARY KEY (a, b)",
        "ALTER PUBLICATION pub1 ADD TABLE tab2 (a, b)",
        "DROP PUBLICATION pub8",
        "CREATE PUBLICATION pub8 FOR TABLE test_part_c, test_part_c_1 (a), test_part_c_2 (a, b)",
    )
    flow.sub.run(f"TRUNCATE {flow.name}_s.t")
    flow.lake("DELETE FROM {t}.t_1")
    swapped = [*names[:-2], "pub_t1", "pub_s"]
    flow.alter(name, f"SET PUBLICATION {', '.join(swapped)} WITH (refresh = false)")
    flow.alter(name, "REFRESH PUBLICATION")
    flow.catch_up()


def _lists_that_differ(flow: Flow) -> None:
    flow.pub.run(
        "CREATE PUBLICATION pub_mix_1 FOR TABLE test_mix_1 (a, b)",
        "CREATE PUBLICATION pub_mix_2 FOR TABLE test_mix_1 (a, c)",
    )
    both = ["pub_mix_1", "pub_mix_2"]
    with pytest.raises(psycopg.Error) as caught:
        flow.twin.subscribe(flow.sub, flow.pub, f"{flow.name}_mix_native", both)
    refused = flow.pgsub.create(f"{flow.name}_mix", flow.pub.dsn, both, status=1)
    flow.facts["refused"] = refused.stderr, str(caught.value)
    flow.pub.run("ALTER PUBLICATION pub_mix_1 SET TABLE test_mix_1 (a, c)")
    name = flow.subscribe("mix", both)
    flow.catch_up()
    flow.pub.run(
        "ALTER PUBLICATION pub_mix_1 SET TABLE test_mix_1 (a, b)",
        "INSERT INTO test_mix_1 VALUES (1, 1, 1)",
    )
    flow.wait_failing(name)
    flow.facts["log"] = flow.pgsub.log_tail(10_000)
    flow.facts["states"] = flow.same_letters(name)
    flow.alter(name, "SET PUBLICATION pub_mix_2")
    flow.checkpoint("one of two", "test_mix_1", columns={"test_mix_1": ["a", "c"]})


def test_s_031_1_the_publisher_shows_the_columns(flow: Flow) -> None:
    shown = flow.pub.execute(
        "SELECT tablename, attnames::text[] FROM pg_publication_tables WHERE pubname = 'pub1'"
    )
    assert dict(shown) == {
        name: LISTS[name] for name in ("tab1", "tab2", "tab3", "tab4", "test_part")
    }


def test_s_031_2_listed_columns_are_copied(flow: Flow) -> None:
    """H-17, H-38: some of them have quotes in their names, and others of theirs between them."""
    assert flow.same("copy", "tab1") == [(1, 2), (4, 5)]
    assert flow.same("copy", "tab3") == [(1, 3), (4, 6)]
    assert flow.same("copy", "tab4") == [(1, "red", "oh my"), (2, "blue", "hello")]
    assert len(flow.same("copy", "test_part")) == 3
    different = {
        table: found
        for table, found in flow.facts["columns"].items()
        if sorted(found) != sorted(LISTS[table.replace(flow.name, "t031")])
    }
    assert not different


def test_s_031_3_and_inserted(flow: Flow) -> None:
    assert flow.same("stream", "tab1") == [(1, 2), (2, 3), (4, 5), (5, 6)]
    assert flow.same("stream", "tab3") == [(1, 3), (2, 4), (4, 6), (5, 7)]
    assert (3, "red", "foo") in flow.same("stream", "tab4")
    assert len(flow.same("stream", "test_part")) == 5


def test_s_031_4_5_updates_of_listed_and_of_other_columns(flow: Flow) -> None:
    assert flow.same("changed", "tab1") == [(1, 4), (2, 3), (4, 5), (5, 6)]
    assert flow.same("changed", "tab3") == [(1, 6), (2, 4), (4, 6), (5, 7)]
    assert (1, "blue", "oh my updated") in flow.same("changed", "tab4")


def test_s_031_6_a_table_that_joins_with_a_list(flow: Flow) -> None:
    assert "tab2" not in flow.facts["tables"]
    assert flow.same("changed", "tab2") == [(1, "abc"), (2, "xyz")]


def test_s_031_7_two_publications_with_one_list(flow: Flow) -> None:
    assert flow.same("stream", "tab5") == [(1, 11), (2, 22), (3, 33), (4, 44)]


def test_s_031_8_the_key_moves_to_another_column(flow: Flow) -> None:
    assert flow.same("stream", "tab6") == [(1, 44), (2, 66)]
    assert flow.same("changed", "tab6") == [(1, 88), (2, 132), (3, 110)]
    assert flow.facts["unlisted"] == 0


def test_s_031_10_and_again_between_inserts(flow: Flow) -> None:
    assert flow.same("stream", "tab7") == [(1, 44), (2, 66)]
    assert flow.same("changed", "tab7") == [(2, 264), (3, 220), (4, 154)]


def test_s_031_11_12_partitions_with_identities_of_their_own(flow: Flow) -> None:
    assert flow.same("stream", "test_part_a") == [(1, 3), (2, 5), (6, 4), (7, 6)]
    assert flow.same("stream", "test_part_b") == [(1, 1), (2, 3), (6, 2), (7, 4)]


def test_s_031_13_each_partition_has_its_list(flow: Flow) -> None:
    assert flow.same("stream", "test_part_c_1") == [(1, 5), (3, 8)]
    assert flow.same("stream", "test_part_c_2") == [(2, 4), (4, 9)]


def test_s_031_14_the_publication_is_made_again_with_other_lists(flow: Flow) -> None:
    """What is not listed any more stays away; the column that the lake has for it is NULL."""
    assert flow.same("changed", "test_part_c_1") == [(1, None)]
    assert flow.same("changed", "test_part_c_2") == [(2, 4)]


def test_s_031_15_a_list_on_the_root(flow: Flow) -> None:
    assert flow.same("stream", "test_part_d") == [(1,), (3,)]


def test_s_031_16_a_full_list_beside_for_all_tables(every_table: Flow) -> None:
    assert every_table.same("copy", "test_mix_2") == [(1, 2, 3)]
    assert every_table.same("stream", "test_mix_2") == [(1, 2, 3), (4, 5, 6)]


def test_s_031_17_a_full_list_beside_tables_in_schema(flow: Flow) -> None:
    assert flow.same("stream", f"{flow.name}_x.test_mix_3") == [(1, 2, 3), (4, 5, 6)]


def test_s_031_18_the_root_s_list_wins(flow: Flow) -> None:
    assert flow.same("stream", "test_root") == [(1,), (10,), (11,), (2,)]
    assert "test_root_1" not in flow.facts["tables"]


def test_s_031_19_a_schema_with_the_root_and_a_list_on_the_partition(flow: Flow) -> None:
    """In the other order of the publications too; a known table is not copied again."""
    assert flow.same("stream", "t_1") == [(1, 2, 3), (4, 5, 6)]
    assert flow.same("changed", "t_1") == [(7, 8, 9)]


def test_s_031_21_lists_on_root_and_partition(flow: Flow) -> None:
    assert flow.same("stream", "u_1") == flow.same("stream", "v_1") == [(1,), (4,)]
    assert not {"u_2", "v_2"} & flow.facts["tables"]


def test_s_031_22_old_rows_have_the_listed_columns_only(flow: Flow) -> None:
    slot = f"{flow.name}_oldtuple"
    flow.pub.run(
        "CREATE TABLE test_oldtuple_col (a int PRIMARY KEY, b int, c int)",
        "CREATE PUBLICATION pub_oldtuple FOR TABLE test_oldtuple_col (a, b)",
        "INSERT INTO test_oldtuple_col VALUES (1, 2, 3)",
        f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')",
        "UPDATE test_oldtuple_col SET a = 2",
        "DELETE FROM test_oldtuple_col",
    )
    sent = flow.pub.execute(
        f"SELECT data FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'pub_oldtuple')"
    )
    flow.pub.run(f"SELECT pg_drop_replication_slot('{slot}')")
    messages = [decode.message(data) for (data,) in sent]
    old = [message.old for message in messages if isinstance(message, Update | Delete)]
    assert [None if row is None else len(row) for row in old] == [2, 2]


def test_s_031_23_dropped_and_generated_columns_make_no_difference(flow: Flow) -> None:
    assert flow.same("copy", "test_mix_4") == [(1, 2)]
    assert flow.same("stream", "test_mix_4") == [(1, 2), (3, 4)]


def test_s_031_24_two_lists_that_differ(flow: Flow) -> None:
    ours, native = flow.facts["refused"]
    [different] = own(flow, DIFFERENT)
    assert different in ours
    assert different in native


def test_s_031_25_lists_that_come_to_differ_later(flow: Flow) -> None:
    """A subscription to one of the two goes on; the table is not copied again."""
    [different] = own(flow, DIFFERENT)
    assert different in flow.facts["log"]
    assert flow.facts["states"] == {"test_mix_1": "r"}
    assert flow.same("one of two", "test_mix_1") == [(1, 1)]
