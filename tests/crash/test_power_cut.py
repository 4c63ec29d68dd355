"""The power of the machine fails at random moments, and comes back.

The data directory is a disk of its own, the publisher has another. At a random moment all processes
stop, and the disk's file is copied as it is: that is what a power cut leaves. Copies of tables, and
changes of every kind, are under way then. With the copy in its place the lake has every row that
was confirmed to the publisher, and a start goes on to equality.

A second subscription has two-phase commit. Transactions are prepared, committed and rolled back
before the cut, and some are open at the cut and end afterwards. A prepared transaction whose
PREPARE was confirmed is kept until its end, and no row of it is in the lake before its end. The
slot of a copy waits for prepared transactions, so some are open for long before every other cut
alone.

Every transaction emits a logical message, and another one follows outside of it. Both are rows of a
lake table, once.

In a test of its own large transactions run when the power fails (``streaming = parallel``), and
their rows are in data files before a commit. A file that no snapshot has is gone after a start.
"""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import psycopg
import pytest

from catalog.pg_lsn import LSN
from tests.crash.family import Family, wait_confirmed
from tests.crash.loop_disk import LoopDisk
from tests.fix_publisher import Database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.lake.server.set_back import set_embedded_tables_back
from workers.lake.storage.catalog_pointers import CatalogPointers
from workers.lake.table import LakeIdent

NAME = "cut"
TWO_PHASE = "cut_prepared"
CUTS = 20
SEED = 35
LONGEST_SECONDS = 6.0
CAUGHT_UP_SECONDS = 240.0
TEST_SECONDS = 3600
KEYS = 200
MOST_OPEN, STAY_OPEN = 3, 3
STREAMED = "cut_streamed"
STREAMED_CUTS = 8
OPEN_SECONDS = 4.0
LARGE = (
    "INSERT INTO streamed.big SELECT i, repeat(md5(i::text), 200 + 20)"
    " FROM generate_series({number} * 4000, {number} * 4000 + 3999) i"
)
UPDATES = (
    "DELETE FROM streamed.big WHERE id % 10 = {number} % 10;"
    " UPDATE streamed.big SET v = repeat(md5(id || ' {number}'), 200 + 20);"
    " INSERT INTO streamed.big SELECT i, 'new {number}'"
    " FROM generate_series(0, 3999) i WHERE i % 10 = {number} % 10"
)
"""Updates and deletes of the rows of ``LARGE`` with number 0."""


@dataclass(slots=True)
class Prepared:
    """A prepared transaction: where the publisher's log was behind its PREPARE and behind its end.

    ``ending`` is stored before the end is asked for.
    """

    commits: bool
    prepared: LSN
    ending: bool = False
    ended: LSN | None = None


class Load(threading.Thread):
    """Transactions one after the other, and where the publisher's log was behind each."""

    def __init__(self, database: Database, first: int, *, stay_open: int) -> None:
        super().__init__(name="load", daemon=True)
        self.database = database
        self.number = first
        self.stay_open = stay_open
        self.done: list[tuple[int, LSN]] = []
        self.held: dict[int, Prepared] = {}
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
                    _say(connection, number, transactional=True)
                    connection.execute("INSERT INTO emptied VALUES (%s)", [number])
                _say(connection, number, transactional=False)
                self.done.append((number, _position(connection)))
                if number % 2 == 0:
                    self._prepare(connection, number)
                if len(open_now := self.open()) > self.stay_open + MOST_OPEN:
                    self._end_prepared(connection, open_now[self.stay_open])

    def end(self) -> None:
        self.ending.set()
        self.join()

    def gid(self, number: int) -> str:
        return f"{self.database.name} {number}"

    def open(self) -> list[int]:
        """The transactions that are prepared and not ended, the oldest first."""
        return [number for number, each in self.held.items() if each.ended is None]

    def end_all_prepared(self) -> None:
        with psycopg.connect(self.database.dsn, autocommit=True) as connection:
            for number in self.open():
                self._end_prepared(connection, number)

    def _prepare(self, connection: psycopg.Connection, number: int) -> None:
        connection.execute(
            f"BEGIN; INSERT INTO prep.held VALUES ({number});"
            f"PREPARE TRANSACTION '{self.gid(number)}'".encode()
        )
        self.held[number] = Prepared(number % 3 != 0, _position(connection))

    def _end_prepared(self, connection: psycopg.Connection, number: int) -> None:
        held = self.held[number]
        held.ending = True
        end = "COMMIT" if held.commits else "ROLLBACK"
        connection.execute(f"{end} PREPARED '{self.gid(number)}'".encode())
        held.ended = _position(connection)


class LargeLoad(threading.Thread):
    """Large transactions, every other one rolled back; small ones while a large one is open."""

    def __init__(self, database: Database, first: int, changes: str) -> None:
        super().__init__(name="large load", daemon=True)
        self.database = database
        self.changes = changes
        self.number = first
        self.ending = threading.Event()

    def run(self) -> None:
        with (
            psycopg.connect(self.database.dsn) as large,
            psycopg.connect(self.database.dsn, autocommit=True) as small,
        ):
            while not self.ending.is_set():
                number = self.number = self.number + 1
                large.execute(self.changes.format(number=number).encode())
                until = time.monotonic() + OPEN_SECONDS
                while time.monotonic() < until and not self.ending.wait(0.02):
                    small.execute("INSERT INTO streamed.small VALUES (%s)", [number])
                if number % 2:
                    large.commit()
                else:
                    large.rollback()

    def end(self) -> None:
        self.ending.set()
        self.join()


def _position(connection: psycopg.Connection) -> LSN:
    row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
    assert row is not None
    return LSN.parse(row[0])


@pytest.fixture
def database(database: Database) -> Iterator[Database]:
    """Dropped without what a test that failed left prepared."""
    yield database
    query = "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    for (gid,) in database.execute(query):
        database.run(f"ROLLBACK PREPARED '{gid}'")


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
        "CREATE SCHEMA prep",
        "CREATE TABLE prep.held (n int)",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA public",
        "CREATE PUBLICATION held FOR TABLES IN SCHEMA prep",
    )
    options: dict[str, Any] = {"synchronous_commit": synchronous_commit}
    family.create(NAME, database.dsn, ["pub"], messages_to="public.said", **options)
    family.create(TWO_PHASE, database.dsn, ["held"], two_phase=True, **options)
    wait_until(lambda: _set_up(family), CAUGHT_UP_SECONDS, family.log_tail)
    moments = random.Random(SEED)
    last, confirmed, kept, tables = 0, 0, 0, ["log", "keyed", "emptied"]
    for cut in range(CUTS):
        load = Load(database, last, stay_open=STAY_OPEN if cut % 2 else 0)
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
        kept += _prepared_comes_back(family, database, load, cut)
        family.start()
        load.end_all_prepared()  # before them no slot of a copy is made
        wait_until(lambda: _caught_up(family, database), CAUGHT_UP_SECONDS, family.log_tail)
        for table in tables:
            assert family.pgsub.rows("public", table) == native_rows(database, table), (cut, table)
        said = Counter(family.pgsub.rows("public", "said", ["content", "transactional"]))
        assert said == _said(last), cut
        assert _held(family) == sorted(database.execute("SELECT n FROM prep.held")), cut
    assert confirmed, "no cut came after a confirmed transaction"
    assert kept, "no cut came between a confirmed PREPARE and its end"


@pytest.mark.timeout(TEST_SECONDS)
@pytest.mark.parametrize("changes", [LARGE, UPDATES], ids=["inserts", "updates"])
def test_a_power_cut_leaves_no_file_of_a_transaction_in_progress(
    disk: LoopDisk, family: Family, database: Database, changes: str
) -> None:
    database.run(
        f"ALTER DATABASE {database.name} SET logical_decoding_work_mem = '64kB'",
        "CREATE SCHEMA streamed",
        "CREATE TABLE streamed.big (id int PRIMARY KEY, v text)",
        LARGE.format(number=0),
        "CREATE TABLE streamed.small (n int)",
        "CREATE PUBLICATION streamed FOR TABLES IN SCHEMA streamed",
    )
    family.create(STREAMED, database.dsn, ["streamed"], streaming="parallel")
    family.pgsub.wait(STREAMED)
    moments = random.Random(SEED)
    last, left = 0, 0
    for cut in range(STREAMED_CUTS):
        before, load = _files(family), LargeLoad(database, last, changes)
        load.start()
        try:
            wait_until(partial(_has_more, family, before), CAUGHT_UP_SECONDS, family.log_tail)
            load.ending.wait(moments.uniform(0.0, OPEN_SECONDS))
            _cut(disk, family)
        finally:
            load.end()
        last = load.number
        set_embedded_tables_back(family.pgsub.data_dir)
        found = _loose(family)
        left += len(found)
        family.start()
        wait_confirmed(family, database, STREAMED, timeout=CAUGHT_UP_SECONDS)
        kept = found & _loose(family)
        assert not kept, f"cut {cut}: {kept} of {found} are left behind"
        for table, columns in (("big", "id, length(v), substr(v, 1, 12)"), ("small", "n")):
            query = f"SELECT {columns} FROM {{}}streamed.{table}"
            ours = Counter(tuple(row.values()) for row in family.pgsub.sql(query.format("lake.")))
            assert ours == Counter(database.execute(query.format(""))), (cut, table)
    assert left, "no cut came between a file and its commit"


def _files(family: Family) -> set[str]:
    """The data files that were written before a commit."""
    warehouse = family.pgsub.lake_dir / "warehouse" / "streamed"
    return {path.name for path in warehouse.glob("*-big-*/data/pgsub-copy-*.parquet")}


def _has_more(family: Family, before: set[str]) -> bool:
    return bool(_files(family) - before)


def _loose(family: Family) -> set[str]:
    """Those that no snapshot has."""
    table = family.pgsub.iceberg_table("streamed", "big")
    manifests = {each for one in table.snapshots() for each in one.manifests(table.io)}
    entries = (entry for each in manifests for entry in each.fetch_manifest_entry(table.io))
    return _files(family) - {Path(entry.data_file.file_path).name for entry in entries}


def _say(connection: psycopg.Connection, number: int, *, transactional: bool) -> None:
    connection.execute(
        "SELECT pg_logical_emit_message(%s, 'load', %s::bytea)",
        [transactional, str(number).encode()],
    )


def _said(last: int) -> Counter[tuple[bytes, bool]]:
    """The messages of all transactions so far."""
    return Counter((b"%d" % n, each) for n in range(1, last + 1) for each in (True, False))


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
    # Not the walsender that makes a slot: it waits for prepared transactions, whoever is gone.
    active = "SELECT count(*) FROM pg_replication_slots WHERE active AND slot_name = ANY (%s)"
    names = [NAME, TWO_PHASE]
    wait_until(lambda: not database.value(active, [names]), 60, "a walsender did not end")
    confirmed = _confirmed(database, NAME)
    set_embedded_tables_back(family.pgsub.data_dir)
    pointers = CatalogPointers(family.pgsub.lake_catalog_file()).all()
    tables = [pointer.ident for pointer in pointers]
    rows = {table: family.pgsub.rows(table.schema, table.table) for table in tables}
    found = {row[0] for row in rows[LakeIdent("public", "log")]}
    wanted = {number for number, lsn in load.done if lsn <= confirmed}
    assert wanted <= found, f"cut {cut}: {len(wanted - found)} of {len(wanted)} rows are lost"
    return len(wanted)


def _prepared_comes_back(family: Family, database: Database, load: Load, cut: int) -> int:
    """What was prepared and confirmed is kept or applied, and nothing is seen before its end.

    Returns how many open transactions were confirmed, and are kept.
    """
    confirmed = _confirmed(database, TWO_PHASE)
    kept = {row["remote_gid"] for row in family.pgsub.status("pg_prepared_xacts")}
    seen = {row[0] for row in _held(family)}
    found = 0
    for number, each in load.held.items():
        case, is_kept = (cut, number, each), load.gid(number) in kept
        may_be_seen = each.commits and each.ending
        assert may_be_seen or number not in seen, f"seen before its COMMIT PREPARED: {case}"
        if each.ended is not None and each.ended <= confirmed:
            assert (number in seen) == each.commits, f"the end was confirmed: {case}"
        elif each.prepared <= confirmed and not each.ending:
            assert is_kept, f"the PREPARE was confirmed: {case}"
            found += 1
        elif each.prepared <= confirmed and each.commits:
            assert is_kept or number in seen, f"lost between PREPARE and its end: {case}"
    return found


def _held(family: Family) -> list[tuple[int]]:
    return sorted(family.pgsub.rows("prep", "held"))


def _confirmed(database: Database, slot: str) -> LSN:
    query = "SELECT confirmed_flush_lsn FROM pg_replication_slots WHERE slot_name = %s"
    return LSN.parse(database.value(query, [slot]))


def _set_up(family: Family) -> bool:
    """Every table follows the stream, and two-phase commit is enabled."""
    rows = {row["subname"]: row for row in family.pgsub.status("pg_subscription")}
    states = {state for name in (NAME, TWO_PHASE) for state in family.states(name).values()}
    return states == {"r"} and rows[TWO_PHASE]["subtwophasestate"] == "e"


def _caught_up(family: Family, database: Database) -> bool:
    states = set(family.states(NAME).values())
    confirmed = database.value(
        "SELECT count(*) FROM pg_replication_slots WHERE slot_name = ANY (%s)"
        " AND confirmed_flush_lsn >= pg_current_wal_insert_lsn()",
        [[NAME, TWO_PHASE]],
    )
    return states == {"r"} and confirmed == 2
