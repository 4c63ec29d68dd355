"""A process that plays seeds on a publisher, a native subscriber and a lake server of its own."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos.plan import make_plan
from tests.chaos.run import PUBLISHER_CONF, Run
from tests.crash.family import Family
from tests.jvm import expect_short_lives
from tests.twin import NativeTwin


def play(seeds: Connection, folder: Path, faults: bool, ddl: bool | None) -> None:
    """Seeds that come through the pipe, until None; the outcomes go back."""
    expect_short_lives()
    twin = NativeTwin(18)
    with (
        tempfile.TemporaryDirectory(prefix="pgsub-chaos-") as scratch,
        EmbeddedPublisher(18, conf=PUBLISHER_CONF) as publisher,
        twin.server,
    ):
        family = _family(Path(scratch) / "first")
        try:
            while (seed := seeds.recv()) is not None:
                kept = folder / f"seed-{seed}"
                plan = make_plan(seed, faults=faults, ddl=ddl)
                outcome = Run(plan, family, publisher, twin, kept).play()
                seeds.send(outcome)
                if not outcome.good:
                    _stop(family)
                    shutil.move(family.pgsub.data_dir, kept / "data")
                    family = _family(Path(scratch) / f"after_{seed}")
        finally:
            _stop(family)


def _family(folder: Path) -> Family:
    family = Family(folder / "data")
    family.start()
    return family


def _stop(family: Family) -> None:
    with suppress(AssertionError):  # what became of the rows is what counts
        family.pgsub.stop()
