"""Rows on their way to the lake: small ones inside the plan, larger ones as Parquet files."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterable
from itertools import chain
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from catalog.errcodes import IoError, ReplicationError
from workers.lake.destination import Staged
from workers.lake.session import LakeSession
from workers.lake.typemap import schema_ddl

LOCAL_BYTES: Final = 8 << 20
"""A plan larger than this is slower than a file."""
_ROW_GROUP: Final = 131_072
_ENOSPC: Final = 28


class Staging:
    """A folder of Parquet files, 0600, each used by one write and then discarded."""

    def __init__(self, folder: Path, local_rows: int) -> None:
        self._folder = folder
        self._local_rows = local_rows

    def stage(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Staged:
        """Take rows in, a batch at a time; memory holds at most the local limit."""
        held: list[pa.RecordBatch] = []
        rows = size = 0
        source = iter(batches)
        for batch in source:
            held.append(batch)
            rows += batch.num_rows
            size += batch.nbytes
            if rows > self._local_rows or size > LOCAL_BYTES:
                return self._write(held, source, schema)
        return Staged(rows, table=pa.Table.from_batches(held, schema))

    def discard(self, staged: Staged) -> None:
        """Remove its files; missing is fine."""
        for name in staged.paths:
            Path(name).unlink(missing_ok=True)

    def _write(
        self, held: list[pa.RecordBatch], source: Iterable[pa.RecordBatch], schema: pa.Schema
    ) -> Staged:
        path = self._folder / f"{uuid.uuid4().hex}.parquet"
        try:
            for each in (self._folder.parent, self._folder):  # parents=True goes by the umask
                each.mkdir(mode=0o700, parents=True, exist_ok=True)
            os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            rows = 0
            with pq.ParquetWriter(
                str(path), schema, compression="lz4", use_dictionary=False, write_statistics=False
            ) as writer:
                for batch in chain(held, source):
                    rows += batch.num_rows
                    writer.write_batch(batch, row_group_size=_ROW_GROUP)
        except BaseException as error:
            path.unlink(missing_ok=True)
            if isinstance(error, OSError):
                raise _storage_error(error) from None
            raise
        return Staged(rows, paths=(str(path),))


def frame(session: LakeSession, staged: Staged) -> Any:
    """Staged rows as a DataFrame."""
    if staged.table is not None:
        return session.local(staged.table)
    reader = session.spark.read.schema(schema_ddl(staged_schema(staged)))
    return reader.parquet(*staged.paths)


def staged_columns(staged: Staged, names: list[str]) -> pa.Table:
    """Some columns of what was staged, read back."""
    if staged.table is not None:
        return staged.table.select(names)
    return pq.read_table(list(staged.paths), columns=names)


def staged_schema(staged: Staged) -> pa.Schema:
    """The schema rows were staged with."""
    if staged.table is not None:
        return staged.table.schema
    return pq.read_schema(staged.paths[0])


def _storage_error(error: OSError) -> ReplicationError:
    code = "53100" if error.errno == _ENOSPC else "58030"
    return IoError(
        "could not write to the staging folder",
        detail=f"{error.strerror or type(error).__name__}.",
        sqlstate=code,
    )
