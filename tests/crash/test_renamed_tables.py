"""A worker is killed around each step of a renaming; the successor has equal rows and one table."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import (
    BEFORE_TABLE_RENAME,
    RENAME_NOTED,
    RENAME_STORED,
    TABLE_RENAMED,
)

NAME = "moving"


@pytest.fixture
def database(family: Family, publisher: EmbeddedPublisher) -> Iterator[Database]:
    database = new_database(publisher, NAME, NAME)
    database.run(
        "CREATE TABLE t0 (id int PRIMARY KEY, n int)",
        "INSERT INTO t0 SELECT i, i FROM generate_series(1, 100) i",
        "CREATE PUBLICATION pub FOR TABLE t0",
    )
    family.create(NAME, database.dsn, ["pub"])
    yield database
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(NAME)


def test_a_death_at_each_step_leaves_equal_rows(family: Family, database: Database) -> None:
    family.pgsub.wait(NAME)
    places = (RENAME_NOTED, BEFORE_TABLE_RENAME, TABLE_RENAMED, RENAME_STORED)
    insert = "INSERT INTO {} SELECT i, i FROM generate_series({}, {}) i"
    for n, place in enumerate(places, 1):
        old, new = f"t{n - 1}", f"t{n}"
        family.failpoints.arm(place, action="kill")
        database.run(
            insert.format(old, 1000 * n, 1000 * n + 9),
            f"ALTER TABLE {old} RENAME TO {new}",
            insert.format(new, 1000 * n + 10, 1000 * n + 19),
            f"UPDATE {new} SET n = n + 1",
        )
        family.failpoints.wait_held(place, PATIENCE, family.log_tail)
        family.failpoints.clear()
        wait_until(partial(is_named, family, new), PATIENCE, family.log_tail)
        family.pgsub.wait(NAME)
        assert family.pgsub.rows(NAME, new, ["id", "n"]) == native_rows(database, new)
        lake = family.pgsub.sql(f"SHOW TABLES IN lake.{NAME}")
        assert [row["tableName"] for row in lake] == [new]
    described = [row["description"] for row in family.pgsub.status("schema_changes")]
    assert described == [
        f'table "{NAME}.t{n}" renamed to "{NAME}.t{n + 1}"' for n in range(len(places))
    ]


def is_named(family: Family, name: str) -> bool:
    """Has the table the name, in the catalog?"""
    return [row["relname"] for row in family.pgsub.status("pg_subscription_rel")] == [name]
