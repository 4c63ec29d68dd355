"""A cache of deleted rows: for each data file of recent look-ups, a bit per row.

Data files and delete files never change, so an entry is valid for the list of delete files with
which it was computed. A look-up with a different list reads the delete files again. After a commit
of this process, the new list and the new bits are known without reading.

Trace: file ``a`` has 8 rows and the delete file ``d1`` (row 1). A look-up stores ``a, (d1):
01000000``. A commit deletes row 4 with ``d2``: the entry becomes ``a, (d1, d2): 01001000``. A
foreign writer adds ``d3``: the next look-up asks for ``(d1, d2, d3)``, finds no entry and reads all
three.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from config.limits import DELETED_ROWS_CACHE_BYTES, DELETED_ROWS_SHARED_ROWS
from config.monitor_limits import LARGE_SHARED_DELETES_ROWS
from workers.lake.files.deletion_vectors import read_vector
from workers.lake.files.position_deletes import NO_POSITIONS, Array, RowPositions, read_deletes
from workers.lake.files.read_rows import reading
from workers.lake.staged_rows import LiveFile, NewFile
from workers.lake.storage.store import TableStore

Bits = npt.NDArray[np.uint8]
_Key = tuple[tuple[str, Any], ...]


@dataclass(slots=True)
class DeletedRowsCache:
    """The deleted rows of the most recently used data files."""

    max_bytes: int = DELETED_ROWS_CACHE_BYTES
    _entries: OrderedDict[str, tuple[_Key, Bits]] = field(default_factory=OrderedDict)
    _shared: dict[str, Future[RowPositions]] = field(default_factory=dict)
    _shared_rows: int = 0
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _reading_large: threading.Lock = field(default_factory=threading.Lock)

    def live_mask(self, store: TableStore, file: LiveFile, places: Array) -> npt.NDArray[np.bool_]:
        """Which of the positions are not deleted, as a mask. Unreadable: ask Spark."""
        if not file.deletes:
            return np.ones(len(places), np.bool_)
        with reading(store):
            bits = self._bits_of(store, file)
            shifted = bits[places >> 3] >> (places & 7).astype(np.uint8)
            found: npt.NDArray[np.bool_] = shifted & 1 == 0
        return found

    def living(self, store: TableStore, file: LiveFile) -> Array:
        """The positions of the rows that are not deleted. Unreadable: ask Spark."""
        if not file.deletes:
            return np.arange(file.rows)
        with reading(store):
            mask = np.unpackbits(self._bits_of(store, file), count=file.rows, bitorder="little")
            return np.flatnonzero(mask == 0)

    def deleted(self, store: TableStore, file: LiveFile) -> int:
        """The number of deleted rows. Unreadable: ask Spark."""
        if not file.deletes:
            return 0
        with reading(store):
            return int(np.bitwise_count(self._bits_of(store, file)).sum())

    def _bits_of(self, store: TableStore, file: LiveFile) -> Bits:
        bits = self._get(file)
        if bits is None:
            bits = _bits(file.rows, [self._read(store, each, file.path) for each in file.deletes])
            self._put(file, bits)
        return bits

    def add_deleted(self, before: LiveFile, after: LiveFile, places: Array) -> None:
        """Store that a commit deleted further rows of a file.

        A foreign writer's file may have more rows than its metadata says. Such an entry is dropped.
        """
        if len(places) and places[-1] >= before.rows:
            self.forget([before.path])
            return
        bits = self._get(before) if before.deletes else np.zeros(_size(before.rows), np.uint8)
        if bits is not None:
            mask = np.unpackbits(bits, bitorder="little")
            mask[places] = 1
            self._put(after, np.packbits(mask, bitorder="little"))

    def forget(self, paths: Iterable[str]) -> None:
        """Drop the entries of data files: read their deletes again."""
        with self._lock:
            for path in paths:
                if path in self._entries:
                    self._bytes -= len(self._entries.pop(path)[1])

    def _read(self, store: TableStore, deletes: NewFile, path: str) -> Array:
        if deletes.vector:
            return read_vector(store, deletes)[path]
        if deletes.of is not None:
            return read_deletes(store, deletes).get(path, NO_POSITIONS)
        return self._read_shared(store, deletes).get(path, NO_POSITIONS)

    def _read_shared(self, store: TableStore, deletes: NewFile) -> RowPositions:
        """A delete file for several data files, which may ask for the file at the same time."""
        ours: Future[RowPositions] = Future()
        with self._lock:
            coming = self._shared.setdefault(deletes.path, ours)
        if coming is not ours:
            return coming.result()
        try:
            is_large = deletes.rows > LARGE_SHARED_DELETES_ROWS
            with self._reading_large if is_large else nullcontext():
                places = read_deletes(store, deletes)
        except BaseException as error:
            with self._lock:
                self._shared.pop(deletes.path, None)
            coming.set_exception(error)
            raise
        coming.set_result(places)
        rows = sum(map(len, places.values()))
        with self._lock:
            self._shared_rows += rows
            if self._shared_rows > DELETED_ROWS_SHARED_ROWS:
                self._shared, self._shared_rows = {deletes.path: coming}, rows
        return places

    def _get(self, file: LiveFile) -> Bits | None:
        with self._lock:
            key, bits = self._entries.get(file.path, (None, None))
            if key != _key(file):
                return None
            self._entries.move_to_end(file.path)
            return bits

    def _put(self, file: LiveFile, bits: Bits) -> None:
        with self._lock:
            if file.path in self._entries:
                self._bytes -= len(self._entries.pop(file.path)[1])
            self._entries[file.path] = _key(file), bits
            self._bytes += len(bits)
            while self._bytes > self.max_bytes and len(self._entries) > 1:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._bytes -= len(dropped)


def _key(file: LiveFile) -> _Key:
    return tuple(sorted((each.path, each.vector) for each in file.deletes))


def _size(rows: int) -> int:
    return (rows + 7) // 8


def _bits(rows: int, deleted: Sequence[Array]) -> Bits:
    mask = np.zeros(8 * _size(rows), np.bool_)
    for places in deleted:
        mask[places] = True
    return np.packbits(mask, bitorder="little")
