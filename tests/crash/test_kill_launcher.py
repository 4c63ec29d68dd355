"""``kill -9`` of the launcher, and with it of all workers, while they stand at each place.

The lake server lives on: a call that a dead worker left there is carried out all the same, unless
its successor has closed that worker's session.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.cases import LAUNCHER, VERSIONS, Case, assert_right, cases_of, each
from tests.crash.family import Family
from tests.crash.kill_rounds import PLACES, KillRounds, play_rounds
from tests.fix_publisher import requested_publisher

CASES = cases_of(PLACES, LAUNCHER)


@pytest.fixture(scope="module", params=VERSIONS)
def rounds(request: pytest.FixtureRequest, family_on_a_remote_lake: Family) -> Iterator[KillRounds]:
    """All rounds, played."""
    publisher = requested_publisher(request)
    yield from play_rounds(publisher, family_on_a_remote_lake, "crash_launcher", (LAUNCHER,))


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    assert_right(rounds, case)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 30
    assert rounds.reached == set(CASES)
