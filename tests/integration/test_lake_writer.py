"""``lake.writer`` and ``writer`` of a table: files of pgsub, or every row through Spark.

The tables have the same changes, three times: the configuration says ``auto``, then ``spark``, then
``auto`` again. A worker starts anew after each change, so each writer goes on where the other
stopped, with deletes of the other: position deletes in format 2, vectors in format 3.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.integration.flow import Flow

WORDS = {"open": None, "files": "files", "spark": "spark", "open_v3": None}
"""The tables' words. The one of format 3 has a subscription of its own."""
TABLES = [f"by_{word}" for word in WORDS]
NEWER = "by_open_v3"
LAYOUT: dict[str, dict[str, Any]] = {
    "by_spark": {"partition_by": ["bucket(2, id)"]},
    "by_open": {"sort_by": ["id"]},
}
ROUNDS = ("auto", "spark", "auto again")
REFUSED = {
    "properties": {"write.format.default": "orc"},
    "generated": {"twice": "2 * id"},
}


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t_lake_writer")
    flow.both(*(f"CREATE TABLE {each} (id int PRIMARY KEY, v text, n int)" for each in TABLES))
    flow.both("CREATE TABLE keyless (id int, v text)", "ALTER TABLE keyless REPLICA IDENTITY FULL")
    for table in TABLES:
        flow.pub.run(f"INSERT INTO {table} SELECT i, 'old', i FROM generate_series(1, 300) i")
    flow.pub.run(
        "INSERT INTO keyless SELECT i % 5, NULL FROM generate_series(1, 30) i",
        f"CREATE PUBLICATION pub FOR TABLE keyless, {', '.join(set(TABLES) - {NEWER})}",
        f"CREATE PUBLICATION pub_v3 FOR TABLE {NEWER}",
    )
    tables: dict[str, dict[str, Any]] = {"keyless": {"writer": "spark"}}
    for word, said in WORDS.items():
        name = f"by_{word}"
        tables[name] = LAYOUT.get(name, {}) | ({"writer": said} if said else {})
    del tables[NEWER]
    flow.subscribe("sub", ["pub"], tables=tables)
    with flow.pgsub.settings(lake={"format_version": 3}):
        flow.subscribe("sub_v3", ["pub_v3"])
        flow.catch_up()
    _round(flow, 0)
    with flow.pgsub.settings(lake={"writer": "spark"}):
        _round(flow, 1)
    _round(flow, 2)
    return flow


def _round(flow: Flow, number: int) -> None:
    """New, changed and deleted rows under one configuration; a key that moves, and a TRUNCATE."""
    label = ROUNDS[number]
    names = flow.subscriptions
    for table in TABLES:
        flow.pub.execute(
            f"BEGIN; INSERT INTO {table} SELECT 1000 * {number + 1} + i, 'new', i"
            " FROM generate_series(1, 50) i;"
            f" UPDATE {table} SET v = 'changed {number}' WHERE id % 10 = {number};"
            f" UPDATE {table} SET id = id + 100000 WHERE id % 10 = {number} AND id < 100;"
            f" DELETE FROM {table} WHERE id % 10 = {number + 5}; COMMIT"
        )
    flow.pub.run(
        f"UPDATE keyless SET v = 'moved {number}' WHERE id = {number}",
        f"DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE id = {number} LIMIT 2)",
    )
    if number == 1:
        flow.pub.execute(
            "BEGIN; TRUNCATE by_files; INSERT INTO by_files VALUES (7, 'alone', 7); COMMIT"
        )
    flow.checkpoint(label, *TABLES, "keyless")
    rows = flow.pgsub.status("lake_tables")
    flow.facts[label] = {
        row["lake_table"]: (row["configured"], row["writer"])
        for row in rows
        if row["subname"] in names
    }


@pytest.mark.parametrize("label", ROUNDS)
@pytest.mark.parametrize("table", [*TABLES, "keyless"])
def test_rows_are_those_of_the_native_subscriber(flow: Flow, table: str, label: str) -> None:
    assert flow.same(label, table)


@pytest.mark.parametrize("label", ROUNDS)
def test_the_status_says_who_writes(flow: Flow, label: str) -> None:
    found = flow.facts[label]
    default = ("spark", "spark") if label == "spark" else ("auto", "files")
    assert found["by_open"] == found[NEWER] == default
    assert found["by_files"] == ("files", "files")
    assert found["by_spark"] == ("spark", "spark")


def own_files(flow: Flow, table: str) -> list[bool]:
    """For each file of the table, of rows or deletes: did pgsub write it itself?"""
    files = flow.pgsub.iceberg_table(flow.name, table).inspect.files()
    return ["/pgsub-" in str(path) for path in files["file_path"].to_pylist()]


def test_every_row_goes_the_way_it_is_told(flow: Flow) -> None:
    assert all(own_files(flow, "by_files"))
    assert not any(own_files(flow, "by_spark"))


@pytest.mark.parametrize("table", ["by_open", NEWER])
def test_a_table_has_files_of_both_writers(flow: Flow, table: str) -> None:
    both = own_files(flow, table)
    assert any(both)
    assert not all(both)


@pytest.mark.parametrize("key", REFUSED)
def test_files_that_cannot_be_had_are_refused_before_the_first_row(flow: Flow, key: str) -> None:
    flow.pub.run(f"CREATE PUBLICATION pub_{key} FOR TABLE by_open")
    said = {"to": f"refused.{key}", "writer": "files", key: REFUSED[key]}
    done = flow.pgsub.create(
        f"refused_{key}",
        flow.pub.dsn,
        [f"pub_{key}"],
        tables={f"{flow.name}.by_open": said},
        status=1,
    )
    assert f'lake table "refused.{key}" cannot have the writer "files"' in done.stderr
    assert "DETAIL:" in done.stderr
