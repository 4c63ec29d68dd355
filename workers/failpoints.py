"""Named places where a test may stop a process, to kill it or something else just there.

Armed by tests only: without ``PGSUB_FAILPOINT_DIR`` in the environment ``reach`` does nothing at
all. With it, a process that reaches NAME while the file ``NAME`` lies in that directory renames it
to ``NAME.<pid>`` and stands still until the renamed file is gone, so exactly one process stops at
exactly one place, and the test knows which.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

ENVIRONMENT: Final = "PGSUB_FAILPOINT_DIR"

APPLY: Final = (
    "apply.batch_taken",
    "apply.branches_written",
    "apply.in_flight_stored",
    "apply.one_table_published",
    "apply.all_tables_published",
    "apply.origin_advanced",
)
"""Around publishing a batch, in the order they are reached."""

TABLESYNC: Final = (
    "tablesync.copied",
    "tablesync.caught_up",
    "tablesync.published",
    "tablesync.syncdone_stored",
)
"""From the end of the copy to ``s``, in the order they are reached."""

_POLL_SECONDS: Final = 0.02


def _hold(directory: Path) -> Callable[[str], None]:
    def reach(name: str) -> None:
        held = directory / f"{name}.{os.getpid()}"
        try:
            (directory / name).rename(held)
        except FileNotFoundError:
            return
        while held.exists():
            time.sleep(_POLL_SECONDS)

    return reach


def _nothing(_name: str) -> None:
    """Not armed."""


_directory = os.environ.get(ENVIRONMENT)
reach: Callable[[str], None] = _hold(Path(_directory)) if _directory else _nothing
"""Called at each place with its name."""
