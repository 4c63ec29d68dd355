"""CREATE and DROP that die, or meet an error, at each place: nothing is leaked, both can be redone.

A password is part of the connection, so that its file is part of what may be left.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.crash.cases import ITSELF, VERSIONS, Case, cases_of, each
from tests.crash.family import FAMILY_SETTINGS, Family
from tests.fix_publisher import Database, new_database, requested_publisher
from tests.twin import native_rows
from workers.process.failpoints import CREATE, DROP

NAME: Final = "commands"


@pytest.fixture(scope="module", params=VERSIONS)
def database(request: pytest.FixtureRequest, family: Family) -> Iterator[Database]:
    """A table that is published."""
    database = new_database(requested_publisher(request), "crash_commands")
    database.run(
        "CREATE TABLE t (id int PRIMARY KEY, v text)",
        "INSERT INTO t SELECT i, 'v' FROM generate_series(1, 50) i",
        "CREATE PUBLICATION pub FOR TABLE t",
    )
    yield database
    database.drop()


def file_of(family: Family, database: Database) -> Path:
    entry: dict[str, Any] = {
        "connection": f"{database.dsn} password=planted",
        "publication": ["pub"],
        "tables": {"public.t": {"to": "commands.t", "adopt": True}},
    }
    content = {"subscriptions": {NAME: entry}, "settings": FAMILY_SETTINGS}
    return family.pgsub.file(content, f"{NAME}.yaml")


def run(family: Family, *words: str) -> tuple[int, str]:
    done = family.pgsub.command(*words, status=None)
    return done.returncode, done.stderr


def slots(database: Database) -> list[str]:
    rows = database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name = %s", (NAME,)
    )
    return [name for (name,) in rows]


def passfiles(family: Family) -> list[Path]:
    return sorted((family.pgsub.data_dir / "passfile").glob("*"))


def died_as_told(action: str, status: int, stderr: str, place: str) -> None:
    assert status == (-signal.SIGKILL if action == "kill" else 1), stderr
    if action == "raise":
        assert f'failpoint "{place}" was reached' in stderr
        assert "Traceback" not in stderr


@each(cases_of(CREATE, *ITSELF))
def test_create_dies(family: Family, database: Database, case: Case) -> None:
    _, action, place = case
    file = file_of(family, database)
    swept_later = passfiles(family)  # a DROP that was killed leaves its own for an hour
    family.failpoints.arm(place, action=action)
    status, stderr = run(family, "create", str(file))
    died_as_told(action, status, stderr, place)
    family.failpoints.clear()
    if action == "raise" and place != "create.ready_stored":
        assert slots(database) == []
        assert passfiles(family) == swept_later
    status, stderr = run(family, "create", str(file))
    if place == "create.ready_stored":
        assert (status, "already exists" in stderr) == (1, True), stderr
    else:
        assert status == 0, stderr
    family.pgsub.wait(NAME)
    assert family.pgsub.rows("commands", "t") == native_rows(database, "t")
    assert slots(database) == [NAME]
    family.pgsub.drop(NAME)
    assert slots(database) == []
    family.forget_tables("commands")


@each(cases_of(DROP, *ITSELF))
def test_drop_dies(family: Family, database: Database, case: Case) -> None:
    _, action, place = case
    assert run(family, "create", str(file_of(family, database)))[0] == 0
    family.pgsub.wait(NAME)
    family.failpoints.arm(place, action=action)
    status, stderr = run(family, "drop", NAME)
    died_as_told(action, status, stderr, place)
    family.failpoints.clear()
    status, stderr = run(family, "drop", NAME)
    if place == "drop.row_deleted":
        assert (status, "does not exist" in stderr) == (1, True), stderr
    else:
        assert status == 0, stderr
    assert slots(database) == []
    assert not any(sub["subname"] == NAME for sub in family.pgsub.status("pg_subscription"))
    family.forget_tables("commands")
