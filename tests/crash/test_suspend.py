"""``on_error: suspend``: a value, a copy and a kill suspend one table; a resume brings it back.

``bad`` gets a value that its lake column cannot hold; ``cold`` has one at its copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import SUSPENDED

NAME = SCHEMA = "suspended"
TABLES = ("good", "bad", "cold")


class Suspended:
    """A subscription with the tables, and its publisher."""

    def __init__(self, family: Family, database: Database) -> None:
        self.family = family
        self.database = database

    def rel(self, table: str) -> SubscriptionRel:
        subid = self.family.subid(NAME)
        with closing(CatalogStore.open(self.family.pgsub.data_dir)) as store:
            return next(rel for rel in store.rels(subid) if rel.relname == table)

    def keys(self, table: str) -> list[object]:
        """What readers see."""
        return [row[0] for row in self.family.pgsub.rows(SCHEMA, table)]

    def until_ready(self, table: str) -> None:
        """The lake table exists from then on."""
        wait_until(lambda: self.rel(table).srsubstate == "r", PATIENCE, self.family.log_tail)

    def until_in_good(self, key: int) -> None:
        wait_until(lambda: key in self.keys("good"), PATIENCE, self.family.log_tail)

    def confirmed(self) -> int:
        """The slot's position on the publisher."""
        found = self.database.execute(
            "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots "
            f"WHERE slot_name = '{NAME}'"
        )
        return int(found[0][0])

    def committed(self) -> int:
        found = self.database.execute("SELECT pg_current_wal_lsn() - '0/0'::pg_lsn")
        return int(found[0][0])

    def pgsub(self, *words: str, status: int = 0) -> str:
        """What a command prints and says."""
        done = self.family.pgsub.command(*words, status=status)
        return done.stdout + done.stderr


@pytest.fixture
def suspended(family: Family, publisher: EmbeddedPublisher) -> Iterator[Suspended]:
    database = new_database(publisher, NAME, SCHEMA)
    database.run(
        *(f"CREATE TABLE {each} (id int PRIMARY KEY, v numeric(10, 2))" for each in TABLES),
        "INSERT INTO cold VALUES (1, 'NaN')",
        f"CREATE PUBLICATION pub FOR TABLE {', '.join(TABLES)}",
    )
    family.create(NAME, database.dsn, ["pub"], {f"{SCHEMA}.cold": {"on_error": "suspend"}})
    yield Suspended(family, database)
    family.failpoints.clear()
    family.configure()
    family.drop(NAME)
    family.forget_tables(SCHEMA)


def test_one_table_s_trouble_is_its_own(suspended: Suspended) -> None:
    family, database = suspended.family, suspended.database
    _the_copy_suspends(suspended)
    family.configure(default_on_error="suspend")
    _the_value_suspends_over_a_kill(suspended)
    _stays_suspended_over_a_restart_and_a_reload(suspended)
    database.run("UPDATE bad SET v = 2 WHERE id = 2", "UPDATE cold SET v = 1")
    _resumes_behind_the_readers(suspended)
    family.pgsub.wait(NAME)
    for table in TABLES:
        assert family.pgsub.rows(SCHEMA, table) == native_rows(database, table), table
        assert not suspended.rel(table).suspended
    (stats,) = (
        row for row in family.pgsub.status("pg_stat_subscription_stats") if row["subname"] == NAME
    )
    assert stats["suspension_count"] == 2


def _the_copy_suspends(suspended: Suspended) -> None:
    """The other tables are ready, and no slot of the copy is left."""
    wait_until(lambda: suspended.rel("cold").suspended, PATIENCE, suspended.family.log_tail)
    suspended.until_ready("good")  # copies run side by side: one of the two can be the last
    suspended.until_ready("bad")
    rel = suspended.rel("cold")
    assert (rel.srsubstate, rel.suspend_sqlstate, rel.suspend_lsn) == ("d", "22003", None)
    suspended.database.run("INSERT INTO good VALUES (1, 1)", "INSERT INTO bad VALUES (1, 1)")
    suspended.until_in_good(1)
    wait_until(lambda: suspended.keys("bad") == [1], PATIENCE, suspended.family.log_tail)
    slots = "SELECT slot_name FROM pg_replication_slots WHERE slot_name LIKE 'pg_%_sync_%'"
    wait_until(lambda: not suspended.database.execute(slots), PATIENCE)


def _the_value_suspends_over_a_kill(suspended: Suspended) -> None:
    """Killed between the suspension and the next batch; then the slot moves on."""
    failpoints = suspended.family.failpoints
    failpoints.arm(SUSPENDED, action="kill")
    suspended.database.execute("INSERT INTO good VALUES (2, 2); INSERT INTO bad VALUES (2, 'NaN')")
    failpoints.wait_held(SUSPENDED, PATIENCE, suspended.family.log_tail)
    failpoints.clear()
    suspended.database.execute("INSERT INTO good VALUES (3, 3); INSERT INTO bad VALUES (3, 3)")
    end = suspended.committed()
    suspended.until_in_good(3)
    wait_until(lambda: suspended.confirmed() >= end, PATIENCE, suspended.family.log_tail)
    assert suspended.keys("good") == [1, 2, 3]
    assert suspended.keys("bad") == [1]
    rel = suspended.rel("bad")
    assert (rel.srsubstate, rel.suspend_sqlstate, rel.resuming) == ("r", "22003", False)
    assert rel.suspend_lsn is not None
    status = suspended.pgsub("status")
    assert f'table "{SCHEMA}.bad" is suspended' in status
    assert f"pgsub resume {NAME} {SCHEMA}.bad" in status
    assert "55000" in suspended.pgsub("wait", NAME, status=1)


def _stays_suspended_over_a_restart_and_a_reload(suspended: Suspended) -> None:
    """A reload to ``stop`` concerns the next error."""
    pid = suspended.family.apply_pid(NAME)
    assert pid is not None
    suspended.family.kill(pid)
    suspended.family.configure()
    suspended.database.execute("INSERT INTO good VALUES (4, 4); INSERT INTO bad VALUES (4, 4)")
    suspended.until_in_good(4)
    assert suspended.keys("bad") == [1]
    assert suspended.rel("bad").suspended


def _resumes_behind_the_readers(suspended: Suspended) -> None:
    failpoints = suspended.family.failpoints
    assert "is not suspended" in suspended.pgsub("resume", NAME, f"{SCHEMA}.good", status=1)
    failpoints.arm("tablesync.caught_up")
    said = suspended.pgsub("resume", NAME, f"{SCHEMA}.bad")
    assert f'table "{SCHEMA}.bad" will be copied again' in said
    failpoints.wait_held("tablesync.caught_up", PATIENCE, suspended.family.log_tail)
    assert suspended.keys("bad") == [1], "readers see the last good state"
    assert (suspended.rel("bad").suspended, suspended.rel("bad").resuming) == (True, True)
    failpoints.release("tablesync.caught_up")
    said = suspended.pgsub("resume", NAME, "--all")
    assert f'the copy of table "{SCHEMA}.cold" will be tried again' in said
