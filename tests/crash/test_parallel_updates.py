"""Deaths around the files of updates and deletes of a transaction that has not committed.

Each large transaction changes all rows of a filled table: a tenth is deleted and inserted again,
the rest is updated. Somebody dies while the new rows are written and the keys are staged; half of
the transactions commit, half are rolled back. Or somebody dies behind the COMMIT: in front of the
look-up of the keys, behind it, or while the rows are published. Afterwards the rows are the
publisher's, and no file, note or staged key is left.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.crash.cases import (
    FILES_BEFORE,
    ITSELF,
    LAKE_SERVER,
    LAUNCHER,
    Case,
    Way,
    assert_right,
    cases_of,
    each,
)
from tests.crash.family import Family, wait_confirmed
from tests.crash.test_parallel import ENDS, ParallelRounds, rounds_of
from workers.process.failpoints import CHANGES_AHEAD, PARALLEL, SLICE_WRITTEN

ROWS: Final = 4_000
NEW: Final = (
    "INSERT INTO {s}.big SELECT i, repeat(md5(i || ' {n}'), 200 + 20)"
    " FROM generate_series(0, {rows} - 1) i WHERE i % 10 = {n} % 10 OR {n} = 0"
)
LARGE: Final = (
    "DELETE FROM {s}.big WHERE id % 10 = {n} % 10;"
    " UPDATE {s}.big SET v = repeat(md5(id || ' {n}'), 200 + 20);"
)
DIGEST: Final = "SELECT id, length(v), substr(v, 1, 12) FROM {}.big"

KEYS_TO_STAGE, KEYS_TO_LOOK_UP = CHANGES_AHEAD
BEFORE: Final = (*PARALLEL, KEYS_TO_STAGE)
BEHIND: Final = (
    KEYS_TO_LOOK_UP,
    "apply.table_written",
    SLICE_WRITTEN,
    "apply.in_flight_stored",
    "apply.one_table_published",
    "apply.origin_advanced",
)
"""The places of the COMMIT: the keys are looked up between the first two."""


@dataclass(kw_only=True)
class UpdateRounds(ParallelRounds):
    """The large transactions of the rounds change rows that are there."""

    digest: str = DIGEST

    def rounds(self, cases: list[Case]) -> None:
        """Places before the commit are played with COMMIT and with ROLLBACK."""
        self.prepare()
        self.database.run(NEW.format(s=self.name, n=0, rows=ROWS))
        wait_confirmed(self.family, self.database, self.name)
        for case in cases:
            if case[2] in BEHIND:
                self.round_behind_the_commit(case)
            else:
                for end in ENDS:
                    self.round(case, end)
            self.reached.add(case)

    def changes(self) -> str:
        self.number += 1
        given = {"s": self.name, "n": self.number, "rows": ROWS}
        return LARGE.format(**given) + NEW.format(**given)

    def may_be_left(self, case: Case, name: str) -> bool:
        """A server that dies under a commit leaves the outcome unknown, and a file of deletes.

        So it is with every batch; the files of before the commit are noted, and go.
        """
        return case[0] != "itself" and "-copy-" not in name


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[UpdateRounds]:
    return rounds_of(UpdateRounds, request, family, name, cases_of((*BEFORE, *BEHIND), *ways))


@pytest.fixture(scope="module", params=FILES_BEFORE)
def with_the_lake_server(request: pytest.FixtureRequest, family: Family) -> Iterator[UpdateRounds]:
    """First the worker dies by itself, then the lake server does."""
    yield from _played(request, family, "updates_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=FILES_BEFORE)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> Iterator[UpdateRounds]:
    """The lake server lives on."""
    yield from _played(request, family_on_a_remote_lake, "updates_launcher", (LAUNCHER,))


@each(cases_of((*BEFORE, *BEHIND), *ITSELF, LAKE_SERVER))
def test_no_change_is_lost_or_made_twice_and_nothing_is_left(
    with_the_lake_server: UpdateRounds, case: Case
) -> None:
    assert_right(with_the_lake_server, case)


@each(cases_of((*BEFORE, *BEHIND), LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: UpdateRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
