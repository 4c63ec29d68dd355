"""Rounds of killing under a workload, and what each of them did to the rows.

In a round four processes stand still at once: two apply workers at two of the places around
publishing, and two sync workers at two of those around the hand-over. Then one kind of victim is
killed, everybody else goes on, and when the successors have caught up the rows in the lake are
compared with the publisher's. Three rounds take a victim through all places, so that the JVM,
whose start is what takes time here, is killed six times and not forty.

Subscriptions ``crash_a`` and ``crash_b`` are busy and have all their tables in ``r``; ``crash_c``
has many small tables that are synchronised meanwhile. The places for the next round are armed
before a round lets anybody go, so no table gets through unheld and there are tables left for all.
A table of ``crash_c`` that was held is compared at the end, when it has become ``r``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from tests.crash.family import Family, wait_confirmed
from tests.crash.mixed_workload import (
    BUSY,
    BUSY_TABLES,
    SYNCED,
    SYNCED_TABLES,
    MixedWorkload,
    synced_table,
)
from tests.fix_publisher import Database
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.failpoints import APPLY, TABLESYNC

PATIENCE = 240.0
"""Seconds until something that takes a few on an idle machine counts as never."""

VICTIMS = ("apply worker", "sync worker", "lake server", "launcher")
PAIRS = [(victim, place) for victim in VICTIMS for place in (*APPLY, *TABLESYNC)]

BUSY_SUBSCRIPTIONS = tuple(f"crash_{schema}" for schema in BUSY)
SYNCED_SUBSCRIPTION = f"crash_{SYNCED}"

Difference = tuple[Counter[Any], Counter[Any]]


@dataclass(frozen=True)
class Round:
    """Whom to kill, while these places are held."""

    victim: str
    apply: tuple[str, ...]
    sync: tuple[str, ...]

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """What the round is about, one pair for each place."""
        return [(self.victim, place) for place in (*self.apply, *self.sync)]


HELD_TOGETHER = (
    (APPLY[0:2], TABLESYNC[0:2]),
    (APPLY[2:4], TABLESYNC[2:4]),
    (APPLY[4:6], (TABLESYNC[0], TABLESYNC[2])),
)

ROUNDS = [Round(victim, apply, sync) for victim in VICTIMS for apply, sync in HELD_TOGETHER]


@dataclass
class KillRounds:
    """Plays all rounds; ``found`` has what was wrong at each pair."""

    family: Family
    database: Database
    workload: MixedWorkload
    found: dict[tuple[str, str], str] = field(default_factory=dict)
    reached: set[tuple[str, str]] = field(default_factory=set)
    synced_at: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    differences: dict[tuple[str, str], Difference] = field(default_factory=dict)

    def play(self) -> None:
        """All rounds, then the synchronised tables; an error ends the rounds."""
        blamed = ROUNDS[0].pairs
        try:
            self._begin()
            for number, each in enumerate(ROUNDS):
                blamed = each.pairs
                self._play(each, ROUNDS[number + 1] if number + 1 < len(ROUNDS) else None)
                self.reached.update(each.pairs)
            self._finish()
        except Exception as error:
            self._blame(blamed, f"{type(error).__name__}: {error}")
        finally:
            self.family.failpoints.clear()

    def _blame(self, pairs: list[tuple[str, str]], what: str) -> None:
        for pair in pairs:
            self.found[pair] = f"{self.found[pair]}\n{what}" if pair in self.found else what

    # -- the rounds --------------------------------------------------------------------------------

    def _begin(self) -> None:
        connection = self.database.dsn
        for name, schema in zip(BUSY_SUBSCRIPTIONS, BUSY, strict=True):
            self.family.create(name, connection, [f"pub_{schema}"])
        for name in BUSY_SUBSCRIPTIONS:
            self.family.pgsub.wait(name)
        self.family.failpoints.arm(*ROUNDS[0].sync)
        self.family.create(SYNCED_SUBSCRIPTION, connection, [f"pub_{SYNCED}"])
        self.workload.start()

    def _play(self, this: Round, following: Round | None) -> None:
        failpoints, log_tail = self.family.failpoints, self.family.log_tail
        sync_pids = [failpoints.wait_held(place, PATIENCE, log_tail) for place in this.sync]
        for place, pid in zip(this.sync, sync_pids, strict=True):
            table = self.family.table_of(pid)
            if table is not None:
                self.synced_at.setdefault(table, []).append((this.victim, place))
        failpoints.arm(*this.apply)
        apply_pids = [failpoints.wait_held(place, PATIENCE, log_tail) for place in this.apply]
        self._kill(this.victim, apply_pids, sync_pids)
        killed_at = self.database.lsn()
        if following is not None:
            failpoints.arm(*following.sync)
        for place in (*this.apply, *this.sync):
            failpoints.release(place)
        if this.victim == "launcher":
            self.family.start()
        wait_confirmed(self.family, self.database, *BUSY_SUBSCRIPTIONS, lsn=killed_at)
        self._compare(this.pairs)

    def _kill(self, victim: str, apply_pids: list[int], sync_pids: list[int]) -> None:
        """The apply workers are those that are held, and the one whose tables are synchronised."""
        if victim == "apply worker":
            other = wait_until(lambda: self.family.apply_pid(SYNCED_SUBSCRIPTION), 30)
            for pid in {*apply_pids, other}:
                self.family.kill(pid)
        elif victim == "sync worker":
            for pid in sync_pids:
                self.family.kill(pid)
        elif victim == "lake server":
            self.family.kill_lake_server()
        else:
            self.family.kill_launcher()

    def _compare(self, pairs: list[tuple[str, str]]) -> None:
        """Pause the workload, let the busy subscriptions catch up, and look at their rows."""
        self.workload.pause()
        try:
            wait_confirmed(self.family, self.database, *BUSY_SUBSCRIPTIONS)
            for schema in BUSY:
                for table in BUSY_TABLES:
                    self._compare_table(schema, table, pairs)
        finally:
            self.workload.resume()

    def _compare_table(self, schema: str, table: str, pairs: list[tuple[str, str]]) -> None:
        """What was wrong before is not blamed again."""
        published = Counter(native_rows(self.database, f"{schema}.{table}"))
        ours = Counter(self.family.pgsub.rows(schema, table))
        difference = (published - ours, ours - published)
        if any(difference) and difference != self.differences.get((schema, table)):
            lost, extra = (dict(list(rows.items())[:5]) for rows in difference)
            self._blame(
                pairs,
                f"{schema}.{table}: {difference[0].total()} rows lost: {lost}; "
                f"{difference[1].total()} rows too many: {extra}",
            )
        self.differences[schema, table] = difference

    def _finish(self) -> None:
        """Everything catches up as a user would have it, and every table is compared."""
        self.family.failpoints.clear()
        self.workload.end()
        for name in (*BUSY_SUBSCRIPTIONS, SYNCED_SUBSCRIPTION):
            self.family.pgsub.wait(name)
        for number in range(SYNCED_TABLES):
            table = synced_table(number)
            pairs = self.synced_at.get(f"{SYNCED}.{table}", ROUNDS[-1].pairs)
            self._compare_table(SYNCED, table, pairs)

    # -- what is told ------------------------------------------------------------------------------

    def outcome(self, pair: tuple[str, str]) -> str | None:
        """What went wrong at a pair; None if nothing did."""
        if pair in self.found:
            return self.found[pair]
        if pair not in self.reached:
            return "not reached: " + "; ".join(self.found.values())
        return None
