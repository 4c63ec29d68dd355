"""A table's own files, written by whoever has the rows: Parquet as Iceberg reads it.

Iceberg knows a column of a file by its field id, so each is written with the id it has in the
table's schema. What a table asks for that is not done here sends its rows through Spark as before:
partitions, files in other places or formats, columns of types that nothing is published to.

Deletes are positions in one data file each. A reader then opens those of the files that it reads
and no others, and what is deleted in a file can be counted, which a vacuum goes by.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import replace
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
from workers.lake.files.table_layout import FIELD_ID, TableLayout
from workers.lake.staged_rows import NewFile
from workers.lake.table import SOURCE_COLUMN, LakeIdent

"""The field ids that Iceberg's specification gives the columns of a file of deletes."""
"""Iceberg's own column of a table in format 3; a table cannot have another one of that name."""


# -- rows -----------------------------------------------------------------------------------------


def as_rows(
    files: TableLayout, batch: pa.RecordBatch, columns: Sequence[str], source: str = ""
) -> pa.RecordBatch:
    """Staged columns ``c0…`` as the table's, in its order; what is not given is NULL.

    All of ``columns`` must be the table's (``lacks``). ``source`` goes into the column that says
    where a shared table's rows are from.
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
    """The table's type: the same, but for what lists call their elements and how they number them,
    and for strings with large offsets."""
    return array if array.type == type else array.cast(type)


def check_values(ident: LakeIdent, batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows, if no column has a NULL that takes none (23502)."""
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
    """Whether a value is missing that has to be there, an element of a list's too."""
    if column.null_count and not field.nullable:
        return True
    lists = pa.types.is_list(field.type) and not field.type.value_field.nullable
    return bool(lists and column.flatten().null_count)


def write_whole(
    files: TableLayout,
    ident: LakeIdent,
    batches: Iterable[pa.RecordBatch],
    columns: Sequence[str],
    written: Callable[[NewFile], None],
    source: str = "",
    attempt: str = "",
) -> None:
    """Staged columns ``c0…`` as rows of new files; see ``as_rows``, ``check_values``."""
    rows = (as_rows(files, batch, columns, source) for batch in batches)
    write_ahead(files, (check_values(ident, batch) for batch in rows), written, attempt)


def write_ahead(
    files: TableLayout,
    batches: Iterable[pa.RecordBatch],
    written: Callable[[NewFile], None],
    attempt: str = "",
) -> None:
    """Write rows to new files; while some are written, a thread makes the next ones."""
    # Closed, whatever becomes of it: two threads must not take from one connection.
    with closing(_ahead(batches)) as ahead:
        # Gathered here: whole row groups made ahead took 60 MB.
        write_groups(files, row_groups(ahead), written, attempt=attempt)


def row_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.Table]:
    """The rows, as many at a time as a row group is to have; nothing for no rows.

    Whatever is written at once is a row group, and no row group has rows of two writes: each costs
    its reader some buffers and a dictionary for each column, whether it has 100,000 rows or three.
    """
    gathered: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        if batch.num_rows:  # an empty row group has no bounds
            gathered.append(batch)
            rows, size = rows + batch.num_rows, size + batch.nbytes
        while rows >= ROW_GROUP_ROWS or size >= ROW_GROUP_BYTES:
            whole = pa.Table.from_batches(gathered)
            yield whole.slice(0, ROW_GROUP_ROWS)
            rest = whole.slice(ROW_GROUP_ROWS)
            gathered, rows, size = rest.to_batches(), rest.num_rows, rest.nbytes
    if gathered:
        yield pa.Table.from_batches(gathered)


def _ahead(batches: Iterable[pa.RecordBatch]) -> Generator[pa.RecordBatch]:
    source = iter(batches)
    with ThreadPoolExecutor(1) as pool:
        coming = pool.submit(next, source, None)
        while (batch := coming.result()) is not None:
            coming = pool.submit(next, source, None)
            yield batch


def write_rows(
    files: TableLayout, batches: Iterable[pa.RecordBatch], written: Callable[[NewFile], None]
) -> None:
    """The same in this thread alone."""
    write_groups(files, row_groups(batches), written)


def write_groups(
    files: TableLayout,
    groups: Iterable[pa.Table],
    written: Callable[[NewFile], None],
    size: int = DATA_FILE_BYTES,
    attempt: str = "",
) -> None:
    """Write ``row_groups`` to new files, each of ``size`` or what follows; none for no rows.

    ``written`` is told of each file, complete; one that is not, an error removes. ``attempt`` is
    in their names.
    """
    with files.store.errors():
        rest = iter(groups)
        for first in rest:
            written(_write_file(files, first, rest, size, attempt))


def _write_file(
    files: TableLayout,
    first: pa.Table,
    rest: Iterator[pa.Table],
    size: int,
    attempt: str,
) -> NewFile:
    path = files.new_path(attempt)
    with files.store.create(path) as file:
        rows = 0
        with pq.ParquetWriter(
            file,
            files.schema,
            compression=files.codec,
            compression_level=files.level,
            dictionary_pagesize_limit=DICTIONARY_PAGE_BYTES,
            data_page_size=PAGE_BYTES,
            write_statistics=_bounded(files.schema),
            store_decimal_as_integer=True,
            store_schema=False,
        ) as writer:
            group: pa.Table | None = first
            while group is not None:
                rows += group.num_rows
                writer.write_table(group, row_group_size=ROW_GROUP_ROWS)
                group = next(rest, None) if file.tell() < size else None
        # Collected by the writer it would hide, where it cannot be written, why.
        footer = writer.writer.metadata
        return NewFile(path, file.tell(), rows, unbounded=_unbounded(files, footer))


def linked(files: TableLayout, file: NewFile) -> NewFile:
    """A file under a second name: what becomes of the first does not concern it."""
    path = files.new_path()
    files.store.copy(file.path, path)
    return replace(file, path=path)


def _bounded(schema: pa.Schema) -> bool | list[str]:
    """The columns whose least and greatest value is written; True for all.

    Not of those that may have a NaN, which Arrow leaves out of both, and Iceberg is told of none:
    it is greater than every number, so readers of ``x > 4`` would not have it, and
    ``DELETE … WHERE x <= 4`` would take it with a file of others.
    """
    if not any(pa.types.is_floating(field.type) for field in schema):
        return True
    unlike = (pa.types.is_floating, pa.types.is_nested)
    return [field.name for field in schema if not any(each(field.type) for each in unlike)]


def _unbounded(files: TableLayout, footer: Any) -> tuple[int, ...]:
    """The columns of whose values a row group does not tell the least and the greatest.

    Arrow leaves them out where one is longer than 4 kB, and says how many are NULL all the same.
    Iceberg takes that for a row group of NULLs: the file's bounds would be those of the others.
    """
    ids = [int((field.metadata or {})[FIELD_ID]) for field in files.schema]
    found = set()
    for number in range(footer.num_row_groups):
        group = footer.row_group(number)
        for at, field_id in enumerate(ids):  # each has one leaf, whatever it is a list of
            if _is_unbounded(group.column(at)):
                found.add(field_id)
    return tuple(sorted(found))


def _is_unbounded(chunk: Any) -> bool:
    said = chunk.statistics
    if said is None:
        return True
    return not said.has_min_max and said.null_count != chunk.num_values


"""No place is there twice, so a dictionary of places would be in vain."""
"""Rows by the data file they are in: their positions, in ascending order, each once."""
