"""A lake server that runs and is of no use: frozen for ever, or soon without descriptors."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator

import pytest

from tests.crash.family import FAMILY_SETTINGS, Family, wait_confirmed
from tests.fix_publisher import Database
from tests.twin import native_rows
from tests.waiting import wait_until

NAME = "useless"
TABLE = "useless.t"
SHARE = 0.8
"""The share of its descriptors that a server uses: less than is urgent, more than is healthy."""


@pytest.fixture
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    """A family that gives a lake server up after seconds."""
    settings = {
        **FAMILY_SETTINGS,
        "lake_heartbeat_interval": "1s",
        "lake_heartbeat_timeout": "40s",
    }
    made = Family(tmp_path_factory.mktemp("watched") / "data", settings)
    made.start()
    yield made
    made.pgsub.stop()


@pytest.fixture
def source(watched: Family, database: Database) -> Database:
    """A subscription with one table, which is synchronised."""
    database.run(
        f"CREATE SCHEMA {NAME}",
        f"CREATE TABLE {TABLE} (id int PRIMARY KEY, v text)",
        f"INSERT INTO {TABLE} VALUES (0, 'copied')",
        f"CREATE PUBLICATION {NAME} FOR TABLES IN SCHEMA {NAME}",
    )
    watched.create(NAME, database.dsn, [NAME])
    wait_until(lambda: set(watched.states(NAME).values()) == {"r"}, 120, watched.log_tail)
    return database


def lake_pid(family: Family) -> int:
    found = wait_until(lambda: family.status().lake_pid, 60, family.log_tail)
    assert found is not None
    return int(found)


def rows_arrive(family: Family, database: Database) -> None:
    wait_confirmed(family, database, NAME, timeout=180)
    assert family.pgsub.arrow(NAME, "t").num_rows == len(native_rows(database, TABLE))


def test_a_server_that_is_frozen_for_ever_is_replaced_and_the_rows_arrive(
    watched: Family, source: Database
) -> None:
    frozen, since = lake_pid(watched), watched.log_size()
    os.kill(frozen, signal.SIGSTOP)
    source.run(f"INSERT INTO {TABLE} SELECT i, 'frozen' FROM generate_series(1, 100) i")
    watched.wait_logged("it has not answered for 40 s", since, 120)
    rows_arrive(watched, source)
    assert lake_pid(watched) != frozen


def test_a_server_is_replaced_before_it_runs_out_of_descriptors(
    watched: Family, source: Database
) -> None:
    low, since = lake_pid(watched), watched.log_size()
    used = len(os.listdir(f"/proc/{low}/fd"))
    limit = round(used / SHARE)
    resource.prlimit(low, resource.RLIMIT_NOFILE, (limit, limit))
    source.run(f"INSERT INTO {TABLE} SELECT i, 'low' FROM generate_series(1, 100) i")
    watched.wait_logged("action=lake_renew", since, 150)
    wait_until(lambda: lake_pid(watched) != low, 120, watched.log_tail)
    rows_arrive(watched, source)
    log = watched.log_since(since)
    assert f"of {limit} descriptors" in log
    assert "exited with exit code" not in log, "no worker met an error"
