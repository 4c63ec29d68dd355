"""A process that plays seeds on a publisher, a native subscriber and a lake of its own."""

from __future__ import annotations

import shutil
import tempfile
from contextlib import ExitStack, suppress
from multiprocessing.connection import Connection
from pathlib import Path

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.chaos.plan import S3, Choices, plan_of
from tests.chaos.run import PUBLISHER_CONF, Run
from tests.crash.family import Family
from tests.jvm import expect_short_lives
from tests.lake.lake_stack import LakeStack, quick_stack
from tests.twin import NativeTwin


def play(seeds: Connection, folder: Path, choices: Choices) -> None:
    """Seeds that come through the pipe, until None; the outcomes go back."""
    expect_short_lives()
    twin = NativeTwin(18)
    with (
        tempfile.TemporaryDirectory(prefix="pgsub-chaos-") as scratch,
        EmbeddedPublisher(18, conf=PUBLISHER_CONF) as publisher,
        twin.server,
        ExitStack() as running,
    ):
        stack = None
        if choices.lake == S3:
            stack = running.enter_context(quick_stack(Path(scratch)))
        family = _family(Path(scratch) / "first", stack)
        try:
            while (seed := seeds.recv()) is not None:
                kept = folder / f"seed-{seed}"
                plan = plan_of(seed, choices)
                outcome = Run(plan, family, publisher, twin, kept).play()
                seeds.send(outcome)
                if not outcome.good:
                    _stop(family)
                    shutil.move(family.pgsub.data_dir, kept / "data")
                    family = _family(Path(scratch) / f"after_{seed}", stack)
        finally:
            _stop(family)


def _family(folder: Path, stack: LakeStack | None) -> Family:
    family = Family(folder / "data", stack=stack)
    family.start()
    return family


def _stop(family: Family) -> None:
    with suppress(AssertionError):  # what became of the rows is what counts
        family.pgsub.stop()
