"""The new rows of updates: sent values, and values of the old row.

An update sends the published columns except unchanged large values. The new row needs the unsent
values, and the values of columns that only the lake has; both are fetched from the old row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from config.limits import ROW_GROUP_BYTES
from workers.lake.files.data_files import as_rows
from workers.lake.files.read_rows import RowsInOrder
from workers.lake.files.table_layout import ROW_NUMBER, TableLayout
from workers.lake.segment import Segment
from workers.lake.sql.merge import UPDATE
from workers.lake.staged_rows import Staged
from workers.lake.storage.staging import staged_batches, staged_columns


def keeps_old_values(files: TableLayout, segment: Segment) -> bool:
    """Do updates of the segment write values again that only old rows have?"""
    if segment.merge is None or not segment.merge.rows or not segment.unsent(files.names):
        return False
    op = staged_columns(segment.merge, ["op"])["op"].to_numpy()
    return bool((op == UPDATE).any())


def columns_to_fetch(files: TableLayout, segment: Segment) -> list[str]:
    """The columns of the old row that an update's new row needs."""
    numbers = [ROW_NUMBER.name] if files.has_vectors else []
    return [*segment.unsent(files.names), *numbers]


def layout_of_updated_rows(files: TableLayout) -> TableLayout:
    """The layout of rows with an old row: in format 3 the new row keeps the old row's number."""
    return files.numbered() if files.has_vectors else files


@dataclass(frozen=True, slots=True)
class UpdatedRows:
    """The new rows of a segment's updates. ``fetched`` are the columns of the old rows."""

    files: TableLayout
    segment: Segment
    fetched: Sequence[str]

    def batches(self, staged: Staged, at: Any, old: RowsInOrder) -> Iterator[pa.RecordBatch]:
        """The new rows, some at a time.

        ``at`` holds the numbers of the updates among the staged changes, in ascending order;
        ``old`` has the values of the old rows in the same order.
        """
        most = max(1, ROW_GROUP_BYTES * old.rows.num_rows // max(1, old.rows.nbytes))
        start = 0
        for batch in staged_batches(staged):
            low, high = np.searchsorted(at, [start, start + batch.num_rows])
            for first in range(low, high, most):
                some = slice(first, min(first + most, high))
                is_whole = some.stop - first == batch.num_rows
                sent = batch if is_whole else batch.take(pa.array(at[some] - start))
                yield self._rows(sent, old.some(some))
            start += batch.num_rows

    def _rows(self, sent: pa.RecordBatch, old: pa.Table) -> pa.RecordBatch:
        segment = self.segment
        masks = {name: f"m{segment.columns.index(name)}" for name in segment.unchanged}
        layout = layout_of_updated_rows(self.files)
        rows = as_rows(layout, sent, segment.columns, segment.source)
        columns = list(rows.columns)
        for n, name in enumerate(self.fetched):
            place = rows.schema.get_field_index(name)
            values = one_chunk(old[f"o{n}"]).cast(rows.schema.field(place).type)
            if name in masks:
                values = pc.if_else(sent.column(masks[name]), values, columns[place])
            columns[place] = values
        whole: pa.RecordBatch = pa.RecordBatch.from_arrays(columns, schema=rows.schema)
        return whole


def one_chunk(column: Any) -> Any:
    """A chunked array as a single array."""
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def keys_to_find(segment: Segment, staged: Staged) -> pa.Table:
    """The keys of a segment's changes: ``k, b0…``."""
    names = [f"b{n}" for n in range(len(segment.key))]
    keys = staged_columns(staged, names)
    numbers = pa.chunked_array([pa.array(np.arange(staged.rows))])
    return pa.Table.from_arrays([numbers, *keys.columns], names=["k", *names])
