"""What is measured, case by case; each is of one call and records one or more results."""

from __future__ import annotations

import itertools
import os
import re
import sqlite3
import statistics
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, Final

from tests.bench.core import WIDE, Bench, Memory, Seen, must_equal
from tests.bench.figures import Run, median, p95
from tests.bench.load import Change, SmallChanges
from tests.bench.local_lake import SCHEMA, current_snapshot, lake_metadata
from tests.bench.sides import Side
from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.waiting import wait_until

PICKED: Final = """
CREATE TEMP TABLE picked AS
SELECT DISTINCT 1 + (hashint8(n) & 2147483647) % {total} AS id
  FROM generate_series({first}, {last}) n LIMIT {some}
"""
"""At most ``some`` of the rows 1 to ``total``, by chance; other numbers give others."""

CHANGES: Final = {
    "update": "UPDATE {table} t SET amount = 1, note = 'changed' FROM picked p WHERE t.id = p.id",
    "delete": "DELETE FROM {table} t USING picked p WHERE t.id = p.id",
}
"""Of the picked rows."""

_KINDS: Final = (
    ("int", "(n % {k})::int"),
    ("text", "'word ' || n % {k}"),
    ("numeric(12,2)", "n % 100000 + 0.{k}"),
    ("timestamptz", "timestamptz '2024-01-01 00:00:00+00' + n * interval '{k} seconds'"),
)
_SIXTY: Final = [(f"c{k}", *_KINDS[k % 4]) for k in range(11, 70)]
SIXTY_COLUMNS: Final = ", ".join(
    ["id bigint PRIMARY KEY", *(f"{name} {kind}" for name, kind, _ in _SIXTY)]
)
_SIXTY_VALUES: Final = ", ".join(["n", *(value.format(k=name[1:]) for name, _, value in _SIXTY)])

DOCUMENTS: Final = "id bigint PRIMARY KEY, n int, body text, doc jsonb"
"""``body`` is 4 KB that does not compress, so it is stored out of line."""
_DOCUMENT: Final = """
n, 0, (SELECT string_agg(md5(n::text || i), '') FROM generate_series(1, 128) i),
jsonb_build_object('id', n, 'tags', jsonb_build_array('a', n % 10, 'b'), 'at', n * 1.5,
                   'who', jsonb_build_object('name', 'name ' || n, 'ok', n % 2 = 0))
"""

NUMBERED: Final = (
    "id bigint PRIMARY KEY, number bigint UNIQUE, status text, amount numeric(10,2),"
    " placed timestamptz, flag boolean, note text"
)
"""The seven columns of most cases, the second one of them unique."""
_NUMBERED_VALUES: Final = """
n, n * 7919::bigint % 1000000007, 'status ' || n % 7, n % 100000 + 0.25,
timestamptz '2024-01-01 00:00:00+00' + n * interval '1 second', n % 2 = 0, 'note ' || md5(n::text)
"""

_TPCB_TABLES: Final = {
    "pgbench_accounts": "aid int PRIMARY KEY, bid int, abalance int, filler char(84)",
    "pgbench_branches": "bid int PRIMARY KEY, bbalance int, filler char(88)",
    "pgbench_tellers": "tid int PRIMARY KEY, bid int, tbalance int, filler char(84)",
    "pgbench_history": "tid int, bid int, aid int, delta int, mtime timestamp, filler char(22)",
}
_TPCB_LAST: Final = (
    "UPDATE pgbench_accounts SET abalance = abalance WHERE aid = 1",
    "UPDATE pgbench_tellers SET tbalance = tbalance WHERE tid = 1",
    "UPDATE pgbench_branches SET bbalance = bbalance WHERE bid = 1",
    "INSERT INTO pgbench_history (tid, bid, aid, delta) VALUES (1, 1, 1, 0)",
)
_PROCESSED: Final = re.compile(r"transactions actually processed: (\d+)")


def warm_up(bench: Bench, *, times: int = 2, seconds: int = 20) -> None:
    """Some of every kind of work, unmeasured, for both sides: no case pays for being first.

    A lake server compiles what it runs often; it reaches its speed after some copies and some
    hundred batches: so many ``times``, then small changes for so many ``seconds``. A native
    subscriber has only its files and the page cache to warm.
    """
    for side, rows, again, lasting in (
        (bench.ours, 500_000, times, seconds),
        (bench.native, 50_000, 0, 0),
    ):
        total = bench.rows(rows)
        large, other, small = (f"warm_{side.name}_{number}" for number in range(3))
        tables = {large: WIDE, other: WIDE, small: WIDE}
        bench.publisher.run(
            *(f"CREATE TABLE {table} ({WIDE})" for table in tables),
            *(f"INSERT INTO {table} SELECT * FROM made(1, {total})" for table in (large, other)),
            f"CREATE PUBLICATION pub_warm FOR TABLE {', '.join(tables)}",
        )
        for _ in range(again):
            side.subscribe("pub_warm", tables, copy_data=True)
            side.wait_synced(list(tables))
            side.unsubscribe()
        side.subscribe("pub_warm", tables, copy_data=True)
        side.wait_synced(list(tables))
        for turn in range(1 + 2 * again):
            first, last = total + turn * 100_000, total + (turn + 1) * 100_000
            for statement in (
                f"INSERT INTO {large} SELECT * FROM made({first} + 1, {last})",
                f"UPDATE {large} SET amount = 1 WHERE id % 10 = {turn}",
                f"DELETE FROM {large} WHERE id % 100 = {turn + 10}",
            ):
                bench.publisher.run(statement)
                side.wait_visible(large, bench.last_commit(large))
        bench.paced(max(1, lasting * bench.scale), 100, SmallChanges(small))
        side.wait_visible(small, bench.last_commit(small))
        side.unsubscribe()
        bench.publisher.run("DROP PUBLICATION pub_warm", f"DROP TABLE {', '.join(tables)}")
        bench.publisher.run("CHECKPOINT")


def copy(bench: Bench, case: str, rounds: int, *, tables: int = 1) -> None:
    """2 M rows in so many tables, from the subscription's existence to all rows visible."""
    each = bench.rows(2_000_000) // tables
    copied = {f"copied_{number}": WIDE for number in range(tables)}
    names = ", ".join(copied)
    bench.publisher.run(
        *(f"CREATE TABLE {table} ({WIDE})" for table in copied),
        *(f"INSERT INTO {table} SELECT * FROM made(1, {each})" for table in copied),
        f"CREATE PUBLICATION pub_copy FOR TABLE {names}",
        f"VACUUM (ANALYZE) {names}",
        "CHECKPOINT",
    )
    runs: dict[str, list[Run]] = {"ours": [], "native": []}
    turns = [(number, side) for number in range(rounds) for side in bench.sides()]
    for side in [side for number, side in turns if number < bench.rounds_of(side, rounds)]:
        os.sync()  # nobody waits for what was written before
        memory = Memory(side)
        begin = time.monotonic()
        begun = side.subscribe("pub_copy", copied, copy_data=True)
        side.wait_synced(list(copied))
        taken, cpu = time.monotonic() - begun.at, side.cpu_seconds() - begun.cpu
        for table in copied:
            must_equal(side.count(table), each)
        runs[side.name].append(
            {
                "s": round(taken, 2),
                "create_s": round(begun.at - begin, 2),
                "cpu_s": round(cpu, 2),
                **memory.figures(),
            }
        )
        side.unsubscribe()
    figures = {name: median(each) for name, each in runs.items()}
    bench.record(case, figures, rows=each * tables)
    bench.publisher.run("DROP PUBLICATION pub_copy", f"DROP TABLE {names}")


def inserts(bench: Bench, case: str, number: int, transactions: int, *, rounds: int = 3) -> None:
    """Rows inserted in so many transactions, from the walsender's start to visible."""
    step = bench.rows(number) // transactions

    def steps(table: str) -> list[str]:
        firsts = range(0, step * transactions, step)
        return [f"INSERT INTO {table} SELECT * FROM made({n} + 1, {n + step})" for n in firsts]

    _backlogs(bench, case, WIDE, steps, step * transactions, rounds=rounds)


def wide(bench: Bench) -> None:
    """60 columns: 100k rows in ten transactions."""
    step = bench.rows(100_000) // 10

    def steps(table: str) -> list[str]:
        insert = f"INSERT INTO {table} SELECT {_SIXTY_VALUES} FROM generate_series"
        return [f"{insert}({n * step + 1}, {(n + 1) * step}) n" for n in range(10)]

    _backlogs(bench, "wide", SIXTY_COLUMNS, steps, step * 10, warm=1)


def toast_jsonb(bench: Bench) -> None:
    """20k rows with 4 KB out of line and a jsonb; then half of them change elsewhere."""
    total = bench.rows(20_000)

    def steps(table: str) -> list[str]:
        return [
            f"INSERT INTO {table} SELECT {_DOCUMENT} FROM generate_series(1, {total}) n",
            f"UPDATE {table} SET n = n + 1 WHERE id % 4 = 1",
            f"UPDATE {table} SET doc = doc || '{{\"changed\": true}}' WHERE id % 4 = 2",
        ]

    _backlogs(bench, "toast_jsonb", DOCUMENTS, steps, total, warm=1)


def large_table(
    bench: Bench,
    rounds: int,
    *,
    inserts: float,
    mixed: float,
    kinds: Sequence[str] = tuple(CHANGES),
    prefix: str = "",
) -> None:
    """3 M rows that were copied: how fresh small changes of them are, and then ``changes``.

    One case, because to make the table and copy it takes longer than most of what is measured.
    ``prefix`` begins the names of the results.
    """
    total, some = bench.rows(3_000_000), bench.rows(200_000)
    figures: dict[str, dict[str, Run]] = {}
    for side, table in bench.streams(rows=total):
        found = _freshness(bench, side, table, total, inserts, mixed)
        found |= changed(bench, side, table, total, some, rounds, kinds)
        for what, run in found.items():
            figures.setdefault(what, {})[side.name] = run
    for what, seconds in (("insert", inserts), ("mixed", mixed)):
        case = f"freshness_{what}"
        bench.record(f"{prefix}{case}", figures[case], of=total, seconds=seconds)
    for case in (f"{kind}_random" for kind in kinds):
        bench.record(f"{prefix}{case}", figures[case], rows=some, of=total)


def changes(bench: Bench, rounds: int, *, format_version: int = 2) -> None:
    """200k random updates of 3 M rows, then 200k random deletes, each in one transaction.

    Ours in tables of this Iceberg format.
    """
    total, some = bench.rows(3_000_000), bench.rows(200_000)
    newer = "" if format_version == 2 else f"_v{format_version}"
    figures: dict[str, dict[str, Run]] = {}
    with bench.ours.new_tables(format_version=format_version) if newer else nullcontext():
        for side, table in bench.streams(rows=total):
            for what, run in changed(bench, side, table, total, some, rounds).items():
                figures.setdefault(what, {})[side.name] = run
    for what, runs in figures.items():
        bench.record(f"{what}{newer}", runs, rows=some, of=total)


def _freshness(
    bench: Bench, side: Side, table: str, total: int, inserts: float, mixed: float
) -> dict[str, Run]:
    """Commit on the publisher to readable, 95th percentile, at 100 transactions a second.

    So many seconds of inserts, then of mixed changes of any of the rows.
    """
    found, inserted = {}, int(bench.lasting(side, inserts) * 100)
    phases = {
        "insert": (inserts, SmallChanges(table, rows=total, inserts=1.0)),
        "mixed": (mixed, SmallChanges(table, rows=total + inserted)),
    }
    for what, (seconds, change) in phases.items():
        found[f"freshness_{what}"] = fresh(bench, side, table, bench.lasting(side, seconds), change)
    must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    return found


def fresh(bench: Bench, side: Side, table: str, seconds: float, change: Change) -> Run:
    """Commit on the publisher to readable, at 100 transactions a second for so many seconds."""
    memory = Memory(side)
    seen = Seen(side, [table])
    written = bench.paced(seconds, 100, change, seen)
    side.wait_visible(table, written[-1][0])
    sizes = memory.figures()
    waits = seen.delays(written)
    return {
        "s": round(p95(waits), 3),
        "median_s": round(statistics.median(waits), 3),
        "query_s": round(seen.query_s, 3),
        **sizes,
    }


def changed(
    bench: Bench,
    side: Side,
    table: str,
    total: int,
    some: int,
    rounds: int,
    kinds: Sequence[str] = tuple(CHANGES),
) -> dict[str, Run]:
    """Rounds of updates, then rounds of deletes; the median of each."""
    found = {}
    firsts = itertools.count(0, some * 2)
    for what in kinds:
        runs = []
        for _ in range(bench.rounds_of(side, rounds)):
            first = next(firsts)
            pick = PICKED.format(total=total, first=first, last=first + some * 2, some=some)
            write = bench.writing(pick, "ANALYZE picked", CHANGES[what].format(table=table))
            runs.append(bench.backlog(side, table, write))
        found[f"{what}_random"] = median(runs)
    must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    return found


def key_probe(bench: Bench, rounds: int) -> None:
    """100k inserts in ten transactions, where keys are looked for first and where they are not.

    Each table is of 1 M rows that were copied whole, so by default nothing is looked for. The three
    take turns; the first batch of each is not counted.
    """
    total, step = bench.rows(1_000_000), bench.rows(100_000) // 10
    options: dict[str, dict[str, Any]] = {
        "default": {},
        "error": {"on_key_conflict": "error"},
        "keys": {"keys": [["number"]]},
    }
    tables = {f"probed_{name}": NUMBERED for name in options}
    names = ", ".join(tables)
    insert = "INSERT INTO probed_{} SELECT {} FROM generate_series({}, {}) n"
    bench.publisher.run(
        *(f"CREATE TABLE {table} ({definition})" for table, definition in tables.items()),
        *(insert.format(name, _NUMBERED_VALUES, 1, total) for name in options),
        f"CREATE PUBLICATION pub_probe FOR TABLE {names}",
        f"VACUUM (ANALYZE) {names}",
        "CHECKPOINT",
    )
    side = bench.ours
    said = {f"probed_{name}": option for name, option in options.items() if option}
    side.subscribe("pub_probe", tables, copy_data=True, options=said)
    side.wait_synced(list(tables))
    runs: dict[str, list[Run]] = {name: [] for name in options}
    for turn in range(rounds + 1):
        begin = total + turn * 10 * step
        firsts = range(begin + 1, begin + 10 * step, step)
        for name in options:
            steps = [insert.format(name, _NUMBERED_VALUES, n, n + step - 1) for n in firsts]
            runs[name].append(bench.backlog(side, f"probed_{name}", bench.writing(*steps)))
    for table in tables:
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    side.unsubscribe()
    bench.publisher.run("DROP PUBLICATION pub_probe", f"DROP TABLE {names}", "CHECKPOINT")
    figures = {name: median(each[1:]) for name, each in runs.items()}
    plain = figures.pop("default")
    looked = {
        f"{name}_{what}": value
        for name, each in figures.items()
        for what, value in (
            ("s", each["s"]),
            ("runs_s", each["runs_s"]),
            ("ratio", round(each["s"] / plain["s"], 2)),
        )
    }
    bench.record("key_probe", {"ours": {**plain, **looked}}, rows=10 * step, of=total)


def tpcb(bench: Bench, seconds: float, steady: float, rate: int) -> None:
    """pgbench's TPC-B beside a subscriber, which then has to catch up.

    At full speed for ``seconds``, and at a ``rate`` that both bear for ``steady`` seconds. ``tps``
    is what can be sustained: transactions by the time they took and the catch-up did; ``s`` is the
    catch-up alone. ``steady_tps`` and ``steady_s`` are those at the rate. A third of the time at
    full speed comes before and does not count.
    """
    figures = {}
    for side in bench.sides():
        _pgbench(bench, "--initialize", "--init-steps=dtgp", "--scale=10", "--quiet")
        names = ", ".join(_TPCB_TABLES)
        bench.publisher.run(f"CREATE PUBLICATION pub_tpcb FOR TABLE {names}", "CHECKPOINT")
        side.subscribe("pub_tpcb", _TPCB_TABLES, copy_data=True)
        side.wait_synced(list(_TPCB_TABLES))
        _pgbenched(bench, side, seconds / 3)  # nothing in the warming up is like it
        memory = Memory(side)
        figures[side.name] = {
            **_pgbenched(bench, side, seconds),
            **_pgbenched(bench, side, steady, rate=rate),
            **memory.figures(),
        }
        _equal_balances(bench, side)
        side.unsubscribe()
        bench.publisher.run("DROP PUBLICATION pub_tpcb", f"DROP TABLE {names}")
    ratios = {
        f"{kind}tps_ratio": round(
            figures["ours"][f"{kind}tps"] / figures["native"][f"{kind}tps"], 3
        )
        for kind in ("", "steady_")
    }
    bench.record("tpcb", figures, **ratios, seconds=seconds, rate=rate)


def _pgbenched(bench: Bench, side: Side, seconds: float, *, rate: int = 0) -> Run:
    """One run and its catch-up; without a rate at full speed."""
    seconds = max(5, round(seconds * bench.scale))
    pace = [f"--rate={rate}"] if rate else []
    # The same seed: at a rate both sides get the same transactions at the same times.
    words = ["--client=4", f"--time={seconds}", "--no-vacuum", "--random-seed=1", *pace]
    said = _pgbench(bench, *words)
    ended = time.monotonic()
    target = bench.transaction(*_TPCB_LAST)
    for table in _TPCB_TABLES:
        side.wait_visible(table, target)
    behind = time.monotonic() - ended
    kind = "steady_" if rate else ""
    tps = _processed(said) / (seconds + behind)
    return {f"{kind}s": round(behind, 2), f"{kind}tps": round(tps, 1)}


def first_row(bench: Bench, rounds: int) -> None:
    """``pgsub up`` on a new data directory, to the first row of a table that a reader sees."""
    bench.publisher.run(
        f"CREATE TABLE first_row ({WIDE})",
        f"INSERT INTO first_row SELECT * FROM made(1, {bench.rows(1_000)})",
        "CREATE PUBLICATION pub_first_row FOR TABLE first_row",
    )
    folders = [bench.folder / f"first_row_{number}" for number in range(rounds)]
    runs = [_up(bench.publisher, folder) for folder in folders]
    bench.record("first_row", {"ours": median(runs)})
    bench.publisher.run("DROP PUBLICATION pub_first_row", "DROP TABLE first_row")


def _up(publisher: Database, folder: Path) -> Run:
    pgsub = Pgsub(folder)
    subscription = {"connection": publisher.dsn, "publication": ["pub_first_row"]}
    file = pgsub.file({"subscriptions": {"first_row": subscription}})

    def visible() -> bool:
        with suppress(sqlite3.OperationalError):  # the lake is being made
            summary = current_snapshot(lake_metadata(pgsub, "first_row")).get("summary", {})
            return int(summary.get("total-records", 0)) > 0
        return False

    started = time.monotonic()
    pgsub.start("up", str(file))
    try:
        wait_until(visible, 120, pgsub.log_tail)
        taken = time.monotonic() - started
        [row] = pgsub.sql(f"SELECT count(*) AS n FROM lake.{SCHEMA}.first_row")
        must_equal(row["n"], publisher.value("SELECT count(*) FROM first_row"))
        pgsub.drop("first_row")
    finally:
        pgsub.stop()
    return {"s": round(taken, 2)}


def _backlogs(
    bench: Bench,
    case: str,
    definition: str,
    steps: Callable[[str], list[str]],
    rows: int,
    *,
    warm: int = 0,
    rounds: int = 3,
) -> None:
    """A backlog of a table's ``steps`` on each side, which leave so many rows in it; some rounds.

    ``warm`` more come first and do not count, where ``warm_up`` has nothing of the kind.
    """
    figures = {}
    for side, table in bench.streams(definition):
        runs = []
        for _ in range(warm + bench.rounds_of(side, rounds)):
            side.wait_visible(table, bench.transaction(f"TRUNCATE {table}"))
            runs.append(bench.backlog(side, table, bench.writing(*steps(table))))
            must_equal(side.count(table), rows)
        figures[side.name] = median(runs[warm:])
    bench.record(case, figures, rows=rows)


def _pgbench(bench: Bench, *words: str) -> str:
    """Run pgbench on the publisher's schema; what it printed."""
    command = [str(bench.server.bin_dir / "pgbench"), *words, bench.publisher.dsn]
    env = {**os.environ, "PGOPTIONS": f"-c search_path={SCHEMA}"}
    return subprocess.run(command, env=env, check=True, capture_output=True, text=True).stdout


def _processed(said: str) -> int:
    found = _PROCESSED.search(said)
    assert found is not None, said
    return int(found[1])


def _equal_balances(bench: Bench, side: Side) -> None:
    for table in _TPCB_TABLES:
        must_equal(side.count(table), bench.publisher.value(f"SELECT count(*) FROM {table}"))
    query = "SELECT sum(abalance) FROM pgbench_accounts"
    must_equal(side.sum("pgbench_accounts", "abalance"), int(bench.publisher.value(query)))
