"""The power of the machine fails at random moments, and comes back.

The data directory is a disk of its own, the publisher has another. At a random moment all processes
stop, and the disk's file is copied as it is: that is what a power cut leaves. Copies of tables, and
changes of every kind, are under way then. With the copy in its place the lake has every row that
was confirmed to the publisher, and a start goes on to equality.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import psutil
import psycopg
import pytest

from catalog.pg_lsn import LSN
from tests.crash.family import Family
from tests.crash.loop_disk import LoopDisk
from tests.fix_publisher import Database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.lake.server.set_back import set_embedded_tables_back
from workers.lake.storage.catalog_pointers import CatalogPointers
from workers.lake.table import LakeIdent

NAME = "cut"
CUTS = 20
SEED = 35
LONGEST_SECONDS = 6.0
CAUGHT_UP_SECONDS = 240.0
TEST_SECONDS = 3600
KEYS = 200


class Load(threading.Thread):
    """Transactions one after the other, and where the publisher's log was behind each."""

    def __init__(self, database: Database, first: int) -> None:
        super().__init__(name="load", daemon=True)
        self.database = database
        self.number = first
        self.done: list[tuple[int, LSN]] = []
        self.ending = threading.Event()

    def run(self) -> None:
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            while not self.ending.is_set():
                number = self.number = self.number + 1
                with connection.transaction():
                    connection.execute("INSERT INTO log VALUES (%s, repeat('x', 50))", [number])
                    connection.execute(
                        "INSERT INTO keyed VALUES (%s, %s) ON CONFLICT (id) DO UPDATE SET v = %s",
                        [number % KEYS, number, number],
                    )
                    connection.execute("DELETE FROM keyed WHERE id = %s", [number * 7 % KEYS])
                    if number % 50 == 0:
                        connection.execute("TRUNCATE emptied")
                    connection.execute("INSERT INTO emptied VALUES (%s)", [number])
                row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
                assert row is not None
                self.done.append((number, LSN.parse(row[0])))

    def end(self) -> None:
        self.ending.set()
        self.join()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[LoopDisk]:
    made = LoopDisk(tmp_path / "image", tmp_path / "data")
    made.make()
    yield made
    made.unmount("--lazy")


@pytest.fixture
def family(disk: LoopDisk) -> Iterator[Family]:
    made = Family(disk.folder)
    made.start()
    yield made
    with suppress(AssertionError):
        made.pgsub.stop()


@pytest.mark.timeout(TEST_SECONDS)
@pytest.mark.parametrize("synchronous_commit", ["on", "off"])
def test_a_power_cut_takes_nothing_that_was_confirmed(
    disk: LoopDisk, family: Family, database: Database, synchronous_commit: str
) -> None:
    database.run(
        "CREATE TABLE log (n int, v text)",
        "CREATE TABLE keyed (id int PRIMARY KEY, v int)",
        "CREATE TABLE emptied (n int)",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA public",
    )
    family.create(NAME, database.dsn, ["pub"], synchronous_commit=synchronous_commit)
    wait_until(
        lambda: set(family.states(NAME).values()) == {"r"}, CAUGHT_UP_SECONDS, family.log_tail
    )
    moments = random.Random(SEED)
    last, confirmed, tables = 0, 0, ["log", "keyed", "emptied"]
    for cut in range(CUTS):
        load = Load(database, last)
        load.start()
        tables.append(f"copied{cut}")
        database.run(
            f"CREATE TABLE {tables[-1]} (id int PRIMARY KEY, v text)",
            f"INSERT INTO {tables[-1]} SELECT i, 'v' || i FROM generate_series(1, 20000) i",
        )
        family.pgsub.command("refresh", NAME)
        load.ending.wait(moments.uniform(0.0, LONGEST_SECONDS))
        _cut(disk, family)
        load.end()
        last = load.number
        confirmed += _comes_back(family, database, load, cut)
        family.start()
        wait_until(lambda: _caught_up(family, database), CAUGHT_UP_SECONDS, family.log_tail)
        for table in tables:
            assert family.pgsub.rows("public", table) == native_rows(database, table), (cut, table)
    assert confirmed, "no cut came after a confirmed transaction"


def _cut(disk: LoopDisk, family: Family) -> None:
    """Everything stands still, the disk is copied, and nothing goes on from memory."""
    processes = family.pgsub.family()
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.suspend()
    copy = disk.image.with_suffix(".copy")
    disk.cut(copy)
    for each in processes:
        with suppress(psutil.NoSuchProcess):
            each.kill()
    family.pgsub.kill()
    psutil.wait_procs(processes, timeout=30)
    disk.power_on(copy)


def _comes_back(family: Family, database: Database, load: Load, cut: int) -> int:
    """The lake is readable without a server, and has what was confirmed.

    Returns how many confirmed transactions the lake has.
    """
    wait_until(lambda: not database.value("SELECT count(*) FROM pg_stat_replication"), 60, "gone")
    confirmed = LSN.parse(
        database.value(
            "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s", [NAME]
        )
    )
    set_embedded_tables_back(family.pgsub.data_dir)
    pointers = CatalogPointers(family.pgsub.lake_catalog_file()).all()
    tables = [pointer.ident for pointer in pointers]
    rows = {table: family.pgsub.rows(table.schema, table.table) for table in tables}
    found = {row[0] for row in rows[LakeIdent("public", "log")]}
    wanted = {number for number, lsn in load.done if lsn <= confirmed}
    assert wanted <= found, f"cut {cut}: {len(wanted - found)} of {len(wanted)} rows are lost"
    return len(wanted)


def _caught_up(family: Family, database: Database) -> bool:
    states = set(family.states(NAME).values())
    confirmed = database.value(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
        " AND confirmed_flush_lsn >= pg_current_wal_insert_lsn()",
        [NAME],
    )
    return states == {"r"} and confirmed == 1
