"""Write the rows of a copy as data files, inside Spark's executors.

A task reads ranges of the publisher's table and writes data files into the lake table's folder.
The worker gets the list of files and adds the files to the table in a single commit. The tasks of a
table in a bucket reach the store with the worker's keys (``handed_keys``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

import pyarrow as pa

from catalog.errcodes import ReplicationError
from config.monitor_limits import COPY_FOOTERS_FILES
from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import CopyTask, CopyTaskError
from workers.lake.files.table_layout import TableLayout, lacks_columns
from workers.lake.files.write_rows import write_staged_rows
from workers.lake.interfaces.segment_writer import CopyRun
from workers.lake.refusals import changed_meanwhile
from workers.lake.sql.spark_typemap import schema_ddl
from workers.lake.staged_rows import NewFile, Place
from workers.lake.storage.handed_keys import handed_over, with_keys
from workers.lake.table import LakeIdent

_WRITTEN: Final[list[tuple[str, pa.DataType]]] = [
    ("path", pa.string()),
    ("size", pa.int64()),
    ("n", pa.int64()),
    ("unbounded", pa.list_(pa.int32())),
    ("spec_id", pa.int32()),
    ("partition", pa.string()),
    ("footer", pa.binary()),
]
WRITTEN: Final = pa.schema(_WRITTEN)
"""The columns of a task's list of files."""


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """``mapInArrow``'s function if tasks write data files: task numbers in, ``WRITTEN`` out.

    A task that Spark runs again writes new files; the files of the failed run stay unused. ``keys``
    is the path of the file with the keys of the table's store, empty for a folder.
    """

    task: CopyTask
    ident: LakeIdent
    table: TableLayout
    columns: tuple[str, ...]
    source: str
    copy_id: str
    keys: str = ""

    def __call__(self, numbered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs in an executor."""
        files: list[NewFile] = []
        how = (self.columns, files.append, self.source, self.copy_id)
        table = replace(self.table, store=with_keys(self.table.store, self.keys))
        try:
            write_staged_rows(table, self.ident, self.task(numbered), *how)
        except ReplicationError as error:
            raise CopyTaskError(error.code, error.primary, error.detail, error.hint) from None
        few = len(files) <= COPY_FOOTERS_FILES
        yield pa.RecordBatch.from_pydict(
            {
                "path": [file.path for file in files],
                "size": [file.size for file in files],
                "n": [file.rows for file in files],
                "unbounded": [list(file.unbounded) for file in files],
                "spec_id": [file.place.spec_id if file.place else None for file in files],
                "partition": [file.place.values if file.place else None for file in files],
                "footer": [file.footer if few else b"" for file in files],
            },
            WRITTEN,
        )


def written_files(found: pa.Table) -> list[NewFile]:
    """The files of all tasks."""
    return [
        NewFile(
            each["path"],
            each["size"],
            each["n"],
            unbounded=tuple(each["unbounded"]),
            place=None if each["partition"] is None else Place(each["spec_id"], each["partition"]),
            footer=each["footer"],
        )
        for each in found.to_pylist()
    ]


class CopySession(Protocol):
    """The part of a ``LakeSession`` that ``copy_by_tasks`` needs; the tasks load this module."""

    def collect(self, frame: Any, what: str) -> pa.Table:
        """Run a query and return the rows."""


def copy_by_tasks(
    session: CopySession, ident: LakeIdent, files: TableLayout, plan: CopyPlan, run: CopyRun
) -> list[NewFile]:
    """Run the copy's tasks; the files that the tasks have written. A failed copy leaves none."""
    names = tuple(column.name for column in plan.columns)
    if lacks_columns(files, names):
        raise changed_meanwhile(ident)
    with run.reported(), handed_over(files.store, plan.folder) as (store, keys):
        table = replace(files, store=store)
        write = CopyFiles(run.task, ident, table, names, plan.source, plan.copy_id, keys)
        written = run.numbers.mapInArrow(write, schema_ddl(WRITTEN))
        try:
            return written_files(session.collect(written, f'copying to lake table "{ident}"'))
        except BaseException:
            with suppress(ReplicationError):  # the next attempt removes the files
                files.remove(plan.copy_id)
            raise
