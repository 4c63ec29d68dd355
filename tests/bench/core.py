"""What every case of the benchmark needs: the publisher, both sides, and clocks."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import psutil
import psycopg

from catalog.pg_lsn import LSN
from subscriber.publisher import EmbeddedPublisher
from tests.bench.sides import SCHEMA, SERVER_CONF, Native, Ours, Side
from tests.fix_publisher import Database
from tests.waiting import wait_until

WIDE: Final = (
    "id bigint PRIMARY KEY, customer int, status text, amount numeric(10,2), placed timestamptz,"
    " flag boolean, note text"
)
"""The table that most cases have: seven columns."""

ROWS: Final = f"""
CREATE FUNCTION {SCHEMA}.made(first bigint, last bigint)
RETURNS TABLE (id bigint, customer int, status text, amount numeric(10,2), placed timestamptz,
               flag boolean, note text)
LANGUAGE sql IMMUTABLE AS $$
SELECT n, (n % 1000)::int, 'status ' || n % 7, n % 100000 + 0.25,
       timestamptz '2024-01-01 00:00:00+00' + n * interval '1 second', n % 2 = 0,
       'note ' || md5(n::text)
  FROM generate_series(first, last) n
$$
"""


class Memory(threading.Thread):
    """The largest RSS seen of each process of a side, by what it is, in MB."""

    def __init__(self, side: Side) -> None:
        super().__init__(daemon=True)
        self.side = side
        self.peak: dict[str, float] = {}
        self._ending = threading.Event()

    def run(self) -> None:
        while not self._ending.wait(0.25):
            with contextlib.suppress(psutil.Error, psycopg.Error):
                for pid, role in self.side.pids().items():
                    rss = psutil.Process(pid).memory_info().rss / 2**20
                    self.peak[role] = max(self.peak.get(role, 0.0), round(rss, 1))

    def stop(self) -> dict[str, float]:
        """End, and say what was seen."""
        self._ending.set()
        self.join()
        return self.peak


class Bench:
    """The publisher and both sides; ``tell`` gets each result as it comes."""

    def __init__(self, folder: Path, scale: float, tell: Callable[[dict[str, Any]], None]) -> None:
        self.server = EmbeddedPublisher(18, conf=SERVER_CONF)
        self.server.start()
        self.server.create_database("bench")
        self.publisher = Database(self.server, "bench", SCHEMA)
        self.publisher.run(f"CREATE SCHEMA {SCHEMA}", ROWS)
        self.native = Native(self.publisher)
        self.ours = Ours(self.publisher, folder)
        self.scale = scale
        self.tell = tell
        self.results: list[dict[str, Any]] = []
        self._cases = 0

    def close(self) -> None:
        """Stop everything."""
        self.ours.close()
        self.native.close()
        self.server.stop()

    def rows(self, number: int) -> int:
        """A number of rows at the chosen scale."""
        return max(1, int(number * self.scale))

    def sides(self) -> Iterator[Side]:
        """Both, the first one alternating from case to case."""
        pair: list[Side] = [self.ours, self.native]
        self._cases += 1
        yield from pair if self._cases % 2 else reversed(pair)

    def record(self, case: str, figures: dict[str, dict[str, Any]], **more: Any) -> None:
        """One case's object; figures are by side."""
        entry: dict[str, Any] = {"case": case}
        for side, values in figures.items():
            entry |= {f"{side}_{name}": value for name, value in values.items()}
        if entry.get("ours_s") and entry.get("native_s"):
            entry["ratio"] = round(entry["native_s"] / entry["ours_s"], 3)
        if "ours_create_s" in entry:
            ours = entry["ours_s"] + entry["ours_create_s"]
            native = entry["native_s"] + entry["native_create_s"]
            entry["ratio_with_create"] = round(native / ours, 2)
        self.results.append({**entry, **more})
        self.tell(self.results[-1])

    def streams(self, definition: str = WIDE) -> Iterator[tuple[Side, str]]:
        """Each side with a subscription on an empty table of its own, dropped afterwards.

        All columns but ``id``, the key, may be NULL.
        """
        for side in self.sides():
            table = f"t{len(self.results)}_{side.name}"
            self.publisher.run(
                f"CREATE TABLE {table} ({definition})",
                f"CREATE PUBLICATION pub_{table} FOR TABLE {table}",
            )
            side.subscribe(f"pub_{table}", {table: definition}, copy_data=True)
            side.wait_synced([table])
            self.publisher.run(f"INSERT INTO {table} (id) VALUES (0)")
            side.wait_visible(table, LSN.parse(self.publisher.lsn()))
            self.publisher.run(f"DELETE FROM {table}")
            side.wait_visible(table, LSN.parse(self.publisher.lsn()))
            yield side, table
            side.unsubscribe()
            self.publisher.run(f"DROP PUBLICATION pub_{table}", f"DROP TABLE {table}", "CHECKPOINT")

    def writing(self, *statements: str) -> Callable[[], None]:
        return lambda: self.publisher.run(*statements)

    def backlog(self, side: Side, table: str, write: Callable[[], None]) -> dict[str, Any]:
        """Write while the walsender stands still; seconds from its going on to visible."""
        memory = Memory(side)
        memory.start()
        with self.held(side):
            write()
            target = LSN.parse(self.last_commit(table))
            os.sync()
        started = time.monotonic()
        side.wait_visible(table, target)
        return {"s": round(time.monotonic() - started, 2), "rss_mb": memory.stop()}

    @contextlib.contextmanager
    def held(self, side: Side) -> Iterator[None]:
        """The walsender that serves a side stands still."""
        query = "SELECT pid FROM pg_stat_replication WHERE application_name = %s"
        pid = wait_until(
            lambda: self.publisher.execute(query, (side.application_name(),)), 60, "a walsender"
        )[0][0]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def last_commit(self, table: str) -> str:
        """A position at or before the end of the last commit, and after its start.

        One more small change of the table ends the backlog: its own position, taken before it
        commits, is one that every commit before lies below.
        """
        with self.publisher.connect() as connection, connection.transaction():
            connection.execute(f"INSERT INTO {table} (id) VALUES (-1)".encode())
            connection.execute(f"DELETE FROM {table} WHERE id = -1".encode())
            row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
            assert row is not None
            return str(row[0])

    def paced(self, table: str, seconds: float, *, mixed: bool) -> list[tuple[LSN, datetime]]:
        """Small transactions at 100 a second: a position inside each, and its commit time."""
        written: list[tuple[str, str]] = []
        chance = random.Random(7)
        live: list[int] = []
        with self.publisher.connect() as connection:
            start = time.monotonic()
            for number in range(1, int(seconds * 100) + 1):
                time.sleep(max(0.0, start + number / 100 - time.monotonic()))
                with connection.transaction():
                    dice = chance.random() if mixed and len(live) > 100 else 0.0
                    if dice < 0.5:
                        text = f"INSERT INTO {table} SELECT * FROM made(%s, %s)"
                        connection.execute(text.encode(), (number, number))
                        live.append(number)
                    elif dice < 0.85:
                        text = f"UPDATE {table} SET amount = amount + 1 WHERE id = %s"
                        connection.execute(text.encode(), (chance.choice(live),))
                    else:
                        victim = live.pop(chance.randrange(len(live)))
                        connection.execute(f"DELETE FROM {table} WHERE id = %s".encode(), (victim,))
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

    def delays(self, side: Side, table: str, written: list[tuple[LSN, datetime]]) -> list[float]:
        """Seconds from each commit to the moment a query of it would have answered."""
        moves, alone = side.publications_of(table), side.query_alone(table)
        # What is seen then ends with a commit, and each position was noted inside its
        # transaction: that shows from the first move on that lies behind it.
        arrivals = [
            next(moment for moment, shown in moves if shown > position) for position, _ in written
        ]
        pairs = zip(arrivals, written, strict=True)
        return [(there - here).total_seconds() + alone for there, (_, here) in pairs]


def median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The middle one of an odd number of runs, and what all of them took."""
    middle = sorted(runs, key=lambda run: run["s"])[len(runs) // 2]
    return {**middle, "runs_s": [run["s"] for run in runs]}


def must_equal(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"the subscriber holds {found} rows, the publisher {expected}")
