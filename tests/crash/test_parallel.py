"""Deaths around the data files of a transaction that has not committed (``streaming = parallel``).

A large transaction runs, and somebody dies when a slice is noted and not written, or written. Half
of the transactions commit, half are rolled back. Or the transaction commits, and the worker dies at
a place of the batch that the files belong to. Afterwards the rows are the publisher's, and no
file is there that no snapshot has. Each test tells what was found in its case.
"""

from __future__ import annotations

from collections import Counter
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
from tests.crash.kill_rounds import PATIENCE
from tests.crash.rounds import Rounds, Rows, played
from tests.fix_publisher import new_database, requested_publisher
from tests.waiting import wait_until
from workers.process.failpoints import APPLY, PARALLEL, SLICE_WRITTEN

ROWS: Final = 4_000
SMALL: Final = "ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'"
LARGE: Final = (
    "INSERT INTO {s}.big SELECT i, repeat(md5(i::text), 200 + 20)"
    " FROM generate_series({first}, {last}) i"
)
DIGEST: Final = "SELECT id, length(v) FROM {}.big"
FILES: Final = "SELECT file_path FROM lake.{s}.big.all_files"
ENDS: Final = ("COMMIT", "ROLLBACK")
BATCH: Final = (SLICE_WRITTEN, *(place for place in APPLY if "branch_" not in place))
"""The places of a batch, without those that a worker does not pass with every batch."""


@dataclass(kw_only=True)
class ParallelRounds(Rounds):
    """Plays all rounds; rows and files are looked at after each."""

    name: str
    number: int = 0

    def rounds(self, cases: list[Case]) -> None:
        """A round with COMMIT and one with ROLLBACK for each case."""
        self._prepare()
        for case in cases:
            for end in ENDS:
                self._round(case, end)
            self.reached.add(case)

    def _prepare(self) -> None:
        self.database.run(
            SMALL.format(name=self.database.name),
            f"CREATE SCHEMA {self.name}",
            f"CREATE TABLE {self.name}.big (id int PRIMARY KEY, v text)",
            f"CREATE PUBLICATION {self.name} FOR TABLE {self.name}.big",
        )
        self.family.create(self.name, self.database.dsn, [self.name], streaming="parallel")
        self.family.pgsub.wait(self.name)

    def _round(self, case: Case, end: str) -> None:
        victim, action, place = case
        failpoints, tail = self.family.failpoints, self.family.log_tail
        first = self.number * ROWS
        self.number += 1
        failpoints.arm(place, action=action if victim == "itself" else "")
        with self.database.connect() as one:
            one.execute("BEGIN; " + LARGE.format(s=self.name, first=first, last=first + ROWS - 1))
            failpoints.wait_held(place, PATIENCE, tail)
            self.kill(victim)
            failpoints.release(place)
            one.execute(end)
        wait_confirmed(self.family, self.database, self.name)
        self._compare(case, end)

    def die_behind_the_commit(self, place: str) -> None:
        """The files are in the hands of a batch when the worker dies."""
        failpoints, tail = self.family.failpoints, self.family.log_tail
        first, before = self.number * ROWS, self._files()
        self.number += 1
        with self.database.connect() as one:
            one.execute("BEGIN; " + LARGE.format(s=self.name, first=first, last=first + ROWS - 1))
            wait_until(lambda: self._files() - before, PATIENCE, tail)
            failpoints.arm(place)
            one.execute("COMMIT")
            worker = failpoints.wait_held(place, PATIENCE, tail)
            self.family.kill(worker)
            failpoints.release(place)
        wait_confirmed(self.family, self.database, self.name)
        self._compare(("itself", "kill", place), "COMMIT")

    def _compare(self, case: Case, end: str) -> None:
        ours = self.family.pgsub.sql(DIGEST.format(f"lake.{self.name}"))
        rows: Rows = {"big": Counter(tuple(row.values()) for row in ours)}
        published: Rows = {"big": Counter(self.database.execute(DIGEST.format(self.name)))}
        self.compare([case], published, rows)

        def loose() -> set[str]:
            rows = self.family.pgsub.sql(FILES.format(s=self.name))
            return self._files() - {row["file_path"].rpartition("/")[2] for row in rows}

        wait_until(lambda: not loose(), PATIENCE, lambda: f"{end}: {loose()} are left behind")

    def _files(self) -> set[str]:
        tables = self.family.pgsub.lake_dir / "warehouse" / self.name
        return {path.name for path in tables.glob("*-big-*/data/*.parquet")}


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[ParallelRounds]:
    name = f"{name}_{request.param}"  # a folder of the lake for each publisher
    database = new_database(requested_publisher(request), name)
    made = ParallelRounds(family=family, database=database, name=name)
    return played(made, cases_of(PARALLEL, *ways), name)


@pytest.fixture(scope="module", params=FILES_BEFORE)
def with_the_lake_server(
    request: pytest.FixtureRequest, family: Family
) -> Iterator[ParallelRounds]:
    """First the worker dies by itself, then the lake server does."""
    yield from _played(request, family, "parallel_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=FILES_BEFORE)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> Iterator[ParallelRounds]:
    """The lake server lives on."""
    yield from _played(request, family_on_a_remote_lake, "parallel_launcher", (LAUNCHER,))


@each(cases_of(PARALLEL, *ITSELF, LAKE_SERVER))
def test_no_row_is_lost_or_doubled_and_no_file_is_left(
    with_the_lake_server: ParallelRounds, case: Case
) -> None:
    assert_right(with_the_lake_server, case)


@pytest.mark.parametrize("place", BATCH)
def test_nor_with_files_in_the_hands_of_a_batch(
    with_the_lake_server: ParallelRounds, place: str
) -> None:
    with_the_lake_server.die_behind_the_commit(place)
    assert with_the_lake_server.found.get(("itself", "kill", place)) is None


@each(cases_of(PARALLEL, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: ParallelRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
