"""Death at every place around publishing and around the hand-over, under a workload.

The rounds are played once; each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import CASES, ONE_BY_ONE, PLACES, TOGETHER, Case, KillRounds
from tests.crash.mixed_workload import MixedWorkload, create_tables
from tests.fix_publisher import new_database
from workers.failpoints import APPLY, FENCE


@pytest.fixture(scope="module")
def rounds(publisher: EmbeddedPublisher, family: Family) -> Iterator[KillRounds]:
    """All rounds, played."""
    database = new_database(publisher, "crash_kill")
    create_tables(database)
    played = KillRounds(family, database, MixedWorkload(database))
    played.play()
    yield played
    for name in list(family.subscriptions):
        family.drop(name)
    database.drop()


def test_every_place_is_in_some_round() -> None:
    assert sorted(place for each in TOGETHER for place in each.places) == sorted(PLACES)
    assert {place for group in ONE_BY_ONE for place in group} == {*APPLY, *FENCE}


@pytest.mark.parametrize("case", CASES, ids=["-".join(case).replace(" ", "_") for case in CASES])
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    what = rounds.outcome(case)
    if what is not None:
        pytest.fail(what, pytrace=False)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 100
    assert rounds.reached == set(CASES)
