"""Every place at which a process may die, and what dying there did to the rows.

Some subscriptions are busy all the while and have their tables in ``r``; in each phase another one
has many small tables to synchronise. Who dies, and how:

* *itself*: a process that comes to the place is killed there, or meets an error there. The next
  place is armed when the last one was reached, so each is met by a process that lives.
* the *lake server* and the *launcher*: processes stand still at many places at once, the victim is
  killed, the others go on. Four rounds of this kind take a victim through all places, because the
  start of a JVM is what takes time here. The launcher takes all workers with it; its lake server
  is somebody else's, so that what they had under way there goes on without them.

A round's first places are armed before those of the round before it are let go, so that successors
come to them; the others when the first are held. A round whose successors are looked at in the next
one is compared together with it.

The last round of this kind needs tables that are still to be copied and to become ready, however
far the others are. So one more subscription, of two tables, is made when its first places are held.

After each round the busy tables are compared with the publisher's, at the end of a phase those
that were synchronised in it. A round that finds a difference blames its places.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import pytest

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.cases import ON_S3, Case, Findings, Way, cases_of
from tests.crash.family import Family, wait_confirmed
from tests.crash.mixed_workload import (
    BUSY,
    LATE,
    LATE_TABLES,
    SYNCED,
    SYNCED_TABLES,
    MixedWorkload,
    create_tables,
    lake_options,
    synced_table,
)
from tests.fix_publisher import Database, new_database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.process.failpoints import APPLY, FENCE, READY, TABLESYNC, UNDO

PATIENCE = 240.0
"""Seconds until something that takes a few on an idle machine counts as never."""

PLACES: Final = (*APPLY, *FENCE, *READY, *TABLESYNC, *UNDO)
BUSY_SUBSCRIPTIONS = tuple(f"crash_{schema}" for schema in BUSY)

ONE_BY_ONE: Final = (
    ("apply.batch_taken", "apply.branch_created"),
    ("apply.table_written",),
    ("apply.branches_written",),
    ("apply.in_flight_stored", "apply.before_fence"),
    ("apply.one_table_published", "apply.fenced"),
    ("apply.all_tables_published",),
    ("apply.origin_advanced",),
    ("apply.before_feedback",),
    ("apply.flush_remembered",),
    ("apply.feedback_sent",),
    ("apply.branch_rewritten",),
)
"""RowPositions of an apply worker; those armed together are its own and its successor's."""


@dataclass(frozen=True)
class Round:
    """Processes stand at these places at once; ``first`` are waited for before the others."""

    first: tuple[str, ...]
    then: tuple[str, ...] = ()

    @property
    def places(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.first, *self.then)


# Only the apply worker of the subscription that synchronises starts sync workers, answers them and
# makes tables ready, so nothing that comes first may need it once it is held: it comes to ``READY``
# last, and while a table is in c (caught_up to syncdone_stored) to no place around publishing.
# Until it is held, tables go on to s and are gone for the rounds that follow: all sync workers but
# one stand still meanwhile. One successor comes to ``UNDO``, that of the worker in caught_up: the
# worker in published needs no lake to go on. So the places of ``UNDO`` are in two rounds. An apply
# worker held at ``apply.ready_stored`` starts no successor for the second, and by then no table may
# be left to copy: the tables of ``LATE`` come to these places.
TOGETHER: Final = (
    Round(
        (
            "tablesync.started",
            "tablesync.datasync_stored",
            "tablesync.slot_created",
            "tablesync.branch_created",
            "tablesync.copied",
            "apply.before_ready",
        ),
        (
            "apply.batch_taken",
            "apply.table_written",
            "apply.branches_written",
            "apply.all_tables_published",
        ),
    ),
    Round(
        (
            "tablesync.waiting",
            "tablesync.caught_up",
            "tablesync.published",
            "tablesync.syncdone_stored",
        ),
        (
            "apply.in_flight_stored",
            "apply.one_table_published",
            "apply.origin_advanced",
            "apply.before_feedback",
        ),
    ),
    Round((*FENCE, UNDO[0], "apply.branch_created")),
    Round(
        (UNDO[1],),
        (
            "apply.ready_stored",
            "tablesync.range_copied",
            "apply.flush_remembered",
            "apply.feedback_sent",
            "apply.branch_rewritten",
        ),
    ),
)

_OUTLIVED: Final = re.compile(r'action=maintenance .* failpoint "([^"]+)" was reached')

LATE_SUBSCRIPTION: Final = f"crash_{LATE}"

Difference = tuple[Counter[Any], Counter[Any]]


@dataclass(kw_only=True)
class KillRounds(Findings):
    """Plays all phases, each way's with a schema of tables of its own."""

    family: Family
    database: Database
    workload: MixedWorkload
    ways: tuple[Way, ...]
    before_death: Callable[[Family], None] = lambda _: None  # while others stand at their places
    differences: dict[tuple[str, str], Difference] = field(default_factory=dict)

    def play(self) -> None:
        """All phases; an error ends a phase and is blamed on what it was about."""
        connection = self.database.dsn
        for name, schema in zip(BUSY_SUBSCRIPTIONS, BUSY, strict=True):
            self.family.create(name, connection, [f"pub_{schema}"], lake_options(schema))
        for name in BUSY_SUBSCRIPTIONS:
            self.family.pgsub.wait(name)
        self.workload.start()
        for (victim, action), schema in zip(self.ways, SYNCED, strict=False):
            cases = cases_of(PLACES, (victim, action))
            try:
                if victim == "itself":
                    self._play_itself(action, schema)
                else:
                    self._play_together(victim, schema)
                self._finish(schema, cases)
            except Exception as error:
                open_cases = [case for case in cases if case not in self.reached]
                self.blame(open_cases or cases, f"{type(error).__name__}: {error}")
            finally:
                self.family.failpoints.clear()
        self.workload.end()

    def _create_synced(self, schema: str) -> None:
        names = f"crash_{schema}", self.database.dsn, [f"pub_{schema}"]
        self.family.create(*names, lake_options(schema))

    # -- whoever comes to a place dies there -----------------------------------------------------

    def _play_itself(self, action: str, schema: str) -> None:
        """Sync workers come to their places one after the other by themselves."""
        failpoints, log_tail = self.family.failpoints, self.family.log_tail
        meanwhile = (*TABLESYNC, *UNDO, *READY)
        failpoints.arm(*meanwhile, action=action)
        self._create_synced(schema)
        for group in ONE_BY_ONE:
            self._wait_ended(group, action)
            self.reached.update(("itself", action, place) for place in group)
        self._compare([("itself", action, place) for group in ONE_BY_ONE for place in group])
        for place in meanwhile:
            failpoints.wait_held(place, PATIENCE, log_tail)
            self.reached.add(("itself", action, place))

    def _wait_ended(self, places: Sequence[str], action: str) -> None:
        """Workers end at these places, one of them perhaps the successor of another.

        Maintenance of an idle table publishes, too, and its worker outlives an error. So a place
        that maintenance came to is armed again: a successor is yet to come.
        """
        family, failpoints = self.family, self.family.failpoints
        since, seen = family.log_size(), Counter[str]()
        failpoints.arm(*places, action=action)

        def all_ended() -> bool:
            outlived = Counter(_OUTLIVED.findall(family.log_since(since)))
            for place in outlived - seen:
                failpoints.release(place)
                failpoints.arm(place, action=action)
            seen.update(outlived - seen)
            return all(map(failpoints.held, places))

        wait_until(all_ended, PATIENCE, lambda: f"ended at {places}: {family.log_tail()}")

    # -- a victim dies while others stand at their places ----------------------------------------

    def _play_together(self, victim: str, schema: str) -> None:
        self.family.failpoints.arm(*TOGETHER[0].first)
        self._create_synced(schema)
        uncompared: list[Case] = []
        for this, following in _with_next(TOGETHER):
            cases = [(victim, "kill", place) for place in this.places]
            self._play_round(victim, this, following)
            self.reached.update(cases)
            uncompared += cases
            if following is None or following.then:
                self._compare(uncompared)
                uncompared = []

    def _play_round(self, victim: str, this: Round, following: Round | None) -> None:
        failpoints, log_tail = self.family.failpoints, self.family.log_tail
        for place in this.first:
            failpoints.wait_held(place, PATIENCE, log_tail)
        failpoints.arm(*this.then)
        if following is None:
            self.family.create(LATE_SUBSCRIPTION, self.database.dsn, [f"pub_{LATE}"])
        for place in this.then:
            failpoints.wait_held(place, PATIENCE, log_tail)
        self.before_death(self.family)
        if victim == "launcher":
            self.family.kill_launcher()
        else:
            self.family.kill_lake_server()
        if following is not None:
            failpoints.arm(*following.first)
        for place in this.places:
            failpoints.release(place)
        if victim == "launcher":
            self.family.start()

    # -- what became of the rows -----------------------------------------------------------------

    def _compare(self, cases: Sequence[Case]) -> None:
        """Pause the workload, let the busy subscriptions catch up, and look at their rows."""
        self.workload.pause()
        try:
            wait_confirmed(self.family, self.database, *BUSY_SUBSCRIPTIONS)
            for schema, tables in BUSY.items():
                for table in tables:
                    self._compare_table(schema, table, cases)
        finally:
            self.workload.resume()

    def _compare_table(self, schema: str, table: str, cases: Sequence[Case]) -> None:
        """What was wrong before is not blamed again."""
        published = Counter(native_rows(self.database, f"{schema}.{table}"))
        ours = Counter(self.family.pgsub.rows(schema, table))
        difference = (published - ours, ours - published)
        if any(difference) and difference != self.differences.get((schema, table)):
            lost, extra = (dict(list(rows.items())[:5]) for rows in difference)
            self.blame(
                cases,
                f"{schema}.{table}: {difference[0].total()} rows lost: {lost}; "
                f"{difference[1].total()} rows too many: {extra}",
            )
        self.differences[schema, table] = difference

    def _finish(self, schema: str, cases: Sequence[Case]) -> None:
        """Everything catches up as a user would have it, and the phase's tables are compared."""
        self.family.failpoints.clear()
        self.workload.pause()
        try:
            of_phase = [f"crash_{schema}"]
            of_phase += [name for name in (LATE_SUBSCRIPTION,) if name in self.family.subscriptions]
            for name in (*BUSY_SUBSCRIPTIONS, *of_phase):
                self.family.pgsub.wait(name)
            for number in range(SYNCED_TABLES):
                self._compare_table(schema, synced_table(number), cases)
            if LATE_SUBSCRIPTION in of_phase:
                for number in range(LATE_TABLES):
                    self._compare_table(LATE, synced_table(number), cases)
        finally:
            self.workload.resume()
        for name in of_phase:
            self.family.drop(name)


def play_rounds(
    publisher: EmbeddedPublisher,
    family: Family,
    name: str,
    ways: tuple[Way, ...],
    **more: Any,
) -> Iterator[KillRounds]:
    """For a fixture: all phases of these ways in a database of their own, then clean."""
    database = new_database(publisher, name)
    create_tables(database)
    workload = MixedWorkload(database)
    played = KillRounds(family=family, database=database, workload=workload, ways=ways, **more)
    played.play()
    yield played
    for name in list(family.subscriptions):
        family.drop(name)
    family.forget_tables(*BUSY, *SYNCED, LATE)
    database.drop()


def play_requested(
    request: pytest.FixtureRequest,
    name: str,
    ways: tuple[Way, ...],
    local: str = "family",
    writer: str = "auto",
    **more: Any,
) -> Iterator[KillRounds]:
    """``play_rounds`` where the fixture's parameter (``LAKES``) says; ``local`` is a fixture."""
    on_s3 = request.param == ON_S3
    publisher = request.getfixturevalue("server_of")(18 if on_s3 else request.param)
    family: Family = request.getfixturevalue("family_on_s3" if on_s3 else local)
    family.configure(writer=writer)
    yield from play_rounds(publisher, family, name, ways, **more)
    family.configure()


def _with_next(rounds: Sequence[Round]) -> Iterator[tuple[Round, Round | None]]:
    yield from pairwise((*rounds, None))
