"""Tables that are copied again while they are read, killed, and after the slot was lost.

``log`` has no key and only grows, so that a row that is missing, or comes twice, shows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import psycopg
import pytest

from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.cases import VERSIONS
from tests.crash.family import Family
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import RECOPY

NAME = SCHEMA = "recopied"
TABLES = ("t", "log")
REMEDY = f"pgsub refresh {NAME} --recopy"
KILLED = -9


class Load:
    """Transactions on both tables until the end of the block."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.transactions = 0

    def __enter__(self) -> Load:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        with self._database.connect() as connection:
            while not self._end.wait(0.02):
                with connection.transaction():
                    connection.execute("INSERT INTO log SELECT max(id) + 1, 'under load' FROM log")
                    connection.execute(
                        "UPDATE t SET v = v || 'x' WHERE id = %s",
                        (self.transactions % 100 + 1,),
                    )
                self.transactions += 1


class Recopied:
    """A subscription with the two tables, and its publisher."""

    def __init__(self, family: Family, database: Database) -> None:
        self.family = family
        self.database = database

    def recopy(self, *tables: str, status: int = 0) -> str:
        """What the command says."""
        words = ("refresh", NAME, "--recopy", *(f"{SCHEMA}.{table}" for table in tables))
        return self.family.pgsub.command(*words, status=status).stderr

    def lake(self, table: str) -> list[tuple[object, ...]]:
        """What readers see."""
        return self.family.pgsub.rows(SCHEMA, table)

    def attempts(self) -> dict[str, int]:
        """How often each table was copied."""
        subid = self.family.subid(NAME)
        with self._catalog() as store:
            return {rel.relname: rel.attempt for rel in store.rels(subid)}

    @contextmanager
    def _catalog(self) -> Iterator[CatalogStore]:
        store = CatalogStore.open(self.family.pgsub.data_dir)
        try:
            yield store
        finally:
            store.close()

    def remedies(self) -> str:
        """The HINTs of what stops a worker now."""
        with self._catalog() as store:
            return " ".join(error.hint or "" for error in store.last_errors())

    def same(self) -> None:
        """The lake is what the publisher is."""
        self.family.pgsub.wait(NAME)
        for table in TABLES:
            assert self.lake(table) == native_rows(self.database, table), table

    def add(self, count: int = 10) -> None:
        """More rows on the publisher, none of them twice, whichever test was here before."""
        self.database.run(
            f"INSERT INTO log SELECT max(id) + i, 'more' FROM log, generate_series(1, {count}) i"
            " GROUP BY i",
            f"INSERT INTO t SELECT max(id) + i, 'more' FROM t, generate_series(1, {count}) i"
            " GROUP BY i",
        )

    def slot(self) -> str | None:
        """The slot's wal_status; None if there is no slot."""
        rows = self.database.execute(
            "SELECT wal_status FROM pg_replication_slots WHERE slot_name = %s", (NAME,)
        )
        return rows[0][0] if rows else None

    def lose_wal(self) -> None:
        """The publisher removes WAL that the slot needs."""
        _limit(self.database, "1MB")

        def lost() -> bool:
            self.database.run(
                "INSERT INTO t SELECT max(id) + 1, 'wal' FROM t", "SELECT pg_switch_wal()"
            )
            self.database.run("CHECKPOINT")
            return self.slot() == "lost"

        wait_until(lost, 60)
        _limit(self.database, "-1")

    def told(self, what: str, since: int) -> None:
        """Status and log say what happened and what to do, the log once."""
        wait_until(lambda: REMEDY in self.remedies(), 60, self.family.log_tail)
        overview = self.family.pgsub.command("status").stdout
        assert what in overview
        assert REMEDY in overview
        log = self.family.log_since(since)
        assert log.count(what) == 1, log
        assert REMEDY in log

    def healed(self) -> None:
        """Rows are right, and nobody complains any more."""
        self.same()
        wait_until(lambda: not self.remedies(), 60, self.remedies)
        self.add()
        self.same()


@pytest.fixture(scope="module", params=VERSIONS)
def database(request: pytest.FixtureRequest) -> Iterator[Database]:
    """A server of the module's own, whose settings it may change."""
    with EmbeddedPublisher(request.param) as server:
        made = new_database(server, NAME, SCHEMA)
        made.run(
            "CREATE TABLE t (id int PRIMARY KEY, v text)",
            "CREATE TABLE log (id int, v text)",
            "INSERT INTO t SELECT i, 'first' FROM generate_series(1, 1000) i",
            "INSERT INTO log SELECT i, 'first' FROM generate_series(1, 1000) i",
            "CREATE PUBLICATION pub FOR TABLE t, log",
        )
        yield made


@pytest.fixture(scope="module")
def recopied(family: Family, database: Database) -> Iterator[Recopied]:
    family.create(NAME, database.dsn, ["pub"])
    made = Recopied(family, database)
    made.same()
    yield made
    family.failpoints.clear()
    family.drop(NAME)
    family.forget_tables(SCHEMA)


def test_readers_see_the_old_rows_until_the_new_ones_are_complete(recopied: Recopied) -> None:
    failpoints = recopied.family.failpoints
    before = recopied.attempts()
    counts: list[int] = []

    def read() -> int:
        rows = recopied.lake("log")
        assert len(rows) == len(set(rows)), "no row is there twice"
        counts.append(len(rows))
        return len(rows)

    with Load(recopied.database) as load:
        failpoints.arm("tablesync.emptied", "tablesync.caught_up")
        wait_until(lambda: load.transactions > 10, 30)
        recopied.recopy("log")
        for place in ("tablesync.emptied", "tablesync.caught_up"):
            failpoints.wait_held(place, PATIENCE, recopied.family.log_tail)
            behind = load.transactions
            wait_until(partial(lambda n: load.transactions > n + 20, behind), 30)
            assert read() == read() > 1000, "what readers see stands still"
            failpoints.release(place)
        wait_until(lambda: read() and recopied.family.states(NAME)["log"] == "r", 60)
        assert load.transactions > 50
    recopied.same()
    assert counts == sorted(counts), "never empty, never a part"
    assert recopied.attempts() == {**before, "log": before["log"] + 1}


def test_a_copy_that_was_shown_and_not_stored_is_taken_back(recopied: Recopied) -> None:
    failpoints = recopied.family.failpoints
    recopied.family.pgsub.sql(f"INSERT INTO lake.{SCHEMA}.log VALUES (-1, 'somebody else')")
    old = recopied.lake("log")
    failpoints.arm("tablesync.published")
    recopied.recopy("log")
    victim = failpoints.wait_held("tablesync.published", PATIENCE, recopied.family.log_tail)
    new = recopied.lake("log")
    assert (len(new), (-1, "somebody else") in new) == (len(old) - 1, False)
    failpoints.arm("tablesync.datasync_stored")
    recopied.family.kill(victim)
    failpoints.release("tablesync.published")
    failpoints.wait_held("tablesync.datasync_stored", PATIENCE, recopied.family.log_tail)
    assert recopied.lake("log") == old
    recopied.add()
    failpoints.release("tablesync.datasync_stored")
    recopied.same()


def test_a_slot_that_was_dropped(recopied: Recopied) -> None:
    database, family = recopied.database, recopied.family
    since = family.log_size()
    family.pgsub.command("disable", NAME)
    database.run(f"SELECT pg_drop_replication_slot('{NAME}')")
    recopied.add()
    family.pgsub.command("enable", NAME)
    recopied.told(f'replication slot "{NAME}" does not exist', since)
    assert "one by one" in recopied.recopy("t", status=1)
    for place in RECOPY:
        family.failpoints.arm(place, action="kill")
        recopied.recopy(status=KILLED)
        family.failpoints.release(place)
        assert recopied.lake("log"), "the old rows are there"
    recopied.recopy()
    recopied.healed()


def test_a_slot_whose_wal_was_removed(recopied: Recopied) -> None:
    family = recopied.family
    since = family.log_size()
    family.pgsub.command("disable", NAME)
    recopied.add()
    recopied.lose_wal()
    family.pgsub.command("enable", NAME)
    recopied.told(f'replication slot "{NAME}"', since)
    recopied.recopy()
    recopied.healed()


def test_a_slot_whose_wal_is_removed_while_it_streams(recopied: Recopied) -> None:
    """The publisher ends the stream under a batch, which is shown; the next worker says why."""
    family = recopied.family
    since = family.log_size()
    family.failpoints.arm("apply.batch_taken")
    recopied.add()
    held = native_rows(recopied.database, "log")
    victim = family.failpoints.wait_held("apply.batch_taken", PATIENCE, family.log_tail)
    assert victim == family.apply_pid(NAME)
    recopied.lose_wal()
    family.failpoints.release("apply.batch_taken")
    recopied.told(f'replication slot "{NAME}"', since)
    assert recopied.lake("log") == held
    recopied.recopy()
    recopied.healed()


def _limit(database: Database, size: str) -> None:
    with psycopg.connect(database.dsn, autocommit=True) as connection:
        connection.execute(f"ALTER SYSTEM SET max_slot_wal_keep_size = '{size}'".encode())
        connection.execute("SELECT pg_reload_conf()")
