"""Measure ``pgsub`` beside PostgreSQL's own subscriber: ``make bench``, ``make bench-quick``.

Both run on one publisher, one after the other: while one is measured the other has no
subscription and no slot. Who is first alternates from case to case.

The copies, the updates and the deletes are measured three times on each side and the median
counts. The copy's clock, which the bar is judged by, starts when the subscription exists;
``create_s`` is how long the command takes that makes it, ``ratio_with_create`` counts it in.
``copy_first`` is the same before anything is warm.

A stream case is a backlog: the walsender is stopped (SIGSTOP) while the publisher writes, and the
clock starts when it goes on. So neither the publisher's own writing nor the start of a worker is
measured. "Visible" means for ours that ``main`` of the table carries the position, confirmed
afterwards by a count in Spark; for the native one that the position is replayed.

Quick is a tenth of the rows, for every change: it fails where a ratio is less than half of what is
on record (``quick_record.json``), twice in a row. A ratio at that scale says little by itself.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from tests.bench import cases
from tests.bench.core import Bench

RESULTS: Final = Path(__file__).with_name("results.json")
QUICK_RESULTS: Final = Path(__file__).with_name("quick_results.json")
QUICK_RECORD: Final = Path(__file__).with_name("quick_record.json")
BARS: Final[dict[str, list[tuple[str, float]]]] = {
    "copy_1x2m": [("ratio", 2.0)],
    "copy_4x500k": [("ratio", 2.0)],
    "insert_1tx": [("ratio", 1.2)],
    "insert_1000tx": [("ratio", 1.2)],
    "update_random": [("ratio", 1.5)],
    "delete_random": [("ratio", 1.5)],
    "wide": [("ratio", 1.0)],
    "toast_jsonb": [("ratio", 1.0)],
    "tpcb": [("tps_ratio", 1.0), ("ratio", 2.0)],
    "freshness_insert": [("ours_s", 1.0)],
    "freshness_mixed": [("ours_s", 2.5)],
    "apply_rss_3m_1tx": [("ours_mb", 512)],
}
"""What is aimed at: ratios at least, seconds and megabytes at most."""
CASES: Final[dict[str, Callable[[Bench], None]]] = {
    "copy_1x2m": lambda bench: cases.copy(bench, "copy_1x2m", 3),
    "copy_4x500k": lambda bench: cases.copy(bench, "copy_4x500k", 3, tables=4),
    "insert_1tx": lambda bench: cases.inserts(bench, "insert_1tx", 1_000_000, 1),
    "insert_1000tx": lambda bench: cases.inserts(bench, "insert_1000tx", 1_000_000, 1000),
    "update_random delete_random apply_rss_3m_1tx": lambda bench: cases.changes(bench, 3),
    "wide": cases.wide,
    "toast_jsonb": cases.toast_jsonb,
    "tpcb": lambda bench: cases.tpcb(bench, 60),
    "freshness_insert": lambda bench: cases.freshness(bench, "freshness_insert", 20, mixed=False),
    "freshness_mixed": lambda bench: cases.freshness(bench, "freshness_mixed", 30, mixed=True),
}
"""By the names of the results that each records."""


QUICK: Final = ("copy_1x2m", "insert_1tx", "insert_1000tx", "update_random")
QUICK_SCALE: Final = 0.1
_COLUMNS: Final = ("ours_s", "native_s", "ratio", "ours_mb")


def _line(entry: dict[str, Any]) -> str:
    def figure(name: str) -> str:
        value = entry.get(name)
        return f"{value:>9}" if value is not None else " " * 9

    verdicts = []
    for name, bar in BARS.get(entry["case"], []):
        if (value := entry.get(name)) is not None:
            most = name.startswith("ours")
            met = value <= bar if most else value >= bar
            verdicts.append(f"{name} {'≤' if most else '≥'} {bar}: {'yes' if met else 'NO'}")
    if "tps_ratio" in entry:
        verdicts.append(f"({entry['ours_tps']} and {entry['native_tps']} transactions a second)")
    if "ratio_with_create" in entry:
        verdicts.append(f"(with CREATE {entry['ratio_with_create']})")
    columns = "".join(figure(column) for column in _COLUMNS)
    return f"{entry['case']:<20}{columns}  {' '.join(verdicts)}"


def measure(scale: float, wanted: Callable[[str], bool]) -> list[dict[str, Any]]:
    """Play the cases whose results somebody wants, on new servers; prints each as it comes."""
    with tempfile.TemporaryDirectory(prefix="pgsub-bench-") as folder:
        bench = Bench(Path(folder), scale, lambda entry: print(_line(entry), flush=True))
        try:
            print(f"native: {bench.native.configuration()}\nours: default settings", flush=True)
            print(f"{'case':<20}" + "".join(f"{word:>9}" for word in _COLUMNS), flush=True)
            if wanted("copy_first"):
                cases.copy(bench, "copy_first", 1)
            cases.warm_up(bench)
            for names, play in CASES.items():
                if any(map(wanted, names.split())):
                    play(bench)
        finally:
            bench.close()
    return bench.results


def quick() -> int:
    """A tenth of the rows against the record; exit status 1 if a ratio halved, and did again."""
    record: dict[str, float] = json.loads(QUICK_RECORD.read_text())
    slipped: dict[str, str] = {}
    for _ in range(2):
        results = measure(QUICK_SCALE, QUICK.__contains__)
        QUICK_RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        ratios = {entry["case"]: entry["ratio"] for entry in results if "ratio" in entry}
        slipped = {
            case: f"{ratios.get(case)} (on record: {before})"
            for case, before in record.items()
            if ratios.get(case, 0) < before / 2
        }
        if not slipped:
            return 0
        print(f"slipped: {slipped}", flush=True)
    return 1


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="measure pgsub beside PostgreSQL's own subscriber")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows")
    parser.add_argument("--only", default="", help="run only cases whose name holds this")
    parser.add_argument("--no-write", action="store_true", help="leave results.json alone")
    parser.add_argument("--quick", action="store_true", help="a tenth, against the record")
    options = parser.parse_args()
    if options.quick:
        return quick()
    results = measure(options.scale, lambda case: options.only in case)
    if not options.no_write:
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
