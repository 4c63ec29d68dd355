"""PostgreSQL's 032_subscribe_use_index: rows of identity FULL, which the twin finds by an index.

A lake table has none: what the same changes leave is the same. S-032-5 is in
`test_003_constraints.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from tests.fix_publisher import requested_publisher
from tests.integration.flow import Flow
from tests.servers import every_version
from tests.twin import native_rows
from tests.waiting import wait_until

LEAVES = {"users_table_part_0": (0, 4), "users_table_part_1": (4, 20)}
PAIRS = ("test_replica_id_full", "test_replica_id_hash")
PEOPLE = ("people", "people_mixed")
FULL_NAME = "(firstname || ' ' || lastname)"
NO_EQUALITY = {"json": '{"a": 1}', "point": "(1,2)"}
"""Type → a value. The wheel's server was built without xml."""
INDEXES = (
    "test_replica_id_full (x, y)",
    "test_replica_id_hash USING hash (x)",
    "users_table_part (user_id, value_1)",
    f"people ({FULL_NAME})",
    "people (firstname) WHERE firstname = 'first_name_1'",
    f"people_mixed (firstname, {FULL_NAME})",
)


@pytest.fixture(scope="module", params=every_version(18))
def flow(request: pytest.FixtureRequest, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(requested_publisher(request), f"t032_{request.param}")
    flow.both(
        *(f"CREATE TABLE {table} (x int, y text)" for table in PAIRS),
        *(f"CREATE TABLE {table} (firstname text, lastname text)" for table in PEOPLE),
        "CREATE TABLE users_table_part (user_id bigint, value_1 int, value_2 int)"
        " PARTITION BY RANGE (value_1)",
        *(
            f"CREATE TABLE {leaf} PARTITION OF users_table_part FOR VALUES FROM ({low}) TO ({high})"
            for leaf, (low, high) in LEAVES.items()
        ),
        *(f"CREATE TABLE of_{type_} (a int, b {type_})" for type_ in NO_EQUALITY),
        *(f"ALTER TABLE {each} REPLICA IDENTITY FULL" for each in (*PAIRS, *PEOPLE, *LEAVES)),
        *(f"ALTER TABLE of_{type_} REPLICA IDENTITY FULL" for type_ in NO_EQUALITY),
    )
    flow.sub.run(*(f"CREATE INDEX ON {index}" for index in INDEXES))
    names = "SELECT 'first_name_' || i, 'last_name_' || i FROM generate_series(0, {}) i"
    flow.pub.run(
        *(f"INSERT INTO {each} SELECT i, i % 10 FROM generate_series(0, 10) i" for each in PAIRS),
        "INSERT INTO users_table_part SELECT i % 100, i % 20, i FROM generate_series(0, 100) i",
        *(
            f"INSERT INTO {each} {names.format(n)}"
            for each, n in zip(PEOPLE, (200, 20), strict=True)
        ),
        *(
            f"INSERT INTO of_{type_} VALUES (1, '{value}'), (2, '{value}'), (3, '{value}')"
            for type_, value in NO_EQUALITY.items()
        ),
        "CREATE PUBLICATION tap_pub FOR ALL TABLES",
    )
    flow.subscribe("tap_sub", ["tap_pub"])
    flow.catch_up()
    for each in PAIRS:
        flow.pub.run(
            f"DELETE FROM {each} WHERE x IN (5, 6)",
            f"UPDATE {each} SET x = 100, y = '200' WHERE x IN (1, 2)",
        )
    flow.pub.run(
        "UPDATE users_table_part SET value_1 = 0 WHERE user_id = 4",
        "DELETE FROM users_table_part WHERE user_id IN (1, 12) AND value_1 = user_id",
        "UPDATE people SET firstname = 'no-name' WHERE firstname = 'first_name_1'",
        "UPDATE people SET firstname = 'no-name' WHERE lastname = 'last_name_2'",
        "DELETE FROM people WHERE firstname = 'first_name_3' OR lastname = 'last_name_4'",
        "UPDATE people_mixed SET firstname = 'no-name' WHERE firstname = 'first_name_1'",
        "DELETE FROM people_mixed WHERE firstname = 'no-name'",
    )
    flow.checkpoint("changed", *PAIRS, *LEAVES, *PEOPLE)
    flow.facts["by an index"] = wait_until(lambda: _by_an_index(flow), 60, flow.twin.log_tail)
    [(index,)] = flow.sub.execute(
        "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 'people_mixed'::regclass"
    )
    flow.sub.run(f"DROP INDEX {index}")
    flow.pub.run("DELETE FROM people_mixed WHERE lastname = 'last_name_18'")
    flow.checkpoint("scanned", "people_mixed")
    _no_equality(flow)
    return flow


def _no_equality(flow: Flow) -> None:
    """The twin goes on when its column has become text."""
    for type_ in NO_EQUALITY:
        flow.pub.run(
            f"UPDATE of_{type_} SET a = 20 WHERE a = 2", f"DELETE FROM of_{type_} WHERE a = 1"
        )
    for type_ in NO_EQUALITY:
        stopped = partial(_said_natively, flow, f"an equality operator for type {type_}")
        wait_until(stopped, 60, flow.twin.log_tail)
        flow.facts[type_] = [a for a, _ in native_rows(flow.sub, f"of_{type_}")]
        flow.sub.run(f"ALTER TABLE of_{type_} ALTER b TYPE text")
    flow.checkpoint("as text", *(f"of_{type_}" for type_ in NO_EQUALITY))


def _said_natively(flow: Flow, words: str) -> bool:
    return words in flow.twin.server.log_file.read_text(errors="replace")


def _by_an_index(flow: Flow) -> set[str] | None:
    """The twin's tables in which rows were found so, once its worker has counted them."""
    scans = "SELECT relname FROM pg_stat_all_indexes WHERE schemaname = %s AND idx_scan > 0"
    found = {relname for (relname,) in flow.sub.execute(scans, (flow.name,))}
    return found if len(found) >= 5 else None


def test_s_032_1_rows_of_identity_full(flow: Flow) -> None:
    _changed_pairs(flow, "test_replica_id_full")


def test_s_032_7_beside_a_hash_index(flow: Flow) -> None:
    _changed_pairs(flow, "test_replica_id_hash")


def _changed_pairs(flow: Flow, table: str) -> None:
    rows = flow.same("changed", table)
    assert rows.count((100, "200")) == 2
    assert {x for x, _ in rows} == {0, 3, 4, 7, 8, 9, 10, 100}
    assert table in flow.facts["by an index"]


def test_s_032_2_rows_of_partitions_one_of_which_moves(flow: Flow) -> None:
    first, second = (flow.same("changed", leaf) for leaf in LEAVES)
    rows = first + second
    assert (4, 0, 4) in first
    assert sum(map(sum, rows)) == 10907
    assert len(rows) == len(set(rows)) == 99
    assert set(LEAVES) <= flow.facts["by an index"]


def test_s_032_3_beside_an_index_of_an_expression_or_of_some_rows(flow: Flow) -> None:
    rows = flow.same("changed", "people")
    assert len(rows) == 199
    assert [last for name, last in rows if name == "no-name"] == ["last_name_1", "last_name_2"]
    assert "people" not in flow.facts["by an index"]


def test_s_032_4_beside_an_index_that_also_has_an_expression_and_without(flow: Flow) -> None:
    rows = flow.same("changed", "people_mixed")
    assert (len(rows), "last_name_1" in {last for _, last in rows}) == (20, False)
    assert "people_mixed" in flow.facts["by an index"]
    left = flow.same("scanned", "people_mixed")
    assert set(rows) - set(left) == {("first_name_18", "last_name_18")}


@pytest.mark.parametrize("type_", NO_EQUALITY)
def test_a_column_without_an_equality_operator_stops_natively_only(flow: Flow, type_: str) -> None:
    """Here its text is compared."""
    assert flow.facts[type_] == [1, 2, 3]
    value = NO_EQUALITY[type_]
    assert flow.same("as text", f"of_{type_}") == [(20, value), (3, value)]
