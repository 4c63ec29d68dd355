"""What is made of what was measured: medians, delays, ratios, verdicts. No clock, no server."""

from __future__ import annotations

import statistics
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final, NamedTuple

from catalog.pg_lsn import LSN

Run = dict[str, Any]
"""One side's figures of one run, by name; the unit is the name's end (``_s``, ``_mb``)."""

Moves = Sequence[tuple[datetime, LSN]]
"""When readers saw more than before and up to which position; both only grow."""

SIDES: Final = ("ours", "native")


class Begun(NamedTuple):
    """When a subscription began to exist: by ``time.monotonic``, and its side's CPU time then."""

    at: float
    cpu: float


def median(runs: Sequence[Run]) -> Run:
    """The middle one of an odd number of runs, and what all of them took."""
    middle = sorted(runs, key=lambda run: run["s"])[len(runs) // 2]
    return {**middle, "runs_s": [run["s"] for run in runs]}


def largest_memory(one: Run, other: Run) -> Run:
    """The larger of each figure of memory: a number, or numbers by what a process is."""
    found: Run = {}
    for name in one.keys() & other.keys():
        if isinstance(one[name], dict):
            roles = one[name] | other[name]
            sizes = (one[name], other[name])
            found[name] = {role: max(each.get(role, 0.0) for each in sizes) for role in roles}
        elif name.endswith("_mb"):
            found[name] = max(one[name], other[name])
    return found


def p95(delays: Sequence[float]) -> float:
    """The 95th percentile of at least two delays."""
    return statistics.quantiles(delays, n=20)[-1]


def arrivals(moves: Moves, positions: Iterable[LSN]) -> list[datetime]:
    """When readers first saw each position.

    What is seen then ends with a commit, and each position was noted inside its transaction: that
    shows from the first move on that lies behind it. Fails if one is not there at all.
    """
    shown = [position for _, position in moves]
    found = [(position, bisect_right(shown, position)) for position in positions]
    missing = [position for position, number in found if number == len(moves)]
    assert not missing, f"never seen: {missing[0]} and {len(missing) - 1} more"
    return [moves[number][0] for _, number in found]


def memory_of(entry: Mapping[str, Any]) -> dict[str, float]:
    """What our apply worker had at most, and all our Python together; of a result."""
    sizes = {
        "ours_worker_mb": entry.get("ours_rss_mb", {}).get("apply worker"),
        "ours_python_mb": entry.get("ours_python_mb"),
    }
    return {figure: size for figure, size in sizes.items() if size is not None}


def lag_growth(delays: Sequence[float]) -> float:
    """How many times as long the last third of the delays is as the middle third, by medians.

    In the order of the commits. A subscriber that does nine tenths of the load falls back by six
    seconds a minute; the first third is left out, as everything settles then.
    """
    third = len(delays) // 3
    early, late = delays[third : 2 * third], delays[2 * third :]
    return statistics.median(late) / max(statistics.median(early), 1e-3)


def thinned(points: Sequence[Sequence[float]], most: int) -> list[list[float]]:
    """At most so many points: of neighbours each column's largest value, with the first's time.

    The first column is the time. Rounded to three places.
    """
    step = -(-len(points) // most) or 1
    groups = [points[n : n + step] for n in range(0, len(points), step)]
    thin = []
    for group in groups:
        (begun, *_), *columns = zip(*group, strict=True)
        thin.append([round(begun, 3), *(round(max(column), 3) for column in columns)])
    return thin


def entry_of(case: str, figures: dict[str, Run], **more: Any) -> dict[str, Any]:
    """One case's object: each side's figures under its name, and what follows from both.

    ``ratio`` is native time ÷ our time, ``ratio_with_create`` the same with CREATE counted in,
    ``…_rows_per_cpu_s`` how many of ``rows`` a second of CPU brought.
    """
    entry: dict[str, Any] = {"case": case}
    for side, values in figures.items():
        entry |= {f"{side}_{name}": value for name, value in values.items()}
    if entry.get("ours_s") and entry.get("native_s"):
        entry["ratio"] = round(entry["native_s"] / entry["ours_s"], 3)
    if "ours_create_s" in entry:
        ours = entry["ours_s"] + entry["ours_create_s"]
        native = entry["native_s"] + entry["native_create_s"]
        entry["ratio_with_create"] = round(native / ours, 2)
    for side in SIDES:
        if more.get("rows") and entry.get(f"{side}_cpu_s"):
            entry[f"{side}_rows_per_cpu_s"] = round(more["rows"] / entry[f"{side}_cpu_s"])
    return {**entry, **more}


def verdicts(entry: dict[str, Any], targets: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What of a case's targets was measured: figure, bar, and whether it is met.

    A target has ``case``, ``figure`` and one of ``at_least`` and ``at_most``.
    """
    found = []
    for target in targets:
        value = entry.get(target["figure"])
        if target["case"] != entry["case"] or value is None:
            continue
        if "at_least" in target:
            bar, met = {"at_least": target["at_least"]}, value >= target["at_least"]
        else:
            bar, met = {"at_most": target["at_most"]}, value <= target["at_most"]
        found.append({"figure": target["figure"], **bar, "met": met})
    return found
