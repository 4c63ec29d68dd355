"""``make chaos``: seeds one after the other on servers of their own; exit status 1 if one fails.

A seed that a fault of the publisher ended is not right either, and is named at the end.

make chaos                  seed 1
make chaos SEED=17          that one seed
make chaos SEED=100 N=50    100 to 149
make chaos N=200 JOBS=2     two at a time, each job on servers of its own
make chaos FAULTS=no        the workload alone: a comparison with a native subscriber
make chaos DDL=yes          tables change in every seed (DDL=no: in none), and not in half of them
make chaos LAKE=s3          tables on S3 behind a REST catalog, which have faults as well
make chaos WRITER=drawn     lake.writer is files, spark or auto; or the one that is named here
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

from tests.chaos.job import play
from tests.chaos.outcome import Outcome
from tests.chaos.plan import LAKES, LOCAL, WRITERS, Choices


def main() -> int:
    """Play the seeds of the command line."""
    parser = argparse.ArgumentParser(prog="make chaos")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--faults", choices=("yes", "no"), default="yes")
    parser.add_argument("--ddl", choices=("yes", "no", "drawn"), default="drawn")
    parser.add_argument("--lake", choices=LAKES, default=LOCAL)
    parser.add_argument("--writer", choices=WRITERS, default="auto")
    parser.add_argument("--folder", type=Path, default=Path("chaos_failures"))
    options = parser.parse_args()
    seeds = iter(range(options.seed, options.seed + options.count))
    ddl = None if options.ddl == "drawn" else options.ddl == "yes"
    choices = Choices(options.faults == "yes", ddl, options.lake, options.writer)
    began = time.monotonic()
    with ThreadPoolExecutor(options.jobs) as pool:
        jobs = [pool.submit(_job, seeds, options.folder, choices) for _ in range(options.jobs)]
        outcomes = [outcome for job in jobs for outcome in job.result()]
    print(_summary(outcomes, time.monotonic() - began))
    return 0 if len(outcomes) == options.count and all(each.good for each in outcomes) else 1


def _job(seeds: Iterator[int], folder: Path, choices: Choices) -> list[Outcome]:
    """Seeds for as long as there are any, in a process of its own, whose threads' children the
    workers' parents are."""
    ours, theirs = multiprocessing.Pipe()
    args = (theirs, folder, choices)
    process = multiprocessing.get_context("spawn").Process(target=play, args=args)
    process.start()
    theirs.close()
    outcomes: list[Outcome] = []
    with suppress(EOFError, OSError):  # it died: a seed is missing then
        for seed in seeds:
            ours.send(seed)
            outcomes.append(ours.recv())
            print(f"{outcomes[-1]}\n  {outcomes[-1].plan}", flush=True)
        ours.send(None)
    process.join()
    return outcomes


def _summary(outcomes: Sequence[Outcome], seconds: float) -> str:
    planned = Counter(fault.kind for outcome in outcomes for fault in outcome.plan.faults)
    hit = Counter(fault.kind for outcome in outcomes for fault in outcome.hit)
    compared = [outcome.compared for outcome in outcomes if outcome.compared]
    lines = [
        f"seeds {len(outcomes)}, faults planned {planned.total()}, took effect {hit.total()},"
        f" transactions {sum(outcome.transactions for outcome in outcomes)},"
        f" changes of tables {sum(outcome.alterations for outcome in outcomes)}"
        f" in {sum(outcome.plan.ddl is not None for outcome in outcomes)} seeds,"
        f" rows compared {sum(each.rows for each in compared)},"
        f" seeds wrong {sum(bool(each.wrong) for each in compared)},"
        f" seeds stopped {sum(bool(each.error) and not each.publisher_fault for each in outcomes)},"
        f" native subscriber wrong in {sum(bool(each.native_wrong) for each in compared)},"
        f" missing in {sum(not each.native for each in compared)},"
        f" orphan files {sum(len(outcome.orphans) for outcome in outcomes)},"
        f" {seconds / 60:.0f} minutes",
        *(
            f"  {kind}: planned {count}, took effect {hit[kind]}"
            for kind, count in sorted(planned.items())
        ),
    ]
    if faulty := [str(each.plan.seed) for each in outcomes if each.publisher_fault]:
        lines.append(f"seeds that a fault of the publisher ended: {', '.join(faulty)}")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
