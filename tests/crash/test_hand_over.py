"""A table's hand-over from its copy to the stream, whichever of the two is ahead: S-P-6.

Every transaction writes the table, so that only where its commit lies says whose it is. One is open
over the hand-over: it has written before, and commits after it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from catalog.pg_lsn import LSN
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family, wait_confirmed
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until

NAME = SCHEMA = "hand_over"
EACH = pytest.mark.parametrize(
    "sync_slot", ["temporary", pytest.param("permanent", marks=pytest.mark.crash)]
)


@pytest.fixture
def database(publisher: EmbeddedPublisher, family: Family) -> Iterator[Database]:
    made = new_database(publisher, "crash_hand_over", schema=SCHEMA)
    made.run(
        "CREATE TABLE one (id int PRIMARY KEY, v int)",
        "INSERT INTO one SELECT n, 0 FROM generate_series(1, 10) n",
        "CREATE PUBLICATION pub FOR TABLE one",
    )
    yield made
    family.failpoints.clear()
    if NAME in family.subscriptions:
        family.drop(NAME)
    family.forget_tables(SCHEMA)
    made.drop()


def write(database: Database, first: int) -> None:
    """Ten transactions, each with a row of its own, and a change of one that was copied."""
    change = "INSERT INTO one VALUES ({0}, 0); UPDATE one SET v = v + 1 WHERE id = 1 + {0} % 10"
    database.run(*(change.format(number) for number in range(first, first + 10)))


@contextmanager
def open_transaction(database: Database, key: int) -> Iterator[None]:
    """It has written when this begins, and is committed when it ends."""
    with database.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO one VALUES (%s, 0)", (key,))
        connection.execute("UPDATE one SET v = v + 100 WHERE id = 10")
        yield


def synchronised(family: Family) -> LSN:
    """Where the copy and what was caught up with it end, as soon as it is done."""

    def done() -> bool:
        return family.rel(NAME).srsubstate.value in "sr"

    wait_until(done, PATIENCE, family.log_tail)
    lsn = family.rel(NAME).srsublsn
    assert lsn is not None
    return lsn


def same(family: Family, database: Database) -> None:
    family.pgsub.wait(NAME)
    assert family.pgsub.rows(SCHEMA, "one") == native_rows(database, "one")
    assert family.states(NAME) == {"one": "r"}


@EACH
def test_s_p_6_the_copy_is_ahead_of_the_stream(
    family: Family, database: Database, sync_slot: str
) -> None:
    """What the copy has, the stream brings again, later."""
    family.failpoints.arm("tablesync.started", "tablesync.slot_created")
    family.create(NAME, database.dsn, ["pub"], sync_slot=sync_slot)
    family.failpoints.wait_held("tablesync.started", PATIENCE, family.log_tail)
    streams = "SELECT pid FROM pg_stat_replication WHERE application_name = %s AND state = %s"
    found = wait_until(lambda: database.execute(streams, (NAME, "streaming")), 60, "it streams")
    walsender = found[0][0]
    os.kill(walsender, signal.SIGSTOP)
    try:
        write(database, 11)
        passed = LSN.parse(database.lsn())
        family.failpoints.release("tablesync.started")
        family.failpoints.wait_held("tablesync.slot_created", PATIENCE, family.log_tail)
        with open_transaction(database, 50):
            family.failpoints.release("tablesync.slot_created")
            assert synchronised(family) >= passed
            assert family.states(NAME) == {"one": "s"}  # r when the stream is there as well
        write(database, 21)
    finally:
        os.kill(walsender, signal.SIGCONT)
    same(family, database)


@EACH
def test_s_p_6_the_stream_is_ahead_of_the_copy(
    family: Family, database: Database, sync_slot: str
) -> None:
    """What the stream has passed by, the sync worker has to fetch."""
    family.failpoints.arm("tablesync.slot_created")
    family.create(NAME, database.dsn, ["pub"], sync_slot=sync_slot)
    family.failpoints.wait_held("tablesync.slot_created", PATIENCE, family.log_tail)
    write(database, 11)
    passed = LSN.parse(database.lsn())
    wait_confirmed(family, database, NAME)
    with open_transaction(database, 50):
        family.failpoints.release("tablesync.slot_created")
        assert synchronised(family) >= passed
    write(database, 21)
    same(family, database)
