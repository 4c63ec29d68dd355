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

from collections import OrderedDict
from dataclasses import dataclass, field

import pyarrow as pa

from config.monitor_limits import HELD_FILE_ROWS, HELD_ROWS_BYTES
from workers.lake.staged_rows import NewFile, Place


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A committed data file, and the file's rows in order."""

    file: NewFile
    rows: pa.Table


@dataclass(slots=True)
class HeldRows:
    """The held files of a branch by partition. The file written longest ago is the first to go."""

    max_bytes: int = HELD_ROWS_BYTES
    _files: OrderedDict[Place, HeldFile] = field(default_factory=OrderedDict)
    _bytes: int = 0

    def of(self, place: Place) -> HeldFile | None:
        """The held file of a partition."""
        return self._files.get(place)

    def hold(self, file: NewFile, rows: pa.Table) -> None:
        """Hold a committed file in place of the partition's file before, unless it is large."""
        if file.place is None:
            return
        self._drop(file.place)
        if file.rows >= HELD_FILE_ROWS or rows.nbytes > self.max_bytes:
            return
        self._files[file.place] = HeldFile(file, rows)
        self._bytes += rows.nbytes
        while self._bytes > self.max_bytes:
            self._drop(next(iter(self._files)))

    def forget(self) -> None:
        """Drop all: somebody else has written to the branch."""
        self._files.clear()
        self._bytes = 0

    def _drop(self, place: Place) -> None:
        gone = self._files.pop(place, None)
        if gone is not None:
            self._bytes -= gone.rows.nbytes
