"""A worker is killed around each step of a change of columns; the successor has equal rows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from workers.process.failpoints import (
    BEFORE_SCHEMA_CHANGE,
    COLUMN_FILLED,
    COLUMN_TO_FILL,
    SCHEMA_CHANGED,
    SCHEMA_STORED,
)

NAME = "changed"
CHANGES = {
    BEFORE_SCHEMA_CHANGE: "ALTER TABLE t ADD COLUMN w int",
    SCHEMA_CHANGED: "ALTER TABLE t RENAME COLUMN v TO title",
    SCHEMA_STORED: "ALTER TABLE t ALTER n TYPE bigint",
    COLUMN_TO_FILL: "ALTER TABLE t ADD COLUMN a text DEFAULT 'x'",
    COLUMN_FILLED: "ALTER TABLE t ADD COLUMN b timestamptz DEFAULT now()",
}
"""The place where the worker dies, and the change."""


@pytest.fixture
def database(family: Family, publisher: EmbeddedPublisher) -> Iterator[Database]:
    database = new_database(publisher, NAME, NAME)
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text, n int)",
        "INSERT INTO t SELECT i, 'v' || i, i FROM generate_series(1, 100) i",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    family.create(NAME, database.dsn, ["pub"])
    yield database
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(NAME)


def test_a_death_at_each_step_leaves_equal_rows(family: Family, database: Database) -> None:
    family.pgsub.wait(NAME)
    insert = "INSERT INTO t SELECT i, 'x' || i, i FROM generate_series({}, {}) i"
    for n, (place, change) in enumerate(CHANGES.items(), 1):
        family.failpoints.arm(place, action="kill")
        database.run(insert.format(1000 * n, 1000 * n + 9), change)
        database.run(insert.format(1000 * n + 10, 1000 * n + 19), "UPDATE t SET n = n + 1")
        family.failpoints.wait_held(place, PATIENCE, family.log_tail)
        family.failpoints.clear()
        family.pgsub.wait(NAME)
        columns = [row[0] for row in database.execute(PUBLISHED)]
        assert family.pgsub.rows(NAME, "t", columns) == native_rows(database, "t", columns)
    # The renaming was in the lake and not yet in the catalog: it is followed, and not on record.
    found = [row["description"] for row in family.pgsub.status("schema_changes")]
    assert found == [
        'column "w" added',
        'type of column "n" changed',
        'column "a" added; its stored default filled in the rows from before',
        'column "b" added; its stored default filled in the rows from before',
    ]


PUBLISHED = """
SELECT attname FROM pg_attribute
 WHERE attrelid = 't'::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
