"""Measure ``pgsub`` beside PostgreSQL's own subscriber: ``make bench``.

Both run on one publisher, one after the other: while one is measured the other has no
subscription and no slot. Who is first alternates from case to case.

The copy, the updates and the deletes are measured three times on each side and the median
counts. The copy's clock, which the bar is judged by, starts when the subscription exists;
``create_s`` is how long the command takes that makes it, ``ratio_with_create`` counts it in.
``copy_first`` is the same before anything is warm.

A stream case is a backlog: the walsender is stopped (SIGSTOP) while the publisher writes, and the
clock starts when it goes on. So neither the publisher's own writing nor the start of a worker is
measured. "Visible" means for ours that ``main`` of the table carries the position, confirmed
afterwards by a count in Spark; for the native one that the position is replayed.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import psycopg

from catalog.pg_lsn import LSN
from subscriber.publisher import EmbeddedPublisher
from tests.bench.sides import SCHEMA, SERVER_CONF, Native, Ours, Side
from tests.fix_publisher import Database
from tests.waiting import wait_until

RESULTS = Path(__file__).with_name("results.json")
WIDE = (
    "id bigint PRIMARY KEY, customer int, status text, amount numeric(10,2), placed timestamptz,"
    " flag boolean, note text"
)
ROWS = f"""
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
PICKED = """
CREATE TEMP TABLE picked AS
SELECT DISTINCT 1 + (hashint8(n) & 2147483647) % {total} AS id
  FROM generate_series({first}, {last}) n LIMIT {some}
"""
BARS = {
    "copy_1x2m": ("ratio", 1.3),
    "insert_1tx": ("ratio", 0.7),
    "insert_1000tx": ("ratio", 0.7),
    "update_random": ("ratio", 0.8),
    "freshness_insert": ("ours_s", 2.0),
    "freshness_mixed": ("ours_s", 5.0),
    "apply_rss_3m_1tx": ("ours_mb", 512),
}


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
    """The publisher, both sides, and the cases."""

    def __init__(self, folder: Path, scale: float) -> None:
        self.server = EmbeddedPublisher(18, conf=SERVER_CONF)
        self.server.start()
        self.server.create_database("bench")
        self.publisher = Database(self.server, "bench", SCHEMA)
        self.publisher.run(f"CREATE SCHEMA {SCHEMA}", ROWS)
        self.native = Native(self.publisher)
        self.ours = Ours(self.publisher, folder)
        self.scale = scale
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
        print(_line(self.results[-1]), flush=True)

    # -- cases ---------------------------------------------------------------------------------

    def warm_up(self) -> None:
        """Some of every kind of work, unmeasured, for both sides: no case pays for being first.

        A lake server compiles what it runs often; it reaches its speed after some copies and some
        hundred batches.
        """
        total = self.rows(700_000)
        for side in (self.ours, self.native):
            large, other, small = (f"warm_{side.name}_{number}" for number in range(3))
            tables = {large: WIDE, other: WIDE, small: WIDE}
            self.publisher.run(
                *(f"CREATE TABLE {table} ({WIDE})" for table in tables),
                *(
                    f"INSERT INTO {table} SELECT * FROM made(1, {total})"
                    for table in (large, other)
                ),
                f"CREATE PUBLICATION pub_warm FOR TABLE {', '.join(tables)}",
            )
            for _ in range(2):
                side.subscribe("pub_warm", tables, copy_data=True)
                side.wait_synced(list(tables))
                side.unsubscribe()
            side.subscribe("pub_warm", tables, copy_data=True)
            side.wait_synced(list(tables))
            for turn in range(6):
                first, last = total + turn * 100_000, total + (turn + 1) * 100_000
                for statement in (
                    f"INSERT INTO {large} SELECT * FROM made({first} + 1, {last})",
                    f"UPDATE {large} SET amount = 1 WHERE id % 10 = {turn}",
                    f"DELETE FROM {large} WHERE id % 100 = {turn + 10}",
                ):
                    self.publisher.run(statement)
                    side.wait_visible(large, LSN.parse(self._last_commit(large)))
            self._paced(small, 40 * self.scale, mixed=True)
            side.wait_visible(small, LSN.parse(self._last_commit(small)))
            side.unsubscribe()
            self.publisher.run("DROP PUBLICATION pub_warm", f"DROP TABLE {', '.join(tables)}")
            self.publisher.run("CHECKPOINT")

    def copy(self, case: str, rounds: int) -> None:
        """One table of 2 M rows, from the subscription's existence to all rows visible."""
        total = self.rows(2_000_000)
        self.publisher.run(
            f"CREATE TABLE copied ({WIDE})",
            f"INSERT INTO copied SELECT * FROM made(1, {total})",
            "CREATE PUBLICATION pub_copy FOR TABLE copied",
            "VACUUM (ANALYZE) copied",
            "CHECKPOINT",
        )
        runs: dict[str, list[dict[str, Any]]] = {"ours": [], "native": []}
        for side in [side for _ in range(rounds) for side in self.sides()]:
            os.sync()  # nobody waits for what was written before
            memory = Memory(side)
            memory.start()
            begin = time.monotonic()
            started = side.subscribe("pub_copy", {"copied": WIDE}, copy_data=True)
            side.wait_synced(["copied"])
            taken = time.monotonic() - started
            _must_equal(side.count("copied"), total)
            runs[side.name].append(
                {
                    "s": round(taken, 2),
                    "create_s": round(started - begin, 2),
                    "rss_mb": memory.stop(),
                }
            )
            side.unsubscribe()
        figures = {name: _median(each) for name, each in runs.items()}
        self.record(case, figures, rows=total)
        self.publisher.run("DROP PUBLICATION pub_copy", "DROP TABLE copied")

    def inserts(self, case: str, number: int, transactions: int) -> None:
        """Rows inserted in so many transactions, from the walsender's start to visible."""
        total = self.rows(number)
        step = total // transactions
        figures = {}
        for side, table in self._streams():
            insert = f"INSERT INTO {table} SELECT * FROM made({{}} + 1, {{}})"
            firsts = range(0, step * transactions, step)
            steps = [insert.format(first, first + step) for first in firsts]
            figures[side.name] = self._backlog(side, table, self._run(*steps))
            _must_equal(side.count(table), step * transactions)
        self.record(case, figures, rows=total)

    def changes(self, rounds: int) -> None:
        """3 M rows in one transaction (memory), then 200k random updates, 200k random deletes."""
        total, some = self.rows(3_000_000), self.rows(200_000)
        figures: dict[str, dict[str, dict[str, Any]]] = {"fill": {}, "update": {}, "delete": {}}
        for side, table in self._streams():
            fill = f"INSERT INTO {table} SELECT * FROM made(1, {total})"
            figures["fill"][side.name] = self._backlog(side, table, self._run(fill))
            statements = {
                "update": f"UPDATE {table} t SET amount = 1, note = 'changed' FROM picked p"
                " WHERE t.id = p.id",
                "delete": f"DELETE FROM {table} t USING picked p WHERE t.id = p.id",
            }
            firsts = itertools.count(0, some * 2)
            for what, statement in statements.items():
                runs = []
                for _ in range(rounds):
                    first = next(firsts)
                    pick = PICKED.format(total=total, first=first, last=first + some * 2, some=some)
                    write = self._run(pick, "ANALYZE picked", statement)
                    runs.append(self._backlog(side, table, write))
                figures[what][side.name] = _median(runs)
            _must_equal(side.count(table), self.publisher.value(f"SELECT count(*) FROM {table}"))
        self.record("update_random", figures["update"], rows=some, of=total)
        self.record("delete_random", figures["delete"], rows=some, of=total)
        worker = figures["fill"]["ours"]["rss_mb"].get("apply worker")
        fill_figures = {side: {**values} for side, values in figures["fill"].items()}
        fill_figures["ours"]["mb"] = worker
        self.record("apply_rss_3m_1tx", fill_figures, rows=total)

    def freshness(self, case: str, seconds: float, *, mixed: bool) -> None:
        """Commit on the publisher to readable, 95th percentile, at 100 transactions a second."""
        figures = {}
        for side, table in self._streams():
            memory = Memory(side)
            memory.start()
            written = self._paced(table, seconds, mixed=mixed)
            side.wait_visible(table, written[-1][0])
            delays = self._delays(side, table, written)
            figures[side.name] = {
                "s": round(statistics.quantiles(delays, n=20)[-1], 3),
                "median_s": round(statistics.median(delays), 3),
                "rss_mb": memory.stop(),
            }
            _must_equal(side.count(table), self.publisher.value(f"SELECT count(*) FROM {table}"))
        self.record(case, figures, transactions=len(written))

    # -- parts ---------------------------------------------------------------------------------

    def _streams(self) -> Iterator[tuple[Side, str]]:
        """Each side with a subscription on an empty table of its own, dropped afterwards."""
        for side in self.sides():
            table = f"t{len(self.results)}_{side.name}"
            self.publisher.run(
                f"CREATE TABLE {table} ({WIDE})",
                f"CREATE PUBLICATION pub_{table} FOR TABLE {table}",
            )
            side.subscribe(f"pub_{table}", {table: WIDE}, copy_data=True)
            side.wait_synced([table])
            self.publisher.run(f"INSERT INTO {table} (id) VALUES (0)")
            side.wait_visible(table, LSN.parse(self.publisher.lsn()))
            self.publisher.run(f"DELETE FROM {table}")
            side.wait_visible(table, LSN.parse(self.publisher.lsn()))
            yield side, table
            side.unsubscribe()
            self.publisher.run(f"DROP PUBLICATION pub_{table}", f"DROP TABLE {table}", "CHECKPOINT")

    def _run(self, *statements: str) -> Callable[[], None]:
        return lambda: self.publisher.run(*statements)

    def _backlog(self, side: Side, table: str, write: Callable[[], None]) -> dict[str, Any]:
        """Write while the walsender stands still; seconds from its going on to visible."""
        query = "SELECT pid FROM pg_stat_replication WHERE application_name = %s"
        pid = wait_until(
            lambda: self.publisher.execute(query, (side.application_name(),)), 60, "a walsender"
        )[0][0]
        memory = Memory(side)
        memory.start()
        os.kill(pid, signal.SIGSTOP)
        try:
            write()
            target = LSN.parse(self._last_commit(table))
            os.sync()
        finally:
            started = time.monotonic()
            os.kill(pid, signal.SIGCONT)
        side.wait_visible(table, target)
        return {"s": round(time.monotonic() - started, 2), "rss_mb": memory.stop()}

    def _last_commit(self, table: str) -> str:
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

    def _paced(self, table: str, seconds: float, *, mixed: bool) -> list[tuple[LSN, datetime]]:
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

    def _delays(self, side: Side, table: str, written: list[tuple[LSN, datetime]]) -> list[float]:
        """Seconds from each commit to the moment a query of it would have answered."""
        moves, alone = side.publications_of(table), side.query_alone(table)
        # What is seen then ends with a commit, and each position was noted inside its
        # transaction: that shows from the first move on that lies behind it.
        arrivals = [
            next(moment for moment, shown in moves if shown > position) for position, _ in written
        ]
        pairs = zip(arrivals, written, strict=True)
        return [(there - here).total_seconds() + alone for there, (_, here) in pairs]


def _median(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """The middle one of an odd number of runs, and what all of them took."""
    middle = sorted(runs, key=lambda run: run["s"])[len(runs) // 2]
    return {**middle, "runs_s": [run["s"] for run in runs]}


def _must_equal(found: int, expected: int) -> None:
    if found != expected:
        raise SystemExit(f"the subscriber holds {found} rows, the publisher {expected}")


def _line(entry: dict[str, Any]) -> str:
    def figure(name: str) -> str:
        value = entry.get(name)
        return f"{value:>9}" if value is not None else " " * 9

    name, bar = BARS.get(entry["case"], ("", 0))
    verdict = ""
    if name and entry.get(name) is not None:
        met = entry[name] >= bar if name == "ratio" else entry[name] <= bar
        sign = "≥" if name == "ratio" else "≤"
        verdict = f"{name} {sign} {bar}: {'yes' if met else 'NO'}"
    if "ratio_with_create" in entry:
        verdict += f" (with CREATE {entry['ratio_with_create']})"
    columns = "".join(figure(column) for column in ("ours_s", "native_s", "ratio", "ours_mb"))
    return f"{entry['case']:<20}{columns}  {verdict}"


def main() -> int:
    """Run the cases, print the table, write ``results.json``."""
    parser = argparse.ArgumentParser(description="measure pgsub beside PostgreSQL's own subscriber")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--only", default="", help="run only cases whose name holds this")
    parser.add_argument("--no-write", action="store_true", help="leave results.json alone")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="pgsub-bench-") as folder:
        bench = Bench(Path(folder), options.scale)
        try:
            print(f"native: {bench.native.configuration()}\nours: default settings", flush=True)
            header = ("case", "ours_s", "native_s", "ratio", "ours_mb")
            print(f"{header[0]:<20}" + "".join(f"{word:>9}" for word in header[1:]), flush=True)
            cases: dict[str, Callable[[], None]] = {
                "copy_1x2m": lambda: bench.copy("copy_1x2m", 3),
                "insert_1tx": lambda: bench.inserts("insert_1tx", 1_000_000, 1),
                "insert_1000tx": lambda: bench.inserts("insert_1000tx", 1_000_000, 1000),
                "update_random delete_random apply_rss_3m_1tx": lambda: bench.changes(3),
                "freshness_insert": lambda: bench.freshness("freshness_insert", 20, mixed=False),
                "freshness_mixed": lambda: bench.freshness("freshness_mixed", 30, mixed=True),
            }
            if options.only in "copy_first":
                bench.copy("copy_first", 1)
            bench.warm_up()
            for names, case in cases.items():
                if options.only in names:
                    case()
        finally:
            bench.close()
    if not options.no_write:
        RESULTS.write_text(json.dumps(bench.results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
