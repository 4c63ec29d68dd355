"""Fold a segment under REPLICA IDENTITY FULL: all columns find a row, and equal rows may exist.

An UPDATE or DELETE under FULL changes exactly one row equal to the old row, and no row if there is
no equal row. Net counts per row are therefore wrong: an UPDATE whose old row is missing must not
leave the new row behind. So the fold has two steps:

1. ``image_batches`` names the old rows that the fold may take from the table, with the most rows of
   each image; the lake looks the rows up on the branch.
2. ``resolve`` gets the found rows and applies the changes one by one to existing rows: first to
   rows made or changed in the segment, then to found rows; otherwise the change is missing.

Then ``position_batches`` has the fate of the found rows, ``append_batches`` the new rows:

    table {a, a}; U a→b, D a, D a, I c      looked up: a × 3     found: a, a
        first a becomes b, second a is deleted, third D is missing; c is appended
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import InternalError
from config.limits import CHUNK_BYTES, CHUNK_ROWS
from workers.columnar.column_reader import Changes, ColumnReader, Layout
from workers.columnar.fold.by_key import column_schema, complete_batches, record_batch
from workers.columnar.fold.key_table import MOST_CHANGES
from workers.columnar.fold.row_images import count_wanted, intern_images, simulate
from workers.columnar.text_array import Array


def full_images(changes: Changes, layout: Layout) -> Full:
    """Begin the fold of a segment whose changes carry whole old rows.

    Raises ``ProtocolViolation`` for an UPDATE or DELETE without an old row, and for an unchanged
    value that is missing in the old row, too.
    """
    if len(changes) >= MOST_CHANGES:
        raise InternalError("segment has too many changes")
    image_of, refs = intern_images(changes, layout)
    wanted = np.zeros(len(refs), np.int32)
    count_wanted(changes.kind, image_of, np.zeros(len(refs), np.int32), wanted)
    return Full(changes, layout, image_of, refs, wanted)


class Full:
    """A segment matched by whole rows, before and after ``resolve``."""

    def __init__(
        self,
        changes: Changes,
        layout: Layout,
        image_of: npt.NDArray[np.int32],
        refs: npt.NDArray[np.int64],
        wanted: npt.NDArray[np.int32],
    ) -> None:
        self._changes = changes
        self._image_of = image_of
        self._refs = refs
        self._wanted = wanted
        self._images = np.flatnonzero(wanted)
        self._reader = ColumnReader(changes, layout, layout.columns)
        self.append_schema = column_schema(layout)
        """``c0…``."""
        self.image_schema = pa.schema(
            [("image", pa.int64()), ("n", pa.int32()), *self.append_schema]
        )
        """``image`` int64, ``n`` int32 (the most rows), ``c0…``."""
        self.position_schema = pa.schema(
            [("f", pa.string()), ("p", pa.int64()), ("op", pa.int8()), *self.append_schema]
        )
        """``f`` file, ``p`` position in the file, ``op`` int8 (0 update, 1 delete), ``c0…``."""
        self._found: npt.NDArray[np.int64] | None = None
        self._final = np.empty(0, np.int64)
        self._born = np.empty(0, np.int64)
        self.missing_updates = 0
        self.missing_deletes = 0

    @property
    def position_rows(self) -> int:
        """The number of rows in all ``position_batches``."""
        return len(self._resolved())

    @property
    def append_rows(self) -> int:
        """The number of rows in all ``append_batches``."""
        self._resolved()
        return len(self._born)

    def image_batches(
        self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Distinct old rows to look up; raises ``UnrepresentableValue``."""
        refs = self._refs[self._images]
        for part, arrays, _ in self._reader.chunks(refs, chunk_rows, chunk_bytes):
            images = self._images[part]
            columns: list[Array] = [
                pa.array(images, pa.int64()),
                pa.array(self._wanted[images]),
                *arrays,
            ]
            yield record_batch(columns, self.image_schema, len(images))

    def resolve(self, found_image: Any) -> None:
        """Decide every change, given the image of each found row (int64, any order).

        Rows of an image beyond the requested number stay unchanged. May be called again.
        """
        images = np.asarray(found_image, np.int64)
        if len(images) and not 0 <= images.min() <= images.max() < len(self._refs):
            raise InternalError("the lake found a row nobody asked for")
        order = np.argsort(images, kind="stable")
        given = np.searchsorted(images[order], np.arange(len(self._refs) + 1))
        count = len(self._changes)
        found, last = np.empty(count, np.int64), np.empty(count, np.int32)
        first_image, image, following = (np.empty(count, np.int32) for _ in range(3))
        state = np.zeros(3, np.int64)
        simulate(
            self._changes.kind,
            self._image_of,
            given,
            order,
            np.full(len(self._refs), -1, np.int32),
            (found, last, first_image, image, following),
            state,
        )
        rows = int(state[0])
        found, final = found[:rows], last[:rows].astype(np.int64) * 2 + 1
        moved = (found >= 0) & (first_image[:rows] != image[:rows])
        self._found = found[moved]
        self._final = final[moved]  # -1 where the row is gone
        self._born = final[(found < 0) & (final >= 0)]
        self.missing_updates, self.missing_deletes = int(state[1]), int(state[2])

    def position_batches(
        self,
        found_f: Any,
        found_p: Any,
        chunk_rows: int = CHUNK_ROWS,
        chunk_bytes: int = CHUNK_BYTES,
    ) -> Iterator[pa.RecordBatch]:
        """The fate of found rows; ``found_f`` and ``found_p`` belong to ``found_image``.

        Unchanged rows are left out. Raises ``UnrepresentableValue``.
        """
        found = self._resolved()
        for part, arrays, _ in self._reader.chunks(self._final, chunk_rows, chunk_bytes):
            index = pa.array(found[part])
            deleted = (self._final[part] < 0).view(np.int8)
            columns: list[Array] = [
                _one_array(found_f.take(index), pa.string()),
                _one_array(found_p.take(index), pa.int64()),
                pa.array(deleted),
                *arrays,
            ]
            yield record_batch(columns, self.position_schema, len(index))

    def append_batches(
        self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Rows made in the segment that exist at the end; raises ``UnrepresentableValue``."""
        self._resolved()
        yield from complete_batches(
            self._reader, self._born, self.append_schema, chunk_rows, chunk_bytes
        )

    def _resolved(self) -> npt.NDArray[np.int64]:
        if self._found is None:
            raise InternalError("changes are not resolved yet")
        return self._found


def _one_array(values: Any, type: pa.DataType) -> Array:
    array = values.combine_chunks() if isinstance(values, pa.ChunkedArray) else values
    result: Array = array.cast(type)
    return result
