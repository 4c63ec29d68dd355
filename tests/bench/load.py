"""Small transactions at a steady rate: what each does, and when it was committed."""

from __future__ import annotations

import random
import time
from array import array
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import psycopg

from catalog.pg_lsn import LSN
from tests.fix_publisher import Database

Change = Callable[[psycopg.Connection], None]
"""What one transaction does."""

Written = list[tuple[LSN, datetime]]
"""A position inside each transaction, and its commit time."""


class SmallChanges:
    """One change of one row of a table per call.

    ``inserts`` and ``updates`` are their shares, the rest are deletes. ``rows`` are there before,
    numbered from 1. While there are less than a hundred, rows are only inserted. The publisher's
    function ``made`` makes rows.
    """

    def __init__(
        self,
        table: str,
        *,
        rows: int = 0,
        inserts: float = 0.5,
        updates: float = 0.35,
        made: str = "made",
    ) -> None:
        self._insert = f"INSERT INTO {table} SELECT * FROM {made}(%s, %s)".encode()
        self._update = f"UPDATE {table} SET amount = amount + 1 WHERE id = %s".encode()
        self._delete = f"DELETE FROM {table} WHERE id = %s".encode()
        self._inserts, self._updates = inserts, inserts + updates
        self._live = array("q", range(1, rows + 1))
        self._next = rows + 1
        self._chance = random.Random(7)

    def __call__(self, connection: psycopg.Connection) -> None:
        dice = self._chance.random() if len(self._live) > 100 else 0.0
        if dice < self._inserts:
            connection.execute(self._insert, (self._next, self._next))
            self._live.append(self._next)
            self._next += 1
        elif dice < self._updates:
            connection.execute(self._update, (self._chance.choice(self._live),))
        else:
            place = self._chance.randrange(len(self._live))
            connection.execute(self._delete, (self._live[place],))
            self._live[place] = self._live[-1]
            self._live.pop()


class Everywhere:
    """One change of each of some tables per call, all of the same row's number.

    Inserts, or updates of one of ``rows`` rows that are there.
    """

    def __init__(self, tables: Sequence[str], *, rows: int, updates: bool) -> None:
        self._tables = tables
        self._rows = rows
        self._updates = updates
        self._next = rows + 1
        self._chance = random.Random(7)

    def __call__(self, connection: psycopg.Connection) -> None:
        connection.execute("; ".join(self.statements()).encode())

    def statements(self) -> list[str]:
        """Of the next transaction."""
        if self._updates:
            victim = self._chance.randint(1, self._rows)
            change = f"UPDATE {{}} SET amount = amount + 1 WHERE id = {victim}"
        else:
            change = f"INSERT INTO {{}} SELECT * FROM made({self._next}, {self._next})"
            self._next += 1
        return [change.format(table) for table in self._tables]


def paced(publisher: Database, seconds: float, rate: float, change: Change) -> Written:
    """So many transactions a second for so long; late ones follow without a pause."""
    written: list[tuple[str, str]] = []
    with publisher.connect() as connection:
        start = time.monotonic()
        for number in range(1, int(seconds * rate) + 1):
            time.sleep(max(0.0, start + number / rate - time.monotonic()))
            with connection.transaction():
                change(connection)
                noted = connection.execute(
                    "SELECT pg_current_wal_insert_lsn()::text, pg_current_xact_id()::text"
                ).fetchone()
                assert noted is not None
            written.append(noted)
        times = connection.execute(
            "SELECT pg_xact_commit_timestamp(xid::xid)"
            " FROM unnest(%s::text[]) WITH ORDINALITY AS noted (xid, n) ORDER BY n",
            ([xid for _, xid in written],),
        ).fetchall()
    committed = [moment.astimezone(UTC) for (moment,) in times]
    positions = [LSN.parse(position) for position, _ in written]
    return list(zip(positions, committed, strict=True))


def rate_of(written: Written) -> float:
    """Transactions a second as they were committed."""
    return round((len(written) - 1) / (written[-1][1] - written[0][1]).total_seconds(), 1)
