"""What ``make bench-long`` measures of transactions that are sent before they commit."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from tests.bench.core import Bench, Memory, must_equal
from tests.bench.figures import Run
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
_PREPARE: Final = (
    "BEGIN; INSERT INTO {table} SELECT * FROM made({n} * {rows} + 1, {n} * {rows} + {rows});"
    " PREPARE TRANSACTION '{table}_{n}'"
)
_COMMIT: Final = "COMMIT PREPARED '{table}_{n}'"
_ENABLED: Final = "SELECT two_phase FROM pg_replication_slots WHERE slot_name = %s"


def commit(bench: Bench) -> None:
    """10 M inserts in one transaction, from its COMMIT to visible: it was sent while it ran."""
    total = bench.rows(10_000_000)
    figures: dict[str, Run] = {}
    for side, table in bench.streams():
        memory = Memory(side)
        cpu = side.cpu_seconds()
        inside = bench.transaction(f"INSERT INTO {table} SELECT * FROM made(1, {total})")
        committed = time.monotonic()
        side.wait_visible(table, inside)
        figures[side.name] = {
            "s": max(0.01, round(time.monotonic() - committed, 2)),
            "cpu_s": round(side.cpu_seconds() - cpu, 2),
            **memory.figures(),
        }
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    bench.record("commit_10m", figures, rows=total)


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
            wait_until(lambda slot=slot: bench.publisher.value(_ENABLED, slot), 60, "two_phase")
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
