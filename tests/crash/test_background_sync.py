"""``synchronous_commit = off``: deaths at the places of the thread that makes batches durable.

Two subscriptions, so that both places are held at once when the lake server or the launcher dies.
The worker goes on meanwhile: more batches are visible and wait for the disk. The rounds are played
once for each victim; each test tells what was found in its case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import product

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
from tests.crash.rounds import Rounds, played, ways_of
from tests.fix_publisher import new_database, requested_publisher
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import BACKGROUND

TABLES = ("log", "keyed")


@dataclass(kw_only=True)
class BackgroundRounds(Rounds):
    """Plays all rounds; the rows are compared after each."""

    names: tuple[str, ...]

    def rounds(self, cases: list[Case]) -> None:
        """The worker dies at one place after the other, another victim once for both."""
        self._prepare()
        for victim, action in ways_of(cases):
            if victim == "itself":
                for place in BACKGROUND:
                    self._die(place, action)
            else:
                self._kill_held(victim)

    def _prepare(self) -> None:
        for name in self.names:
            self.database.run(
                f"CREATE SCHEMA {name}",
                f"CREATE TABLE {name}.log (id int, v text)",  # a doubled row shows
                f"CREATE TABLE {name}.keyed (id int PRIMARY KEY, v text)",
                f"CREATE PUBLICATION {name} FOR TABLES IN SCHEMA {name}",
            )
            self.family.create(name, self.database.dsn, [name], synchronous_commit="off")
        for name in self.names:
            self.family.pgsub.wait(name)

    def write(self) -> None:
        """A transaction for each subscription."""
        for name in self.names:
            self.database.run(
                f"INSERT INTO {name}.log SELECT coalesce(max(id), 0) + 1, 'v' FROM {name}.log",
                f"INSERT INTO {name}.keyed SELECT count(*) % 7, 'v' FROM {name}.log"
                f" ON CONFLICT (id) DO UPDATE SET v = {name}.keyed.v || 'w'",
            )

    def write_until_held(self, *places: str) -> None:
        """Somebody stands at each of the places, or died there."""

        def all_stand() -> bool:
            self.write()
            return all(map(self.family.failpoints.held, places))

        wait_until(all_stand, PATIENCE, self.family.log_tail, pause=0.3)

    def _die(self, place: str, action: str) -> None:
        failpoints, case = self.family.failpoints, ("itself", action, place)
        failpoints.arm(place, action=action)
        self.write_until_held(place)
        failpoints.release(place)
        self.reached.add(case)
        self.caught_up([case])

    def _kill_held(self, victim: str) -> None:
        failpoints, cases = self.family.failpoints, cases_of(BACKGROUND, (victim, "kill"))
        failpoints.arm(*BACKGROUND)
        self.write_until_held(*BACKGROUND)
        self.write()
        self.kill(victim)
        for place in BACKGROUND:
            failpoints.release(place)
        self.reached.update(cases)
        self.caught_up(cases)

    def caught_up(self, cases: Iterable[Case]) -> None:
        """Everything is confirmed, and the lake has the publisher's rows."""
        wait_confirmed(self.family, self.database, *self.names)
        published, ours = {}, {}
        for name, table in product(self.names, TABLES):
            both = f"{name}.{table}"
            published[both] = Counter(native_rows(self.database, both))
            ours[both] = Counter(self.family.pgsub.rows(name, table))
        self.compare(cases, published, ours)


def _played(
    request: pytest.FixtureRequest, family: Family, base: str, ways: Iterable[Way]
) -> Iterator[BackgroundRounds]:
    database = new_database(requested_publisher(request), base)
    names = (f"{base}_a", f"{base}_b")
    made = BackgroundRounds(family=family, database=database, names=names)
    return played(made, cases_of(BACKGROUND, *ways), *names)


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_lake_server(
    request: pytest.FixtureRequest, family: Family
) -> Iterator[BackgroundRounds]:
    """First the worker dies by itself, then the lake server does."""
    yield from _played(request, family, "behind_lake", (*ITSELF, LAKE_SERVER))


@pytest.fixture(scope="module", params=VERSIONS)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> Iterator[BackgroundRounds]:
    """The lake server lives on."""
    yield from _played(request, family_on_a_remote_lake, "behind_launcher", (LAUNCHER,))


@each(cases_of(BACKGROUND, *ITSELF, LAKE_SERVER))
def test_no_row_is_lost_or_doubled(with_the_lake_server: BackgroundRounds, case: Case) -> None:
    assert_right(with_the_lake_server, case)


@each(cases_of(BACKGROUND, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: BackgroundRounds, case: Case) -> None:
    assert_right(with_the_launcher, case)


def test_rows_are_visible_before_they_are_confirmed_and_not_confirmed_before_they_are_durable(
    with_the_lake_server: BackgroundRounds,
) -> None:
    played, place = with_the_lake_server, BACKGROUND[0]
    family, database, name = played.family, played.database, played.names[0]
    before = database.lsn()
    family.failpoints.arm(place)
    database.run(f"INSERT INTO {name}.log VALUES (-1, 'first')")
    family.failpoints.wait_held(place, PATIENCE, family.log_tail)
    database.run(f"INSERT INTO {name}.log VALUES (-2, 'second')")

    def visible() -> bool:
        ours = family.pgsub.rows(name, "log")
        return {(-1, "first"), (-2, "second")} <= set(ours)

    wait_until(visible, PATIENCE, family.log_tail)
    confirmed = (
        "SELECT confirmed_flush_lsn > %s::pg_lsn FROM pg_replication_slots WHERE slot_name = %s"
    )
    assert database.value(confirmed, (before, name)) is False
    family.failpoints.release(place)
    played.caught_up([])
    assert database.value(confirmed, (before, name)) is True
