"""What ``make bench-long`` measures of transactions that are sent before they commit."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Final

from tests.bench.cases import PICKED
from tests.bench.core import Bench, Memory, Seen, must_equal
from tests.bench.figures import Run, largest_memory, p95
from tests.bench.load import SmallChanges, rate_of
from tests.bench.long_cases import spilled
from tests.bench.sides import Side
from tests.waiting import wait_until

ROWS: Final = 100
"""Of a subtransaction, and of a prepared transaction."""

_SUBTRANSACTIONS: Final = """
DO $$ BEGIN
  FOR n IN 0..{last} LOOP
    BEGIN
      INSERT INTO {table} SELECT * FROM made(n * {rows} + 1, n * {rows} + {rows});
      IF n % 2 = 1 THEN RAISE EXCEPTION 'undone'; END IF;
    EXCEPTION WHEN raise_exception THEN NULL;
    END;
  END LOOP;
END $$
"""
PARTS: Final = 120
"""Statements of the transaction that is spread over a time."""
_SPREAD: Final = """
DO $$ DECLARE begun timestamptz := clock_timestamp(); BEGIN
  FOR n IN 0..{parts} - 1 LOOP
    INSERT INTO {table} SELECT * FROM made(
      100000000 + {total}::bigint * n / {parts} + 1,
      100000000 + {total}::bigint * (n + 1) / {parts});
    PERFORM pg_sleep(extract(epoch FROM
      begun + make_interval(secs => {seconds} * (n + 1) / {parts}) - clock_timestamp()));
  END LOOP;
END $$
"""
_PREPARE: Final = (
    "BEGIN; INSERT INTO {table} SELECT * FROM made({n} * {rows} + 1, {n} * {rows} + {rows});"
    " PREPARE TRANSACTION '{table}_{n}'"
)
_COMMIT: Final = "COMMIT PREPARED '{table}_{n}'"
_ENABLED: Final = "SELECT two_phase FROM pg_replication_slots WHERE slot_name = %s"


def commit(bench: Bench) -> None:
    """10 M inserts in one transaction, from its COMMIT to visible: it was sent while it ran.

    ``on_s`` is ours with ``streaming = on``; else it is ``parallel``.
    """
    total = bench.rows(10_000_000)
    figures = {side.name: _committed(bench, side, table, total) for side, table in bench.streams()}
    with bench.stream(bench.ours, streaming="on") as table:
        figures["ours"] |= {"on_s": _committed(bench, bench.ours, table, total)["s"]}
    bench.record("commit_10m", figures, rows=total)


def _committed(bench: Bench, side: Side, table: str, total: int) -> Run:
    memory = Memory(side)
    inside = bench.transaction(f"INSERT INTO {table} SELECT * FROM made(1, {total})")
    seen = bench.since_commit(side, table, inside)
    figures: Run = {**seen, "spill_mb": spilled(bench, side), **memory.figures()}
    must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    return figures


def spread(bench: Bench) -> None:
    """10 M inserts of one transaction in two minutes, beside 100 small transactions a second.

    Ours alone, and all in one table. ``s`` is the time from a small transaction's commit to visible
    at the 95th percentile, ``alone_s`` the same before the large transaction.
    """
    total, seconds, side = bench.rows(10_000_000), bench.seconds(120), bench.ours
    with bench.stream(side) as table:
        memory, change, seen = Memory(side), SmallChanges(table), Seen(side, [table])
        alone = bench.paced(seconds / 2, 100, change, seen)
        side.wait_visible(table, alone[-1][0])
        statement = _SPREAD.format(table=table, total=total, parts=PARTS, seconds=seconds)
        with ThreadPoolExecutor(1) as pool:
            large = pool.submit(bench.publisher.run, statement)
            beside = bench.paced(seconds, 100, change, seen)
            large.result()
        side.wait_visible(table, bench.last_commit(table))
        before, during = p95(seen.delays(alone)), p95(seen.delays(beside))
        figures: Run = {
            "s": round(during, 3),
            "alone_s": round(before, 3),
            "lag_ratio": round(during / before, 2),
            "per_second": rate_of(beside),
            **memory.figures(),
        }
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    bench.record("spread_10m", {"ours": figures}, transactions=len(beside))


def updates(bench: Bench) -> None:
    """5 M random updates of 20 M rows in one transaction, from its COMMIT to visible.

    Ours alone. ``s`` is with ``streaming = parallel``, ``off_s`` with ``off``. The memory is the
    larger one.
    """
    total, some, side = bench.rows(20_000_000), bench.rows(5_000_000), bench.ours
    pick = PICKED.format(total=total, first=1, last=some * 2, some=some)
    update = "UPDATE {table} t SET customer = -1, flag = NOT flag FROM picked p WHERE t.id = p.id"
    runs: dict[str, Run] = {}
    for streaming in ("parallel", "off"):
        with bench.stream(side, rows=total, streaming=streaming) as table:
            memory = Memory(side)
            inside = bench.transaction(pick, "ANALYZE picked", update.format(table=table))
            runs[streaming] = bench.since_commit(side, table, inside) | memory.figures()
            expected = bench.publisher.value(f"SELECT sum(customer) FROM {table}")
            must_equal(side.sum(table, "customer"), expected)
    seconds, off = float(runs["parallel"]["s"]), float(runs["off"]["s"])
    largest = largest_memory(runs["parallel"], runs["off"])
    figures = runs["parallel"] | largest | {"off_s": off, "of_off": round(seconds / off, 2)}
    bench.record("update_5m", {"ours": figures}, rows=some)


def subtransactions(bench: Bench) -> None:
    """10,000 subtransactions of 100 rows in one transaction; every other one is rolled back."""
    count = bench.rows(10_000)
    figures: dict[str, Run] = {}
    for side, table in bench.streams():
        statement = _SUBTRANSACTIONS.format(table=table, rows=ROWS, last=count - 1)
        figures[side.name] = bench.backlog(side, table, bench.writing(statement))
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    bench.record("subtransactions_10k", figures, rows=count * ROWS)


def prepared(bench: Bench) -> None:
    """1,000 transactions of 100 rows: all are prepared, then all are committed."""
    count = bench.rows(1_000)
    figures: dict[str, Run] = {}
    for side in bench.sides():
        with bench.stream(side, two_phase=True) as table:
            slot = (side.application_name(),)
            wait_until(partial(bench.publisher.value, _ENABLED, slot), 60, "two_phase")
            figures[side.name] = bench.backlog(side, table, _both(bench, table, count))
            must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    bench.record("prepared_1000", figures, rows=count * ROWS)


def _both(bench: Bench, table: str, count: int) -> Callable[[], None]:
    statements = [
        each.format(table=table, rows=ROWS, n=n)
        for each in (_PREPARE, _COMMIT)
        for n in range(count)
    ]
    return bench.writing(*statements)
