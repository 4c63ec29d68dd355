"""A short ``make soak-quiet``: sessions that come and go leave nothing in the lake server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.family import Family
from tests.fix_publisher import Database
from tests.soak.meter import growth, not_flat
from tests.soak.quiet import SETTINGS, grown_in, soak_quietly
from tests.soak.quiet_meter import FLAT, NEAR_ZERO, entries
from tests.soak.servers import subscribe

MINUTES = 5
SESSIONS = 150
FEWEST = 60


def test_two_descriptors_a_session_are_told() -> None:
    level = dict.fromkeys(FLAT, 300.0)
    samples = [
        {"at": at * 10.0, "transactions": at * 200.0, **level, "descriptors": 300.0 + at * 10}
        for at in range(31)
    ]
    assert not_flat(growth(samples), FLAT, NEAR_ZERO) == ["descriptors"]


def test_files_and_folders_of_the_scratch_are_counted(tmp_path: Path) -> None:
    (tmp_path / "models" / "session").mkdir(parents=True)
    (tmp_path / "models" / "file").touch()
    assert entries(tmp_path) == 3


@pytest.fixture
def quiet(tmp_path_factory: pytest.TempPathFactory, database: Database) -> Iterator[Family]:
    """A family that nobody kills, with the soak's tables."""
    made = Family(tmp_path_factory.mktemp("quiet") / "data", SETTINGS)
    made.start()
    try:
        subscribe(made, database)
        yield made
    finally:
        made.pgsub.stop()


@pytest.mark.long
@pytest.mark.postgres
@pytest.mark.spark
@pytest.mark.timeout(1200)
def test_sessions_that_come_and_go_leave_nothing(quiet: Family, database: Database) -> None:
    samples = soak_quietly(quiet, database, seconds=MINUTES * 60, sessions=SESSIONS, fewest=FEWEST)
    assert not grown_in(samples)
