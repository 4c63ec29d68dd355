"""What every case of the benchmark needs: the publisher, both sides, and clocks."""

from __future__ import annotations

import contextlib
import itertools
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, Final

import psutil

from catalog.pg_lsn import LSN
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.bench.figures import Run, arrivals, entry_of
from tests.bench.load import Change, Written, paced
from tests.bench.local_lake import SCHEMA
from tests.bench.meters import MB, Peaks, high_water, proportional_mb
from tests.bench.sides import LAKE_SERVER, PUBLISHER_CONF, PYTHON, Native, Ours, Side
from tests.fix_publisher import Database
from tests.waiting import wait_until

WIDE: Final = (
    "id bigint PRIMARY KEY, customer int, status text, amount numeric(10,2), placed timestamptz,"
    " flag boolean, note text"
)
"""The table that most cases have: seven columns."""

COLUMNS: Final = "id, customer, status, amount, placed, flag, note"

MADE: Final = "made"
"""The function on the publisher that makes rows."""

PART: Final = 5.0
"""Seconds between two looks at when something was seen; a hundred snapshots take longer."""

_OURS: Final = (*PYTHON, LAKE_SERVER)
_TOGETHER: Final = {"python_mb": PYTHON, "all_mb": _OURS}
"""Sums over our processes, by figure."""

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


class Memory(Peaks):
    """The largest RSS seen of each process of a side, by what it is, in MB.

    In every fourth look also what all our Python processes have together, without and with the
    lake server, where a page that some of them share counts once: a worker is forked and has most
    of its pages in common with the others. The kernel walks their page tables for that, some 10 ms
    for each.
    """

    def __init__(self, side: Side) -> None:
        self._looks = itertools.count()
        super().__init__(partial(self._sizes, side))
        self.start()

    def _sizes(self, side: Side) -> dict[str, float]:
        seen = rss_mb(side, highest=True)
        if next(self._looks) % 4 == 0:
            seen |= together_mb(side)
        return seen

    def figures(self) -> Run:
        """End; ``rss_mb`` by what a process is, ``python_mb`` the most of all our Python at once,
        ``all_mb`` the most with the lake server."""
        sizes = dict(self.stop())
        sums = {figure: sizes.pop(figure, 0.0) for figure in _TOGETHER}
        return {"rss_mb": sizes} | {figure: size for figure, size in sums.items() if size}


def together_mb(side: Side) -> dict[str, float]:
    """What several of our processes have at once, by figure; nothing of the native side's."""
    sizes = [(role, proportional_mb(pid)) for pid, role in side.pids().items() if role in _OURS]
    sums = {
        figure: sum(size for role, size in sizes if role in roles)
        for figure, roles in _TOGETHER.items()
    }
    return sums if sizes else {}


def rss_mb(side: Side, *, highest: bool = False) -> dict[str, float]:
    """The largest process of each kind now; with ``highest`` of workers the most they ever had,
    between two looks as well: they live for one case."""
    seen: dict[str, float] = {}
    for pid, role in side.pids().items():
        rss = psutil.Process(pid).memory_info().rss / MB
        if highest and role.endswith("worker"):
            rss = max(rss, high_water(pid))
        seen[role] = max(seen.get(role, 0.0), rss)
    return seen


class Bench:
    """The publisher and both sides; ``tell`` gets each result as it comes."""

    def __init__(
        self,
        folder: Path,
        scale: float,
        tell: Callable[[dict[str, Any]], None],
        ours: Callable[[Database, Path], Ours] = Ours,
    ) -> None:
        self.server = EmbeddedPublisher(18, conf=PUBLISHER_CONF)
        self.server.start()
        self.server.create_database("bench")
        self.publisher = Database(self.server, "bench", SCHEMA)
        self.publisher.run(f"CREATE SCHEMA {SCHEMA}", ROWS)
        self.folder = folder
        self.native = Native(self.publisher)
        self.ours = ours(self.publisher, folder)
        self.scale = scale
        self.tell = tell
        self.native_share = 1.0  # of the seconds of a steady load
        self.native_rounds: int | None = None  # at most
        self.results: list[dict[str, Any]] = []
        self._cases = 0

    def close(self) -> None:
        """Stop everything."""
        self.ours.close()
        self.native.close()
        self.server.stop()

    def version(self) -> str:
        """Of PostgreSQL, on the publisher and on the native subscriber."""
        return str(self.publisher.value("SHOW server_version"))

    def rows(self, number: int) -> int:
        """A number of rows at the chosen scale."""
        return max(1, int(number * self.scale))

    def seconds(self, number: float) -> float:
        """A time at the chosen scale; less than ten seconds would show nothing."""
        return max(10.0, number * self.scale)

    def lasting(self, side: Side, seconds: float) -> float:
        """For how long a side gets a steady load; native's is shorter where only ours has a bar."""
        return seconds * (self.native_share if side is self.native else 1.0)

    def rounds_of(self, side: Side, rounds: int) -> int:
        """How often a side is measured."""
        native = self.native_rounds or rounds
        return min(rounds, native) if side is self.native else rounds

    def sides(self) -> Iterator[Side]:
        """Both, the first one alternating from case to case."""
        pair: list[Side] = [self.ours, self.native]
        self._cases += 1
        yield from pair if self._cases % 2 else reversed(pair)

    def record(self, case: str, figures: dict[str, Run], **more: Any) -> None:
        """One case's object; figures are by side."""
        self.results.append(entry_of(case, figures, **more))
        self.tell(self.results[-1])

    def streams(
        self, definition: str = WIDE, *, rows: int = 0, made: str = MADE
    ) -> Iterator[tuple[Side, str]]:
        """``stream`` of each side."""
        for side in self.sides():
            with self.stream(side, definition, rows=rows, made=made) as table:
                yield side, table

    @contextlib.contextmanager
    def stream(
        self,
        side: Side,
        definition: str = WIDE,
        *,
        rows: int = 0,
        made: str = MADE,
        **options: str | bool,
    ) -> Iterator[str]:
        """A subscription of a side on a table of its own, dropped afterwards.

        All columns but ``id`` and the key may be NULL or have a default. The table is empty, or has
        so many rows that were copied, as the function ``made`` makes them. ``options`` are the
        subscription's.
        """
        table = f"t{len(self.results)}_{side.name}"
        self.publisher.run(
            f"CREATE TABLE {table} ({definition})",
            f"CREATE PUBLICATION pub_{table} FOR TABLE {table}",
        )
        if rows:
            fill = f"INSERT INTO {table} ({COLUMNS}) SELECT * FROM {made}(1, {rows})"
            self.publisher.run(fill, f"VACUUM (ANALYZE) {table}", "CHECKPOINT")
        side.with_options = options
        side.subscribe(f"pub_{table}", {table: definition}, copy_data=True)
        side.wait_synced([table])
        for statement in (
            f"INSERT INTO {table} (id) VALUES (0)",
            f"DELETE FROM {table} WHERE id = 0",
        ):
            side.wait_visible(table, self.transaction(statement))
        yield table
        side.unsubscribe()
        self.publisher.run(f"DROP PUBLICATION pub_{table}", f"DROP TABLE {table}", "CHECKPOINT")

    def transaction(self, *statements: str) -> LSN:
        """``transaction`` on the publisher."""
        return transaction(self.publisher, *statements)

    def writing(self, *statements: str) -> Callable[[], None]:
        """A backlog's statements; ``last_commit``, which waits for the disk, is after them all."""
        return lambda: self.publisher.run("SET synchronous_commit = off", *statements)

    def backlog(self, side: Side, table: str, write: Callable[[], None]) -> Run:
        """Write while the walsender stands still; seconds from its going on to visible.

        ``cpu_s`` is what all processes of the side took in that time.
        """
        memory = Memory(side)
        with self.held(side):
            write()
            target = self.last_commit(table)
            os.sync()
            cpu = side.cpu_seconds()
        started = time.monotonic()
        side.wait_visible(table, target)
        return {
            "s": max(0.01, round(time.monotonic() - started, 2)),
            "cpu_s": round(side.cpu_seconds() - cpu, 2),
            **memory.figures(),
        }

    def since_commit(self, side: Side, table: str, inside: LSN) -> Run:
        """Seconds from now, just after a COMMIT, to visible; CPU time of the side meanwhile."""
        committed, cpu = time.monotonic(), side.cpu_seconds()
        side.wait_visible(table, inside)
        return {
            "s": max(0.01, round(time.monotonic() - committed, 2)),
            "cpu_s": round(side.cpu_seconds() - cpu, 2),
        }

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

    def last_commit(self, table: str) -> LSN:
        """A position at or before the end of the last commit, and after its start.

        One more small change of the table ends the backlog: its own position, taken before it
        commits, is one that every commit before lies below.
        """
        return self.transaction(
            f"INSERT INTO {table} (id) VALUES (-1)", f"DELETE FROM {table} WHERE id = -1"
        )

    def paced(
        self, seconds: float, rate: float, change: Change, seen: Seen | None = None
    ) -> Written:
        """Small transactions at a steady rate; ``seen`` looks all the while."""
        written: Written = []
        parts = max(1, round(seconds / PART))
        for _ in range(parts):
            written += self.load(seconds / parts, rate, change)
            if seen is not None:
                seen.look()
        return written

    def load(self, seconds: float, rate: float, change: Change) -> Written:
        """A part of it, with nobody looking."""
        return paced(self.publisher, seconds, rate, change)


class Seen:
    """When readers of tables saw more than before, as long as somebody looks now and then: what a
    lake table tells of it goes with its old snapshots."""

    def __init__(self, side: Side, tables: Sequence[str]) -> None:
        self.query_s = 0.0  # of a query alone, which ``delays`` includes
        self._side = side
        self._moves: dict[str, set[tuple[datetime, LSN]]] = {table: set() for table in tables}

    def look(self) -> None:
        """Keep what is to be seen of each table."""
        for table, moves in self._moves.items():
            moves.update(self._side.publications_of(table))

    def delays(self, written: Written) -> list[float]:
        """Seconds from each commit to the moment a query of each table would have answered."""
        self.look()
        positions = [position for position, _ in written]
        seen = [arrivals(sorted(moves), positions) for moves in self._moves.values()]
        everywhere = [max(moments) for moments in zip(*seen, strict=True)]
        self.query_s = self._side.query_alone(next(iter(self._moves)))
        pairs = zip(everywhere, written, strict=True)
        return [(there - here).total_seconds() + self.query_s for there, (_, here) in pairs]


def must_equal(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"the subscriber holds {found} rows, the publisher {expected}")


def transaction(publisher: Database, *statements: str) -> LSN:
    """Run statements in one transaction; a position inside the transaction, after their changes.

    The position is at or before the end of the commit, and after every commit before it.
    """
    with publisher.connect() as connection, connection.transaction():
        for statement in statements:
            connection.execute(statement.encode())
        row = connection.execute("SELECT pg_current_wal_insert_lsn()").fetchone()
        assert row is not None
        return LSN.parse(row[0])
