"""Deaths where Spark writes the rows, and where a successor writes otherwise than the dead worker.

A worker is killed at each place with ``lake.writer: spark``. Then the lake server is killed while
workers stand at each place, and before each death the configuration gets the other word: whoever
goes on finds branches, fences, positions and deletes of the other writer.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import cycle

import pytest

from tests.crash.cases import ITSELF, LAKE_SERVER, LAKES, Case, assert_right, cases_of, each
from tests.crash.family import Family
from tests.crash.kill_rounds import PLACES, KillRounds, play_requested
from tests.crash.mixed_workload import BUSY

WAYS = (ITSELF[0], LAKE_SERVER)
CASES = cases_of(PLACES, *WAYS)
SPARK, FILES = "spark", "auto"
SEEN: set[str | None] = set()
"""The writers of the busy tables at the deaths of the lake server."""


@pytest.fixture(scope="module")
def spark_family(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Family]:
    """A family whose rows go through Spark, until it is told otherwise."""
    made = Family(tmp_path_factory.mktemp("spark_writer") / "data", writer=SPARK)
    made.start()
    yield made
    made.failpoints.clear()
    assert made.pgsub.stop() == 0, made.log_tail()


@pytest.fixture(scope="module", params=LAKES)
def rounds(request: pytest.FixtureRequest) -> Iterator[KillRounds]:
    """All rounds, played."""
    words = cycle((FILES, SPARK))

    def switch(family: Family) -> None:
        rows = family.pgsub.status("lake_tables")
        SEEN.update(row["writer"] for row in rows if row["lake_schema"] in BUSY)
        family.configure(writer=next(words))

    names = "crash_spark", WAYS, "spark_family", SPARK
    yield from play_requested(request, *names, before_death=switch)


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: KillRounds, case: Case) -> None:
    assert_right(rounds, case)


def test_both_writers_wrote(rounds: KillRounds) -> None:
    assert rounds.workload.transactions > 25
    assert rounds.reached == set(CASES)
    assert {"files", "spark"} <= SEEN
