"""Staged rows: few rows stay in memory, many go to Parquet files.

A small Arrow table travels to Spark inside the query plan. A large table is written to a Parquet
file of the staging folder, and Spark reads the file. A write to the lake reads the staged rows and
then discards them.

Trace, with a limit of 1,000 rows: a batch of 600 rows arrives and stays in memory. A second batch
of 600 rows arrives: 1,200 rows exceed the limit, so these and all later batches go to a file.
"""

from __future__ import annotations

import contextlib
import threading
import uuid
from collections.abc import Callable, Iterable, Iterator
from itertools import chain

import pyarrow as pa
import pyarrow.parquet as pq

from config.limits import ROW_GROUP_ROWS, STAGED_INLINE_BYTES, STAGED_MEMORY_BYTES
from workers.lake.staged_rows import Staged
from workers.lake.storage.choose_store import staging_store
from workers.lake.storage.store import remove_all


class Staging:
    """Stages rows in memory or in the Parquet files of one folder."""

    def __init__(self, folder: str, local_rows: int) -> None:
        self._folder = folder
        self._store = staging_store(folder)
        self._local_rows = local_rows
        self._lock = threading.Lock()
        self._free_bytes = STAGED_MEMORY_BYTES
        self._reserved: dict[int, int] = {}

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        write: Callable[[Iterable[pa.RecordBatch]], Staged] | None = None,
        *,
        here: bool = False,
    ) -> Staged:
        """Stage rows, a batch at a time; at most the local limit stays in memory.

        ``write`` writes rows beyond the limit; by default they go to a file of the folder. ``here``
        means that only this process reads the rows: then they stay in memory while all such rows
        take at most ``STAGED_MEMORY_BYTES``. A file costs 0.2 µs a row.
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
                if here and self._reserve(size - taken):
                    taken = size
                    continue
                rest = chain(kept, source)
                return self._write(rest, schema) if write is None else write(rest)
            table = pa.Table.from_batches(kept, schema)
            if taken:
                self._reserved[id(table)], taken = taken, 0
            return Staged(rows, table=table)
        finally:
            self._reserve(-taken)

    @contextlib.contextmanager
    def for_spark(self, staged: Staged) -> Iterator[Staged]:
        """Staged rows as Spark can read them: in a file if too large for a plan."""
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
        """Remove the files of staged rows; no error if a file does not exist."""
        if staged.table is not None:
            self._reserve(-self._reserved.pop(id(staged.table), 0))
        remove_all(self._store, staged.paths)
        if staged.own is not None and not staged.own.committed:
            staged.own.remove([file.path for file in staged.own.files])

    def _fits_plan(self, rows: int, size: int) -> bool:
        return rows <= self._local_rows and size <= STAGED_INLINE_BYTES

    def _reserve(self, size: int) -> bool:
        """Reserve ``size`` bytes of memory, if free. A negative ``size`` gives memory back."""
        with self._lock:
            if size > self._free_bytes:
                return False
            self._free_bytes -= size
            return True

    def _write(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        path = f"{self._folder}/{uuid.uuid4().hex}.parquet"
        rows = 0
        with (
            self._store.create(path) as file,
            pq.ParquetWriter(
                file, schema, compression="lz4", use_dictionary=False, write_statistics=False
            ) as writer,
        ):
            for batch in batches:
                rows += batch.num_rows
                writer.write_batch(batch, row_group_size=ROW_GROUP_ROWS)
        return Staged(rows, paths=(path,))


def staged_columns(staged: Staged, names: list[str]) -> pa.Table:
    """Some columns of staged rows."""
    if staged.table is not None:
        return staged.table.select(names)
    store = staging_store(staged.paths[0])
    with store.errors(), store.open_input(staged.paths[0]) as file:
        return pq.read_table(file, columns=names)


def staged_batches(staged: Staged) -> Iterator[pa.RecordBatch]:
    """All staged rows, in batches."""
    if staged.table is not None:
        yield from staged.table.to_batches()
        return
    for name in staged.paths:
        store = staging_store(name)
        with store.errors(), store.open_input(name) as file, pq.ParquetFile(file) as parquet:
            yield from parquet.iter_batches()


def staged_schema(staged: Staged) -> pa.Schema:
    """The schema of staged rows."""
    if staged.table is not None:
        return staged.table.schema
    store = staging_store(staged.paths[0])
    with store.errors(), store.open_input(staged.paths[0]) as file:
        return pq.read_schema(file)
