"""A disk that is full says ENOSPC: to the spool, to staged files, to the lake and to our catalog.

Each of them has a small disk of its own here. Mounting one takes rights that not everybody who
runs tests has.
"""

from __future__ import annotations

import errno
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.crash.family import FAMILY_SETTINGS, Family, wait_confirmed
from tests.fix_publisher import Database
from tests.twin import native_rows
from tests.waiting import wait_until

NAME = "full"
SPACE = 96 * 2**20
FOLDERS = ("", "lake", "spool", "staging")
"""Of the data directory."""

_CHUNK = bytes(2**16)

TABLES = ("keyed", "log")
WIDE = "SELECT i, repeat('wide', 60) FROM generate_series(1, 50000) i"
"""12 MB: more than is staged in a plan, and than the spool holds in memory."""
LONG = "UPDATE keyed SET v = repeat('long', 20000)"
"""40 MB of changes: more than stay in memory where we write the table's files ourselves."""


@pytest.fixture
def disks(tmp_path: Path) -> Iterator[Path]:
    """A data directory; it and some of its folders are file systems of their own, and empty."""
    mounted: list[Path] = []
    try:
        for name in FOLDERS:
            folder = tmp_path / "data" / name
            folder.mkdir(mode=0o700)
            _mount(folder)
            mounted.append(folder)
        yield tmp_path / "data"
    finally:
        for folder in reversed(mounted):
            subprocess.run(["umount", "--lazy", str(folder)], check=True)


def _mount(folder: Path) -> None:
    argv = ["mount", "-t", "tmpfs", "-o", f"size={SPACE},mode=0700", "tmpfs", str(folder)]
    try:
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        pytest.skip(f"no file system can be mounted: {error}")
    if done.returncode:
        pytest.skip(f"no file system can be mounted: {done.stderr.strip()}")


@pytest.fixture
def family(disks: Path) -> Iterator[Family]:
    """What a launcher says on its standard error, and the failpoints, are beside its disks."""
    made = Family(disks, {**FAMILY_SETTINGS, "spool_memory": "1MB"})
    made.start()
    yield made
    assert made.pgsub.stop() == 0, made.log_tail()


@contextmanager
def no_space(disk: Path) -> Iterator[None]:
    """A file takes all that is left."""
    ballast = disk / "ballast"
    try:
        _fill(ballast)
        yield
    finally:
        ballast.unlink()


def _fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(_CHUNK)
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise


def test_nothing_is_lost_when_a_disk_is_full_for_a_while(
    disks: Path, family: Family, database: Database
) -> None:
    database.run(
        "CREATE TABLE keyed (id int PRIMARY KEY, v text)",
        "INSERT INTO keyed SELECT i, 'old' FROM generate_series(1, 500) i",
        "CREATE TABLE log (n int, v text)",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA public",
    )
    family.create(NAME, database.dsn, ["pub"])
    wait_until(lambda: set(family.states(NAME).values()) == {"r"}, 120, family.log_tail)
    launcher, lake = family.pgsub.launcher.pid, family.status().lake_pid

    def full(folder: str, changes: str, says: str) -> None:
        log = family.log_size()
        with no_space(disks / folder):
            database.run(changes)
            wait_until(lambda: says in family.log_since(log), 120, family.log_tail)
        wait_confirmed(family, database, NAME)

    change = "UPDATE keyed SET v = v || 'new' WHERE id < 9"
    full("", change, 'sqlstate=53100 could not use the catalog "')
    full("lake", change, "sqlstate=53100 no space left on the lake's storage while ")
    full("spool", f"INSERT INTO log {WIDE}", 'sqlstate=53100 could not write the spool in "')
    full("staging", LONG, "sqlstate=53100 could not use the staging")

    # A new schema is a row of the lake's catalog, in SQLite, and no file.
    database.run("CREATE SCHEMA other", "CREATE TABLE other.one (id int PRIMARY KEY)")
    database.run("CREATE PUBLICATION other FOR TABLE other.one")
    log = family.log_size()
    with no_space(disks / "lake"):
        family.pgsub.create("other", database.dsn, ["other"])
        says = "sqlstate=53100 no space left on the lake's storage while creating schema"
        wait_until(lambda: says in family.log_since(log), 120, family.log_tail)
    wait_until(lambda: family.states("other") == {"one": "r"}, 120, family.log_tail)
    family.pgsub.drop("other")

    database.run("DELETE FROM keyed WHERE id % 7 = 0")
    wait_confirmed(family, database, NAME)
    for table in TABLES:
        assert family.pgsub.rows("public", table) == native_rows(database, table), table
    assert (launcher, lake) == (family.pgsub.launcher.pid, family.status().lake_pid)
    family.drop(NAME)
