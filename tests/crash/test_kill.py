"""``kill -9`` of the lake server and of the launcher, while workers stand at each place.

The rounds are played once under a workload; each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import (
    OTHERS,
    PLACES,
    TOGETHER,
    Case,
    KillRounds,
    cases_of,
    play_rounds,
)

CASES = cases_of(*OTHERS)


@pytest.fixture(scope="module")
def rounds(publisher: EmbeddedPublisher, family: Family) -> Iterator[KillRounds]:
    """All rounds, played."""
    yield from play_rounds(publisher, family, "crash_kill", OTHERS)


def test_every_place_is_in_some_round() -> None:
    assert sorted(place for each in TOGETHER for place in each.places) == sorted(PLACES)


@pytest.mark.parametrize("case", CASES, ids=["-".join(case).replace(" ", "_") for case in CASES])
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    what = rounds.outcome(case)
    if what is not None:
        pytest.fail(what, pytrace=False)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 100
    assert rounds.reached == set(CASES)
