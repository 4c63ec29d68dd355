"""``make soak``: an hour of steady load with a kill every two minutes, and what grew in it.

make soak                       200 transactions a second, docs/soak.svg and docs/soak.csv
make soak MINUTES=5 RATE=50     shorter
make soak FORMAT=3              tables of Iceberg's format 3, docs/soak_v3.svg and docs/soak_v3.csv

Each measure's median over the last sixth is set against that of the second sixth, when everything
is warm. Exit status 1 if one grew, or a row is wrong.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.crash.family import Family
from tests.fix_publisher import Database, new_database
from tests.soak.meter import Sample, growth, not_flat
from tests.soak.run import NAME, STATEMENTS, soak
from tests.waiting import wait_until


def plot(samples: Sequence[Sample], file: Path) -> None:
    """Each measure over time, as an SVG."""
    mpl.use("svg")
    measures = [name for name in samples[0] if name not in ("at", "transactions")]
    figure, axes = plt.subplots(4, 3, figsize=(11, 9), sharex=True)
    minutes = [sample["at"] / 60 for sample in samples]
    for axis, name in zip(axes.flat, measures, strict=True):
        axis.plot(minutes, [sample[name] for sample in samples], linewidth=0.8)
        axis.set_title(name.replace("_", " "), fontsize=9)
        axis.set_ylim(bottom=0)
        axis.tick_params(labelsize=7)
    figure.supxlabel("minutes", fontsize=9)
    figure.tight_layout()
    figure.savefig(file, metadata={"Date": None})


@contextmanager
def _servers(format_version: int) -> Iterator[tuple[Family, Database]]:
    with (
        tempfile.TemporaryDirectory(prefix="pgsub-soak-") as scratch,
        EmbeddedPublisher(18) as publisher,
    ):
        database = new_database(publisher, NAME)
        database.run(*STATEMENTS)
        family = Family(
            Path(scratch) / "data", settings={"file_grace": "1min"}, format_version=format_version
        )
        family.start()
        try:
            family.create(NAME, database.dsn, [NAME])
            wait_until(lambda: set(family.states(NAME).values()) == {"r"}, 120, family.log_tail)
            yield family, database
        finally:
            family.pgsub.stop()


def main() -> int:
    """Run it, write ``soak.csv`` and ``soak.svg``, and say what grew."""
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--kill-every", type=float, default=120)
    parser.add_argument("--format-version", type=int, choices=(2, 3), default=2)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    options = parser.parse_args()
    with _servers(options.format_version) as (family, database):
        samples, _ = soak(
            family,
            database,
            seconds=options.minutes * 60,
            rate=options.rate,
            kill_every=options.kill_every,
        )
    stem = "soak" if options.format_version == 2 else "soak_v3"
    with (options.folder / f"{stem}.csv").open("w") as file:
        writer = csv.DictWriter(file, fieldnames=list(samples[0]))
        writer.writeheader()
        writer.writerows({k: round(v, 2) for k, v in sample.items()} for sample in samples)
    plot(samples, options.folder / f"{stem}.svg")
    found = growth(samples)
    for name, (early, late) in found.items():
        print(f"{name:16} {early:10.1f} → {late:10.1f}")
    grown = not_flat(found)
    print(f"grown: {', '.join(grown)}" if grown else "all flat")
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
