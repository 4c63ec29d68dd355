"""Deaths around the data files of a transaction that has not committed (``streaming = parallel``).

A large transaction runs, and somebody dies when a slice is noted and not written, or written. Half
of the transactions commit, half are rolled back. Afterwards the rows are the publisher's, and no
file is there that no snapshot has. Each test tells what was found in its case.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pytest

from tests.crash.cases import (
    ITSELF,
    LAKE_SERVER,
    LAUNCHER,
    VERSIONS,
    Case,
    Findings,
    Way,
    assert_right,
    cases_of,
    each,
)
from tests.crash.family import Family, wait_confirmed
from tests.crash.kill_rounds import PATIENCE
from tests.fix_publisher import Database, new_database, requested_publisher
from tests.waiting import wait_until
from workers.process.failpoints import PARALLEL

ROWS: Final = 15_000
SMALL: Final = "ALTER DATABASE {name} SET logical_decoding_work_mem = '64kB'"
LARGE: Final = (
    "INSERT INTO {s}.big SELECT i, repeat(md5(i::text), 60) FROM generate_series({first}, {last}) i"
)
DIGEST: Final = "SELECT count(*) AS n, sum(id) AS id, sum(length(v)) AS v FROM {t}.big"
FILES: Final = "SELECT file_path FROM lake.{s}.big.all_files"
ENDS: Final = ("COMMIT", "ROLLBACK")


@dataclass(kw_only=True)
class ParallelRounds(Findings):
    """Plays all rounds; rows and files are looked at after each."""

    family: Family
    database: Database
    name: str
    number: int = 0

    def play(self, ways: Iterable[Way]) -> None:
        """An error is blamed on what was not reached."""
        cases = cases_of(PARALLEL, *ways)
        try:
            self._prepare()
            for case in cases:
                for end in ENDS:
                    self._round(case, end)
                self.reached.add(case)
        except Exception as error:
            open_cases = [case for case in cases if case not in self.reached]
            self.blame(open_cases or cases, f"{type(error).__name__}: {error}")
        finally:
            self.family.failpoints.clear()

    def _prepare(self) -> None:
        self.database.run(
            SMALL.format(name=self.database.name),
            f"CREATE SCHEMA {self.name}",
            f"CREATE TABLE {self.name}.big (id int PRIMARY KEY, v text)",
            f"CREATE PUBLICATION {self.name} FOR TABLES IN SCHEMA {self.name}",
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
            if victim == "launcher":
                self.family.kill_launcher()
                self.family.start()
            elif victim == "lake server":
                self.family.kill_lake_server()
            failpoints.release(place)
            one.execute(end)
        wait_confirmed(self.family, self.database, self.name)
        self._compare(case, end)

    def _compare(self, case: Case, end: str) -> None:
        published = self.database.execute(DIGEST.format(t=self.name))
        lake = DIGEST.format(t=f"lake.{self.name}")
        ours = [tuple(row.values()) for row in self.family.pgsub.sql(lake)]
        if ours != published:
            self.blame([case], f"{end}: {published} are {ours}")

        def loose() -> set[str]:
            rows = self.family.pgsub.sql(FILES.format(s=self.name))
            return self._files() - {row["file_path"].rpartition("/")[2] for row in rows}

        wait_until(lambda: not loose(), PATIENCE, lambda: f"{end}: {loose()} are left behind")

    def _files(self) -> set[str]:
        tables = self.family.pgsub.lake_dir / "warehouse" / self.name
        return {path.name for path in tables.glob("big*/data/*.parquet")}


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[ParallelRounds]:
    database = new_database(requested_publisher(request), name)
    made = ParallelRounds(family=family, database=database, name=name)
    made.play(tuple(ways))
    yield made
    if name in family.subscriptions:
        family.drop(name)
    family.forget_tables(name)
    database.drop()


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_lake_server(
    request: pytest.FixtureRequest, family: Family
) -> Iterator[ParallelRounds]:
    """First the worker dies by itself, then the lake server does."""
    yield from _played(request, family, "parallel_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=VERSIONS)
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


@each(cases_of(PARALLEL, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: ParallelRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
