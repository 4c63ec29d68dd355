"""Deaths between two slices of a transaction that ``apply_work_mem`` does not hold.

One table has a key, one none, and two tables are the sources of a shared lake table. The slices
before the death are on the branches. The rounds are played once for each victim: a transaction of
many slices, the death behind its first or its third slice, and then rows equal to the publisher's.
No reader sees a part of the transaction meanwhile. Each test tells what was found in its case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import pytest

from tests.crash.cases import (
    ITSELF,
    LAKE_SERVER,
    LAUNCHER,
    VERSIONS,
    Case,
    Way,
    assert_right,
    cases_of,
    each,
)
from tests.crash.family import Family, wait_confirmed
from tests.crash.kill_rounds import PATIENCE
from tests.crash.rounds import Rounds, Rows, played
from tests.fix_publisher import new_database, requested_publisher
from workers.process.failpoints import SLICE_WRITTEN, SLICES

WORK_MEM: Final = "64kB"  # some 350 changes
ROWS: Final = 1_000
BEHIND: Final = (1, 3)
"""Behind which slices somebody dies: the first, and one that follows two others."""

SCHEMA: Final = (
    "CREATE TABLE {s}.log (id int, v text)",
    "CREATE TABLE {s}.keyed (id int PRIMARY KEY, v text)",
    "CREATE TABLE {s}.east (id int PRIMARY KEY, v text)",
    "CREATE TABLE {s}.west (id int PRIMARY KEY, v text)",
    "CREATE PUBLICATION {s} FOR TABLES IN SCHEMA {s}",
)
TABLES: Final = ("log", "keyed", "east", "west")
SOURCES: Final = ("east", "west")


def _large_transaction(schema: str, number: int) -> str:
    first = number * ROWS
    made = f"SELECT n, 'v' || n FROM generate_series({first}, {first + ROWS - 1}) n"
    return "; ".join(
        [
            f"INSERT INTO {schema}.log {made}",
            f"INSERT INTO {schema}.keyed {made}",
            f"INSERT INTO {schema}.east {made}",
            f"INSERT INTO {schema}.west {made}",
            f"UPDATE {schema}.keyed SET v = v || '!' WHERE id % 3 = 0",
            f"UPDATE {schema}.east SET id = -id WHERE id % 7 = 0 AND id > {first}",
            f"DELETE FROM {schema}.west WHERE id % 5 = 0",
            f"INSERT INTO {schema}.log VALUES ({number}, 'last')",
        ]
    )


@dataclass(kw_only=True)
class SlicedRounds(Rounds):
    """Plays all rounds; the rows are compared after each."""

    name: str
    number: int = 0

    def rounds(self, cases: list[Case]) -> None:
        """Each victim dies behind one slice, and behind several."""
        self._prepare()
        for case in cases:
            for slices in BEHIND:
                self._round(case, slices)
            self.reached.add(case)

    def _prepare(self) -> None:
        self.database.run(f"CREATE SCHEMA {self.name}")
        self.database.run(*(each.format(s=self.name) for each in SCHEMA))
        shared = {
            f"{self.name}.{table}": {"to": f"{self.name}.both", "shared": True} for table in SOURCES
        }
        self.family.create(self.name, self.database.dsn, [self.name], tables=shared)
        self.family.pgsub.wait(self.name)

    def _round(self, case: Case, slices: int) -> None:
        victim, action, _ = case
        failpoints = self.family.failpoints
        before = self._ours()
        for passed in range(1, slices + 1):
            dies = passed == slices and victim == "itself"
            failpoints.arm(SLICE_WRITTEN, action=action if dies else "")
            if passed == 1:
                self.number += 1
                self.database.run(f"BEGIN; {_large_transaction(self.name, self.number)}; COMMIT")
            else:
                failpoints.release(SLICE_WRITTEN)
            failpoints.wait_held(SLICE_WRITTEN, PATIENCE, self.family.log_tail)
        if self._ours() != before:
            self.blame([case], f"a part of a transaction was seen, slice {slices}")
        self.kill(victim)
        failpoints.release(SLICE_WRITTEN)
        wait_confirmed(self.family, self.database, self.name)
        self.compare([case], self._published(), self._ours())

    def _published(self) -> Rows:
        return {
            table: Counter(self.database.execute(f"SELECT id, v FROM {self.name}.{table}"))
            for table in TABLES
        }

    def _ours(self) -> Rows:
        pgsub = self.family.pgsub
        found: dict[str, Counter[Any]] = {
            table: Counter(pgsub.rows(self.name, table, ["id", "v"])) for table in ("log", "keyed")
        }
        both = pgsub.rows(self.name, "both", ["id", "v", "_pgsub_source"])
        for table in SOURCES:
            source = f":{self.name}.{table}"
            found[table] = Counter(row[:2] for row in both if row[2].endswith(source))
        return found


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[SlicedRounds]:
    database = new_database(requested_publisher(request), name)
    made = SlicedRounds(family=family, database=database, name=name)
    return played(made, cases_of(SLICES, *ways), name, apply_work_mem=WORK_MEM)


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_lake_server(request: pytest.FixtureRequest, family: Family) -> Iterator[SlicedRounds]:
    """First the worker dies by itself, then the lake server does."""
    yield from _played(request, family, "sliced_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> Iterator[SlicedRounds]:
    """The lake server lives on."""
    yield from _played(request, family_on_a_remote_lake, "sliced_launcher", (LAUNCHER,))


@each(cases_of(SLICES, *ITSELF, LAKE_SERVER))
def test_no_row_is_lost_doubled_or_seen_early(
    with_the_lake_server: SlicedRounds, case: Case
) -> None:
    assert_right(with_the_lake_server, case)


@each(cases_of(SLICES, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: SlicedRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
