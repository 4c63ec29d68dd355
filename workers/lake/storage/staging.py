"""Rows on their way to the lake: small ones in memory, larger ones as Parquet files."""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from workers.lake.staged_rows import Staged
from workers.lake.storage.local_path import local
from workers.lake.storage.store import create, located, remove, storage_errors

LOCAL_BYTES: Final = 8 << 20
"""A plan larger than this is slower than a file."""
ROOM: Final = 32 << 20
"""Bytes of all rows that stay in memory although they are many, because nobody else reads them: a
file of them takes 0.2 µs a row."""
_ROW_GROUP: Final = 131_072
"""A server that is not ours may be told to leave out what it cannot read: those would be rows."""


class Staging:
    """Parquet files of a folder (``staging_place``), each used by one write and then discarded."""

    def __init__(self, folder: str, local_rows: int) -> None:
        self._folder = folder
        self._local_rows = local_rows
        self._lock = threading.Lock()
        self._room = ROOM
        self._held: dict[int, int] = {}

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        write: Callable[[Iterable[pa.RecordBatch]], Staged] | None = None,
        *,
        here: bool = False,
    ) -> Staged:
        """Take rows in, a batch at a time; memory holds at most the local limit.

        ``write`` is where more than that goes, if not to a file of the folder. Rows that are read
        ``here`` stay in memory as long as there is ``ROOM``.
        """
        kept: list[pa.RecordBatch] = []
        rows = size = taken = 0
        source = iter(batches)
        try:
            for batch in source:
                kept.append(batch)
                rows += batch.num_rows
                size += batch.nbytes
                if self._fits_plan(rows, size):
                    continue
                if here and self._take(size - taken):
                    taken = size
                    continue
                rest = chain(kept, source)
                return self._write(rest, schema) if write is None else write(rest)
            table = pa.Table.from_batches(kept, schema)
            if taken:
                self._held[id(table)], taken = taken, 0
            return Staged(rows, table=table)
        finally:
            self._take(-taken)

    @contextlib.contextmanager
    def for_spark(self, staged: Staged) -> Iterator[Staged]:
        """The same where Spark reads it: from a file, if it is too much for a plan."""
        table = staged.table
        if table is None or self._fits_plan(table.num_rows, table.nbytes):
            yield staged
            return
        written = self._write(table.to_batches(), table.schema)
        try:
            yield written
        finally:
            self.discard(written)

    def discard(self, staged: Staged) -> None:
        """Remove its files; missing is fine."""
        if staged.table is not None:
            self._take(-self._held.pop(id(staged.table), 0))
        for name in staged.paths:
            remove(name)
        if staged.own is not None and not staged.own.committed:
            for file in staged.own.files:
                local(file.path).unlink(missing_ok=True)

    def _fits_plan(self, rows: int, size: int) -> bool:
        return rows <= self._local_rows and size <= LOCAL_BYTES

    def _take(self, size: int) -> bool:
        """Take so much of the room, if there is so much; less than nothing gives it back."""
        with self._lock:
            if size > self._room:
                return False
            self._room -= size
            return True

    def _write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        with storage_errors():
            path = create(self._folder, f"{uuid.uuid4().hex}.parquet")
            try:
                rows = self._fill(path, batches, schema)
            except BaseException:
                remove(path)
                raise
        return Staged(rows, paths=(path,))

    @staticmethod
    def _fill(path: str, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
        rows = 0
        system, name = located(path)
        with pq.ParquetWriter(
            name,
            schema,
            filesystem=system,
            compression="lz4",
            use_dictionary=False,
            write_statistics=False,
        ) as writer:
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch, row_group_size=_ROW_GROUP)
        return rows


def staged_columns(staged: Staged, names: list[str]) -> pa.Table:
    """Some columns of what was staged, read back."""
    if staged.table is not None:
        return staged.table.select(names)
    system, path = located(staged.paths[0])
    with storage_errors():
        return pq.read_table(path, columns=names, filesystem=system)


def staged_batches(staged: Staged) -> Iterator[pa.RecordBatch]:
    """The rows that were staged, some at a time."""
    if staged.table is not None:
        yield from staged.table.to_batches()
        return
    for name in staged.paths:
        system, path = located(name)
        with storage_errors(), pq.ParquetFile(path, filesystem=system) as file:
            yield from file.iter_batches()


def staged_schema(staged: Staged) -> pa.Schema:
    """The schema rows were staged with."""
    if staged.table is not None:
        return staged.table.schema
    system, path = located(staged.paths[0])
    with storage_errors():
        return pq.read_schema(path, filesystem=system)
