"""Write data files: Parquet as Iceberg reads Parquet, without Spark.

The process that has the rows writes the files into the table's folder: a worker, or a copy task in
a Spark executor. A commit then adds the files by name. Iceberg identifies a column of a file by
field id, so every column is written with the id from the table's schema.

Steps: staged columns ``c0…`` become rows of the table (``as_rows``), are checked for missing values
(``check_values``), gathered to row groups (``row_groups``) and written (``write_groups``). The rows
of a partitioned table are gathered by partition (``partitioned_files``).

Trace: two batches of 100,000 rows arrive. ``row_groups`` yields 131,072 and 68,928 rows. Both go to
a single file, because the file has less than ``DATA_FILE_BYTES`` after the first row group. If
writing fails, the incomplete file is removed. If the worker dies, the file is an orphan.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.errcodes import NOT_NULL_VIOLATION, ReplicationError
from config.limits import (
    DATA_FILE_BYTES,
    DICTIONARY_PAGE_BYTES,
    PAGE_BYTES,
    ROW_GROUP_BYTES,
    ROW_GROUP_ROWS,
)
from workers.lake.files.partition_values import in_order
from workers.lake.files.table_layout import FIELD_ID, TableLayout
from workers.lake.staged_rows import NewFile, Place
from workers.lake.table import SOURCE_COLUMN, LakeIdent

# -- rows -----------------------------------------------------------------------------------------


def as_rows(
    files: TableLayout, batch: pa.RecordBatch, columns: Sequence[str], source: str = ""
) -> pa.RecordBatch:
    """Turn staged columns ``c0…`` into rows of the table. A column that is not staged is NULL.

    ``columns`` names the staged columns; the table must have them all (``lacks_columns``).
    ``source`` is the value of the column that names the source of a shared table's rows.
    """
    ordinals = {name: n for n, name in enumerate(columns)}
    arrays = []
    for field in files.schema:
        if source and field.name == SOURCE_COLUMN:
            value = pa.repeat(pa.scalar(source, field.type), batch.num_rows)
        elif field.name in ordinals:
            value = _as_type(batch.column(f"c{ordinals[field.name]}"), field.type)
        else:
            value = pa.nulls(batch.num_rows, field.type)
        arrays.append(value)
    rows: pa.RecordBatch = pa.RecordBatch.from_arrays(arrays, schema=files.schema)
    return rows


def _as_type(array: Any, type: pa.DataType) -> Any:
    """Cast to the table's type. Only the names and ids of list elements differ, and string offsets
    may be large."""
    return array if array.type == type else array.cast(type)


def check_values(ident: LakeIdent, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows; 23502 if a NOT NULL column has a NULL."""
    for field, column in zip(batch.schema, batch.columns, strict=True):
        if _lacks(field, column):
            raise ReplicationError(
                f'null value in column "{field.name}" of lake table "{ident}" violates not-null '
                "constraint",
                hint="Drop the constraint from the lake table's column, or correct the value on "
                "the publisher.",
                sqlstate=NOT_NULL_VIOLATION,
            )
    return batch


def _lacks(field: pa.Field[Any], column: Any) -> bool:
    """Is a required value missing, also as an element of a list?"""
    if column.null_count and not field.nullable:
        return True
    lists = pa.types.is_list(field.type) and not field.type.value_field.nullable
    return bool(lists and column.flatten().null_count)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """Gather rows to row groups. Yields nothing for no rows.

    Every call of Parquet's writer makes at least one row group. A reader needs buffers and a
    dictionary for each column of a row group, of 100,000 rows or of three.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:  # an empty row group would have no bounds
            gathered.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        while rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            whole = pa.Table.from_batches(gathered)
            yield whole.slice(0, ROW_GROUP_ROWS)
            rest = whole.slice(ROW_GROUP_ROWS)
            gathered, rows, size = rest.to_batches(), rest.num_rows, rest.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)


def write_groups(
    files: TableLayout,
    groups: Iterable[pa.Table],
    written: Callable[[NewFile], None],
    size: int = DATA_FILE_BYTES,
    copy_id: str = "",
) -> None:
    """Write ``row_groups`` to new files; after ``size`` bytes a new file begins.

    Calls ``written`` with each complete file. An error removes the incomplete file. ``copy_id``
    becomes part of the file names.
    """
    with files.store.errors():
        rest = iter(groups)
        for first in rest:
            with open_file(files, written, copy_id, size=first.nbytes) as file:
                group: pa.Table | None = first
                while group is not None:
                    file.write(group)
                    group = next(rest, None) if file.size < size else None


@dataclass(slots=True)
class OpenFile:
    """A data file that is being written."""

    files: TableLayout
    output: Any
    writer: Any
    rows: int = 0

    def write(self, group: pa.Table) -> None:
        """Write a row group, in the table's sort order."""
        self.rows += group.num_rows
        ordered = in_order(self.files.order, self.files.schema, group)
        self.writer.write_table(ordered, row_group_size=ROW_GROUP_ROWS)

    @property
    def size(self) -> int:
        """The bytes written so far."""
        return int(self.output.tell())


@contextmanager
def open_file(
    files: TableLayout,
    written: Callable[[NewFile], None],
    copy_id: str = "",
    place: Place | None = None,
    size: int | None = None,
) -> Iterator[OpenFile]:
    """Open a new data file; calls ``written`` at the end. An error removes the file.

    ``size`` is the bytes in memory of the rows that are known to come.
    """
    path = files.new_path(copy_id)
    with files.store.create(path, size) as output:
        with pq.ParquetWriter(
            output,
            files.schema,
            compression=files.codec,
            compression_level=files.level,
            dictionary_pagesize_limit=DICTIONARY_PAGE_BYTES,
            data_page_size=PAGE_BYTES,
            write_statistics=_bounded(files.schema),
            store_decimal_as_integer=True,
            store_schema=False,
        ) as writer:
            opened = OpenFile(files, output, writer)
            yield opened
        # With metadata_collector, a failed write would raise a different error and hide the cause.
        footer = writer.writer.metadata
        unbounded = _unbounded(files, footer)
        file = NewFile(path, opened.size, opened.rows, unbounded=unbounded, place=place)
    written(file if files.store.has_cheap_requests else replace(file, footer=_alone(footer)))


def _alone(footer: Any) -> bytes:
    """A footer as a Parquet file without rows: whoever wants the bounds reads nothing else."""
    sink = pa.BufferOutputStream()
    footer.write_metadata_file(sink)
    alone: bytes = sink.getvalue().to_pybytes()
    return alone


def copy_file(files: TableLayout, file: NewFile) -> NewFile:
    """Copy a file, so that removing the first file leaves the copy intact."""
    path = files.new_path()
    files.store.copy(file.path, path)
    return replace(file, path=path)


def _bounded(schema: pa.Schema) -> bool | list[str]:
    """The columns with bounds (least and greatest value) in the file; True for all columns.

    A column that may have a NaN gets no bounds, because Arrow leaves NaN out of the bounds. NaN is
    greater than every number. With such bounds a reader of ``x > 4`` would miss the NaN, and
    ``DELETE … WHERE x <= 4`` would drop a whole file that has a NaN.
    """
    if not any(pa.types.is_floating(field.type) for field in schema):
        return True
    may_have_nan = (pa.types.is_floating, pa.types.is_nested)
    return [field.name for field in schema if not any(each(field.type) for each in may_have_nan)]


def _unbounded(files: TableLayout, footer: Any) -> tuple[int, ...]:
    """The field ids of columns that have no bounds in some row group.

    Arrow writes no bounds for values longer than 4 kB, but still writes the number of NULLs.
    Iceberg takes such a row group for one of NULLs alone: the file's bounds would then be those of
    the remaining row groups.
    """
    ids = [int((field.metadata or {})[FIELD_ID]) for field in files.schema]
    found = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at, field_id in enumerate(ids):  # a list has a single leaf too
            if _is_unbounded(group.column(at)):
                found.add(field_id)
    return tuple(sorted(found))


def _is_unbounded(chunk: Any) -> bool:
    statistics = chunk.statistics
    if statistics is None:
        return True
    return not statistics.has_min_max and statistics.null_count != chunk.num_values
