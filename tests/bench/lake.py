"""Measure ``pgsub`` on S3 behind a REST catalog: ``make bench-lake``.

The cases of ``make bench`` that say most, and those of ``lake_cases``, at three places: on the
store, with 30 ms more for each request, and on the local disk. Each time the native subscriber is
measured beside ours: at the first place as often as ours, later once. A steady load is shorter on
the native side, whose freshness has no bar.

Results of scale 1 are kept in ``lake_results.json`` as each case ends; a result's name ends in the
place. What is aimed at stands in ``lake_targets.toml``. A case that a place leaves out is played
there if it is asked for by the beginning of its name.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.bench import cases, lake_cases, long_cases
from tests.bench.core import Bench
from tests.bench.environment import environment
from tests.bench.figures import SIDES, verdicts
from tests.bench.lake_sides import on_s3
from tests.bench.results import HERE, Kept
from tests.bench.run import OF_ALL, Cases, line, names_of
from tests.bench.sides import OUR_SETTINGS, Ours
from tests.fix_publisher import Database

RESULTS: Final = HERE / "lake_results.json"
TARGETS: Final = HERE / "lake_targets.toml"


class Place(NamedTuple):
    """Where ours has its tables, and how often what is played there."""

    pause: float | None
    """Seconds that are added to each request; None on the local disk."""
    rounds: int
    """Of ours, of copies and backlogs."""
    key_rounds: int
    """The same, for tables with other keys."""
    native_rounds: int
    warm: int
    """Rounds of the warming up."""
    left_out: Sequence[str] = ()
    """Beginnings of names of cases."""


PLACES: Final[Mapping[str, Place]] = {
    "s3": Place(0.0, rounds=3, key_rounds=3, native_rounds=3, warm=2),
    "s3_30ms": Place(0.03, rounds=3, key_rounds=1, native_rounds=1, warm=1, left_out=("spark",)),
    "local": Place(
        None,
        rounds=3,
        key_rounds=1,
        native_rounds=1,
        warm=2,
        left_out=("update_random_", "delete_random_"),
    ),
}
NATIVE_SHARE: Final = 0.4
PEERS: Final = {
    "copy_1x2m": {"sling": 77_000, "olake": 44_000},
    "copy_4x500k": {"sling": 77_000, "olake": 44_000},
    "insert_1tx": {"olake": 22_000},
    "update_random": {"olake": 11_000},
}
"""Rows a second that others reach on such a lake, measured on two cores."""


def plays(place: Place) -> Cases:
    """The cases, as they are played at a place."""
    rounds, keys = place.rounds, place.key_rounds
    many = {"many_inserts": False, "many_updates": True}
    spark: Cases = {
        "spark_copy_1x2m": lambda bench: cases.copy(bench, "spark_copy_1x2m", rounds),
        "spark_insert_1tx": lambda bench: cases.inserts(
            bench, "spark_insert_1tx", 1_000_000, 1, rounds=rounds
        ),
        "spark_freshness_insert spark_freshness_mixed spark_update_random": lambda bench: (
            cases.large_table(
                bench, rounds, inserts=15, mixed=20, kinds=("update",), prefix="spark_"
            )
        ),
    }
    return {
        "copy_1x2m": lambda bench: cases.copy(bench, "copy_1x2m", rounds),
        "copy_4x500k": lambda bench: cases.copy(bench, "copy_4x500k", rounds, tables=4),
        "insert_1tx": lambda bench: cases.inserts(bench, "insert_1tx", 1_000_000, 1, rounds=rounds),
        "freshness_insert freshness_mixed update_random delete_random": lambda bench: (
            cases.large_table(bench, rounds, inserts=15, mixed=20)
        ),
        "update_random_uuid delete_random_uuid": lambda bench: lake_cases.keyed(
            bench, "uuid", keys
        ),
        "update_random_pair delete_random_pair": lambda bench: lake_cases.keyed(
            bench, "pair", keys
        ),
        " ".join(many): lambda bench: long_cases.many_tables(bench, many, 45, settling=10),
        "freshness_by_day": lambda bench: lake_cases.by_day(bench, 20),
        **({"requests_inserts requests_updates": lake_cases.requests} if place.pause else {}),
        **lake_cases.by_spark(spark, lambda bench: cases.warm_up(bench, times=1, seconds=10)),
    }


NAMES: Final = names_of(plays(PLACES["s3_30ms"]))
"""Requests are counted on the way to the store, where something is on the way."""


def aims() -> list[dict[str, Any]]:
    """The bars as ``verdicts`` knows them: one for each case and place."""
    found = []
    for target in tomllib.loads(TARGETS.read_text())["target"]:
        [word] = {"at_least", "at_most"} & set(target)
        but = tuple(target.get("but", ()))
        named = [name for name in NAMES if not name.startswith(but)]
        for place, bar in target[word].items():
            for case in named if target["case"] == OF_ALL else [target["case"]]:
                aim = {"case": f"{case}_{place}", "figure": target["figure"], word: bar}
                found.append(aim)
    return found


def rates(entry: Mapping[str, Any]) -> dict[str, float]:
    """Rows a second of each side, and how many times as many as others have."""
    if "rows" not in entry:
        return {}
    each = {side: entry["rows"] / entry[f"{side}_s"] for side in SIDES if f"{side}_s" in entry}
    found: dict[str, float] = {f"{side}_rows_per_s": round(rate) for side, rate in each.items()}
    for peer, rate in PEERS.get(entry["case"], {}).items():
        found[f"ours_{peer}_ratio"] = round(each["ours"] / rate, 2)
    return found


@contextmanager
def side_at(pause: float | None, folder: Path) -> Iterator[Callable[[Database, Path], Ours]]:
    """How ours is made at a place."""
    if pause is None:
        yield Ours
        return
    with on_s3(folder, pause) as ours:
        yield ours


def wanted_at(place: Place, case: str, words: Sequence[str]) -> bool:
    """Is a case to be played at a place, if results are asked for whose name holds a word?"""
    beginnings = [each for each in place.left_out if case.startswith(each)]
    if beginnings:
        return any(case.startswith(word) and word.startswith(tuple(beginnings)) for word in words)
    return any(word in case for word in words or [""])


def measure(name: str, scale: float, words: Sequence[str], path: Path | None) -> None:
    """Play the wanted cases at a place, on new servers."""
    place, order = PLACES[name], [f"{case}_{each}" for case in NAMES for each in PLACES]
    wanted = {
        names: play
        for names, play in plays(place).items()
        if any(wanted_at(place, case, words) for case in names.split())
    }
    if not wanted:
        return
    with tempfile.TemporaryDirectory(prefix="pgsub-bench-lake-") as made:
        folder, kept = Path(made), list[Kept]()

        def tell(entry: dict[str, Any]) -> None:
            about = {"at": datetime.now(UTC).date().isoformat(), "scale": scale}
            found = {**entry, **rates(entry), **about, "case": f"{entry['case']}_{name}"}
            found["targets"] = verdicts(found, aims())
            print(line(found), flush=True)
            for each in kept:
                each.keep(found)

        with side_at(place.pause, folder) as ours:
            bench = Bench(folder, scale, tell, ours)
            bench.native_share, bench.native_rounds = NATIVE_SHARE, place.native_rounds
            try:
                where = environment(bench.version(), bench.native.configuration(), OUR_SETTINGS)
                if path is not None:
                    kept.append(Kept(path, where, order))
                cases.warm_up(bench, times=place.warm, seconds=10 * place.warm)
                for play in wanted.values():
                    play(bench)
            finally:
                bench.close()


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="measure pgsub on S3 behind a REST catalog")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows and minutes")
    parser.add_argument("--only", default="", help="run only cases whose name holds one of these")
    parser.add_argument("--place", default="", help=f"of {', '.join(PLACES)}; all without")
    options = parser.parse_args()
    places = options.place.split() or list(PLACES)
    unknown = set(places) - set(PLACES)
    words = options.only.split()
    if unknown or not all(any(word in case for case in NAMES) for word in words):
        parser.error(f"there are the cases {', '.join(NAMES)}, at the places {', '.join(PLACES)}")
    for place in places:
        measure(place, options.scale, words, RESULTS if options.scale == 1 else None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
