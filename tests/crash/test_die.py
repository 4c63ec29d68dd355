"""A worker that dies, or meets an error, at each place around publishing and the hand-over.

The phases are played once under a workload; each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import ITSELF, ONE_BY_ONE, Case, KillRounds, cases_of, play_rounds
from workers.failpoints import APPLY, FENCE

CASES = cases_of(*ITSELF)


@pytest.fixture(scope="module")
def rounds(publisher: EmbeddedPublisher, family: Family) -> Iterator[KillRounds]:
    """All phases, played."""
    yield from play_rounds(publisher, family, "crash_die", ITSELF)


def test_every_place_of_an_apply_worker_is_armed() -> None:
    assert {place for group in ONE_BY_ONE for place in group} == {*APPLY, *FENCE}


@pytest.mark.parametrize("case", CASES, ids=["-".join(case) for case in CASES])
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    what = rounds.outcome(case)
    if what is not None:
        pytest.fail(what, pytrace=False)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 50
    assert rounds.reached == set(CASES)
