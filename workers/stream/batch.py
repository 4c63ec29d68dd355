"""A batch: whole transactions, received and in commit order."""

from __future__ import annotations

import mmap
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from catalog.pg_lsn import LSN

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole transactions, contiguous in ``buf[start:end]``; ``commits`` has a row for each.

    ``mapping`` is the file's, when the batch is on disk.
    """

    buf: Bytes
    start: int
    end: int
    commits: Ints
    mapping: mmap.mmap | None = None

    @property
    def ntxns(self) -> int:
        """How many transactions."""
        return len(self.commits)

    @property
    def final_lsn(self) -> Ints:
        """Where each transaction's commit record starts."""
        return self.commits[:, 1]

    @property
    def end_lsn(self) -> Ints:
        """Where each transaction's commit record ends."""
        return self.commits[:, 2]

    @property
    def nchanges(self) -> int:
        """Row changes in all transactions."""
        return int(self.commits[:, 4].sum())

    @property
    def last_end(self) -> LSN:
        """The position the batch reaches."""
        return LSN(int(self.commits[-1, 2]))

    def part(self, first: int, last: int) -> Batch:
        """The transactions ``first`` to ``last`` (exclusive) as a batch of their own."""
        start = self.start if first == 0 else int(self.commits[first - 1, 0])
        end = int(self.commits[last - 1, 0])
        return Batch(self.buf, start, end, self.commits[first:last], self.mapping)

    def give_pages_back(self, start: int, end: int) -> None:
        """Let go of the mapping's pages there; they come back from the page cache when touched."""
        if self.mapping is not None and start < end:
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            self.mapping.madvise(mmap.MADV_DONTNEED, first, end - first)
