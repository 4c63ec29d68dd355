"""Measure ``pgsub`` on S3 behind a REST catalog: ``make bench-lake``.

The cases of ``make bench`` that say most, three times: on the local disk, on the store, and with
30 ms more for each request. Each time the native subscriber is measured beside ours. Results of
scale 1 are kept in ``lake_results.json``; a result's name ends in the place.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tests.bench import cases
from tests.bench.core import Bench
from tests.bench.environment import environment
from tests.bench.figures import verdicts
from tests.bench.lake_sides import on_s3
from tests.bench.results import HERE, Kept
from tests.bench.run import CASES, line, names_of
from tests.bench.sides import OUR_SETTINGS, Ours
from tests.fix_publisher import Database

RESULTS: Final = HERE / "lake_results.json"
PLAYED: Final = ("copy_1x2m", "copy_4x500k", "insert_1tx", "freshness_insert")
"""The first names of the cases in ``CASES``."""
PLACES: Final[Mapping[str, float | None]] = {"local": None, "s3": 0.0, "s3_30ms": 0.03}
"""The seconds that are added to each request; None for the local disk."""
RATIOS: Final = {
    "copy_1x2m": (1.6, 1.2),
    "copy_4x500k": (1.6, 1.2),
    "insert_1tx": (1.5, 1.2),
    "update_random": (1.2, 0.8),
    "delete_random": (1.2, 0.8),
}
SECONDS: Final = {"freshness_insert": (0.8, 1.5), "freshness_mixed": (1.2, 2.5)}
"""What is aimed at, on the store and with the pause."""


def aims() -> list[dict[str, Any]]:
    """The bars as ``verdicts`` knows them."""
    found = []
    for bars, figure, word in ((RATIOS, "ratio", "at_least"), (SECONDS, "ours_s", "at_most")):
        for case, values in bars.items():
            for place, value in zip(("s3", "s3_30ms"), values, strict=True):
                found.append({"case": f"{case}_{place}", "figure": figure, word: value})
    return found


def plays() -> dict[str, Callable[[Bench], None]]:
    """The cases that are played, from those of ``make bench``."""
    return {names: play for names, play in CASES.items() if names.split()[0] in PLAYED}


@contextmanager
def side_at(pause: float | None, folder: Path) -> Iterator[Callable[[Database, Path], Ours]]:
    """How ours is made at a place."""
    if pause is None:
        yield Ours
        return
    with on_s3(folder, pause) as ours:
        yield ours


def measure(
    place: str, scale: float, wanted: Callable[[str], bool], path: Path | None, order: list[str]
) -> list[dict[str, Any]]:
    """Play the wanted cases at a place, on new servers."""
    results: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pgsub-bench-lake-") as name:
        folder, kept = Path(name), list[Kept]()

        def tell(entry: dict[str, Any]) -> None:
            about = {"at": datetime.now(UTC).date().isoformat(), "scale": scale}
            found = {**entry, **about, "case": f"{entry['case']}_{place}"}
            results.append({**found, "targets": verdicts(found, aims())})
            print(line(results[-1]), flush=True)
            for each in kept:
                each.keep(results[-1])

        with side_at(PLACES[place], folder) as ours:
            bench = Bench(folder, scale, tell, ours)
            try:
                where = environment(bench.version(), bench.native.configuration(), OUR_SETTINGS)
                if path is not None:
                    kept.append(Kept(path, where, order))
                cases.warm_up(bench)
                for names, play in plays().items():
                    if any(map(wanted, names.split())):
                        play(bench)
            finally:
                bench.close()
    return results


def main() -> int:
    """What the command line asks for."""
    parser = argparse.ArgumentParser(description="measure pgsub on S3 behind a REST catalog")
    parser.add_argument("--scale", type=float, default=1.0, help="fraction of the rows and minutes")
    parser.add_argument("--only", default="", help="run only cases whose name holds one of these")
    options = parser.parse_args()
    words = options.only.split() or [""]
    order = [f"{case}_{place}" for case in names_of(plays()) for place in PLACES]
    for place in PLACES:
        measure(
            place,
            options.scale,
            lambda case: any(word in case for word in words),
            RESULTS if options.scale == 1 else None,
            order,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
