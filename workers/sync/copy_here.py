"""Copying a table through the sync worker's connection.

A table of one range, and a table with hashed columns, is copied here: pieces of the COPY become
Arrow batches, the batches get their hashes, and the rows become files, or stay in memory if they
are few. Where this process writes the table's files, the rows wait for a commit
(``workers.sync.copied_rows``).

Trace: a table of 500,000 rows. 12 MB have arrived while the lake table was made, in three pieces;
they become three batches. The connection brings 19 MB more. One data file is written, and has no
snapshot yet.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.columnar.masks import Mask
from workers.lake.copy_task import Nodes, read_copy
from workers.lake.destination import Destination
from workers.lake.segment import RowsOf, Segment
from workers.lake.sources import source_of
from workers.lake.table import LakeColumn, LakeIdent
from workers.process import failpoints
from workers.process.worker_process import WorkerProcess
from workers.sync.copied_rows import CopiedRows
from workers.sync.rows_ahead import RowsAhead
from workers.tables.position import stamp_at


@dataclass(frozen=True, slots=True)
class Copy:
    """The parameters of a copy, for one connection or for Spark tasks."""

    process: WorkerProcess
    sub: Subscription
    rel: SubscriptionRel
    options: TableOptions
    ident: LakeIdent
    dest: Destination
    branch: str
    nodes: Nodes | None
    columns: tuple[LakeColumn, ...]
    masks: tuple[Mask | None, ...]
    clamped: frozenset[str]

    @property
    def relation(self) -> str:
        """The table on the publisher, for messages."""
        return f"{self.rel.nspname}.{self.rel.relname}"

    @property
    def source(self) -> str:
        """The source of the rows in a shared lake table; empty for any other table."""
        return source_of(self.sub, self.rel)

    @property
    def copy_id(self) -> str:
        """The copy id: the next attempt removes the files with the id in the name."""
        return self.rel.epoch or ""

    def report(self, **progress: int | None) -> None:
        """Set the values of pg_stat_progress_copy."""
        self.process.link.report(progress=progress)


def copy_here(copy: Copy, data: RowsAhead, origin: LSN, *, may_wait: bool) -> CopiedRows:
    """Copy through the sync worker's connection; the rows may wait for a commit."""
    schema = pa.schema([(f"c{n}", column.type) for n, column in enumerate(copy.columns)])
    computed = copy.options.defaults or copy.options.generated
    names = tuple(column.name for column in copy.columns)
    rows_of = None if computed else RowsOf(copy.ident, names, copy.source, copy.copy_id)
    staged = copy.dest.stage(_read_here(copy, data), schema, rows_of)
    segment = Segment(names, append=staged, source=copy.source)
    segment = replace(segment, defaults=copy.options.defaults, generated=copy.options.generated)
    rows = CopiedRows(copy.dest, copy.rel, copy.branch, staged.rows, segment)
    if not staged.rows:
        rows.discard()
        return rows
    with rows.discarded_on_error():
        if staged.paths or not may_wait:
            rows.write(stamp_at(copy.rel, origin, copy.source))
        failpoints.reach("tablesync.range_copied")
    return rows


def _read_here(copy: Copy, data: RowsAhead) -> Iterator[pa.RecordBatch]:
    """Read and count the rows of a COPY; the size in bytes is known at the end only."""
    received = rows = 0

    def tell(*, done: int) -> None:
        copy.report(
            bytes_processed=received, bytes_total=0, tuples_processed=rows, done=done, ranges=1
        )

    def chunks() -> Iterator[bytes | memoryview]:
        nonlocal received
        for chunk in data.pieces():
            received += len(chunk)
            yield chunk

    tell(done=0)
    for batch in read_copy(
        chunks(),
        copy.columns,
        null_unrepresentable=copy.options.on_unrepresentable == "null",
        relation=copy.relation,
        nodes=copy.nodes,
        clamped=copy.clamped,
    ):
        rows += batch.num_rows
        tell(done=0)
        yield _masked(batch, copy.masks)
    tell(done=1)


def _masked(batch: pa.RecordBatch, masks: Sequence[Mask | None]) -> pa.RecordBatch:
    """A batch with the hashes of hashed columns."""
    if not any(masks):
        return batch
    arrays = [
        array if mask is None else mask.hashed(array)
        for array, mask in zip(batch.columns, masks, strict=True)
    ]
    hashed: pa.RecordBatch = pa.RecordBatch.from_arrays(arrays, batch.schema.names)
    return hashed
