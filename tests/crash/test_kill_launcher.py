"""``kill -9`` of the launcher, and with it of all workers, while they stand at each place.

The lake server lives on: a call that a dead worker left there is carried out all the same, unless
its successor has closed that worker's session. On S3 the server is the launcher's own, and dies
with the launcher.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.cases import LAKES, LAUNCHER, Case, assert_right, cases_of, each
from tests.crash.kill_rounds import PLACES, KillRounds, play_requested

CASES = cases_of(PLACES, LAUNCHER)


@pytest.fixture(scope="module", params=LAKES)
def rounds(request: pytest.FixtureRequest) -> Iterator[KillRounds]:
    """All rounds, played."""
    ways = (LAUNCHER,)
    yield from play_requested(request, "crash_launcher", ways, "family_on_a_remote_lake")


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    assert_right(rounds, case)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 30
    assert rounds.reached == set(CASES)
