"""Worker, lake server or launcher die around each step of a change that triggers told.

By looking, each of these changes would have the table copied again: the publisher's catalog is
ahead, and a column of the same type comes for a dropped one.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from workers.process.failpoints import (
    BEFORE_SCHEMA_CHANGE,
    SCHEMA_CHANGED,
    SCHEMA_STORED,
    SHAPE_STORED,
)

NAME = "captured"
PLACES = (SHAPE_STORED, BEFORE_SCHEMA_CHANGE, SCHEMA_CHANGED, SCHEMA_STORED)
VICTIMS = ("worker", "lake server", "launcher")


@pytest.fixture
def database(family: Family, publisher: EmbeddedPublisher) -> Iterator[Database]:
    database = new_database(publisher, NAME, NAME)
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v0 int)",
        "INSERT INTO t SELECT i, i FROM generate_series(1, 10) i",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    family.configure(ddl_capture="on")
    family.create(NAME, database.dsn, ["pub"])
    family.pgsub.wait(NAME)
    family.pgsub.command("ddl-capture", "install", NAME, "--execute")
    since = family.log_size()
    family.pgsub.kill_worker(NAME)
    family.wait_logged("action=ddl_capture ", since, PATIENCE)
    yield database
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(NAME)
    family.configure()


def test_a_death_at_each_step_leaves_equal_rows(family: Family, database: Database) -> None:
    expected = {i: {0: i} for i in range(1, 11)}
    rounds = [(victim, place) for victim in VICTIMS for place in PLACES]
    for n, (victim, place) in enumerate(rounds, 1):
        row = 1000 * n
        family.failpoints.arm(place, action="kill" if victim == "worker" else "")
        database.run(
            f"BEGIN; ALTER TABLE t RENAME v{n - 1} TO old; INSERT INTO t VALUES ({row}, {row});"
            f" COMMIT",
            f"ALTER TABLE t DROP old, ADD v{n} int",
            f"INSERT INTO t VALUES ({row + 1}, {row + 1})",
        )
        expected[row], expected[row + 1] = {n - 1: row}, {n: row + 1}
        family.failpoints.wait_held(place, PATIENCE, family.log_tail)
        if victim == "lake server":
            family.kill_lake_server()
        elif victim == "launcher":
            family.kill_launcher()
        family.failpoints.clear()
        if victim == "launcher":
            family.start()
        family.pgsub.wait(NAME)
        assert values(family, n) == expected, f"{victim} at {place}"
    assert not [row for row in family.pgsub.status("schema_changes") if row["copy_state"]]


def values(family: Family, last: int) -> dict[int, dict[int, int]]:
    """By id the values that are not NULL, by the number of the column.

    Column v0 was attribute 2, and the lake keeps it as old: old_dropped_2 from the next round on.
    """
    names = {f"v{last}": last, "old": last - 1}
    names |= {f"old_dropped_{n + 2}": n for n in range(last - 1)}
    found = family.pgsub.rows(NAME, "t", ["id", *names])
    return {
        row[0]: {
            n: value for n, value in zip(names.values(), row[1:], strict=True) if value is not None
        }
        for row in found
    }
