"""Whoever dies where only a command, a permanent slot's worker or a second copy comes.

The rounds are played once for each victim; each test tells what was found in its case.
"""

from __future__ import annotations

import pytest

from tests.crash.cases import (
    ITSELF,
    LAKE_SERVER,
    LAUNCHER,
    VERSIONS,
    Case,
    assert_right,
    cases_of,
    each,
)
from tests.crash.family import Family
from tests.crash.other_rounds import DIE_HERE, PLACES, OtherRounds, play_other_rounds
from tests.fix_publisher import requested_publisher


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_lake_server(request: pytest.FixtureRequest, family: Family) -> OtherRounds:
    """First whoever comes there dies by itself, then the lake server does."""
    publisher = requested_publisher(request)
    return play_other_rounds(publisher, family, "other_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> OtherRounds:
    """The lake server lives on, and so do the commands."""
    publisher = requested_publisher(request)
    return play_other_rounds(publisher, family_on_a_remote_lake, "other_launcher", (LAUNCHER,))


@each([*cases_of(DIE_HERE, *ITSELF), *cases_of(PLACES, LAKE_SERVER)])
def test_no_row_is_lost_or_doubled(with_the_lake_server: OtherRounds, case: Case) -> None:
    assert_right(with_the_lake_server, case)


@each(cases_of(PLACES, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: OtherRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
