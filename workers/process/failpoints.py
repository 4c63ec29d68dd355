"""Named places (failpoints) at which a test may stop, end, break or slow down a process.

Only tests arm failpoints: without ``PGSUB_FAILPOINT_DIR`` in the environment ``reach`` does
nothing. The variable names a directory. A process that reaches NAME while the directory contains a
file ``NAME`` renames the file to ``NAME.<pid>`` and does the action in the file. So exactly one
process acts, at exactly one place, and the test knows the process:

=============  ====================================================================
empty file     stands still until the renamed file is gone
``kill``       ends by SIGKILL
``raise``      raises 08006, like a broken connection
``delay S``    goes on after ``S`` seconds
=============  ====================================================================

Each durable step lies between two failpoints, before and after the step.
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
"""Around publishing a batch, in the order of a batch.

``branch_created`` comes only with a worker's first batch of a table, ``branch_rewritten`` after a
compaction behind a batch has rewritten files that the next batch publishes.
"""

SLICE_WRITTEN: Final = "apply.slice_written"
SLICES: Final = (SLICE_WRITTEN,)
"""Behind each slice of a transaction that ``apply_work_mem`` does not hold.

The place is apart from ``APPLY``: the transactions of most workloads fit, and no slice is written.
"""

STREAM_STOPPED: Final = "receive.stream_stopped"
SEGMENT_WRITTEN: Final = "receive.segment_written"
STREAM_ABORTED: Final = "receive.stream_aborted"
STREAM_COMMITTED: Final = "receive.stream_committed"
STREAM_PREPARED: Final = "receive.stream_prepared"
STREAMED: Final = (
    STREAM_STOPPED,
    SEGMENT_WRITTEN,
    STREAM_ABORTED,
    STREAM_COMMITTED,
    STREAM_PREPARED,
)
"""Behind the parts of a transaction in progress, in the thread that receives.

A part has come whole; bytes are in a segment's file and not counted; a transaction, or a
subtransaction, is rolled back; the whole transaction waits for the lake. Apart from ``APPLY``: only
large transactions are sent while they run.
"""

PARALLEL: Final = ("apply.files_begun", "apply.files_written")
"""Around the data files of a transaction in progress, in a thread, before the commit.

The note of the files is on the disk before the first place. Apart from ``APPLY``: only large
transactions are sent while they run.
"""

CHANGES_AHEAD: Final = ("apply.keys_to_stage", "apply.keys_to_look_up")
"""Updates and deletes with files before the commit: the new rows are in a file and the keys are not
staged; at the commit, in front of the look-up. The places of ``PARALLEL`` lie around the first."""

BACKGROUND: Final = ("apply.background_begun", "apply.background_synced")
"""Around the synchronisation of published batches in a thread (``synchronous_commit = off``).

``apply.origin_advanced`` of ``APPLY`` comes afterwards, in the thread too.
"""

TWO_PHASE_ENABLED: Final = ("apply.two_phase_asked", "apply.two_phase_stored")
"""Around ``subtwophasestate`` e: the slot has the property before the catalog says so."""

PREPARE: Final = ("apply.before_prepare", "apply.group_named", "apply.prepared")
"""Around the durable file of prepared transactions; the second is before the ends and the names
are on the disk."""

COMMIT_PREPARED: Final = (
    "apply.before_commit_prepared",
    "apply.commit_prepared_noted",
    "apply.prepared_committed",
    "apply.finished_stored",
    "apply.prepared_removed",
)
"""COMMIT PREPARED: the end is noted; the lake has the rows; ``finished``; the file is gone.

The places of ``APPLY`` lie between the second and the third.
"""

ROLLBACK_PREPARED: Final = ("apply.before_rollback_prepared", "apply.rolled_back_prepared")
"""Around the note about a transaction that was rolled back."""

FENCE: Final = ("apply.before_fence", "apply.fenced")
"""Reached by the successor of a worker that died while publishing."""

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
"""From ``i`` to ``s``, in the order of a synchronisation."""

FINISHEDCOPY: Final = (
    "tablesync.copy_published",
    "tablesync.finishedcopy_stored",
    "tablesync.batch_published",
    "tablesync.slot_dropped",
)
"""Reached only with a permanent sync slot, with those of ``TABLESYNC`` except ``published``."""

UNDO: Final = ("tablesync.before_fence", "tablesync.fenced")
"""Reached by the successor of a sync worker, for a table that existed before."""

CREATE: Final = (
    "create.creating_stored",
    "create.slot_created",
    "create.tables_made",
    "create.ready_stored",
)
"""CREATE SUBSCRIPTION, in the command's process."""

DROP: Final = ("drop.dropping_stored", "drop.slot_dropped", "drop.row_deleted")
"""DROP SUBSCRIPTION, in the command's process."""

RECOPY: Final = ("recopy.marked", "recopy.slot_dropped", "recopy.slot_made")
"""``refresh --recopy`` of a subscription with a lost slot, in the command's process."""

REFRESH: Final = ("refresh.found", "refresh.stored", "refresh.cleaned", "refresh.reloaded")
"""REFRESH PUBLICATION, in the process of a command or of ``refresh: auto``: before and behind the
stored tables, behind the end of sync workers and slots, and behind the workers' new catalog."""

EMPTIED: Final = ("tablesync.emptied",)
"""Reached by the sync worker of a table that is copied again."""

ACCEPT_GAP: Final = (
    "accept_gap.slot_dropped",
    "accept_gap.slot_settled",
    "accept_gap.stored",
    "accept_gap.one_table_stamped",
)
"""``accept-gap``, in the command's process; the first only if the command makes a new slot."""


BEFORE_SCHEMA_CHANGE: Final = "apply.before_schema_change"
SCHEMA_CHANGED: Final = "apply.schema_changed"
SCHEMA_STORED: Final = "apply.schema_stored"
"""Around a change of a lake table's columns: the commit to the lake, then the catalog. Apart from
``APPLY``: most workloads change no column."""

SHAPE_STORED: Final = "apply.shape_stored"
"""Behind the storing of a shape that triggers of the publisher told; the rows are not written."""

COLUMN_TO_FILL: Final = "apply.column_to_fill"
COLUMN_FILLED: Final = "apply.column_filled"
"""A new column with a default, before and behind the rows that get it, which no reader sees yet.
The places of a change of columns lie around both."""

RENAME_NOTED: Final = "apply.rename_noted"
BEFORE_TABLE_RENAME: Final = "apply.before_table_rename"
TABLE_RENAMED: Final = "apply.table_renamed"
RENAME_STORED: Final = "apply.rename_stored"
"""From the note about a renamed table to the catalog with the new names; all but the first in the
next apply worker. Apart from ``APPLY``: most workloads rename no table."""

SUSPENDING: Final = "suspend.before"
SUSPENDED: Final = "suspend.stored"
"""Around the suspension of a table. Apart from ``APPLY``: most workloads suspend no table."""


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
            return  # the test removed the file already
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
"""Called at each failpoint with the name."""
