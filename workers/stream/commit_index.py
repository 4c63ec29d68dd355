"""The ends of the transactions of a spool segment: in memory, or in a file beside the segment's.

An entry takes 40 bytes, and a tiny transaction takes 100. So the entries count as memory of the
spool, and they leave memory together with the bytes of their segment. The spool of a lake that
stands still then holds any number of transactions.

Trace: three transactions come, 120 bytes of entries. ``spill`` writes the entries to an unlinked
file. A fourth entry is appended to the file. ``take`` reads the oldest entries that fit the limits
of a batch.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from config.limits import INDEX_READ_TRANSACTIONS
from workers.stream.batch import Bytes, Ints

_OFFSET, _CHANGES = 0, 4
_COLUMNS: Final = 5
_ROW_BYTES: Final = _COLUMNS * np.dtype(np.int64).itemsize


class CommitIndex:
    """The entries of a segment, oldest first; ``Batch.commits`` describes an entry."""

    def __init__(self) -> None:
        self._rows: Ints = np.empty((1, _COLUMNS), np.int64)
        self._file: int | None = None
        self._first = 0  # entries before are taken
        self._end = 0

    def __len__(self) -> int:
        return self._end - self._first

    @property
    def memory(self) -> int:
        """Bytes in memory."""
        return 0 if self._file is not None else self.size

    @property
    def size(self) -> int:
        """Bytes of the entries that are not taken, in memory or in the file."""
        return len(self) * _ROW_BYTES

    def append(self, commits: Ints) -> None:
        """Add entries."""
        if self._file is not None:
            write_all(self._file, commits)
        else:
            self._make_room(len(commits))
            self._rows[self._end : self._end + len(commits)] = commits
        self._end += len(commits)

    def _make_room(self, more: int) -> None:
        """Forget taken entries, and go on in a larger array if half of the array is in use."""
        kept = len(self)
        if self._end + more <= len(self._rows):
            return
        size = len(self._rows) if 2 * (kept + more) <= len(self._rows) else 2 * (kept + more)
        rows = np.empty((size, _COLUMNS), np.int64)
        rows[:kept] = self._rows[self._first : self._end]
        self._rows, self._first, self._end = rows, 0, kept

    def move(self, distance: int) -> None:
        """Subtract ``distance`` from all offsets: the segment's bytes begin later now."""
        self._rows[self._first : self._end, _OFFSET] -= distance

    def spill(self, directory: Path, distance: int) -> int:
        """Write the entries to an unlinked file, as ``move`` would leave them; for ``go_on_in``."""
        with tempfile.TemporaryFile(dir=directory, prefix="spool-index-") as handle:
            rows = self._rows[self._first : self._end].copy()
            rows[:, _OFFSET] -= distance
            write_all(handle.fileno(), rows)
            return os.dup(handle.fileno())

    def go_on_in(self, file: int) -> None:
        """Leave memory; the entries are in ``file``."""
        self._file, self._end, self._first = file, len(self), 0
        self._rows = np.empty((0, _COLUMNS), np.int64)

    def take(self, start: int, max_bytes: int, max_rows: int) -> Ints:
        """Take the oldest entry, and more while the transactions fit both limits together.

        ``start`` is where the oldest transaction begins.
        """
        taken: list[Ints] = []
        changes = 0
        for rows in self._oldest_first():
            fit = int(np.searchsorted(rows[:, _OFFSET], start + max_bytes, side="right"))
            sums = changes + np.cumsum(rows[:fit, _CHANGES])
            count = int(np.searchsorted(sums, max_rows, side="right"))
            if not taken:
                count = max(count, 1)
            taken.append(rows[:count])
            if count < len(rows):
                break
            changes += int(rows[:, _CHANGES].sum())
        found = np.concatenate(taken)
        self._first += len(found)
        return found

    def _oldest_first(self) -> Iterator[Ints]:
        for first in range(self._first, self._end, INDEX_READ_TRANSACTIONS):
            end = min(first + INDEX_READ_TRANSACTIONS, self._end)
            if self._file is None:
                yield self._rows[first:end]
            else:
                data = os.pread(self._file, (end - first) * _ROW_BYTES, first * _ROW_BYTES)
                yield np.frombuffer(data, np.int64).reshape(-1, _COLUMNS)

    def close(self) -> None:
        """Let the file go."""
        if self._file is not None:
            os.close(self._file)
            self._file = None
            self._first = self._end = 0


def write_all(file: int, data: Bytes | Ints) -> None:
    """Write the bytes of an array, in several writes if a write is short."""
    view = data.reshape(-1).view(np.uint8).data
    while view:
        view = view[os.write(file, view) :]
