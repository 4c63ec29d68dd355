"""Keep the keys of rows that are being written, for the look-ups of later batches.

A look-up reads the key column of every data file that the cache of keys does not know, and so the
file that the batch before has written: three requests to an object store. The process had the keys
in hand when it wrote the file.

Of a batch's rows only keys in the order of arrival are kept: without partitions and sort order. A
file of more than ``ALWAYS_READ_ROWS`` rows is left to the look-ups. The rows of a small batch of a
partitioned table are in memory file by file, and so their keys can be kept (``store_keys``).

Trace: a batch writes the rows 1, 2 and 7 to file ``a``. ``watched`` hands the rows on and keeps
[1, 2, 7]. After the commit the cache has ``a``: the look-up of 7 opens no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from config.limits import ALWAYS_READ_ROWS
from workers.columnar.key_search import is_own_number, numbers_of
from workers.lake.files.find_rows import entry_of, is_found_here
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.keys.remember_keys import remember
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile


@dataclass(slots=True)
class WrittenKeys:
    """The keys of the rows of one commit that go to one file."""

    cache: KeyCache
    _columns: list[list[pa.Array[Any]]] = field(default_factory=list)
    _rows: int = 0
    _key: tuple[pa.Field[pa.DataType], ...] = ()
    _unknown: bool = False

    def watched(
        self, files: TableLayout, key: Sequence[str], batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Hand rows of the table on, and keep the keys."""
        fields = _key_of(files, key)
        if not fields or self._key not in ((), fields):
            self._give_up()
        self._key = fields
        for batch in batches:
            self._keep(batch)
            yield batch

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._rows > ALWAYS_READ_ROWS:
            self._give_up()
        if batch.num_rows and not self._unknown:
            self._columns.append([batch.column(each.name) for each in self._key])

    def _give_up(self) -> None:
        self._unknown = True
        self._columns.clear()

    def store(self, written: Sequence[NewFile]) -> None:
        """Put the keys into the cache; ``written`` are the files that the rows went to."""
        if not self._columns or len(written) != 1 or written[0].rows != self._rows:
            return
        columns = [pa.concat_arrays(each) for each in zip(*self._columns, strict=True)]
        _remember(self.cache, written[0], self._key, columns)


def store_keys(
    cache: KeyCache, files: TableLayout, key: Sequence[str], written: NewFile, rows: pa.Table
) -> None:
    """Put the keys of a small file into the cache; ``rows`` are the file's rows in order."""
    if is_found_here(files, key):
        fields = tuple(files.schema.field(name) for name in key)
        columns = [rows[name].combine_chunks() for name in key]
        _remember(cache, written, fields, columns)


def _remember(
    cache: KeyCache,
    written: NewFile,
    key: Sequence[pa.Field[pa.DataType]],
    columns: Sequence[pa.Array[Any]],
) -> None:
    hashed = not is_own_number([each.type for each in key])
    of = entry_of(written.path, written.rows, key)
    with remember(cache, of, written.rows, hashed=hashed, has_cheap_requests=True) as entry:
        if entry.is_open:
            entry.add(columns, numbers_of(columns), 0)


def _key_of(files: TableLayout, key: Sequence[str]) -> tuple[pa.Field[pa.DataType], ...]:
    """The key's columns; none if the rows of a file are not in the order of arrival."""
    if files.has_places or files.order or not is_found_here(files, key):
        return ()
    return tuple(files.schema.field(name) for name in key)
