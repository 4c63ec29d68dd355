"""A worker is killed at each step of a copy that follows a change of columns.

In each round a column gets another type and other values, and the table is copied again. Readers
see the rows from before, or all of the new ones.
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
from workers.process.failpoints import SUSPENDED, SUSPENDING

NAME = "copied_again"
TEXT = "ALTER TABLE t ALTER v TYPE text USING 'v' || v"
NUMBER = "ALTER TABLE t ALTER v TYPE int USING length(v)"
COLUMNS = ["id", "v", "w"]
ROUNDS = {
    SUSPENDING: TEXT,
    SUSPENDED: NUMBER,
    "tablesync.branch_created": TEXT,
    "tablesync.copied": NUMBER,
    "tablesync.caught_up": TEXT,
    "tablesync.published": NUMBER,
    "tablesync.syncdone_stored": TEXT,
}
"""The place where a worker dies, and the change."""


@pytest.fixture
def database(family: Family, publisher: EmbeddedPublisher) -> Iterator[Database]:
    database = new_database(publisher, NAME, NAME)
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v int, w int)",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "INSERT INTO t SELECT i, i, i FROM generate_series(1, 100) i",
        "CREATE PUBLICATION pub FOR ALL TABLES",
    )
    family.create(NAME, database.dsn, ["pub"])
    yield database
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(NAME)


def test_a_death_at_each_step_leaves_old_rows_or_all_new_ones(
    family: Family, database: Database
) -> None:
    family.pgsub.wait(NAME)
    for n, (place, change) in enumerate(ROUNDS.items(), 1):
        before = family.pgsub.rows(NAME, "t", COLUMNS)
        family.failpoints.arm(place, action="kill")
        database.run(
            f"INSERT INTO other VALUES ({n})",
            f"BEGIN; {change}; UPDATE t SET w = w + 1 WHERE id = 1; COMMIT",
            f"UPDATE t SET w = w + 1 WHERE id = {n}",
        )
        family.failpoints.wait_held(place, PATIENCE, family.log_tail)
        if "published" not in place and "stored" not in place:
            assert family.pgsub.rows(NAME, "t", COLUMNS) == before, place
        family.failpoints.clear()
        wait_until(partial(copies_are_done, family, n), PATIENCE, family.log_tail)
        database.run("DELETE FROM t WHERE id = (SELECT max(id) FROM t)")
        family.pgsub.wait(NAME)
        for table, columns in (("t", COLUMNS), ("other", ["id"])):
            ours = family.pgsub.rows(NAME, table, columns)
            assert ours == native_rows(database, table, columns), place


def copies_are_done(family: Family, n: int) -> bool:
    """Was the table copied again for each of ``n`` changes?"""
    states = [row["copy_state"] for row in family.pgsub.status("schema_changes")]
    return states == ["done"] * n
