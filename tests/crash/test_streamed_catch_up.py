"""A sync worker is killed while it catches up through a transaction that is sent in parts.

The transaction begins behind the copy, so the copy lacks it, and is too large for the publisher's
memory. Until the end of the synchronisation nobody sees a row; then all rows are there, once.
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
from workers.process.failpoints import STREAM_COMMITTED, STREAM_STOPPED

NAME = "streamed_catch_up"
COPIED = "tablesync.copied"
PLACES = (STREAM_STOPPED, STREAM_COMMITTED, "tablesync.caught_up")
"""Where the sync worker dies, each time with another table."""
COLUMNS = ["id", "v"]
LARGE = (
    "BEGIN; INSERT INTO {t} SELECT i, 'streamed' FROM generate_series(101, 3000) i;"
    " UPDATE {t} SET v = v || '!' WHERE id % 2 = 0; DELETE FROM {t} WHERE id % 3 = 0; COMMIT"
)


@pytest.fixture
def database(family: Family, publisher: EmbeddedPublisher) -> Iterator[Database]:
    database = new_database(publisher, NAME, NAME)
    database.run(
        f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
        "CREATE TABLE other (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub FOR TABLE other",
    )
    yield database
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(NAME)
    database.drop()


def test_nothing_is_seen_before_the_end_and_nothing_is_there_twice(
    family: Family, database: Database
) -> None:
    """H-28: a commit inside of the stream of a catch-up shows no half of a table."""
    family.create(NAME, database.dsn, ["pub"], streaming="on")
    family.pgsub.wait(NAME)
    for n, place in enumerate(PLACES, 1):
        table = f"t{n}"
        database.run(
            f"CREATE TABLE {table} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {table} SELECT i, 'copied' FROM generate_series(1, 100) i",
            f"ALTER PUBLICATION pub ADD TABLE {table}",
        )
        family.failpoints.arm(COPIED)
        family.pgsub.command("refresh", NAME)
        family.failpoints.wait_held(COPIED, PATIENCE, family.log_tail)
        database.run(LARGE.format(t=table), f"INSERT INTO other VALUES ({n})")
        wait_until(partial(has_row, family, n), PATIENCE, family.log_tail)
        family.failpoints.arm(place)
        family.failpoints.release(COPIED)
        worker = family.failpoints.wait_held(place, PATIENCE, family.log_tail)
        assert worker in family.sync_pids(NAME), place
        assert family.pgsub.rows(NAME, table, COLUMNS) == [], place
        family.kill(worker)
        family.failpoints.release(place)
        family.pgsub.wait(NAME)
        found = family.pgsub.rows(NAME, table, COLUMNS)
        assert found == native_rows(database, table, COLUMNS), place


def has_row(family: Family, n: int) -> bool:
    """Has the apply worker gone past the transaction of the round?"""
    return len(family.pgsub.rows(NAME, "other", ["id"])) == n
