"""Write the data files of a partitioned table: every file has rows of one partition.

Rows come in any order, and a copy may meet every partition in every batch. So the rows wait in
memory by partition. Three limits:

* Once the rows of a partition fill a row group, the group goes to the partition's open file.
* Once all waiting rows take too much memory, the partition with the most bytes goes to its file.
* Only a few files are open: the file that was written longest ago is completed for the next file.

In the end each partition with waiting rows gets a file, several at a time, because a request to an
object store takes long. A small batch thus leaves a file for each partition that the batch has rows
of.

Trace: days 1 and 2 come mixed, 100,000 rows of each in ten batches. After seven batches day 1 has
140,000 rows, and 131,072 of them are a row group of file A; the same for day 2 and file B. At the
end the rest of each day is the second row group of A and of B.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from types import TracebackType

import pyarrow as pa

from config.limits import (
    DATA_FILE_BYTES,
    OPEN_PARTITIONS,
    PARTITIONED_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
)
from config.monitor_limits import WRITE_THREADS
from workers.lake.files.data_files import OpenFile, open_file
from workers.lake.files.partition_values import split
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile, Place


@dataclass(slots=True)
class _Waiting:
    """The rows of a partition that wait for a file."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def add(self, batch: pa.RecordBatch) -> None:
        self.batches.append(batch)
        self.rows, self.size = self.rows + batch.num_rows, self.size + batch.nbytes

    @property
    def is_full(self) -> bool:
        return self.rows >= ROW_GROUP_ROWS or self.size >= ROW_GROUP_BYTES

    def take_group(self) -> pa.Table:
        """Take the rows of a row group out; the rest waits."""
        whole = pa.Table.from_batches(self.batches)
        rest = whole.slice(ROW_GROUP_ROWS)
        self.batches, self.rows, self.size = rest.to_batches(), rest.num_rows, rest.nbytes
        return whole.slice(0, ROW_GROUP_ROWS)


def write_partitions(
    files: TableLayout,
    batches: Iterable[pa.RecordBatch],
    written: Callable[[NewFile], None],
    copy_id: str = "",
) -> None:
    """Write rows to new files by partition.

    Calls ``written`` with each complete file, also from further threads, one call at a time. An
    error removes the incomplete files.
    """
    waiting: dict[Place, _Waiting] = {}
    with files.store.errors(), _OpenFiles(files, written, copy_id) as opened:
        for batch in batches:
            for place, rows in split(files.spec, files.schema, batch) if batch.num_rows else ():
                mine = waiting.setdefault(place, _Waiting())
                mine.add(rows)
                while mine.is_full:
                    opened.write(place, mine.take_group())
            while sum(each.size for each in waiting.values()) > PARTITIONED_BYTES:
                largest = max(waiting, key=lambda place: waiting[place].size)
                opened.write(largest, waiting.pop(largest).take_group())
        opened.write_rest({place: rest for place, rest in waiting.items() if rest.rows})


def write_placed(
    files: TableLayout, placed: Mapping[Place, pa.Table], written: Callable[[NewFile], None]
) -> None:
    """Write a file for each partition, several at a time. ``written`` is called in any thread.

    An error removes the incomplete files.
    """

    def write(place: Place) -> None:
        with open_file(files, written, place=place, size=placed[place].nbytes) as file:
            file.write(placed[place])

    with files.store.errors():
        if len(placed) == 1:
            write(*placed)
        elif placed:
            with ThreadPoolExecutor(min(WRITE_THREADS, len(placed))) as pool:
                list(pool.map(write, placed))


class _OpenFiles:
    """The open files of partitions, the one written longest ago first."""

    def __init__(
        self, files: TableLayout, written: Callable[[NewFile], None], copy_id: str
    ) -> None:
        self._files = files
        self._written = written
        self._copy_id = copy_id
        self._lock = threading.Lock()
        self._open: OrderedDict[Place, tuple[OpenFile, ExitStack]] = OrderedDict()

    def __enter__(self) -> _OpenFiles:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Complete all files; remove all files after an error, also if completing one fails."""
        all_files = ExitStack()
        for _, stack in self._open.values():
            all_files.push(stack)
        self._open.clear()
        all_files.__exit__(kind, error, trace)

    def write(self, place: Place, group: pa.Table) -> None:
        """Write a row group to the partition's file."""
        if place not in self._open:
            self._open[place] = self._begin(place)
        self._open.move_to_end(place)
        opened, _ = self._open[place]
        opened.write(group)
        if opened.size >= DATA_FILE_BYTES:
            self._complete(place)
        elif len(self._open) > OPEN_PARTITIONS:
            self._complete(next(iter(self._open)))

    def write_rest(self, waiting: dict[Place, _Waiting]) -> None:
        """Write the last rows of all partitions, those without an open file several at a time."""
        for place in [each for each in waiting if each in self._open]:
            self.write(place, waiting.pop(place).take_group())
        if len(waiting) == 1:
            self._write_file(*waiting.popitem())
        elif waiting:
            with ThreadPoolExecutor(min(WRITE_THREADS, len(waiting))) as pool:
                list(pool.map(self._write_file, waiting.keys(), waiting.values()))

    def _write_file(self, place: Place, rows: _Waiting) -> None:
        with open_file(self._files, self._tell, self._copy_id, place, rows.size) as file:
            file.write(rows.take_group())

    def _begin(self, place: Place) -> tuple[OpenFile, ExitStack]:
        stack = ExitStack()
        opening = open_file(self._files, self._tell, self._copy_id, place)
        return stack.enter_context(opening), stack

    def _complete(self, place: Place) -> None:
        _, stack = self._open.pop(place)
        stack.close()

    def _tell(self, file: NewFile) -> None:
        with self._lock:
            self._written(file)
