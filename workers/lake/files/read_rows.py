"""Read rows of a data file by position.

A data file identifies columns by Iceberg's field ids, because a table changes while files do not:

* A renamed column has the former name in older files.
* A column that was added later is missing from older files: the value is NULL in all rows.
* A type may have been widened: values are cast to the table's type.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from config.limits import (
    FETCH_BUFFER_BYTES,
    FETCH_NUMBERS_STEP_ROWS,
    FETCH_STEP_BYTES,
    FETCH_STEP_ROWS,
    FETCHED_BYTES,
)
from config.monitor_limits import READ_TOGETHER_BYTES, READ_TOGETHER_ROWS
from workers.lake.files.position_deletes import Array
from workers.lake.files.table_layout import FIELD_ID, ROW_NUMBER
from workers.lake.staged_rows import LiveFile
from workers.lake.storage.store import TableStore

_NUMBERS: Final = frozenset({"BOOLEAN", "INT32", "INT64", "FLOAT", "DOUBLE"})


class Unreadable(Exception):  # noqa: N818 - no error: Spark reads it
    """A file of the table is damaged, or of a kind that only Spark reads."""


class TooLargeToFetch(Exception):  # noqa: N818 - no error: Spark moves them
    """The requested values take more memory than ``FETCHED_BYTES``: Spark has to move them."""


class RowsInOrder:
    """Rows of a table in a given order, read in parts because values may be large.

    ``numbers[i]`` is the row that comes ``i``-th. Rows that are already in order are not copied.
    """

    def __init__(self, rows: pa.Table, numbers: Array) -> None:
        self._numbers = None if np.array_equal(numbers, np.arange(len(numbers))) else numbers
        self.rows = rows if self._numbers is None else rows.combine_chunks()

    def some(self, which: slice) -> pa.Table:
        """The rows from ``which.start`` to ``which.stop`` of the order."""
        if self._numbers is None:
            return self.rows.slice(which.start, which.stop - which.start)
        numbers: Any = pa.array(self._numbers[which])
        return self.rows.take(numbers)


@contextlib.contextmanager
def reading(store: TableStore) -> Iterator[None]:
    """Raise Unreadable for damaged files, and for values that Arrow cannot hold.

    A file that cannot be read at all is an error of the store.
    """
    try:
        with store.errors():
            yield
    except (pa.ArrowException, OverflowError, IndexError):
        raise Unreadable from None


@contextlib.contextmanager
def open_file(store: TableStore, file: LiveFile) -> Iterator[Any]:
    """Open a data file. Raises Unreadable, see ``reading``."""
    with reading(store), store.open_input(file.path, file.size) as opened:
        yield pq.ParquetFile(opened, buffer_size=FETCH_BUFFER_BYTES)


def check_rows(parquet: Any, file: LiveFile) -> None:
    """Raise Unreadable if the table's metadata gives a different number of rows."""
    if parquet.metadata.num_rows != file.rows:
        raise Unreadable


def field_id(field: pa.Field[Any]) -> bytes:
    """The column's field id in Iceberg's schema."""
    found: bytes = (field.metadata or {})[FIELD_ID]
    return found


def names_by_field_id(parquet: Any) -> dict[bytes, str]:
    """The names of the columns in the file, by field id."""
    fields = list(parquet.schema_arrow)
    if not all(FIELD_ID in (each.metadata or {}) for each in fields):
        raise Unreadable
    return {field_id(each): each.name for each in fields}


def as_type(column: Any, type: pa.DataType) -> Any:
    """Cast a column to the table's type, which may have been widened since the file was written."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    try:
        return column if column.type == type else column.cast(type)
    except pa.ArrowException:
        raise Unreadable from None


def read_together(sized: Iterable[tuple[LiveFile, int]]) -> Iterator[list[LiveFile]]:
    """Groups of files with few bytes and rows together, or a single larger file.

    All rows of a group may be in memory. Rows that are alike take few bytes in a file, so the rows
    count beside the size in bytes.
    """
    group: list[LiveFile] = []
    room, rows = READ_TOGETHER_BYTES, READ_TOGETHER_ROWS
    for file, size in sized:
        if group and (size > room or file.rows > rows):
            yield group
            group, room, rows = [], READ_TOGETHER_BYTES, READ_TOGETHER_ROWS
        group.append(file)
        room, rows = room - size, rows - file.rows
    if group:
        yield group


def rows_at(
    store: TableStore, file: LiveFile, positions: Array, fields: Sequence[pa.Field[Any]]
) -> list[pa.Table]:
    """Read all rows of ``iter_rows_at``. Raises Unreadable, TooLargeToFetch.

    A row that is older than the file has the row number in the file. Otherwise the position gives
    the row number.
    """
    parts: list[pa.Table] = []
    kept = 0
    for part in iter_rows_at(store, file, positions, fields):
        parts.append(part)
        kept += part.nbytes
        if kept > FETCHED_BYTES:
            raise TooLargeToFetch
    if parts and ROW_NUMBER in fields and file.first_row_id is not None:
        rows = pa.concat_tables(parts)
        at = fields.index(ROW_NUMBER)
        numbers: Any = pc.coalesce(rows.column(at), pa.array(positions + file.first_row_id))
        return [rows.set_column(at, f"o{at}", numbers)]
    return parts


def iter_rows_at(
    store: TableStore, file: LiveFile, positions: Array, fields: Sequence[pa.Field[Any]]
) -> Iterator[pa.Table]:
    """Yield columns ``o0…`` of the rows at ascending positions, in parts. Raises Unreadable."""
    if not len(positions):
        return
    with open_file(store, file) as parquet:
        check_rows(parquet, file)
        names = names_by_field_id(parquet)
        columns = [names[field_id(each)] for each in fields if field_id(each) in names]
        start = 0
        for group in range(parquet.num_row_groups):
            end = start + parquet.metadata.row_group(group).num_rows
            low, high = np.searchsorted(positions, [start, end])
            if low < high:
                yield from _decode(
                    parquet, group, columns, positions[low:high] - start, fields, names
                )
            start = end


def _decode(
    parquet: Any,
    group: int,
    columns: Sequence[str],
    positions: Array,
    fields: Sequence[pa.Field[Any]],
    names: dict[bytes, str],
) -> Iterator[pa.Table]:
    if not columns:  # all columns were added later
        nulls = {f"o{n}": pa.nulls(len(positions), each.type) for n, each in enumerate(fields)}
        yield pa.table(nulls)
        return
    start = 0
    at_once = _rows_at_once(parquet.metadata.row_group(group), columns)
    for batch in parquet.iter_batches(at_once, [group], columns, use_threads=False):
        low, high = np.searchsorted(positions, [start, start + batch.num_rows])
        if low < high:
            taken = batch.take(pa.array(positions[low:high] - start))
            arrays = [
                as_type(taken.column(names[field_id(each)]), each.type)
                if field_id(each) in names
                else pa.nulls(taken.num_rows, each.type)
                for each in fields
            ]
            yield pa.table({f"o{n}": array for n, array in enumerate(arrays)})
        start += batch.num_rows
        if high == len(positions):
            break


def _rows_at_once(footer: Any, columns: Sequence[str]) -> int:
    """How many rows to decode at a time, by the size of the columns in the row group."""
    chunks = [
        chunk
        for chunk in map(footer.column, range(footer.num_columns))
        if chunk.path_in_schema.partition(".list.")[0] in columns
    ]
    size = sum(chunk.total_uncompressed_size for chunk in chunks)
    most = FETCH_STEP_ROWS
    if all(each.path_in_schema in columns and each.physical_type in _NUMBERS for each in chunks):
        most = min(FETCH_NUMBERS_STEP_ROWS, FETCH_STEP_BYTES // (8 * len(columns)))
    return int(max(1, min(most, FETCH_STEP_BYTES * footer.num_rows // max(1, size))))
