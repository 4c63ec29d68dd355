"""Deaths while a transaction in progress is received (``streaming = on``).

Two large transactions run in turns. One has a subtransaction that is rolled back, and commits or
is prepared and then committed; the other is rolled back as a whole. Somebody dies at one place of
the thread that receives. Nothing of a transaction in progress is durable, so the publisher sends
both again, from the first part on. Afterwards the rows are the publisher's, and no reader has seen
a part of a transaction before. Each test tells what was found in its case.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pytest

from tests.crash.cases import (
    LAKE_SERVER,
    LAUNCHER,
    STREAMING,
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
from workers.process.failpoints import APPLY, STREAM_COMMITTED, STREAM_PREPARED, STREAMED
from workers.stream.prepared_xacts import FIRST_WITH_TWO_PHASE

KILLED: Final[Way] = ("itself", "kill")
RAISED: Final[Way] = ("itself", "raise")

MEMORY: Final = "64kB"  # more is sent while the transaction runs, and goes to a file
ROWS: Final = 2_000
TABLES: Final = ("log", "keyed")
SCHEMA: Final = (
    "CREATE TABLE {s}.log (id int, v text)",  # a doubled row shows
    "CREATE TABLE {s}.keyed (id int PRIMARY KEY, v text)",
    "CREATE PUBLICATION {s} FOR TABLE {s}.log, {s}.keyed",
)


@dataclass(kw_only=True)
class StreamedRounds(Rounds):
    """Plays all rounds; the rows are compared after each."""

    name: str
    number: int = 0

    def rounds(self, cases: list[Case]) -> None:
        """One round for each case."""
        self._prepare()
        for case in cases:
            if self.sends(case):
                self._round(case)

    def sends(self, case: Case) -> bool:
        """Does a publisher of this version send what the case is about?"""
        return case[2] != STREAM_PREPARED or self._has_two_phase

    @property
    def _has_two_phase(self) -> bool:
        return self.database.server.version >= FIRST_WITH_TWO_PHASE

    def _prepare(self) -> None:
        self.database.run(
            f"ALTER DATABASE {self.database.name} SET logical_decoding_work_mem = '{MEMORY}'",
            f"CREATE SCHEMA {self.name}",
            *(each.format(s=self.name) for each in SCHEMA),
        )
        options: dict[str, Any] = {"streaming": "on", "two_phase": self._has_two_phase}
        self.family.create(self.name, self.database.dsn, [self.name], **options)
        self.family.pgsub.wait(self.name)

    def die_before_it_is_applied(self) -> tuple[bool, bool]:
        """A transaction is received whole, the worker reports that, and is killed.

        Was the transaction confirmed by then, and are the rows the publisher's afterwards?
        """
        self.number += 1
        family, place = self.family, APPLY[0]
        family.failpoints.arm(place)
        with self.database.connect() as connection:
            connection.execute("BEGIN")
            self._insert(connection, self.number * 10 * ROWS)
            (before,) = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone() or ()
            connection.execute("COMMIT")
        after = self.database.lsn()
        worker = family.failpoints.wait_held(place, PATIENCE, family.log_tail)
        written = "SELECT write_lsn >= %s::pg_lsn FROM pg_stat_replication"
        written += " JOIN pg_replication_slots ON active_pid = pid WHERE slot_name = %s"
        position = (after, self.name)
        wait_until(
            lambda: self.database.execute(written, position) == [(True,)], PATIENCE, family.log_tail
        )
        confirmed = "SELECT confirmed_flush_lsn > %s::pg_lsn FROM pg_replication_slots"
        confirmed += " WHERE slot_name = %s"
        early = bool(self.database.value(confirmed, (before, self.name)))
        family.kill(worker)
        family.failpoints.release(place)
        wait_confirmed(family, self.database, self.name)
        return early, self._published() == self._ours()

    def _round(self, case: Case) -> None:
        victim, action, place = case
        failpoints = self.family.failpoints
        self.number += 1
        failpoints.arm(place, action=action if victim == "itself" else "")
        with self.database.connect() as one, self.database.connect() as other:
            self._begin(one, other)
            if place == STREAM_COMMITTED:
                one.execute("COMMIT")
            elif place == STREAM_PREPARED:
                one.execute(f"PREPARE TRANSACTION '{self.name}'".encode())
            failpoints.wait_held(place, PATIENCE, self.family.log_tail)
            if place != STREAM_COMMITTED and (seen := self._seen()):
                self.blame([case], f"parts of a transaction were seen: {seen}")
            self.kill(victim)
            failpoints.release(place)
            self.reached.add(case)
            self._end(one, other)
        wait_confirmed(self.family, self.database, self.name)
        self.compare([case], self._published(), self._ours())

    def _begin(self, one: psycopg.Connection, other: psycopg.Connection) -> None:
        """Both transactions in turns, with an ordinary one between them."""
        first = self.number * 10 * ROWS
        for connection in (one, other):
            connection.execute("BEGIN")
        self._insert(one, first)
        self._insert(other, first + ROWS)
        self.database.run(f"INSERT INTO {self.name}.log VALUES ({first}, 'beside')")
        one.execute("SAVEPOINT s")
        self._insert(one, first + 2 * ROWS)
        one.execute(f"DELETE FROM {self.name}.keyed WHERE id % 3 = 0".encode())
        one.execute("ROLLBACK TO s")
        one.execute(f"UPDATE {self.name}.keyed SET v = v || '!' WHERE id % 5 = 0".encode())
        self._insert(other, first + 3 * ROWS)
        self._insert(one, first + 4 * ROWS)

    def _insert(self, connection: psycopg.Connection, first: int) -> None:
        for table in TABLES:
            connection.execute(
                f"INSERT INTO {self.name}.{table} SELECT n, 'v' || n"
                f" FROM generate_series({first}, {first + ROWS - 1}) n".encode()
            )

    def _end(self, one: psycopg.Connection, other: psycopg.Connection) -> None:
        """The one commits in its way, the other does not."""
        if one.info.transaction_status is psycopg.pq.TransactionStatus.INTRANS:
            one.execute("COMMIT")
        other.execute("ROLLBACK")
        for (gid,) in self.database.execute(
            "SELECT gid FROM pg_prepared_xacts WHERE database = current_database()"
        ):
            self.database.run(f"COMMIT PREPARED '{gid}'")
        self.database.run(f"INSERT INTO {self.name}.log VALUES (-{self.number}, 'after')")

    def _seen(self) -> list[Any]:
        """Rows of the round's large transactions that are in the lake."""
        first = self.number * 10 * ROWS
        every = [row for rows in self._ours().values() for row in rows]
        return [row for row in every if row[0] >= first and row[1] != "beside"][:5]

    def _published(self) -> Rows:
        rows = "SELECT id, v FROM {}.{}"
        return {
            table: Counter(self.database.execute(rows.format(self.name, table))) for table in TABLES
        }

    def _ours(self) -> Rows:
        rows = self.family.pgsub.rows
        found: dict[str, Counter[Any]] = {
            table: Counter(rows(self.name, table, ["id", "v"])) for table in TABLES
        }
        return found


def _played(
    request: pytest.FixtureRequest, family: Family, name: str, ways: Iterable[Way]
) -> Iterator[StreamedRounds]:
    database = new_database(requested_publisher(request), name)
    made = StreamedRounds(family=family, database=database, name=name)
    return played(made, cases_of(STREAMED, *ways), name, spool_memory=MEMORY)


@pytest.fixture(scope="module", params=STREAMING)
def killed(request: pytest.FixtureRequest, family: Family) -> Iterator[StreamedRounds]:
    """The worker is killed at each place."""
    yield from _played(request, family, "streamed_killed", (KILLED,))


@pytest.fixture(scope="module", params=STREAMING)
def with_the_lake_server(
    request: pytest.FixtureRequest, family: Family
) -> Iterator[StreamedRounds]:
    """First the worker meets an error, then the lake server dies."""
    yield from _played(request, family, "streamed_lake", (RAISED, LAKE_SERVER))


@pytest.fixture(scope="module", params=STREAMING)
def with_the_launcher(
    request: pytest.FixtureRequest, family_on_a_remote_lake: Family
) -> Iterator[StreamedRounds]:
    """The lake server lives on."""
    yield from _played(request, family_on_a_remote_lake, "streamed_launcher", (LAUNCHER,))


def _assert_right(rounds: StreamedRounds, case: Case) -> None:
    if not rounds.sends(case):
        pytest.skip("the publisher sends no prepared transaction")
    assert_right(rounds, case)


@each(cases_of(STREAMED, KILLED))
def test_no_row_is_lost_doubled_or_seen_early(killed: StreamedRounds, case: Case) -> None:
    _assert_right(killed, case)


def test_what_is_received_and_not_applied_is_not_confirmed(killed: StreamedRounds) -> None:
    assert killed.die_before_it_is_applied() == (False, True)


@each(cases_of(STREAMED, RAISED, LAKE_SERVER))
def test_nor_by_an_error_or_the_lake_server_s_death(
    with_the_lake_server: StreamedRounds, case: Case
) -> None:
    _assert_right(with_the_lake_server, case)


@each(cases_of(STREAMED, LAUNCHER))
def test_nor_by_a_launcher_s_death(with_the_launcher: StreamedRounds, case: Case) -> None:
    _assert_right(with_the_launcher, case)
