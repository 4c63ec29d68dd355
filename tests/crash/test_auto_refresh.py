"""A refresh without a user (``refresh: auto``) dies at each step; so does whoever it works with.

Each subscription publishes ``kept`` and one of ``a`` and ``b``. A round has the publisher publish
the other one: a table leaves, and a table joins, in the first round for the first time. No table
has a key, so a row that is copied or applied twice shows. Four subscriptions are looked at at once,
and so each round has a process at each place. Afterwards the published tables are the
publisher's, and a table that left is as it was when it left, whatever became of it since.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
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
from tests.crash.rounds import Rounds, ways_of
from tests.fix_publisher import new_database, requested_publisher
from tests.waiting import wait_until
from workers.process.failpoints import REFRESH

CASES: Final = cases_of(REFRESH, *ITSELF, LAKE_SERVER, LAUNCHER)
WORKER: Final[Way] = ("worker", "kill")
SUBSCRIPTIONS: Final = tuple(f"looked_at_{n}" for n in range(len(REFRESH)))


@dataclass(kw_only=True)
class RefreshRounds(Rounds):
    """Plays all rounds; the rows are compared after each."""

    joins: str = "b"
    leaves: str = "a"

    def rounds(self, cases: list[Case]) -> None:
        """Each victim, and then all apply workers."""
        for name in SUBSCRIPTIONS:
            self.database.run(
                f"CREATE SCHEMA {name}",
                *(f"CREATE TABLE {name}.{each} (id int, v text)" for each in ("kept", "a", "b")),
                f"CREATE PUBLICATION {name} FOR TABLE {name}.kept, {name}.a",
            )
        self._write("kept", "a", "b")
        for name in SUBSCRIPTIONS:
            self.family.create(name, self.database.dsn, [name], refresh="auto")
        self._until_ready("a")
        for way in (*ways_of(cases), WORKER):
            self._round(way)
            self.joins, self.leaves = self.leaves, self.joins
        wait_until(
            lambda: not self.family.pgsub.status("leaked_branches"), PATIENCE, self.family.log_tail
        )

    def _round(self, way: Way) -> None:
        failpoints, (victim, action) = self.family.failpoints, way
        self._write("kept", self.leaves)
        wait_confirmed(self.family, self.database, *SUBSCRIPTIONS)
        left = {name: self._published(name, self.leaves) for name in SUBSCRIPTIONS}
        failpoints.arm(*REFRESH, action=action if victim == "itself" else "")
        self.database.run(
            *(
                f"ALTER PUBLICATION {name} SET TABLE {name}.kept, {name}.{self.joins}"
                for name in SUBSCRIPTIONS
            )
        )
        self._write("kept", "a", "b")
        for place in REFRESH:
            failpoints.wait_held(place, PATIENCE, self.family.log_tail)
        self._write("kept", "a", "b")
        self.kill(victim)
        failpoints.clear()
        cases = cases_of(REFRESH, way)
        self.reached.update(cases)
        self._until_ready(self.joins)
        self._write("kept", "a", "b")
        wait_confirmed(self.family, self.database, *SUBSCRIPTIONS)
        for name in SUBSCRIPTIONS:
            wanted = {each: self._published(name, each) for each in ("kept", self.joins)}
            wanted[self.leaves] = left[name]
            ours = {table: Counter(self.family.pgsub.rows(name, table)) for table in wanted}
            self.compare(cases, wanted, ours)

    def kill(self, victim: str) -> None:
        """Kill the victim, or all apply workers."""
        if victim != "worker":
            super().kill(victim)
            return
        for name in SUBSCRIPTIONS:
            self.family.kill(wait_until(partial(self.family.apply_pid, name), PATIENCE))

    def _until_ready(self, joined: str) -> None:
        wanted = {"kept": "r", joined: "r"}

        def ready() -> bool:
            return all(self.family.states(name) == wanted for name in SUBSCRIPTIONS)

        wait_until(ready, PATIENCE, self.family.log_tail)

    def _write(self, *tables: str) -> None:
        """A transaction for each subscription; no row is there twice."""
        insert = (
            "INSERT INTO {0}.{1} SELECT m + i, 'v' FROM generate_series(1, 20) i,"
            " (SELECT coalesce(max(id), 0) AS m FROM {0}.{1}) AS highest"
        )
        for name in SUBSCRIPTIONS:
            self.database.execute(";".join(insert.format(name, table) for table in tables))

    def _published(self, name: str, table: str) -> Counter[Any]:
        return Counter(self.database.execute(f"SELECT id, v FROM {name}.{table}"))


@pytest.fixture(scope="module", params=VERSIONS)
def rounds(request: pytest.FixtureRequest, family: Family) -> Iterator[RefreshRounds]:
    database = new_database(requested_publisher(request), "crash_auto_refresh")
    made = RefreshRounds(family=family, database=database)
    made.play(CASES)
    yield made
    for name in SUBSCRIPTIONS:
        family.drop(name)
    family.forget_tables(*SUBSCRIPTIONS)
    database.drop()


@each(CASES)
def test_no_row_is_lost_or_doubled(rounds: RefreshRounds, case: Case) -> None:
    assert_right(rounds, case)


def test_nor_by_a_worker_s_death(rounds: RefreshRounds) -> None:
    """Each subscription's apply worker dies while the refresh stands at a place."""
    outcomes = [rounds.outcome(case) for case in cases_of(REFRESH, WORKER)]
    assert outcomes == [None] * len(REFRESH)
