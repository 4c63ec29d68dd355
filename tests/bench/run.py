"""Measure ``pgsub`` beside PostgreSQL's own: ``make bench``, ``bench-quick``, ``bench-long``.

Both run on one publisher, one after the other: while one is measured the other has no
subscription and no slot. Who is first alternates from case to case.

Copies and backlogs are measured three times on each side and the median counts. The copy's clock,
which the bar is judged by, starts when the subscription exists; ``create_s`` is how long the
command takes that makes it, ``ratio_with_create`` counts it in. ``copy_first`` is the same before
anything is warm.

A stream case is a backlog: the walsender is stopped (SIGSTOP) while the publisher writes, and the
clock starts when it goes on. So neither the publisher's own writing nor the start of a worker is
measured. "Visible" means for ours that ``main`` of the table carries the position, confirmed
afterwards by a count in Spark; for the native one that the position is replayed.

Quick is a tenth of the rows, for every change: it fails where a ratio is less than half of what is
on record (``quick_record.json``), or a worker or all our Python has more memory than the targets of
all cases say, twice in a row. A ratio at that scale says little by itself. The record is what
several runs had at the least, and a little less. It is raised when they get better; whoever lowers
it says in the commit what made that right.

Long is what takes minutes to an hour each. Any case can be run by itself, and its result is kept as
soon as it ends. Results of another scale than 1 go to a file of their own.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench import cases, long_cases, schema_cases, stream_cases, walsender
from tests.bench.core import Bench
from tests.bench.environment import environment
from tests.bench.figures import memory_of, verdicts
from tests.bench.results import HERE, Kept, targets
from tests.bench.sides import OUR_SETTINGS

RESULTS: Final = HERE / "results.json"
LONG_RESULTS: Final = HERE / "long_results.json"
SMALL_RESULTS: Final = HERE / "small_results.json"
QUICK_RESULTS: Final = HERE / "quick_results.json"
QUICK_RECORD: Final = HERE / "quick_record.json"
OF_ALL: Final = "all"
"""The case of the targets that hold for all of them."""

Cases = Mapping[str, Callable[[Bench], None]]
"""By the names of the results that each records."""

COLD: Final[Cases] = {"copy_first": lambda bench: cases.copy(bench, "copy_first", 1)}
CASES: Final[Cases] = {
    "copy_1x2m": lambda bench: cases.copy(bench, "copy_1x2m", 3),
    "copy_4x500k": lambda bench: cases.copy(bench, "copy_4x500k", 7, tables=4),
    "insert_1tx": lambda bench: cases.inserts(bench, "insert_1tx", 1_000_000, 1),
    "insert_1000tx": lambda bench: cases.inserts(bench, "insert_1000tx", 1_000_000, 1000),
    "wide": cases.wide,
    "toast_jsonb": cases.toast_jsonb,
    "tpcb": lambda bench: cases.tpcb(bench, 60, 30, 500),
    "freshness_insert freshness_mixed update_random delete_random": lambda bench: cases.large_table(
        bench, 3, inserts=20, mixed=30
    ),
}
LONG: Final[Cases] = {
    "first_row": lambda bench: cases.first_row(bench, 3),
    "update_random_v3 delete_random_v3": lambda bench: cases.changes(bench, 3, format_version=3),
    "transaction_10m": long_cases.transaction,
    "insert_20m update_20m": long_cases.any_size,
    "commit_10m": stream_cases.commit,
    "spread_10m": stream_cases.spread,
    "update_5m": stream_cases.updates,
    "add_column_10m": schema_cases.add_column,
    "subtransactions_10k": stream_cases.subtransactions,
    "prepared_1000": stream_cases.prepared,
    "growth_clustered growth_random": lambda bench: long_cases.growth(bench, 5),
    "reader_scan": lambda bench: long_cases.reader(bench, 1800, 21),
    "many_inserts": lambda bench: long_cases.many_tables(bench, {"many_inserts": False}, 180),
    "many_updates": lambda bench: long_cases.many_tables(bench, {"many_updates": True}, 180),
    "key_probe": lambda bench: cases.key_probe(bench, 3),
    "walsender": lambda bench: walsender.alone(bench, 5),
}

QUICK: Final[Cases] = {
    **{name: CASES[name] for name in ("copy_1x2m", "insert_1tx", "insert_1000tx")},
    "update_random delete_random": lambda bench: cases.changes(bench, 3),
}
QUICK_SCALE: Final = 0.1
_COLUMNS: Final = ("ours_s", "native_s", "ratio", "ours_mb")


def names_of(*several: Cases) -> list[str]:
    """The names of all results, in the order in which they are measured."""
    return [name for plays in several for names in plays for name in names.split()]


def line(entry: dict[str, Any]) -> str:
    """A result as it is printed."""
    columns = "".join(f"{entry.get(column) or '':>9}" for column in _COLUMNS)
    words = []
    for verdict in entry["targets"]:
        sign, bar = ("≥", "at_least") if "at_least" in verdict else ("≤", "at_most")
        value = f"{verdict['figure']} {entry[verdict['figure']]}"
        words.append(f"{value} {sign} {verdict[bar]}: {'yes' if verdict['met'] else 'NO'}")
    told = {verdict["figure"] for verdict in entry["targets"]}
    beside = (figure for figure in entry if figure.endswith("_ratio") and figure not in told)
    words += [f"{figure} {entry[figure]}" for figure in beside]
    if "ratio_with_create" in entry:
        words.append(f"(with CREATE {entry['ratio_with_create']})")
    return f"{entry['case']:<20}{columns}  {', '.join(words)}"


def measure(
    plays: Cases,
    scale: float,
    wanted: Callable[[str], bool],
    path: Path | None,
    *,
    cold: Cases,
) -> list[dict[str, Any]]:
    """Play the cases whose results somebody wants, on new servers.

    Each result is printed and kept in ``path`` as it comes. ``cold`` cases come before anything is
    warm.
    """
    aims = targets()
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pgsub-bench-") as folder:
        kept: Kept | None = None

        def tell(entry: dict[str, Any]) -> None:
            about = {"at": datetime.now(UTC).date().isoformat(), "scale": scale}
            results.append({**entry, **about, "targets": verdicts(entry, aims)})
            print(line(results[-1]), flush=True)
            if kept is not None:
                kept.keep(results[-1])

        bench = Bench(Path(folder), scale, tell)
        try:
            where = environment(bench.version(), bench.native.configuration(), OUR_SETTINGS)
            if path is not None:
                kept = Kept(path, where, names_of(COLD, CASES, LONG))
            print(*(f"{name}: {value}" for name, value in where.items()), sep="\n", flush=True)
            print(f"{'case':<20}" + "".join(f"{word:>9}" for word in _COLUMNS), flush=True)
            _play(bench, cold, wanted)
            cases.warm_up(bench)
            _play(bench, plays, wanted)
        finally:
            bench.close()
    return results


def _play(bench: Bench, plays: Cases, wanted: Callable[[str], bool]) -> None:
    for names, play in plays.items():
        if any(map(wanted, names.split())):
            play(bench)


def quick() -> int:
    """A tenth of the rows against the record; exit status 1 if something slipped, and did again."""
    record: dict[str, float] = json.loads(QUICK_RECORD.read_text())
    again: set[str] | None = None
    for _ in range(2):
        began = time.monotonic()
        results = measure(QUICK, QUICK_SCALE, lambda _: True, QUICK_RESULTS, cold={})
        print(f"took {time.monotonic() - began:.0f} s", flush=True)
        found = slipped(results, record)
        for words in sorted(found.values()):
            print(f"slipped: {words}", flush=True)
        again = set(found) if again is None else again & set(found)
        if not again:
            return 0
    return 1


def slipped(results: Sequence[Mapping[str, Any]], record: Mapping[str, float]) -> dict[str, str]:
    """By what it is of, and in words: ratios that halved, memory above the bars of all cases."""
    ratios = {entry["case"]: entry["ratio"] for entry in results if "ratio" in entry}
    found = {
        case: f"{case} {ratios.get(case)} (on record: {before})"
        for case, before in record.items()
        if ratios.get(case, 0) < before / 2
    }
    bars = {aim["figure"]: aim["at_most"] for aim in targets() if aim["case"] == OF_ALL}
    for entry in results:
        for figure, size in memory_of(entry).items():
            if size > bars[figure]:
                what = f"{entry['case']} {figure}"
                found[what] = f"{what} {size} (at most: {bars[figure]})"
    return found


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="measure pgsub beside PostgreSQL's own subscriber")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows and minutes")
    parser.add_argument("--only", default="", help="run only cases whose name holds one of these")
    parser.add_argument("--no-write", action="store_true", help="keep no results")
    parser.add_argument("--quick", action="store_true", help="a tenth, against the record")
    parser.add_argument("--long", action="store_true", help="the cases that take long instead")
    options = parser.parse_args()
    if options.quick:
        return quick()
    plays, cold, path = (LONG, COLD, LONG_RESULTS) if options.long else (CASES, {}, RESULTS)
    names = names_of(cold, plays)
    words = options.only.split() or [""]

    def wanted(case: str) -> bool:
        return any(word in case for word in words)

    if not any(map(wanted, names)):
        parser.error(f"no case is named so; there are {', '.join(names)}")
    if options.scale != 1:
        path = SMALL_RESULTS
    measure(
        plays,
        options.scale,
        wanted,
        None if options.no_write else path,
        cold=cold,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
