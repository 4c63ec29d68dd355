"""What only ``make bench-lake`` measures; each records one or more results."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from tests.bench import cases
from tests.bench.core import Bench, must_equal
from tests.bench.figures import Run
from tests.bench.load import SmallChanges

Play = Callable[[Bench], None]

DAYS: Final = 90
BY_DAY: Final = "made_by_day"
_ROWS_BY_DAY: Final = """
CREATE OR REPLACE FUNCTION {name}(first bigint, last bigint)
RETURNS TABLE (id bigint, customer int, status text, amount numeric(10,2), placed timestamptz,
               flag boolean, note text)
LANGUAGE sql IMMUTABLE AS $$
SELECT m.id, m.customer, m.status, m.amount,
       timestamptz '2024-01-01 00:00:00+00' + m.id % 86400 * interval '1 second'
         + least({days} - 1, (m.id - 1) * {days} / {total}) * interval '1 day',
       m.flag, m.note
  FROM made(first, last) m
$$
"""
"""The first ``total`` rows are spread over the days in their order; later rows are of the last."""

_REST: Final = "status text, amount numeric(10,2), placed timestamptz, flag boolean, note text"
KEYS: Final = {
    "uuid": "id bigint, customer int, uid uuid PRIMARY KEY DEFAULT gen_random_uuid(), " + _REST,
    "pair": f"id bigint, customer int DEFAULT 0, {_REST}, PRIMARY KEY (customer, id)",
}
"""Tables like those of most cases, with another key."""

BATCH: Final = 1_000
BATCHES: Final = 10
_UNCOUNTED: Final = 2


def keyed(bench: Bench, kind: str, rounds: int) -> None:
    """200k random updates of 3 M rows with another key, then 200k random deletes."""
    total, some = bench.rows(3_000_000), bench.rows(200_000)
    figures: dict[str, dict[str, Run]] = {}
    for side, table in bench.streams(KEYS[kind], rows=total):
        for what, run in cases.changed(bench, side, table, total, some, rounds).items():
            figures.setdefault(what, {})[side.name] = run
    for what, runs in figures.items():
        bench.record(f"{what}_{kind}", runs, rows=some, of=total)


def by_day(bench: Bench, seconds: float) -> None:
    """Mixed changes of a lake table that is partitioned by day, at 100 a second.

    Rows are inserted into the newest day, and updated and deleted in all of them.
    """
    total = bench.rows(10_000 * DAYS)
    bench.publisher.run(_ROWS_BY_DAY.format(name=BY_DAY, days=DAYS, total=total))
    figures: dict[str, Run] = {}
    bench.ours.with_tables = {"partition_by": ["days(placed)"]}
    try:
        for side, table in bench.streams(rows=total, made=BY_DAY):
            change = SmallChanges(table, rows=total, made=BY_DAY)
            run = cases.fresh(bench, side, table, bench.lasting(side, seconds), change)
            must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
            figures[side.name] = run
    finally:
        bench.ours.with_tables = {}
    bench.record("freshness_by_day", figures, of=total, seconds=seconds)


def requests(bench: Bench) -> None:
    """Requests of a batch, which is a transaction of 1,000 rows, to the catalog and to the store.

    Ours alone. Two batches come before, uncounted.
    """
    side, total = bench.ours, BATCH * 100
    statements = {
        "inserts": "INSERT INTO {table} SELECT * FROM made({first} + 1, {first} + {batch})",
        "updates": "UPDATE {table} SET amount = amount + 1 WHERE id % 100 = {turn}",
    }
    figures: dict[str, Run] = {}
    with side.quiet(), bench.stream(side, rows=total) as table:
        for what, statement in statements.items():
            counts = []
            for turn in range(_UNCOUNTED + BATCHES):
                first = total + turn * BATCH
                text = statement.format(table=table, first=first, batch=BATCH, turn=turn)
                side.wait_visible(table, bench.transaction(text))
                counts.append(side.requests())
            # A batch's requests behind its publication are among those of the next.
            asked = counts[-1] - counts[_UNCOUNTED - 1]
            figures[what] = {"requests": round(asked / BATCHES, 1)}
    for what, run in figures.items():
        bench.record(f"requests_{what}", {"ours": run}, batches=BATCHES, batch=BATCH)


def by_spark(plays: Mapping[str, Play], warm_up: Play) -> dict[str, Play]:
    """Cases with ``lake.writer: spark``; the first that is played is preceded by ``warm_up``.

    The warm-up of all cases leaves the choice of the writer to ``auto``, so no MERGE and no staged
    rows were seen before, and the first case would pay for the compilation.
    """
    cold = [warm_up]

    def played(play: Play, bench: Bench) -> None:
        with bench.ours.new_tables(writer="spark"):
            while cold:
                cold.pop()(bench)
            play(bench)

    return {names: partial(played, play) for names, play in plays.items()}
