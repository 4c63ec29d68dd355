"""A segment of the spool: a contiguous region of records, in memory or in an unlinked file."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import numpy as np

from catalog.errcodes import DISK_FULL, IO_ERROR, IoError
from config.limits import SEGMENT_FIRST_BYTES, SEGMENT_SCRATCH_BYTES
from workers.process import failpoints
from workers.stream.batch import Bytes, Received
from workers.stream.commit_index import CommitIndex, write_all


class Segment:
    """A contiguous region: batches took the bytes up to ``start``; ``used`` bytes are written.

    ``streamed`` is set if the region is a single transaction that was received while it ran.
    """

    def __init__(self) -> None:
        self.buf: Bytes = np.empty(SEGMENT_FIRST_BYTES, dtype=np.uint8)
        self.file: int | None = None
        self.start = 0
        self.used = 0
        self.commits = CommitIndex()
        self.closed_to = 0  # record offset after the last Commit
        self.streamed: Received | None = None

    @property
    def data(self) -> int:
        """The bytes of records that are not taken."""
        return self.used - self.start

    @property
    def memory(self) -> int:
        """The bytes in memory: records and their index."""
        return 0 if self.file is not None else self.data + self.commits.memory

    def spill(self, directory: Path, *, with_index: bool = True) -> None:
        """Move to an unlinked file; ``buf`` becomes the scratch buffer.

        The index needs no file if the segment will hold one transaction. An error leaves the
        segment unchanged: the main thread may still take batches.
        """
        scratch = np.empty(SEGMENT_SCRATCH_BYTES, dtype=np.uint8)
        try:
            with tempfile.TemporaryFile(dir=directory, prefix="spool-") as handle:
                write_all(handle.fileno(), self.buf[self.start : self.used])
                index = self.commits.spill(directory, self.start) if with_index else None
                file = os.dup(handle.fileno())
        except OSError as error:
            raise disk_error(directory, error) from None
        self._move_to(scratch)
        self.file = file
        if index is not None:
            self.commits.go_on_in(index)

    def take_in(self, position: int) -> int:
        """Note bytes up to ``position`` of the buffer; the distance to their offsets here."""
        if self.file is None:
            self.used = position
            return 0
        before = self.used
        write_all(self.file, self.buf[:position])
        failpoints.reach(failpoints.SEGMENT_WRITTEN)
        self.used += position
        return before

    def begin_with(self, data: bytes, end: int) -> None:
        """Write ``data`` up to ``end``, and forget the bytes before."""
        self.start = end - len(data)
        if self.file is None:
            self.buf[self.start : end] = np.frombuffer(data, np.uint8)
        else:
            os.pwrite(self.file, data, self.start)

    def extend(self, data: bytes) -> None:
        """Write ``data`` behind the last byte."""
        new = np.frombuffer(data, np.uint8)
        if self.file is not None:
            write_all(self.file, new)
        else:
            if len(self.buf) < self.used + len(new):
                self.resize(self.used + len(new))
            self.buf[self.used : self.used + len(new)] = new
        self.used += len(new)

    def cut(self, size: int) -> None:
        """Forget everything behind the first ``size`` bytes; no batch has taken any of them."""
        if self.file is not None:
            os.ftruncate(self.file, size)
            os.lseek(self.file, size, os.SEEK_SET)
        self.used = size

    def read(self, start: int, end: int) -> Bytes:
        """A copy of written bytes."""
        if self.file is None:
            return self.buf[start:end].copy()
        return np.frombuffer(os.pread(self.file, end - start, start), dtype=np.uint8)

    def resize(self, size: int) -> None:
        """Go on in a buffer of ``size`` bytes."""
        bigger = np.empty(size, dtype=np.uint8)
        bigger[: self.data] = self.buf[self.start : self.used]
        self._move_to(bigger)

    def _move_to(self, buf: Bytes) -> None:
        """Go on in ``buf``; taken batches keep the old buffer."""
        self.buf = buf
        self.commits.move(self.start)
        self.closed_to -= self.start
        self.used -= self.start
        self.start = 0

    def close(self) -> None:
        """Let the file go."""
        self.commits.close()
        if self.file is not None:
            os.close(self.file)
            self.file = None


def disk_error(directory: Path, error: OSError) -> IoError:
    """The error of a worker whose spool cannot be written."""
    return IoError(
        f'could not write the spool in "{directory}"',
        detail=f"{error.strerror}.",
        hint="Free disk space there, or make the directory writable; nothing is lost meanwhile.",
        sqlstate=DISK_FULL if error.errno == 28 else IO_ERROR,
    )
