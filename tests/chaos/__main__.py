"""``make chaos``: seeds one after the other on servers of their own; exit status 1 if one fails.

make chaos                  20 seeds from 1
make chaos SEED=17          that one seed
make chaos SEED=100 N=50    100 to 149
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from pathlib import Path

from subscriber.publisher import EmbeddedPublisher
from tests.chaos.run import PUBLISHER_CONF, Outcome, Run, make_plan
from tests.crash.family import Family
from tests.twin import NativeTwin


def main() -> int:
    """Play the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=Path("chaos_failures"))
    options = parser.parse_args()
    twin = NativeTwin(18)
    outcomes: list[Outcome] = []
    with (
        tempfile.TemporaryDirectory(prefix="pgsub-chaos-") as scratch,
        EmbeddedPublisher(18, conf=PUBLISHER_CONF) as publisher,
        twin.server,
    ):
        family = _family(Path(scratch) / "first")
        try:
            for seed in range(options.seed, options.seed + options.count):
                plan, folder = make_plan(seed), options.folder / f"seed-{seed}"
                print(f"seed {seed}: {plan}", flush=True)
                outcomes.append(Run(plan, family, publisher, twin, folder).play())
                print(outcomes[-1], flush=True)
                if not outcomes[-1].good:
                    _stop(family)
                    shutil.move(family.pgsub.data_dir, folder / "data")
                    family = _family(Path(scratch) / f"after_{seed}")
        finally:
            _stop(family)
    print(_summary(outcomes))
    return 0 if all(outcome.good for outcome in outcomes) else 1


def _family(folder: Path) -> Family:
    family = Family(folder / "data")
    family.start()
    return family


def _stop(family: Family) -> None:
    with suppress(AssertionError):  # what became of the rows is what counts
        family.pgsub.stop()


def _summary(outcomes: list[Outcome]) -> str:
    faults = Counter(fault.kind for outcome in outcomes for fault in outcome.plan.faults)
    compared = [outcome.compared for outcome in outcomes if outcome.compared]
    lines = [
        f"seeds {len(outcomes)}, faults {faults.total()},"
        f" transactions {sum(outcome.transactions for outcome in outcomes)},"
        f" rows compared {sum(each.rows for each in compared)},"
        f" seeds wrong {sum(bool(each.wrong) for each in compared)},"
        f" seeds stopped {sum(outcome.error is not None for outcome in outcomes)},"
        f" native subscriber wrong in {sum(bool(each.native_wrong) for each in compared)}",
        *(f"  {count:4} {kind}" for kind, count in sorted(faults.items())),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
