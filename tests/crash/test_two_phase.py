"""Deaths around PREPARE, COMMIT PREPARED, ROLLBACK PREPARED, and before two-phase is enabled.

A round prepares three transactions while the worker is busy, so that they share a file. Two are
committed and one is rolled back, beside ordinary transactions. Somebody dies at one place of the
round. Afterwards the rows equal the publisher's and nothing is prepared; no reader has seen a
prepared row before. Logical messages are rows like any: of the transactions, and outside of them.
The rounds of enabling make a subscription each, because two-phase commit is enabled once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import pytest

from tests.crash.cases import (
    ITSELF,
    LAKE_SERVER,
    LAUNCHER,
    PREPARING,
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
from workers.process.failpoints import (
    COMMIT_PREPARED,
    PREPARE,
    ROLLBACK_PREPARED,
    TWO_PHASE_ENABLED,
)

PLACES: Final = (*TWO_PHASE_ENABLED, *PREPARE, *COMMIT_PREPARED, *ROLLBACK_PREPARED)
UNSEEN: Final = (*PREPARE, COMMIT_PREPARED[0])
"""The places at which no row of a prepared transaction is in the lake."""
TABLES: Final = ("log", "keyed")
SCHEMA: Final = (
    "CREATE TABLE {s}.log (id int, v text)",
    "CREATE TABLE {s}.keyed (id int PRIMARY KEY, v text)",
    "INSERT INTO {s}.keyed VALUES (-1, 'at first')",
    "CREATE PUBLICATION {s} FOR TABLES IN SCHEMA {s}",
)


@dataclass(kw_only=True)
class TwoPhaseRounds(Rounds):
    """Plays all rounds; the rows are compared after each."""

    name: str
    number: int = 0
    sub: str = ""
    said: Counter[Any] = field(default_factory=Counter)

    def rounds(self, cases: list[Case]) -> None:
        """Each victim dies while two-phase commit is enabled, and then around each end."""
        self.database.run(f"CREATE SCHEMA {self.name}")
        self.database.run(*(each.format(s=self.name) for each in SCHEMA))
        for way in ways_of(cases):
            for place in TWO_PHASE_ENABLED:
                self._enable(way, place)
            for place in (*PREPARE, *COMMIT_PREPARED, *ROLLBACK_PREPARED):
                self._round(way, place)

    def _enable(self, way: Way, place: str) -> None:
        """A new subscription; what is prepared before, during and after is committed at its end."""
        self._leave()
        self.said.clear()
        self.number += 1
        self.sub = f"{self.name}_{self.number}"
        self.family.failpoints.arm(place, action=self._action(way))
        self.family.create(
            self.sub,
            self.database.dsn,
            [self.name],
            messages_to=f"{self.name}.said",
            two_phase=True,
        )
        self._die(way, place)
        wait_until(lambda: self._state() == "e", PATIENCE, self.family.log_tail)
        self._prepare()
        self._await_prepared(3)
        self._end()
        self._compare((*way, place))

    def _round(self, way: Way, place: str) -> None:
        self.number += 1
        if place in PREPARE:
            self.family.failpoints.arm(place, action=self._action(way))
            self._prepare()
            self._die(way, place)
            self._await_prepared(3)
            self._end()
        else:
            self._prepare()
            self._await_prepared(3)
            self.family.failpoints.arm(place, action=self._action(way))
            self._end()
            self._die(way, place)
        self._compare((*way, place))

    def _action(self, way: Way) -> str:
        victim, action = way
        return action if victim == "itself" else ""

    def _die(self, way: Way, place: str) -> None:
        failpoints, victim = self.family.failpoints, way[0]
        failpoints.wait_held(place, PATIENCE, self.family.log_tail)
        if place in UNSEEN and victim != "itself" and (seen := self._prepared_rows()):
            self.blame([(*way, place)], f"seen before COMMIT PREPARED: {seen}")
        self.kill(victim)
        failpoints.release(place)
        self.reached.add((*way, place))

    def _prepare(self) -> None:
        first, log, keyed = self.number * 10, f"{self.name}.log", f"{self.name}.keyed"
        self.database.run(f"INSERT INTO {log} VALUES ({first + 4}, 'keeps the worker busy')")
        self.database.execute(
            f"BEGIN; INSERT INTO {log} VALUES ({first}, 'prepared');"
            f"INSERT INTO {keyed} SELECT n, 'p' FROM generate_series({first}, {first + 4}) n;"
            f"UPDATE {keyed} SET v = v || '.' WHERE id = -1;"
            f"{self._says('prepared', transactional=True)};"
            f"PREPARE TRANSACTION '{self.name} a'"
        )
        self.database.run(f"INSERT INTO {log} VALUES ({first + 1}, 'between')")
        self.database.execute(
            f"BEGIN; INSERT INTO {keyed} VALUES ({first + 5}, 'never');"
            f"SELECT pg_logical_emit_message(true, 'never', 'never');"
            f"{self._says('alone', transactional=False)};"
            f"PREPARE TRANSACTION '{self.name} b'"
        )
        self.database.execute(
            f"BEGIN; INSERT INTO {log} VALUES ({first + 5}, 'prepared');"
            f"PREPARE TRANSACTION '{self.name} c'"
        )

    def _says(self, prefix: str, *, transactional: bool) -> str:
        """The statement to emit a message that is not rolled back."""
        self.said[prefix, str(self.number).encode(), transactional] += 1
        return f"SELECT pg_logical_emit_message({transactional}, '{prefix}', '{self.number}')"

    def _prepared_rows(self) -> list[Any]:
        """Those of the round that are in the lake; ordinary rows beside them may be there."""
        ours, first = self._ours(), self.number * 10
        seen = [row for row in ours["log"] if row[0] >= first and row[1] == "prepared"]
        said = ("prepared", str(self.number).encode(), True)
        seen += [row for row in ours["said"] if row == said]
        return seen + [row for row in ours["keyed"] if first <= row[0] <= first + 5]

    def _end(self) -> None:
        first, log = self.number * 10, f"{self.name}.log"
        self.database.run(
            f"INSERT INTO {log} VALUES ({first + 2}, 'before')",
            f"COMMIT PREPARED '{self.name} a'",
            f"ROLLBACK PREPARED '{self.name} b'",
            f"COMMIT PREPARED '{self.name} c'",
            self._says("after", transactional=True),
            f"INSERT INTO {log} VALUES ({first + 3}, 'after')",
        )

    def _await_prepared(self, number: int) -> None:
        def prepared() -> bool:
            return len(self.family.pgsub.status("pg_prepared_xacts")) == number

        wait_until(prepared, PATIENCE, self.family.log_tail)

    def _state(self) -> str:
        rows = self.family.pgsub.status("pg_subscription")
        return next(str(row["subtwophasestate"]) for row in rows if row["subname"] == self.sub)

    def _compare(self, case: Case) -> None:
        wait_confirmed(self.family, self.database, self.sub)
        rows = "SELECT id, v FROM {}.{}"
        published = {
            table: Counter(self.database.execute(rows.format(self.name, table))) for table in TABLES
        }
        self.compare([case], {**published, "said": self.said}, self._ours())
        left = self.family.pgsub.status("pg_prepared_xacts")
        if left:
            self.blame([case], f"left prepared: {[row['gid'] for row in left]}")

    def _ours(self) -> dict[str, Counter[Any]]:
        rows = self.family.pgsub.rows
        found: dict[str, Counter[Any]] = {
            table: Counter(rows(self.name, table, ["id", "v"])) for table in TABLES
        }
        said = Counter(rows(self.name, "said", ["prefix", "content", "transactional"]))
        return {**found, "said": said}

    def _leave(self) -> None:
        if self.sub in self.family.subscriptions:
            self.family.drop(self.sub)
            self.family.forget_tables(self.name)


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[TwoPhaseRounds]:
    database = new_database(requested_publisher(request), name)
    made = TwoPhaseRounds(family=family, database=database, name=name)
    made.play(cases_of(PLACES, *ways))
    yield made
    made._leave()
    for (gid,) in database.execute(
        "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
    ):
        database.run(f"ROLLBACK PREPARED '{gid}'")
    database.drop()


@pytest.fixture(scope="module", params=PREPARING)
def with_the_lake_server(
    request: pytest.FixtureRequest, family: Family
) -> Iterator[TwoPhaseRounds]:
    """First the worker dies by itself, then the lake server does."""
    yield from _played(request, family, "two_phase_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=PREPARING)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> Iterator[TwoPhaseRounds]:
    """The lake server lives on."""
    yield from _played(request, family_on_a_remote_lake, "two_phase_launcher", (LAUNCHER,))


@each(cases_of(PLACES, *ITSELF, LAKE_SERVER))
def test_no_row_is_lost_doubled_or_seen_early(
    with_the_lake_server: TwoPhaseRounds, case: Case
) -> None:
    assert_right(with_the_lake_server, case)


@each(cases_of(PLACES, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: TwoPhaseRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)
