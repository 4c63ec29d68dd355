"""Copy a table by Spark tasks to a branch: a single commit for all ranges.

If pgsub writes the table's files, the tasks write data files and return the list of files. If
Spark writes the files, Spark appends the rows that the tasks return.

Spark's first Python takes a moment to start, and more than a second if it cannot be forked by the
launcher's fork server. ``PythonStart`` starts Spark's Python during CREATE, and while the lake
table is made: on an object store that is mostly waiting.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import Final, Protocol

import pyarrow as pa
from pyspark import cloudpickle

from catalog.errcodes import ReplicationError
from config.monitor_limits import PYTHON_START_SECONDS
from workers.columnar import text_values
from workers.columnar.kernel import DIGEST
from workers.lake import copy_task
from workers.lake.connect.session import LakeSession
from workers.lake.copy_plan import CopyPlan
from workers.lake.iceberg.branch_writer import BranchWriter
from workers.lake.interfaces.segment_writer import CopyRun
from workers.lake.metadata.snapshots import OPERATION, stamp_properties

_LOCAL: Final = re.compile(r"local\[([0-9]+)\]")

for _module in (copy_task, text_values):
    # Executors may lack pgsub: the task's code travels with the plan.
    cloudpickle.register_pickle_by_value(_module)


def run_copy(
    session: LakeSession,
    writer: BranchWriter,
    plan: CopyPlan,
    progress: Callable[[int, int], None],
) -> int:
    """Copy every range and append the rows in a single commit. Returns the number of rows."""
    total = len(plan.statements)
    tasks, turns = tasks_of(session, plan)
    reported = -1

    def report(done_tasks: int) -> None:
        nonlocal reported
        done = total * min(done_tasks, tasks) // tasks
        if done != reported:
            reported = done
            progress(done, total)

    @contextmanager
    def reporting() -> Iterator[None]:
        with session.watched(report):
            yield
        report(tasks)

    report(0)
    properties = {OPERATION: writer.writers.names.next()}
    if plan.stamp is not None:
        properties |= stamp_properties(plan.stamp, writer.sources(plan.stamp))
    numbers = session.spark.range(0, tasks, 1, tasks)
    run = CopyRun(numbers, _task(plan, tasks, turns), reporting)
    chosen = next(each for each in writer.writers.in_order if each.accepts_copy(plan))
    return chosen.copy(plan, run, properties)


def _task(plan: CopyPlan, tasks: int, turns: copy_task.Turns | None) -> copy_task.CopyTask:
    return copy_task.CopyTask(
        plan.conninfo,
        plan.passfile,
        plan.snapshot,
        plan.statements,
        tasks,
        copy_task.CopyReader(
            [(column.name, column.type) for column in plan.columns],
            plan.on_unrepresentable == "null",
            plan.relation,
            plan.clamped,
        ),
        plan.nodes,
        DIGEST,
        turns,
    )


class OwnSessions(Protocol):
    """The part of ``Sessions`` that ``PythonStart`` needs."""

    def get(self) -> LakeSession:
        """The thread's session."""

    def close(self) -> None:
        """Close the sessions for good."""


class PythonStart:
    """Starts Spark's Python in a thread, by a task without rows. A failure is left to the copy.

    Spark would end its Python with the session. So ``close`` waits for the task, but not for a
    server that stands still. The Python of a cluster of the user is the user's.
    """

    def __init__(self, sessions: OwnSessions) -> None:
        self._sessions = sessions
        self._starting: threading.Thread | None = None

    def begin(self) -> None:
        """Begin, once."""
        if self._starting is None:
            self._starting = threading.Thread(target=self._start, name="python", daemon=True)
            self._starting.start()

    def close(self) -> None:
        """Wait a while for the task, and close the session."""
        if self._starting is not None:
            self._starting.join(PYTHON_START_SECONDS)
            self._sessions.close()

    def _start(self) -> None:
        def no_rows(_numbers: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            return iter(())

        with suppress(ReplicationError):
            session = self._sessions.get()
            if _LOCAL.fullmatch(session.conf("spark.master") or ""):
                nothing = session.spark.range(0, 1, 1, 1).mapInArrow(no_rows, "n bigint")
                session.collect(nothing, "starting Spark's Python")


class ServerConf(Protocol):
    """The part of a ``LakeSession`` that ``tasks_of`` needs."""

    def conf(self, key: str) -> str | None:
        """A configuration value of the server."""


def tasks_of(session: ServerConf, plan: CopyPlan) -> tuple[int, copy_task.Turns | None]:
    """How many tasks a copy has, and the turns that the tasks take.

    One task per range, so that the progress is known by ranges. Where a server of one process could
    run more tasks at a time than ``plan.workers``, tasks take turns with those of all copies. Other
    servers get ``plan.workers`` tasks, and a task copies several ranges.
    """
    total = len(plan.statements)
    local = _LOCAL.fullmatch(session.conf("spark.master") or "")
    if plan.workers is None or (local is None and plan.workers >= total):
        return total, None
    if local is None:
        return plan.workers, None
    if int(local[1]) <= plan.workers:
        return total, None
    folder = session.conf("spark.local.dir")
    if folder is None:
        return min(plan.workers, total), None
    return total, copy_task.Turns(folder.split(",")[0], plan.workers)
