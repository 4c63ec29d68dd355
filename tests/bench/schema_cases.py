"""What ``make bench-long`` measures of tables that are altered while their rows change."""

from __future__ import annotations

from functools import partial

from tests.bench.core import Bench, Memory, Seen, must_equal
from tests.bench.figures import Run, p95
from tests.bench.load import SmallChanges, rate_of
from tests.bench.long_cases import apply_workers

RATE = 200
"""Changes a second."""
_ALTERS = {
    "": "ALTER TABLE {table} ADD COLUMN added text",
    "default_": "ALTER TABLE {table} ADD COLUMN filled integer DEFAULT 7",
}
"""By the beginning of the figures' names."""


def add_column(bench: Bench) -> None:
    """A column is added to 10 M rows in the middle of 200 changes a second.

    Ours alone. ``s`` is the time from a change's commit to visible at the 95th percentile in the
    minute from the ALTER TABLE on, ``before_s`` the same in the minute before, ``lag_ratio`` the
    first by the second. The figures with ``default_`` are of a second column, whose default the
    old rows show.
    """
    rows, seconds, side = bench.rows(10_000_000), bench.seconds(60), bench.ours
    with bench.stream(side, rows=rows) as table:
        change, seen = SmallChanges(table, rows=rows), Seen(side, [table])
        memory, workers, figures = Memory(side), apply_workers(side), Run()
        for name, alter in _ALTERS.items():
            minute = partial(bench.paced, seconds, RATE, change, seen)
            before = minute()
            bench.publisher.run(alter.format(table=table))
            after = minute()
            side.wait_visible(table, bench.last_commit(table))
            was, now = p95(seen.delays(before)), p95(seen.delays(after))
            figures |= {
                f"{name}s": round(now, 3),
                f"{name}before_s": round(was, 3),
                f"{name}lag_ratio": round(now / was, 2),
                f"{name}per_second": rate_of(after),
            }
        if apply_workers(side) != workers:
            raise SystemExit("the apply worker was started again")
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
        expected = bench.publisher.value(f"SELECT sum(filled) FROM {table}")
        must_equal(side.sum(table, "filled"), expected)
        figures |= memory.figures()
    bench.record("add_column_10m", {"ours": figures}, rows=rows)
