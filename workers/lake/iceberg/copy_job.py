"""A table copied by Spark tasks onto a branch: one commit for all ranges.

Where a table's files are written by whoever has the rows (``direct_writer``), the tasks do so, and
what comes back are the files. Else the rows go on through Spark.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

import pyarrow as pa
from pyspark import cloudpickle

from catalog.errcodes import ReplicationError
from workers.columnar import text_values
from workers.columnar.kernel import DIGEST
from workers.lake import copy_task
from workers.lake.copy_plan import CopyPlan
from workers.lake.files.data_files import write_whole
from workers.lake.files.table_layout import TableLayout, lacks
from workers.lake.iceberg.branch_writer import BranchWriter
from workers.lake.metadata.snapshots import OPERATION, stamp_properties, write_options
from workers.lake.refusals import changed_meanwhile
from workers.lake.sql.merge_results import read_outcomes
from workers.lake.sql.spark_typemap import schema_ddl
from workers.lake.staged_rows import NewFile
from workers.lake.table import LakeIdent

_WRITTEN: Final[list[tuple[str, pa.DataType]]] = [
    ("path", pa.string()),
    ("size", pa.int64()),
    ("n", pa.int64()),
    ("unbounded", pa.list_(pa.int32())),
]
_LOCAL: Final = re.compile(r"local\[([0-9]+)\]")

for _module in (copy_task, text_values):
    # Executors need not have this package: the task's code travels with the plan.
    cloudpickle.register_pickle_by_value(_module)


def run_copy(writer: BranchWriter, plan: CopyPlan, progress: Callable[[int, int], None]) -> int:
    """Copy every range and append the rows in one commit; returns how many rows there were."""
    session = writer.session
    total = len(plan.statements)
    tasks = number_of_tasks(session, plan)
    task = copy_task.CopyTask(
        plan.conninfo,
        plan.passfile,
        plan.snapshot,
        plan.statements,
        tasks,
        copy_task.CopyReader(
            [(column.name, column.type) for column in plan.columns],
            plan.on_unrepresentable == "null",
            plan.relation,
        ),
        plan.nodes,
        DIGEST,
    )
    told = -1

    def tell(done_tasks: int) -> None:
        nonlocal told
        done = total * min(done_tasks, tasks) // tasks
        if done != told:
            told = done
            progress(done, total)

    tell(0)
    operation = writer.operation_name()
    properties = {OPERATION: operation}
    if plan.stamp is not None:
        properties |= stamp_properties(plan.stamp, writer.sources(plan.stamp))
    direct = writer.direct
    if direct is None or plan.defaults or plan.generated:
        with session.watched(tell):
            _append(writer, plan, task, properties)
        tell(tasks)
        return read_outcomes(session, {writer.ident: [operation]})[operation].added
    with session.watched(tell):
        files = _write_files(writer, direct.files, plan, task)
    tell(tasks)
    direct.add(files, properties)
    return sum(file.rows for file in files)


def _append(
    writer: BranchWriter, plan: CopyPlan, task: copy_task.CopyTask, properties: dict[str, str]
) -> None:
    def run(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
        return task(batches)

    schema = pa.schema([(f"c{n}", column.type) for n, column in enumerate(plan.columns)])
    rows = _numbered(writer, task).mapInArrow(run, schema_ddl(schema))
    writer.session.append(
        writer.projected(rows, [column.name for column in plan.columns], plan),
        writer.target(),
        write_options(properties),
        f'copying to lake table "{writer.ident}"',
    )


def _write_files(
    writer: BranchWriter, table: TableLayout, plan: CopyPlan, task: copy_task.CopyTask
) -> list[NewFile]:
    """The files that the tasks have written; of a copy that fails none stays."""
    names = tuple(column.name for column in plan.columns)
    if lacks(table, names):
        raise changed_meanwhile(writer.ident)
    attempt = uuid.uuid4().hex
    run = CopyFiles(task, writer.ident, table, names, plan.source, attempt)
    written = _numbered(writer, task).mapInArrow(run, schema_ddl(pa.schema(_WRITTEN)))
    try:
        found = writer.session.collect(written, f'copying to lake table "{writer.ident}"')
    except BaseException:
        table.remove(attempt)
        raise
    return [
        NewFile(path, size, rows, unbounded=tuple(unbounded))
        for path, size, rows, unbounded in zip(*found.to_pydict().values(), strict=True)
    ]


def _numbered(writer: BranchWriter, task: copy_task.CopyTask) -> Any:
    return writer.session.spark.range(0, task.tasks, 1, task.tasks)


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """``mapInArrow``'s function where tasks write the table's files: batches of task numbers in,
    what was written out.

    A task that is tried again writes other files; those of the first are nobody's.
    """

    task: copy_task.CopyTask
    ident: LakeIdent
    table: TableLayout
    columns: tuple[str, ...]
    source: str
    attempt: str

    def __call__(self, numbered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs in an executor."""
        files: list[NewFile] = []
        told = (self.columns, files.append, self.source, self.attempt)
        try:
            write_whole(self.table, self.ident, self.task(numbered), *told)
        except ReplicationError as error:
            raise copy_task.CopyTaskError(
                error.code, error.primary, error.detail, error.hint
            ) from None
        yield pa.RecordBatch.from_pydict(
            {
                "path": [file.path for file in files],
                "size": [file.size for file in files],
                "n": [file.rows for file in files],
                "unbounded": [list(file.unbounded) for file in files],
            },
            pa.schema(_WRITTEN),
        )


class Configured(Protocol):
    """What is needed of a ``LakeSession``."""

    def conf(self, key: str) -> str | None:
        """A configuration value of the server."""


def number_of_tasks(session: Configured, plan: CopyPlan) -> int:
    """One task per range, unless Spark could run more of them at a time than there may be.

    Then as many as there may be, and each takes several ranges, one after the other.
    """
    total = len(plan.statements)
    if plan.workers is None or plan.workers >= total:
        return total
    local = _LOCAL.fullmatch(session.conf("spark.master") or "")
    if local is not None and int(local[1]) <= plan.workers:
        return total
    return plan.workers
