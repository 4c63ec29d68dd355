"""``kill -9`` at every place around publishing and around the hand-over, under a workload.

The rounds are played once; each test tells what was found at its victim and place.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from subscriber.publisher import EmbeddedPublisher
from tests.crash.family import Family
from tests.crash.kill_rounds import HELD_TOGETHER, PAIRS, VICTIMS, KillRounds
from tests.crash.mixed_workload import MixedWorkload, create_tables
from tests.fix_publisher import new_database
from workers.failpoints import APPLY, TABLESYNC

IDS = [f"{victim.replace(' ', '_')}-{place}" for victim, place in PAIRS]


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


def test_every_place_is_held_in_some_round() -> None:
    held = {place for apply, sync in HELD_TOGETHER for place in (*apply, *sync)}
    assert held == {*APPLY, *TABLESYNC}


@pytest.mark.parametrize(
    ("victim", "place"),
    PAIRS,
    ids=[f"{victim.replace(' ', '_')}-{place}" for victim, place in PAIRS],
)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, victim: str, place: str) -> None:
    what = rounds.outcome((victim, place))
    if what is not None:
        pytest.fail(what, pytrace=False)


def test_the_workload_went_on(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 100
    assert {victim for victim, _ in rounds.reached} == set(VICTIMS)
