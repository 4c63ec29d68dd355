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
from typing import Final, TypeVar

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
    digest: str = DIGEST
    number: int = 0

    def rounds(self, cases: list[Case]) -> None:
        """A round with COMMIT and one with ROLLBACK for each case."""
        self.prepare()
        for case in cases:
            for end in ENDS:
                self.round(case, end)
            self.reached.add(case)

    def prepare(self) -> None:
        self.database.run(
            SMALL.format(name=self.database.name),
            f"CREATE SCHEMA {self.name}",
            f"CREATE TABLE {self.name}.big (id int PRIMARY KEY, v text)",
            f"CREATE PUBLICATION {self.name} FOR TABLE {self.name}.big",
        )
        self.family.create(self.name, self.database.dsn, [self.name], streaming="parallel")
        self.family.pgsub.wait(self.name)

    def round(self, case: Case, end: str) -> None:
        """The victim dies while the large transaction runs, at a place of its thread."""
        victim, action, place = case
        failpoints, tail = self.family.failpoints, self.family.log_tail
        failpoints.arm(place, action=action if victim == "itself" else "")
        with self.database.connect() as one:
            one.execute("BEGIN; " + self.changes())
            failpoints.wait_held(place, PATIENCE, tail)
            self.kill(victim)
            failpoints.release(place)
            one.execute(end)
        wait_confirmed(self.family, self.database, self.name)
        self._compare(case, end)

    def changes(self) -> str:
        """The changes of the next large transaction."""
        first = self.number * ROWS
        self.number += 1
        return LARGE.format(s=self.name, first=first, last=first + ROWS - 1)

    def round_behind_the_commit(self, case: Case) -> None:
        """The files are in the hands of a batch when the victim dies."""
        victim, action, place = case
        failpoints, tail = self.family.failpoints, self.family.log_tail
        before = self._files()
        with self.database.connect() as one:
            one.execute("BEGIN; " + self.changes())
            wait_until(lambda: self._files() - before, PATIENCE, tail)
            failpoints.arm(place, action=action if victim == "itself" else "")
            one.execute("COMMIT")
            failpoints.wait_held(place, PATIENCE, tail)
            self.kill(victim)
            failpoints.release(place)
        wait_confirmed(self.family, self.database, self.name)
        self._compare(case, "COMMIT")

    def _compare(self, case: Case, end: str) -> None:
        ours = self.family.pgsub.sql(self.digest.format(f"lake.{self.name}"))
        rows: Rows = {"big": Counter(tuple(row.values()) for row in ours)}
        published: Rows = {"big": Counter(self.database.execute(self.digest.format(self.name)))}
        self.compare([case], published, rows)

        def loose() -> set[str]:
            rows = self.family.pgsub.sql(FILES.format(s=self.name))
            found = self._files() - {row["file_path"].rpartition("/")[2] for row in rows}
            return {name for name in found if not self.may_be_left(case, name)}

        wait_until(lambda: not loose(), PATIENCE, lambda: f"{end}: {loose()} are left behind")
        wait_until(lambda: not self._noted(), PATIENCE, lambda: f"{end}: {self._noted()} are left")

    def may_be_left(self, case: Case, name: str) -> bool:
        """Is a file left to orphan removal?"""
        del case, name
        return False

    def _noted(self) -> list[str]:
        """Notes of files before a commit, and staged keys."""
        data = self.family.pgsub.data_dir
        found = [*data.glob("parallel/*"), *data.glob("staging/**/*.parquet")]
        return [str(path) for path in found]

    def _files(self) -> set[str]:
        tables = self.family.pgsub.lake_dir / "warehouse" / self.name
        return {path.name for path in tables.glob("*-big-*/data/*.parquet")}


Made = TypeVar("Made", bound=ParallelRounds)


def rounds_of(
    kind: type[Made], request: pytest.FixtureRequest, family: Family, name: str, cases: list[Case]
) -> Iterator[Made]:
    """Play rounds on the publisher that a fixture asks for."""
    name = f"{name}_{request.param}"  # a folder of the lake for each publisher
    database = new_database(requested_publisher(request), name)
    return played(kind(family=family, database=database, name=name), cases, name)


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[ParallelRounds]:
    return rounds_of(ParallelRounds, request, family, name, cases_of(PARALLEL, *ways))


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
    case = ("itself", "kill", place)
    with_the_lake_server.round_behind_the_commit(case)
    assert with_the_lake_server.found.get(case) is None


@each(cases_of(PARALLEL, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: ParallelRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
