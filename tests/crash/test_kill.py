"""``kill -9`` of the lake server, while workers stand at each place.

The rounds are played once under a workload; each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.cases import LAKE_SERVER, VERSIONS, Case, assert_right, cases_of, each
from tests.crash.family import Family
from tests.crash.kill_rounds import PLACES, TOGETHER, KillRounds, play_rounds
from tests.fix_publisher import requested_publisher

CASES = cases_of(PLACES, LAKE_SERVER)


@pytest.fixture(scope="module", params=VERSIONS)
def rounds(request: pytest.FixtureRequest, family: Family) -> Iterator[KillRounds]:
    """All rounds, played."""
    yield from play_rounds(requested_publisher(request), family, "crash_kill", (LAKE_SERVER,))


def test_every_place_is_in_some_round() -> None:
    assert sorted(place for each in TOGETHER for place in each.places) == sorted(PLACES)


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    assert_right(rounds, case)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 25
    assert rounds.reached == set(CASES)
