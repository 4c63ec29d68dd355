"""Write the rows of a copy as data files, inside Spark's executors.

A task reads ranges of the publisher's table and writes data files into the lake table's folder.
The worker gets the list of files and adds the files to the table in a single commit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from catalog.errcodes import ReplicationError
from workers.lake.copy_task import CopyTask, CopyTaskError
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.write_rows import write_staged_rows
from workers.lake.staged_rows import NewFile, Place
from workers.lake.table import LakeIdent

_WRITTEN: Final[list[tuple[str, pa.DataType]]] = [
    ("path", pa.string()),
    ("size", pa.int64()),
    ("n", pa.int64()),
    ("unbounded", pa.list_(pa.int32())),
    ("spec_id", pa.int32()),
    ("partition", pa.string()),
]
WRITTEN: Final = pa.schema(_WRITTEN)
"""The columns of a task's list of files."""


@dataclass(frozen=True, slots=True)
class CopyFiles:
    """``mapInArrow``'s function if tasks write data files: task numbers in, ``WRITTEN`` out.

    A task that Spark runs again writes new files; the files of the failed run stay unused.
    """

    task: CopyTask
    ident: LakeIdent
    table: TableLayout
    columns: tuple[str, ...]
    source: str
    copy_id: str

    def __call__(self, numbered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Runs in an executor."""
        files: list[NewFile] = []
        how = (self.columns, files.append, self.source, self.copy_id)
        try:
            write_staged_rows(self.table, self.ident, self.task(numbered), *how)
        except ReplicationError as error:
            raise CopyTaskError(error.code, error.primary, error.detail, error.hint) from None
        yield pa.RecordBatch.from_pydict(
            {
                "path": [file.path for file in files],
                "size": [file.size for file in files],
                "n": [file.rows for file in files],
                "unbounded": [list(file.unbounded) for file in files],
                "spec_id": [file.place.spec_id if file.place else None for file in files],
                "partition": [file.place.values if file.place else None for file in files],
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
        )
        for each in found.to_pylist()
    ]
