"""What ``make bench-long`` measures: large, long and wide; each records one or more results."""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Final

from catalog.pg_lsn import LSN
from tests.bench.cases import PICKED
from tests.bench.core import COLUMNS, WIDE, Bench, Memory, Seen, must_equal, rss_mb
from tests.bench.figures import Run, arrivals, lag_growth, p95, thinned
from tests.bench.load import Change, Everywhere, SmallChanges, Written, rate_of
from tests.bench.meters import MB, Peaks, high_water
from tests.bench.sides import Side

BATCH: Final = 1_000
"""Rows of an update whose cost must not grow with the table."""
POINTS: Final = 60
"""Of what is plotted."""
KINDS: Final = ("clustered", "random")

Marks = dict[str, list[tuple[datetime, LSN]]]
"""By kind of batch: when each was committed, and a position inside it."""


def transaction(bench: Bench) -> None:
    """10 M rows in one transaction: the apply worker's memory, and what lies on disk meanwhile.

    ``mb`` is the apply worker's largest RSS, ``spool_mb`` what the subscriber keeps of received
    changes, ``spill_mb`` what the walsender wrote because it did not fit its memory.
    """
    total = bench.rows(10_000_000)
    figures: dict[str, Run] = {}
    for side, table in bench.streams():
        fill = f"INSERT INTO {table} SELECT * FROM made(1, {total})"
        watch = Peaks(partial(_seen, side))
        watch.start()
        run = bench.backlog(side, table, bench.writing(fill))
        watch.stop()
        must_equal(side.count(table), total)
        points = [(at, seen["worker_mb"], seen["spool_mb"]) for at, seen in watch.series]
        largest = max([watch.peak.pop("worker_mb"), *map(high_water, apply_workers(side))])
        figures[side.name] = {
            **run,
            "mb": round(largest, 1),
            **watch.peak,
            "spill_mb": spilled(bench, side),
            "series": thinned(points, POINTS),
        }
    series_of = ["at_s", "worker_mb", "spool_mb"]
    bench.record("transaction_10m", figures, rows=total, series_of=series_of)


def any_size(bench: Bench) -> None:
    """20 M inserts, then an update of all these rows, each in one transaction.

    ``mb`` is the apply worker's largest RSS: a transaction of any size takes bounded memory.
    """
    total = bench.rows(20_000_000)
    figures: dict[str, dict[str, Run]] = {"insert_20m": {}, "update_20m": {}}
    for side, table in bench.streams():
        statements = {
            "insert_20m": f"INSERT INTO {table} SELECT * FROM made(1, {total})",
            "update_20m": f"UPDATE {table} SET customer = -1, flag = NOT flag",
        }
        for case, statement in statements.items():
            run = bench.backlog(side, table, bench.writing(statement))
            memory = max(map(high_water, apply_workers(side)), default=0)
            figures[case][side.name] = {**run, "mb": memory}
            must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
        expected = bench.publisher.value(f"SELECT sum(customer) FROM {table}")
        must_equal(side.sum(table, "customer"), expected)
    for case, each in figures.items():
        bench.record(case, each, rows=total)


def apply_workers(side: Side) -> list[int]:
    return [pid for pid, role in side.pids().items() if "apply worker" in role]


def _seen(side: Side) -> dict[str, float]:
    """The apply worker's RSS, and what lies on the side's disk."""
    rss = (size for role, size in rss_mb(side).items() if "apply worker" in role)
    return {"worker_mb": max(rss, default=0.0), **side.on_disk()}


def spilled(bench: Bench, side: Side) -> float:
    """What the side's walsender wrote of transactions that did not fit its memory, in MB."""
    query = "SELECT spill_bytes FROM pg_stat_replication_slots WHERE slot_name = %s"
    spilled = int(bench.publisher.value(query, (side.application_name(),)))
    return round(spilled / MB, 1)


def growth(bench: Bench, rounds: int) -> None:
    """What an update of 1,000 rows costs in 1 M rows and in 30 M, from commit to visible.

    ``clustered`` rows are neighbours, ``random`` ones are anywhere in the table. It grows by
    transactions of as many rows as were copied at first.
    """
    first, last = bench.rows(1_000_000), bench.rows(30_000_000)
    figures: dict[str, dict[str, Run]] = {kind: {} for kind in KINDS}
    for side, table in bench.streams(rows=first):
        memory = Memory(side)
        before = _update_batches(bench, side, table, first, rounds)
        behind = LSN(0)
        for start in range(first, last, first):
            insert = f"INSERT INTO {table} SELECT * FROM made({start} + 1, {start + first})"
            written = bench.transaction(insert)
            side.wait_visible(table, behind)  # it may be one transaction behind, not thirty
            behind = written
        side.wait_visible(table, behind)
        bench.publisher.run(f"VACUUM (ANALYZE) {table}", "CHECKPOINT")
        after = _update_batches(bench, side, table, last, rounds)
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
        moves, most = side.publications_of(table), memory.figures()
        for kind in KINDS:
            small, large = (_seconds(moves, marks[kind]) for marks in (before, after))
            figures[kind][side.name] = {
                "s": round(statistics.median(large), 3),
                "before_s": round(statistics.median(small), 3),
                "growth": round(statistics.median(large) / statistics.median(small), 3),
                "runs_s": large,
                "before_runs_s": small,
                **most,
            }
    for kind in KINDS:
        bench.record(f"growth_{kind}", figures[kind], batch=BATCH, of=last)


def _update_batches(bench: Bench, side: Side, table: str, total: int, rounds: int) -> Marks:
    """Update batches of both kinds in turns, each alone; the first of each is not counted."""
    marks: Marks = {kind: [] for kind in KINDS}
    for turn in range(rounds + 1):
        first = total * turn // (rounds + 1)
        pick = PICKED.format(
            total=total, first=total + turn * 2 * BATCH, last=total + (turn + 1) * 2 * BATCH,
            some=BATCH,
        )  # fmt: skip
        change = f"UPDATE {table} t SET amount = amount + 1"
        statements = {
            "clustered": [f"{change} WHERE id > {first} AND id <= {first + BATCH}"],
            "random": [pick, "ANALYZE picked", f"{change} FROM picked p WHERE t.id = p.id"],
        }
        for kind in KINDS:
            position = bench.transaction(*statements[kind])
            marks[kind].append((datetime.now(UTC), position))
            side.wait_visible(table, position)
    return {kind: found[1:] for kind, found in marks.items()}


def _seconds(moves: list[tuple[datetime, LSN]], marks: list[tuple[datetime, LSN]]) -> list[float]:
    seen = arrivals(moves, [position for _, position in marks])
    pairs = zip(seen, marks, strict=True)
    return [max(1e-3, round((there - here).total_seconds(), 3)) for there, (here, _) in pairs]


def reader(bench: Bench, seconds: float, rounds: int) -> None:
    """Small mixed changes of 3 M rows for long, then full scans of the table and of a fresh copy.

    Ours alone: native's half hour would say nothing of either. The two are read in turns when the
    subscriber has caught up; ``behind_s`` is how long that took. ``lag_s`` is what a commit waited
    for at the 95th percentile, ``worst_lag_s`` the longest; files were rewritten meanwhile, and
    snapshots expired.
    """
    total, side = bench.rows(3_000_000), bench.ours
    with bench.stream(side, rows=total) as table:
        memory = Memory(side)
        change = SmallChanges(table, rows=total)
        seen = Seen(side, [table])
        written = bench.paced(bench.seconds(seconds), 100, change, seen)
        ended = time.monotonic()
        side.wait_visible(table, written[-1][0])
        behind = time.monotonic() - ended
        lags = seen.delays(written)
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
        files = side.files(table)
        fresh = side.rewritten(table)
        pairs = [(side.scan(table, COLUMNS), side.scan(fresh, COLUMNS)) for _ in range(rounds + 1)]
        for (_, here), (_, there) in pairs:
            must_be_same(here, there)
        side.drop(fresh)
        stream, copy = (
            [round(pair[number][0], 3) for pair in pairs[1:]] for number in range(2)
        )  # the first of each is not counted
        figures: Run = {
            "s": statistics.median(stream),
            "fresh_s": statistics.median(copy),
            "scan_ratio": round(statistics.median(stream) / statistics.median(copy), 3),
            "runs_s": stream,
            "fresh_runs_s": copy,
            "behind_s": round(behind, 2),
            "lag_s": round(p95(lags), 3),
            "worst_lag_s": round(max(lags), 3),
            **files,
            **memory.figures(),
        }
    per_second = rate_of(written)
    bench.record("reader_scan", {"ours": figures}, transactions=len(written), per_second=per_second)


def must_be_same(here: int, there: int) -> None:
    if here != there:
        raise SystemExit("the table and its copy do not hold the same rows")


def many_tables(
    bench: Bench, kinds: Mapping[str, bool], seconds: float, *, settling: float = 20
) -> None:
    """40 tables touched by each of 20 transactions a second: how fresh, and does the lag grow.

    A transaction is visible when all its tables are. ``kinds`` has the cases, and which of them
    updates; several follow each other on the same tables.
    """
    tables = {f"many_{number:02}": WIDE for number in range(40)}
    names, rows = ", ".join(tables), bench.rows(10_000)
    figures: dict[str, dict[str, Run]] = {case: {} for case in kinds}
    for side in bench.sides():
        bench.publisher.run(
            *(f"CREATE TABLE {table} ({WIDE})" for table in tables),
            *(f"INSERT INTO {table} SELECT * FROM made(1, {rows})" for table in tables),
            f"CREATE PUBLICATION pub_many FOR TABLE {names}",
            f"VACUUM (ANALYZE) {names}",
            "CHECKPOINT",
        )
        side.subscribe("pub_many", tables, copy_data=True)
        side.wait_synced(list(tables))
        for case, updates in kinds.items():
            change = Everywhere(list(tables), rows=rows, updates=updates)
            figures[case][side.name] = _everywhere(
                bench, side, list(tables), change, bench.lasting(side, seconds), settling
            )
        for table in tables:
            must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
        side.unsubscribe()
        bench.publisher.run("DROP PUBLICATION pub_many", f"DROP TABLE {names}", "CHECKPOINT")
    for case, each in figures.items():
        bench.record(case, each, seconds=seconds, series_of=["at_s", "delay_s"])


def _everywhere(
    bench: Bench, side: Side, tables: list[str], change: Change, seconds: float, settling: float
) -> Run:
    settled = bench.paced(bench.seconds(bench.lasting(side, settling)), 20, change)
    _until_visible(side, tables, settled)
    memory = Memory(side)
    seen = Seen(side, tables)
    written = bench.paced(bench.seconds(seconds), 20, change, seen)
    _until_visible(side, tables, written)
    sizes = memory.figures()
    waits = seen.delays(written)
    begun = written[0][1]
    points = [
        ((at - begun).total_seconds(), delay) for (_, at), delay in zip(written, waits, strict=True)
    ]
    return {
        "s": round(p95(waits), 3),
        "median_s": round(statistics.median(waits), 3),
        "lag_growth": round(lag_growth(waits), 3),
        "per_second": rate_of(written),
        "series": thinned(points, POINTS),
        **sizes,
    }


def _until_visible(side: Side, tables: list[str], written: Written) -> None:
    for table in tables:
        side.wait_visible(table, written[-1][0])
