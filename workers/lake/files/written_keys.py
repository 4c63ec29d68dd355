"""Keep the keys of rows that are being written, for the look-ups of later batches.

A look-up reads the key column of every data file that the cache of keys does not know, and so the
file that the batch before has written: three requests to an object store. The process had the keys
in hand when it wrote the file.

Only keys that the cache packs are kept (``is_own_number``), of files with rows in the order of
arrival: without partitions and sort order. A file of more than ``ALWAYS_READ_ROWS`` rows is left to
the look-ups.

Trace: a batch writes the rows 1, 2 and 7 to file ``a``. ``watched`` hands the rows on and keeps
[1, 2, 7]. After the commit the cache has ``a``: the look-up of 7 opens no file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from config.limits import ALWAYS_READ_ROWS
from workers.columnar.key_search import Numbers, is_own_number, numbers_of
from workers.lake.files.find_rows import entry_of
from workers.lake.files.key_cache import KeyCache, pack
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile


@dataclass(slots=True)
class WrittenKeys:
    """The keys of the rows of one commit that go to one file."""

    cache: KeyCache
    _numbers: list[Numbers] = field(default_factory=list)
    _rows: int = 0
    _key: pa.Field[pa.DataType] | None = None
    _unknown: bool = False

    def watched(
        self, files: TableLayout, key: Sequence[str], batches: Iterable[pa.RecordBatch]
    ) -> Iterator[pa.RecordBatch]:
        """Hand rows of the table on, and keep the keys."""
        column = _cached_column(files, key)
        if column is None or (self._key is not None and column != self._key):
            self._give_up()
        self._key = column
        for batch in batches:
            self._keep(batch)
            yield batch

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._rows += batch.num_rows
        if self._unknown or self._key is None:
            return
        column = batch.column(self._key.name)
        if column.null_count or self._rows > ALWAYS_READ_ROWS:
            self._give_up()
        elif batch.num_rows:
            self._numbers.append(numbers_of([column]))

    def _give_up(self) -> None:
        self._unknown = True
        self._numbers.clear()

    def store(self, written: Sequence[NewFile]) -> None:
        """Put the keys into the cache; ``written`` are the files that the rows went to."""
        if self._unknown or self._key is None or len(written) != 1 or not self._numbers:
            return
        (file,) = written
        of = entry_of(file.path, file.rows, self._key)
        if file.rows != self._rows or not self.cache.takes(of, file.rows):
            return
        packed = pack(np.concatenate(self._numbers), 0)
        if packed is not None:
            self.cache.put(of, [packed])


def _cached_column(files: TableLayout, key: Sequence[str]) -> pa.Field[pa.DataType] | None:
    """The key's column, if the cache may have the keys of a file in the order of arrival."""
    if len(key) != 1 or files.has_places or files.order or key[0] not in files.names:
        return None
    found: pa.Field[pa.DataType] = files.schema.field(key[0])
    return found if is_own_number([found.type]) else None
