"""A batch: whole transactions, received and in commit order."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from catalog.pg_lsn import LSN
from workers.proto.messages import PG_EPOCH_US

_BEGIN_RECORD: Final = struct.Struct(">4x x 8x 8x I")  # the record's length, then the message

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Received:
    """What was received of a transaction, in bytes of records behind the record of Begin.

    ``number`` names the transaction: no other transaction of the stream has the number. ``calm``
    are the bytes before the changes of the last subtransaction, which is rolled back most likely.
    ``cut`` is the least size since the last look, None without a roll-back since. A table may have
    been altered between two of the transaction's changes (``is_altered``). The transaction may be
    complete, and wait in the queue (``is_complete``).
    """

    number: int
    xid: int
    size: int
    calm: int
    cut: int | None = None
    is_complete: bool = False
    is_altered: bool = False


@dataclass(frozen=True, slots=True)
class Batch:
    """Whole transactions, contiguous in ``buf[start:end]``; ``commits`` has a row for each Commit.

    A row holds: offset of the record's end, final_lsn, end_lsn, commit time (µs since 2000), number
    of changes. ``mapping`` maps the file of a batch on disk. ``streamed`` is set if the batch is a
    single transaction that was received while it ran.
    """

    buf: Bytes
    start: int
    end: int
    commits: Ints
    mapping: mmap.mmap | None = None
    streamed: Received | None = None

    @property
    def ntxns(self) -> int:
        """The number of transactions."""
        return len(self.commits)

    @property
    def final_lsn(self) -> Ints:
        """The start of each commit record."""
        return self.commits[:, 1]

    @property
    def end_lsn(self) -> Ints:
        """The end of each commit record."""
        return self.commits[:, 2]

    @property
    def nchanges(self) -> int:
        """The number of row changes in all transactions."""
        return int(self.commits[:, 4].sum())

    @property
    def first_commit_time(self) -> int:
        """The publisher's commit time of the first transaction, in microseconds since 1970."""
        return int(self.commits[0, 3]) + PG_EPOCH_US

    @property
    def last_end(self) -> LSN:
        """The position at the batch's end."""
        return LSN(int(self.commits[-1, 2]))

    @property
    def first_xid(self) -> int:
        """The id of the first transaction on the publisher."""
        record = self.buf[self.start : self.start + _BEGIN_RECORD.size].tobytes()
        return int(_BEGIN_RECORD.unpack(record)[0])

    def part(self, first: int, last: int) -> Batch:
        """A batch of the transactions ``first`` to ``last`` (exclusive)."""
        start = self.start if first == 0 else int(self.commits[first - 1, 0])
        end = int(self.commits[last - 1, 0])
        commits = self.commits[first:last]
        return Batch(self.buf, start, end, commits, self.mapping, self.streamed)

    def give_pages_back(self, start: int, end: int) -> None:
        """Give pages of the mapping back; a page returns from the page cache at the next access."""
        if self.mapping is not None and start < end:
            first = start // mmap.PAGESIZE * mmap.PAGESIZE
            self.mapping.madvise(mmap.MADV_DONTNEED, first, end - first)
