"""``kill -9`` of the lake server, while workers stand at each place.

The rounds are played once under a workload; each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.cases import LAKE_SERVER, LAKES, Case, assert_right, cases_of, each
from tests.crash.kill_rounds import PLACES, TOGETHER, KillRounds, play_requested

CASES = cases_of(PLACES, LAKE_SERVER)


@pytest.fixture(scope="module", params=LAKES)
def rounds(request: pytest.FixtureRequest) -> Iterator[KillRounds]:
    """All rounds, played."""
    yield from play_requested(request, "crash_kill", (LAKE_SERVER,))


def test_every_place_is_in_some_round() -> None:
    assert sorted(place for each in TOGETHER for place in each.places) == sorted(PLACES)


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    assert_right(rounds, case)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 25
    assert rounds.reached == set(CASES)
