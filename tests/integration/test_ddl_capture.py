"""``ddl_capture: on``: event triggers of the publisher tell of changed tables, at their positions.

The twin is the publisher: rows, columns and values are compared. By looking, most of these changes
would have the table copied again, because the publisher's catalog is ahead of the stream.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.fix_publisher import Database, new_database, requested_publisher
from tests.harness import Pgsub
from tests.servers import every_version
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.proto.decode import message
from workers.proto.messages import LogicalMessage

SETTINGS: dict[str, Any] = {"ddl_capture": "on"}


@dataclass(slots=True)
class Captured:
    """A subscription whose publisher has the triggers."""

    pgsub: Pgsub
    database: Database
    name: str

    def columns(self, table: str) -> list[str]:
        return self.pgsub.arrow(self.database.schema, table).column_names

    def rows(self, table: str, columns: list[str] | None = None) -> list[tuple[Any, ...]]:
        return self.pgsub.rows(self.database.schema, table, columns)

    def is_copied_again(self, table: str) -> bool:
        rows, schema = self.pgsub.status("schema_changes"), self.database.schema
        found = [
            r for r in rows if (r["subname"], r["relation"]) == (self.name, f"{schema}.{table}")
        ]
        assert found, "no change was followed"
        return any(row["copy_state"] for row in found)


def held_back(made: Captured, *statements: str) -> None:
    """Statements that the worker receives in one batch, when all of them are done."""
    made.pgsub.command("disable", made.name)
    made.database.run(*statements)
    made.pgsub.command("enable", made.name)
    made.pgsub.wait(made.name)


@pytest.fixture(scope="module", params=every_version(18, since=14))
def made(request: pytest.FixtureRequest, pgsub: Pgsub) -> Iterator[Captured]:
    schema = f"captured_{request.param}"
    database = new_database(requested_publisher(request), schema, schema)
    name = database.name
    database.run(
        "CREATE TABLE renamed (id int PRIMARY KEY, a int, b int)",
        "INSERT INTO renamed VALUES (1, 10, 100)",
        "CREATE TABLE computed (id int PRIMARY KEY, v int)",
        "INSERT INTO computed VALUES (1, 10)",
        "CREATE TABLE rolled (id int PRIMARY KEY, v int)",
        "CREATE TABLE twice (id int PRIMARY KEY, v int)",
        "INSERT INTO twice VALUES (1, 10)",
        "CREATE TABLE called (id int PRIMARY KEY, v int)",
        "INSERT INTO called VALUES (1, 10)",
        "CREATE FUNCTION migrate() RETURNS void LANGUAGE sql AS"
        " 'ALTER TABLE called ALTER v TYPE bigint USING v * 1000'",
        "CREATE TABLE large (id int PRIMARY KEY, v int)",
        "CREATE TABLE lied (id int PRIMARY KEY, v int)",
        "INSERT INTO lied VALUES (1, 10)",
        "CREATE TABLE parts (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
        "CREATE TABLE leaf PARTITION OF parts FOR VALUES FROM (1) TO (100)",
        "INSERT INTO parts VALUES (1, 10)",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    with pgsub.settings(**SETTINGS):
        pgsub.create(name, database.dsn, ["pub"])
        pgsub.wait(name)
        pgsub.command("ddl-capture", "install", name, "--execute")
        pgsub.kill_worker(name)
        wait_until(lambda: "action=ddl_capture" in pgsub.log_file.read_text(errors="replace"), 60)
        yield Captured(pgsub, database, name)
    pgsub.drop(name)
    database.drop()


def test_a_rename_and_a_drop_with_another_column_behind_them(made: Captured) -> None:
    """By looking: a dropped and an added column of one type may be a renaming."""
    held_back(
        made,
        "ALTER TABLE renamed RENAME a TO c",
        "INSERT INTO renamed VALUES (2, 20, 200)",
        "ALTER TABLE renamed DROP c",
        "ALTER TABLE renamed ADD c int",
        "INSERT INTO renamed VALUES (3, 300, 30)",
        "BEGIN; ALTER TABLE renamed ADD d int; ALTER TABLE renamed RENAME d TO e;"
        " INSERT INTO renamed VALUES (4, 400, 40, 4); COMMIT",
        "ALTER TABLE renamed RENAME e TO f",
    )
    rows = made.rows("renamed", ["id", "b", "c", "c_dropped_2", "e"])
    assert sorted(rows, key=lambda row: row[0]) == [
        (1, 100, None, 10, None),
        (2, 200, None, 20, None),
        (3, 300, 30, None, None),
        (4, 400, 40, None, 4),
    ]
    assert not made.is_copied_again("renamed")


def test_values_that_are_computed_anew_are_seen(made: Captured) -> None:
    """The columns stay: no Relation message differs."""
    made.database.run(
        "ALTER TABLE computed ALTER v TYPE int USING v + 1", "INSERT INTO computed VALUES (2, 20)"
    )
    made.pgsub.wait(made.name)
    wait_until(
        lambda: made.rows("computed") == native_rows(made.database, "computed"),
        120,
        made.pgsub.log_tail,
    )


def test_a_command_that_is_rolled_back_is_none(made: Captured) -> None:
    held_back(
        made,
        "BEGIN; ALTER TABLE rolled ADD w int; INSERT INTO rolled VALUES (1, 1, 1); ROLLBACK",
        "BEGIN; SAVEPOINT s; ALTER TABLE rolled ADD x int; ROLLBACK TO s;"
        " INSERT INTO rolled VALUES (2, 2); ALTER TABLE rolled RENAME v TO y;"
        " INSERT INTO rolled VALUES (3, 3); COMMIT",
    )
    rows = made.rows("rolled")
    assert [sorted(row) for row in rows] == [[2, 2], [3, 3]]


def test_a_type_that_holds_more_is_no_copy(made: Captured) -> None:
    held_back(
        made,
        "ALTER TABLE twice ALTER v TYPE bigint",
        "INSERT INTO twice VALUES (2, 1::bigint << 40)",
        "ALTER TABLE twice ADD w text",
        "INSERT INTO twice VALUES (3, 3, 'w')",
    )
    assert made.rows("twice", ["id", "v", "w"]) == native_rows(
        made.database, "twice", ["id", "v", "w"]
    )
    assert not made.is_copied_again("twice")


def test_new_values_by_a_function_are_seen(made: Captured) -> None:
    """The text of the client's command has no ALTER: the values may be others."""
    made.database.run("SELECT migrate()", "INSERT INTO called VALUES (2, 20)")
    made.pgsub.wait(made.name)
    wait_until(
        lambda: made.rows("called") == native_rows(made.database, "called"),
        120,
        made.pgsub.log_tail,
    )
    assert native_rows(made.database, "called") == [(1, 10000), (2, 20)]
    assert made.is_copied_again("called")


def test_a_savepoint_of_a_large_transaction_that_is_rolled_back(made: Captured) -> None:
    """Large enough to be sent while it runs, were it not for the messages."""
    made.database.run(
        "BEGIN; INSERT INTO large SELECT i, i FROM generate_series(1, 50000) i; SAVEPOINT s;"
        " ALTER TABLE large DROP v, ADD v int;"
        " INSERT INTO large SELECT i, -i FROM generate_series(50001, 100000) i; ROLLBACK TO s;"
        " INSERT INTO large VALUES (100001, 1); COMMIT",
        "INSERT INTO large VALUES (100002, 2)",
    )
    made.pgsub.wait(made.name)
    assert made.columns("large") == ["id", "v"]
    found = made.pgsub.sql(f"SELECT count(*) n, sum(v) v FROM lake.{made.database.schema}.large")
    assert (found[0]["n"], found[0]["v"]) == (50002, 50000 * 50001 // 2 + 3)


def test_a_forged_message_changes_nothing(made: Captured) -> None:
    """Any role may emit one: with a content of its own, or with one that it has read elsewhere."""
    database = made.database
    slot = f"read_{made.name}"
    database.run(f"SELECT pg_create_logical_replication_slot('{slot}', 'pgoutput')")
    database.run("ALTER TABLE lied DROP v, ADD v int")
    found = database.execute(
        f"SELECT data FROM pg_logical_slot_get_binary_changes('{slot}', NULL, NULL,"
        " 'proto_version', '1', 'publication_names', 'pub', 'messages', 'true')"
    )
    database.run(f"SELECT pg_drop_replication_slot('{slot}')")
    sent = [message(bytes(row[0])) for row in found]
    real = next(each.content for each in sent if isinstance(each, LogicalMessage))
    database.run("INSERT INTO lied VALUES (2, 20)", "ALTER TABLE lied RENAME v TO w")
    emitted = "SELECT pg_logical_emit_message(true, 'pgsub.ddl', %s::bytea)"
    with database.connect() as conn:
        for content in (real, b"0" * 64 + real[64:], b"{}"):
            conn.execute(emitted, (content,))
        conn.execute("INSERT INTO lied VALUES (3, 30)")
    made.pgsub.wait(made.name)
    rows = made.rows("lied", ["id", "w", "v_dropped_2"])
    assert sorted(rows) == [(1, None, 10), (2, 20, None), (3, 30, None)]
    assert not made.is_copied_again("lied")
    assert "action=untrusted_message" in made.pgsub.log_file.read_text(errors="replace")


def test_columns_of_a_partition_are_told_with_the_parents(made: Captured) -> None:
    """Without publish_via_partition_root the partition is the table, and the parent is altered."""
    held_back(
        made,
        "ALTER TABLE parts RENAME v TO old",
        "INSERT INTO parts VALUES (2, 20)",
        "ALTER TABLE parts DROP old",
        "ALTER TABLE parts ADD v int",
        "INSERT INTO parts VALUES (3, 30)",
    )
    rows = made.rows("leaf", ["id", "v", "old"])
    assert sorted(rows) == [(1, None, 10), (2, None, 20), (3, 30, None)]
    assert not made.is_copied_again("leaf")


def test_the_key_is_in_no_lake_table(made: Captured) -> None:
    """The publication is for all tables."""
    found = made.pgsub.status("pg_subscription_rel")
    assert "ddl_key" not in {row["relname"] for row in found}
