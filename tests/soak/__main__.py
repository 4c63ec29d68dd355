"""``make soak``: an hour of steady load with a kill every two minutes, and what grew in it.

make soak                       200 transactions a second, docs/soak.svg and docs/soak.csv
make soak MINUTES=5 RATE=50     shorter
make soak FORMAT=3              tables of Iceberg's format 3, docs/soak_v3.svg and docs/soak_v3.csv

Each measure's median over the last sixth is set against that of the second sixth, when everything
is warm. Exit status 1 if one grew, or a row is wrong.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib import pyplot as plt

from tests.soak.meter import Sample, growth, not_flat, tell, write
from tests.soak.run import soak
from tests.soak.servers import servers


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


def main() -> int:
    """Run it, write ``soak.csv`` and ``soak.svg``, and say what grew."""
    parser = argparse.ArgumentParser(prog="make soak")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--rate", type=float, default=200)
    parser.add_argument("--kill-every", type=float, default=120)
    parser.add_argument("--format-version", type=int, choices=(2, 3), default=2)
    parser.add_argument("--folder", type=Path, default=Path("docs"))
    options = parser.parse_args()
    with servers(options.format_version) as (family, database):
        samples, _ = soak(
            family,
            database,
            seconds=options.minutes * 60,
            rate=options.rate,
            kill_every=options.kill_every,
        )
    stem = "soak" if options.format_version == 2 else "soak_v3"
    write(samples, options.folder / f"{stem}.csv")
    plot(samples, options.folder / f"{stem}.svg")
    found = growth(samples)
    grown = not_flat(found)
    tell(found, grown)
    return 1 if grown else 0


if __name__ == "__main__":
    sys.exit(main())
