"""The catalog is lost, the lake is not: the subscription goes on where its tables are."""

from __future__ import annotations

from tests.fix_publisher import Database
from tests.harness import SETTINGS, Pgsub
from tests.twin import native_rows
from tests.waiting import wait_until

NAME = "rebuilt"
TABLES = ("keyed", "log", "whole", "quiet", "later")


def changes(database: Database, turn: int) -> None:
    """Inserts without a key would be doubled by a replay, and are lost by a gap."""
    database.run(
        f"INSERT INTO log SELECT {turn}, i FROM generate_series(1, 40) i",
        f"INSERT INTO log SELECT {turn}, i FROM generate_series(1, 40) i",
        f"INSERT INTO keyed SELECT {turn} * 1000 + i, 'new' FROM generate_series(1, 50) i",
        f"UPDATE keyed SET v = 'turn {turn}' WHERE id % 7 = {turn}",
        f"DELETE FROM keyed WHERE id % 11 = {turn}",
        f"UPDATE keyed SET id = id + 100000 WHERE id % 13 = {turn} AND id < 100000",
        f"UPDATE whole SET n = n + 1 WHERE ctid IN (SELECT ctid FROM whole LIMIT {turn})",
    )


def test_a_lost_catalog_is_rebuilt_from_the_lake(database: Database, own_pgsub: Pgsub) -> None:
    database.run(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
        "INSERT INTO keyed SELECT i, 'old' FROM generate_series(1, 500) i",
        "CREATE TABLE log (turn int, n int)",
        "INSERT INTO log SELECT 0, i FROM generate_series(1, 100) i",
        "CREATE TABLE whole (n int)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "INSERT INTO whole SELECT 0 FROM generate_series(1, 20) i",
        "CREATE TABLE quiet (id int PRIMARY KEY)",
        "INSERT INTO quiet VALUES (1), (2)",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA public",
    )
    content = {
        "subscriptions": {NAME: {"connection": database.dsn, "publication": ["pub"]}},
        "settings": SETTINGS,
    }
    own_pgsub.up(content)
    own_pgsub.wait(NAME)
    changes(database, 1)
    own_pgsub.wait(NAME)
    changes(database, 2)
    own_pgsub.kill()
    for path in own_pgsub.data_dir.glob("catalog.db*"):
        path.unlink()
    changes(database, 3)
    database.run("CREATE TABLE later (id int PRIMARY KEY)", "INSERT INTO later VALUES (7)")
    free = f"SELECT NOT active FROM pg_replication_slots WHERE slot_name = '{NAME}'"
    wait_until(lambda: database.value(free), 60, "the slot is free")

    done = own_pgsub.command("rebuild", str(own_pgsub.file(content)))
    assert done.stdout == "REBUILD SUBSCRIPTION\n"
    said = [line for line in done.stderr.splitlines() if line.startswith("NOTICE")]
    assert [line.rpartition(": ")[2].split()[0] for line in said] == ["s", "it", "s", "s", "s"]

    own_pgsub.start("run")
    own_pgsub.wait_running()
    changes(database, 4)
    own_pgsub.wait(NAME)
    for table in TABLES:
        assert own_pgsub.rows("public", table) == native_rows(database, table), table
    states = {row["relname"]: row["srsubstate"] for row in own_pgsub.status("pg_subscription_rel")}
    assert states == dict.fromkeys(TABLES, "r")
