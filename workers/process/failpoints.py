"""Named places where a test may stop a process, end it, break it or slow it down just there.

Armed by tests only: without ``PGSUB_FAILPOINT_DIR`` in the environment ``reach`` does nothing at
all. With it, a process that reaches NAME while the file ``NAME`` lies in that directory renames it
to ``NAME.<pid>`` and does what the file says, so exactly one process does it at exactly one place,
and the test knows which:

=============  ====================================================================
nothing        stands still until the renamed file is gone
``kill``       ends by SIGKILL
``raise``      raises 08006, as if a connection had broken there
``delay S``    goes on after ``S`` seconds
=============  ====================================================================

Each durable step lies between two places: what comes before it and what comes after.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from catalog.errcodes import ConnectionFailure
from config.limits import FAILPOINT_POLL_SECONDS

ENVIRONMENT: Final = "PGSUB_FAILPOINT_DIR"

APPLY: Final = (
    "apply.batch_taken",
    "apply.branch_created",
    "apply.table_written",
    "apply.branches_written",
    "apply.in_flight_stored",
    "apply.one_table_published",
    "apply.all_tables_published",
    "apply.origin_advanced",
    "apply.before_feedback",
    "apply.flush_remembered",
    "apply.feedback_sent",
    "apply.branch_rewritten",
)
"""Around publishing a batch, in the order they are reached.

``branch_created`` comes with a worker's first batch of a table only, ``branch_rewritten`` where
upkeep behind a batch has rewritten files, which the next one will show.
"""

FENCE: Final = ("apply.before_fence", "apply.fenced")
"""Reached by the successor of a worker that died while it published."""

READY: Final = ("apply.before_ready", "apply.ready_stored")
"""Around ``r``."""

TABLESYNC: Final = (
    "tablesync.started",
    "tablesync.datasync_stored",
    "tablesync.slot_created",
    "tablesync.branch_created",
    "tablesync.range_copied",
    "tablesync.copied",
    "tablesync.waiting",
    "tablesync.caught_up",
    "tablesync.published",
    "tablesync.syncdone_stored",
)
"""From ``i`` to ``s``, in the order they are reached."""

FINISHEDCOPY: Final = (
    "tablesync.copy_published",
    "tablesync.finishedcopy_stored",
    "tablesync.batch_published",
    "tablesync.slot_dropped",
)
"""Reached only with a permanent sync slot, beside those of ``TABLESYNC`` (but ``published``)."""

UNDO: Final = ("tablesync.before_fence", "tablesync.fenced")
"""Reached by the successor of a sync worker whose table existed already."""

CREATE: Final = (
    "create.creating_stored",
    "create.slot_created",
    "create.tables_made",
    "create.ready_stored",
)
"""CREATE SUBSCRIPTION, in the command's own process."""

DROP: Final = ("drop.dropping_stored", "drop.slot_dropped", "drop.row_deleted")
"""DROP SUBSCRIPTION, in the command's own process."""

RECOPY: Final = ("recopy.marked", "recopy.slot_dropped", "recopy.slot_made")
"""``refresh --recopy`` of a subscription whose slot is lost, in the command's own process."""

EMPTIED: Final = ("tablesync.emptied",)
"""Reached by the sync worker of a table that is copied again."""

ACCEPT_GAP: Final = (
    "accept_gap.slot_dropped",
    "accept_gap.slot_settled",
    "accept_gap.stored",
    "accept_gap.one_table_stamped",
)
"""``accept-gap``, in the command's own process; the first where it makes a new slot only."""


def _armed(directory: Path) -> Callable[[str], None]:
    def reach(name: str) -> None:
        mine = directory / f"{name}.{os.getpid()}"
        try:
            (directory / name).rename(mine)
        except FileNotFoundError:
            return
        try:
            action, _, seconds = mine.read_text().partition(" ")
        except FileNotFoundError:
            return  # let go already
        if action == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        elif action == "raise":
            raise ConnectionFailure(f'failpoint "{name}" was reached')
        elif action == "delay":
            time.sleep(float(seconds))
        else:
            while mine.exists():
                time.sleep(FAILPOINT_POLL_SECONDS)

    return reach


def _nothing(_name: str) -> None:
    """Not armed."""


_directory = os.environ.get(ENVIRONMENT)
reach: Callable[[str], None] = _armed(Path(_directory)) if _directory else _nothing
"""Called at each place with its name."""
