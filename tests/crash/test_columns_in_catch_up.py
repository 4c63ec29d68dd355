"""Columns change while a sync worker stands between its copy and its catch-up.

Every name stays, and is another column's: the rows of the catch-up belong to the new columns. The
table is copied again, with both kinds of slots.
"""

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

HELD_AT = {"temporary": "tablesync.copied", "permanent": "tablesync.finishedcopy_stored"}
NAME = "catch_up_columns"
CHANGED = {
    "again": (["id", "v"], "ALTER TABLE again DROP COLUMN v, ADD COLUMN v bigint"),
    "swapped": (
        ["id", "w", "v"],
        "BEGIN; ALTER TABLE swapped RENAME v TO x; ALTER TABLE swapped RENAME w TO v;"
        " ALTER TABLE swapped RENAME x TO w; COMMIT",
    ),
    "added": (["id", "v", "w"], "ALTER TABLE added ADD COLUMN w int"),
}
"""Table → its columns after the change, and the change."""


@pytest.fixture
def database(family: Family, publisher: EmbeddedPublisher) -> Iterator[Database]:
    database = new_database(publisher, NAME, NAME)
    database.run(
        "CREATE TABLE again (id int PRIMARY KEY, v int)",
        "CREATE TABLE swapped (id int PRIMARY KEY, v int, w int)",
        "CREATE TABLE added (id int PRIMARY KEY, v int)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO again SELECT i, i FROM generate_series(1, 10) i",
        "INSERT INTO swapped SELECT i, i, -i FROM generate_series(1, 10) i",
        "INSERT INTO added SELECT i, i FROM generate_series(1, 10) i",
        "CREATE PUBLICATION pub FOR TABLE other",
    )
    yield database
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(NAME)


@pytest.mark.parametrize("slot", HELD_AT)
def test_rows_of_the_catch_up_are_in_their_columns(
    family: Family, database: Database, slot: str
) -> None:
    family.create(NAME, database.dsn, ["pub"], sync_slot=slot)
    family.pgsub.wait(NAME)
    for n, (table, (columns, change)) in enumerate(CHANGED.items(), 1):
        family.failpoints.arm(HELD_AT[slot])
        database.run(f"ALTER PUBLICATION pub ADD TABLE {table}")
        family.pgsub.command("refresh", NAME)
        family.failpoints.wait_held(HELD_AT[slot], PATIENCE, family.log_tail)
        values = ", ".join(f"{n}" for n in range(20, 20 + len(columns) - 1))
        since = family.log_size()
        database.run(change, f"INSERT INTO {table} VALUES (11, {values})")
        database.run(f"INSERT INTO other VALUES ({n})")
        wait_until(partial(has_row, family, n), PATIENCE, family.log_tail)
        family.failpoints.clear()
        family.wait_logged("is copied again with its present columns", since, PATIENCE)
        family.pgsub.wait(NAME)
        database.run(f"INSERT INTO {table} VALUES (12, {values})")
        family.pgsub.wait(NAME)
        found = family.pgsub.rows(NAME, table, columns)
        assert found == native_rows(database, table, columns), table


def has_row(family: Family, n: int) -> bool:
    """Has the apply worker gone past the changes of the round?"""
    return len(family.pgsub.rows(NAME, "other", ["id"])) == n
