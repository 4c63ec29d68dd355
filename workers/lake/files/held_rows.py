"""The rows of a branch's small data files, held in memory: at most one file for each partition.

The next small batch writes the held rows of a partition again together with the partition's new
rows (``small_batch``). Nothing has to be read for that.

Only files that this process committed to the branch are held. After a failure the branch is
abandoned, and the held rows with the branch. Whoever takes a file looks whether the branch still
has the file: compaction may have joined the file with others.

Trace: a batch writes rows 1 and 2 of Monday to file ``a``: ``a`` is held. The next batch writes row
7 of Monday. File ``b`` has the rows 1, 2 and 7, and is held in place of ``a``.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import count
from typing import Final

import pyarrow as pa

from config.monitor_limits import (
    HELD_COLUMN_BYTES,
    HELD_FILE_BYTES,
    HELD_FILE_ROWS,
    HELD_ROWS_BYTES,
)
from workers.lake.staged_rows import NewFile, Place

_Key = tuple[int, Place]
_NUMBERS: Final = count()
"""A number for each branch: an abandoned branch's files are never those of the branch after."""


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A committed data file, and the file's rows in order."""

    file: NewFile
    rows: pa.Table


@dataclass(slots=True)
class HeldStore:
    """The held files of all branches of a process. The file used longest ago is the first to go."""

    max_bytes: int = HELD_ROWS_BYTES
    _files: OrderedDict[_Key, HeldFile] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, key: _Key) -> HeldFile | None:
        """The held file of a branch's partition."""
        with self._lock:
            if key in self._files:
                self._files.move_to_end(key)
            return self._files.get(key)

    def put(self, key: _Key, file: HeldFile) -> None:
        """Hold a file in place of the partition's file before, if memory allows."""
        with self._lock:
            self._drop(key)
            if _size(file) > self.max_bytes:
                return
            self._files[key] = file
            self._bytes += _size(file)
            while self._bytes > self.max_bytes:
                self._drop(next(iter(self._files)))

    def drop(self, key: _Key) -> None:
        """Hold the partition's file no more."""
        with self._lock:
            self._drop(key)

    def drop_branch(self, branch: int) -> None:
        """Hold no file of a branch any more."""
        with self._lock:
            for key in [each for each in self._files if each[0] == branch]:
                self._drop(key)

    def _drop(self, key: _Key) -> None:
        gone = self._files.pop(key, None)
        if gone is not None:
            self._bytes -= _size(gone)


@dataclass(slots=True)
class HeldRows:
    """The held files of one branch, by partition."""

    store: HeldStore = field(default_factory=HeldStore)
    _branch: int = field(default_factory=partial(next, _NUMBERS))

    def of(self, place: Place) -> HeldFile | None:
        """The held file of a partition."""
        return self.store.get((self._branch, place))

    def hold(self, file: NewFile, rows: pa.Table) -> None:
        """Hold a committed file in place of the partition's file before, unless it is large."""
        if file.place is None:
            return
        key = self._branch, file.place
        if file.rows >= HELD_FILE_ROWS or rows.nbytes >= HELD_FILE_BYTES:
            self.store.drop(key)
            return
        self.store.put(key, HeldFile(replace(file, footer=b""), rows))

    def forget(self) -> None:
        """Drop all: somebody else has written to the branch."""
        self.store.drop_branch(self._branch)


def _size(held: HeldFile) -> int:
    """The memory of a held file; of few rows nearly all is Arrow's and Python's own."""
    return int(held.rows.nbytes) + (2 + held.rows.num_columns) * HELD_COLUMN_BYTES
