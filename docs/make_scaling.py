"""Write the figures of ``scaling.md``, and those of an hour in ``reliability.md``, from what was
measured last.

Run it from the project's root: ``python -P docs/make_scaling.py``; ``make bench``,
``make bench-long``, ``make bench-cluster`` and ``make soak`` end with it. It reads the results of
the benchmarks, and ``soak.csv``.
"""

from __future__ import annotations

import csv
import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
BENCH = DOCS.parent / "tests" / "bench"
RESULTS = (BENCH / "results.json", BENCH / "long_results.json")
CLUSTER = (BENCH / "cluster_results.json",)
SOAK = DOCS / "soak.csv"
SCALING, RELIABILITY = DOCS / "scaling.md", DOCS / "reliability.md"
END = "<!-- end: generated -->\n"

TB = 1e12
DAY = 24.0
FORTY = 40
"""Tables of the cases that change many, and how many they are scaled up to."""
SCALED = (FORTY, 100, 1000, 10_000)

VALUES = 85
"""Bytes of a row of the benchmark's seven columns, as text, on average."""
COPIED, CHANGED, DELETED = VALUES + 7, 8 + 7 * 5 + VALUES, 8 + (5 + 6) + 6
"""Bytes of such a row in a COPY; of an Insert or Update message; of a Delete message by its key."""

RATES = (
    ("copy_1x2m", "copy", COPIED),
    ("insert_1tx", "inserts, one transaction", CHANGED),
    ("insert_1000tx", "inserts, 1,000 transactions", CHANGED),
    ("walsender", "the same, sent and thrown away", CHANGED),
    ("update_random", "updates of random rows in 3 M", CHANGED),
    ("delete_random", "deletes of random rows in 3 M", DELETED),
)

LEFT = (
    ("metadata_mb", "metadata, MB", 1),
    ("data_files", "files of rows and deletes", 0),
    ("snapshots", "snapshots", 0),
)
TABLES_OF_SOAK = 2

HOUR = (
    ("apply_mb", "apply worker, MB", 0),
    ("lake_server_mb", "lake server, MB", 0),
    ("launcher_mb", "launcher, MB", 0),
    ("spool_mb", "spool, MB", 0),
    ("staging_files", "staged files", 0),
    ("branches", "branches", 0),
    ("snapshots", "snapshots of both tables", 0),
    ("metadata_mb", "metadata, MB", 0),
    ("data_files", "files of rows and deletes", 0),
    ("lag_mb", "behind the publisher, MB", 1),
)
"""Measures of ``soak.csv``, and digits behind the point."""

MANY = (
    ("inserts", "median", "many_inserts", "ours_median_s"),
    ("inserts", "p95", "many_inserts", "ours_s"),
    ("updates", "median", "many_updates", "ours_median_s"),
    ("updates", "p95", "many_updates", "ours_s"),
)
MINUTES = 120
"""Seconds from which on they are shown as minutes."""


CLUSTER_CASES = (
    ("copy_10m", "copy of 10 M rows"),
    ("compact_10m", "compaction: all files of 10 M rows, a tenth of them deleted"),
    ("small_batches", "a batch of 1,000 inserts and some updates, commit to visible, median of 20"),
)


def results(paths: Sequence[Path] = RESULTS) -> dict[str, Mapping[str, Any]]:
    """What was measured last of each case, in full size."""
    files = [json.loads(path.read_text(encoding="utf-8")) for path in paths if path.exists()]
    entries = [entry for file in files for entry in file["results"]]
    return {entry["case"]: entry for entry in entries if entry.get("scale", 1.0) == 1.0}


def rates(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Rows and megabytes a second, how many hours 1 TB of such messages takes, and how many times
    as fast as 1 TB in a day that is."""
    table = [("what", "case", "rows/s", "bytes a row", "MB/s", "1 TB takes", "1 TB a day, times")]
    for case, what, size in RATES:
        entry = found.get(case)
        if entry is None:
            table.append((what, f"`{case}`", "not measured", str(size), "", "", ""))
            continue
        rate = entry["rows"] / entry["ours_s"]
        hours = TB / (rate * size) / 3600
        speed = f"{rate * size / 1e6:.1f}"
        takes, times = f"{hours:,.1f} h", f"{DAY / hours:.1f}"
        table.append((what, f"`{case}`", f"{rate:,.0f}", str(size), speed, takes, times))
    return _markdown(table)


def many(found: Mapping[str, Mapping[str, Any]]) -> str:
    """When a change in each of so many tables is visible, if it stays as it is with forty."""
    table = [
        ("tables that each transaction changes", *(f"{what}, {how}" for what, how, *_ in MANY))
    ]
    for count in SCALED:
        row = [f"{count:,}"]
        for _, _, case, figure in MANY:
            if case not in found:
                row.append("not measured")
                continue
            seconds = found[case][figure] / FORTY * count
            row.append(f"{seconds:.1f} s" if seconds < MINUTES else f"{seconds / 60:.0f} minutes")
        table.append(tuple(row))
    return _markdown(table)


def cluster(found: Mapping[str, Mapping[str, Any]]) -> str:
    """Seconds on the embedded server and on a cluster, and the CPU time of all processes."""
    table = [("case", "embedded", "cluster", "cluster without commit service")]
    for case, what in CLUSTER_CASES:
        entry = found.get(case, {})
        cells = (_taken(entry, side) for side in ("embedded", "cluster", "by_spark"))
        table.append((what, *cells))
    return _markdown(table)


def _taken(entry: Mapping[str, Any], side: str) -> str:
    seconds, cpu = (entry.get(f"{side}_{figure}") for figure in ("s", "cpu_s"))
    return "not measured" if seconds is None else f"{seconds:,.2f} s, CPU {cpu:,.2f} s"


def left_behind(samples: Sequence[Mapping[str, str]]) -> str:
    """What a table has after an hour of batches one after the other, and 10,000 such tables."""
    table = [("medians of the last ten minutes", "a table", "10,000 such tables")]
    for name, what, digits in LEFT:
        one = _median(samples, name, 5) / TABLES_OF_SOAK
        table.append((what, f"{one:,.{digits}f}", f"{one * 10_000:,.0f}"))
    return _markdown(table)


def hour(samples: Sequence[Mapping[str, str]]) -> str:
    """What may not grow: as it is when everything is warm, and at the end."""
    table = [("medians of", "the second sixth", "the last sixth")]
    for name, what, digits in HOUR:
        early, late = (_median(samples, name, sixth) for sixth in (1, 5))
        table.append((what, f"{early:,.{digits}f}", f"{late:,.{digits}f}"))
    return _markdown(table)


def _median(samples: Sequence[Mapping[str, str]], name: str, sixth: int) -> float:
    """The measure's, over one of six parts of the run; they are counted from 0."""
    part = float(samples[-1]["at"]) / 6
    within = (s for s in samples if sixth * part <= float(s["at"]) <= (sixth + 1) * part)
    return statistics.median(float(sample[name]) for sample in within)


def _markdown(table: Sequence[Sequence[str]]) -> str:
    head, *rows = table
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def generated() -> Iterator[tuple[Path, str, str]]:
    """Each block by its page and name."""
    found = results()
    yield SCALING, "rates", rates(found)
    yield SCALING, "many", many(found)
    yield SCALING, "cluster", cluster(results(CLUSTER))
    with SOAK.open(encoding="utf-8", newline="") as file:
        samples = list(csv.DictReader(file))
    yield SCALING, "left", left_behind(samples)
    yield RELIABILITY, "hour", hour(samples)


def updated(file: Path) -> str:
    """The page with fresh tables."""
    page = file.read_text(encoding="utf-8")
    for where, name, block in generated():
        if where == file:
            begin = f"<!-- begin: {name}, generated by make_scaling.py -->\n"
            before, rest = page.split(begin)
            page = f"{before}{begin}\n{block}\n{END}{rest.split(END, 1)[1]}"
    return page


if __name__ == "__main__":
    for each in (SCALING, RELIABILITY):
        each.write_text(updated(each), encoding="utf-8")
