"""Tables made under ``lake.format_version: 3``: their deletes are vectors, and every reader knows.

The key counts for tables made while it is in force. One that was made before, or that is copied
again, keeps the format it has.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.harness import python_rows
from tests.integration.flow import Flow
from tests.integration.readers import READERS
from tests.twin import native_rows


@pytest.fixture(scope="module")
def flow(publisher: EmbeddedPublisher, make_flow: Callable[..., Flow]) -> Flow:
    flow = make_flow(publisher, "t_format_version")
    columns = "id int PRIMARY KEY, name text, price numeric(10,2), at timestamptz, sizes int[]"
    flow.both(
        *(f"CREATE TABLE {name} ({columns})" for name in ("older", "changed", "streamed")),
        "CREATE TABLE keyless (a int, b text)",
        "ALTER TABLE keyless REPLICA IDENTITY FULL",
    )
    flow.pub.run(
        *(
            f"INSERT INTO {name} SELECT i, 'row ' || i, i / 4.0, timestamptz '2026-01-01 12:00+01'"
            " + i * interval '1 hour', ARRAY[i, NULL, -i] FROM generate_series(1, 300) i"
            for name in ("older", "changed")
        ),
        "INSERT INTO keyless SELECT i % 3, NULL FROM generate_series(1, 30) i",
        "CREATE PUBLICATION pub_older FOR TABLE older",
        "CREATE PUBLICATION pub_newer FOR TABLE changed, keyless",
        "CREATE PUBLICATION pub_streamed FOR TABLE streamed",
    )
    flow.subscribe("older", ["pub_older"], tables={"older": {"partition_by": ["bucket(4, id)"]}})
    flow.catch_up()
    with flow.pgsub.settings(lake={"format_version": 3}):
        by_day = {"partition_by": ["days(at)", "truncate(1, name)"], "sort_by": ["id DESC"]}
        newer = flow.subscribe("newer", ["pub_newer"], tables={"changed": by_day})
        halves = {"streamed": {"partition_by": ["bucket(2, id)"], "sort_by": ["at"]}}
        flow.subscribe("streamed", ["pub_streamed"], tables=halves, copy_data=False)
        flow.catch_up()
        flow.pgsub.command("refresh", f"{flow.name}_older", "--recopy", f"{flow.name}.older")
        flow.catch_up()
    flow.pub.run("INSERT INTO streamed SELECT * FROM changed")
    for turn in range(3):
        for table in ("older", "changed", "streamed"):
            flow.pub.run(
                f"UPDATE {table} SET name = upper(name), sizes = NULL WHERE id % 10 = {turn}",
                f"DELETE FROM {table} WHERE id % 20 = {turn + 10}",
            )
        flow.pub.run(
            f"UPDATE keyless SET b = 'moved {turn}' WHERE ctid IN"
            " (SELECT ctid FROM keyless WHERE b IS NULL LIMIT 4)",
            "DELETE FROM keyless WHERE ctid IN (SELECT ctid FROM keyless WHERE a = 1 LIMIT 2)",
        )
        flow.catch_up()
    flow.pub.run(
        "UPDATE changed SET id = id + 5000 WHERE id > 290",
        "INSERT INTO changed (id, name) VALUES (1000, 'é 🦆'), (1001, '')",
    )
    flow.checkpoint("changed", "older", "changed", "streamed", "keyless")
    flow.facts["changed"] = {
        (reader, table): python_rows(read(flow.pgsub, flow.name, table))
        for reader, read in READERS.items()
        for table in ("changed", "streamed", "keyless")
    }
    # The key is 2 again.
    flow.pgsub.command("refresh", newer, "--recopy", f"{flow.name}.changed")
    flow.checkpoint("copied again", "changed")
    return flow


def version(flow: Flow, table: str) -> int:
    return int(flow.pgsub.iceberg_table(flow.name, table).format_version)


def test_what_is_made_meanwhile_has_that_format(flow: Flow) -> None:
    """By a sync worker, and by CREATE where nothing is copied."""
    assert (version(flow, "changed"), version(flow, "keyless")) == (3, 3)
    assert version(flow, "streamed") == 3


def test_what_is_there_keeps_its_format_also_when_it_is_copied_again(flow: Flow) -> None:
    assert (version(flow, "older"), version(flow, "changed")) == (2, 3)


@pytest.mark.parametrize("table", ["older", "changed", "streamed", "keyless"])
def test_rows_are_the_twin_s(flow: Flow, table: str) -> None:
    assert len(flow.same("changed", table)) > 20


def test_rows_that_were_copied_again_are_the_twin_s(flow: Flow) -> None:
    assert flow.same("copied again", "changed") == flow.same("changed", "changed")


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("table", ["changed", "streamed", "keyless"])
def test_every_reader_sees_the_publisher_s_rows(flow: Flow, table: str, reader: str) -> None:
    assert flow.facts["changed"][reader, table] == native_rows(flow.pub, table)


@pytest.mark.parametrize(
    ("table", "kinds"), [("older", {"PARQUET"}), ("streamed", {"PUFFIN"}), ("keyless", {"PUFFIN"})]
)
def test_the_deletes_are_vectors(flow: Flow, table: str, kinds: set[str]) -> None:
    """Else the readers would have had nothing to prove."""
    rows = flow.lake(f"SELECT DISTINCT file_format FROM {{t}}.{table}.delete_files")
    assert {row["file_format"] for row in rows} == kinds
