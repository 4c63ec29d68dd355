"""Three publishers' tables in shared lake tables, and a worker that dies at each place on the way.

All of them are written to all the time. A worker dies by itself at a place of publishing; the
third subscription is made anew for each place of a copy. Afterwards every source must have in the
lake what its publisher has: with a key, and without one, where a row that was applied twice shows.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from catalog.store_sqlite import CatalogStore
from tests.crash.cases import VERSIONS
from tests.crash.family import Family
from tests.fix_publisher import Database, new_database, requested_publisher
from tests.twin import native_rows
from tests.waiting import wait_until

TABLES = {"account": "id int PRIMARY KEY, v int", "audit": "id int, v int"}
SHARED = {f"public.{name}": {"to": f"sharing.{name}", "shared": True} for name in TABLES}
BUSY = ("share_1", "share_2")

APPLY = (
    "apply.table_written",
    "apply.branches_written",
    "apply.in_flight_stored",
    "apply.before_fence",  # of whoever comes after the one above
    "apply.one_table_published",
    "apply.all_tables_published",
    "apply.origin_advanced",
)
SYNC = (
    "tablesync.copied",
    "tablesync.caught_up",
    "tablesync.published",
    "tablesync.syncdone_stored",
)


class Writers:
    """A thread that changes rows in every database, in turns, until it is told to end."""

    def __init__(self, databases: list[Database]) -> None:
        self._databases = databases
        self._end = threading.Event()
        self._turn = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None
        self._thread.start()

    def _run(self) -> None:
        try:
            number = 0
            while not self._end.wait(0.15):
                number += 1
                with self._turn:
                    for database in self._databases:
                        _write(database, number)
        except BaseException as error:
            self.error = error

    def pause(self) -> None:
        """Returns when nobody writes."""
        self._turn.acquire()
        assert self.error is None, self.error

    def resume(self) -> None:
        """Go on after ``pause``."""
        self._turn.release()

    def end(self) -> None:
        """For good."""
        self._end.set()
        self._thread.join()


def _write(database: Database, number: int) -> None:
    key = number % 20
    database.run(
        f"INSERT INTO account VALUES ({key}, {number}) ON CONFLICT (id) DO UPDATE SET v = {number}",
        f"INSERT INTO audit VALUES ({number}, {number})",
        f"DELETE FROM account WHERE id = {(key + 7) % 20} AND v % 3 = 0",
    )
    if number % 40 == 0:
        database.run("TRUNCATE account, audit")


@pytest.fixture(scope="module", params=VERSIONS)
def databases(request: pytest.FixtureRequest) -> Iterator[list[Database]]:
    publisher = requested_publisher(request)
    made = [new_database(publisher, f"crash_share_{n}") for n in (1, 2, 3)]
    for database in made:
        for name, columns in TABLES.items():
            database.run(
                f"CREATE TABLE {name} ({columns})",
                f"INSERT INTO {name} SELECT i, i FROM generate_series(100, 120) i",
            )
        database.run("CREATE PUBLICATION pub FOR TABLE account, audit")
    yield made
    for database in made:
        database.drop()


@pytest.fixture(scope="module")
def writers(family: Family, databases: list[Database]) -> Iterator[Writers]:
    for name, database in zip(BUSY, databases, strict=False):
        family.create(name, database.dsn, ["pub"], tables=SHARED)
    for name in BUSY:
        family.pgsub.wait(name)
    made = Writers(databases)
    yield made
    made.end()
    for name in BUSY:
        family.drop(name)
    family.forget_tables("sharing")


def _source_rows(family: Family, name: str, table: str) -> list[tuple[Any, ...]]:
    store = CatalogStore.open(family.pgsub.data_dir)
    try:
        sub = store.subscription_by_name(name)
        assert sub is not None
    finally:
        store.close()
    source = f"{sub.subuuid}:public.{table}"
    found = family.pgsub.rows("sharing", table, ["id", "v", "_pgsub_source"])
    return sorted(row[:2] for row in found if row[2] == source)


def _compare(
    family: Family, writers: Writers, databases: list[Database], names: tuple[str, ...]
) -> None:
    writers.pause()
    try:
        for name in names:
            family.pgsub.wait(name)
        for name, database in zip(names, databases, strict=False):
            for table in TABLES:
                ours, theirs = _source_rows(family, name, table), native_rows(database, table)
                assert ours == sorted(theirs), (name, table)
    finally:
        writers.resume()


@pytest.mark.parametrize(
    ("place", "action"),
    [
        *((place, "kill") for place in APPLY),
        ("apply.branches_written", "raise"),
        ("apply.one_table_published", "raise"),
    ],
)
def test_each_source_has_its_rows_after_a_death(
    family: Family, writers: Writers, databases: list[Database], place: str, action: str
) -> None:
    family.failpoints.arm(place, action=action)
    if place == "apply.before_fence":
        family.failpoints.arm("apply.in_flight_stored", action="kill")
    family.failpoints.wait_held(place, 120, family.log_tail)
    _compare(family, writers, databases, BUSY)
    family.failpoints.clear()


@pytest.mark.parametrize("place", SYNC)
def test_a_copy_among_busy_sources(
    family: Family, writers: Writers, databases: list[Database], place: str
) -> None:
    family.failpoints.arm(place, action="kill")
    family.create("share_3", databases[2].dsn, ["pub"], tables=SHARED)
    family.failpoints.wait_held(place, 120, family.log_tail)
    wait_until(lambda: set(family.states("share_3").values()) == {"r"}, 120, family.log_tail)
    _compare(family, writers, databases, (*BUSY, "share_3"))
    family.failpoints.clear()
    family.drop("share_3")
