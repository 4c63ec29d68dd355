"""The spool holds the changes that are received and not yet applied: in memory, then on disk.

The receive thread writes records (little-endian u32 length, then one pgoutput message) and notes
the ends of transactions. The main thread takes whole transactions out as a ``Batch``. Bytes leave
the spool in no other way: the decision whether a change is applied comes later, with the batch.

The spool is a queue of *segments*. A segment is a contiguous region. A new segment begins at a
transaction boundary once the present segment holds ``segment_bytes``, so a batch never spans two
segments. Segments live in memory while all segments together hold at most ``memory_limit`` bytes.
Past the limit the present segment moves to an unlinked file (mode 0600, gone with the process in
any case) and goes on in the file. At least one whole transaction always fits: the limits decide the
place of bytes and the cuts between batches, never the end of a transaction. What the spool knows of
each transaction (``CommitIndex``) counts as bytes, and lies where the bytes lie.

Trace: limit 64 MB. A 300 MB transaction arrives. The first 64 MB collect in memory, then move to a
file; the rest is appended through a small scratch buffer. The Commit closes the segment. The batch
reads the file through a mapping, and gives pages back on the way.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
from collections import deque
from pathlib import Path

import numpy as np

from catalog.errcodes import DISK_FULL, IO_ERROR, IoError
from config.limits import SEGMENT_FIRST_BYTES, SEGMENT_SCRATCH_BYTES
from workers.stream.batch import Batch, Bytes, Ints
from workers.stream.commit_index import CommitIndex, write_all


class _Segment:
    """A contiguous region: batches took the bytes up to ``start``; ``used`` bytes are written."""

    def __init__(self) -> None:
        self.buf: Bytes = np.empty(SEGMENT_FIRST_BYTES, dtype=np.uint8)
        self.file: int | None = None
        self.start = 0
        self.used = 0
        self.commits = CommitIndex()
        self.closed_to = 0  # record offset after the last Commit

    @property
    def data(self) -> int:
        """The bytes of records that are not taken."""
        return self.used - self.start

    @property
    def memory(self) -> int:
        """The bytes in memory: records and their index."""
        return 0 if self.file is not None else self.data + self.commits.memory

    def spill(self, directory: Path) -> None:
        """Move to an unlinked file; ``buf`` becomes the scratch buffer.

        An error leaves the segment unchanged: the main thread may still take batches.
        """
        scratch = np.empty(SEGMENT_SCRATCH_BYTES, dtype=np.uint8)
        try:
            with tempfile.TemporaryFile(dir=directory, prefix="spool-") as handle:
                write_all(handle.fileno(), self.buf[self.start : self.used])
                index = self.commits.spill(directory, self.start)
                file = os.dup(handle.fileno())
        except OSError as error:
            raise _disk_error(directory, error) from None
        self._move_to(scratch)
        self.file = file
        self.commits.go_on_in(index)

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
        self.commits.close()
        if self.file is not None:
            os.close(self.file)
            self.file = None


def _disk_error(directory: Path, error: OSError) -> IoError:
    return IoError(
        f'could not write the spool in "{directory}"',
        detail=f"{error.strerror}.",
        hint="Free disk space there, or make the directory writable; nothing is lost meanwhile.",
        sqlstate=DISK_FULL if error.errno == 28 else IO_ERROR,
    )


class Spool:
    """The queue of segments: the receive thread fills it, the main thread takes batches."""

    def __init__(self, directory: Path, *, memory_limit: int, segment_bytes: int) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._memory_limit = memory_limit
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._segments: deque[_Segment] = deque([_Segment()])

    def set_limits(self, *, memory_limit: int, segment_bytes: int) -> None:
        """Change the limits from the next record on; present bytes stay in place."""
        with self._lock:
            self._memory_limit = memory_limit
            self._segment_bytes = segment_bytes

    # -- the receive thread's side ------------------------------------------------------------

    def writable(self) -> tuple[Bytes, int]:
        """The place for the next records: a buffer and the first free offset."""
        with self._lock:
            segment = self._segments[-1]
            if segment.used and segment.start == segment.used:
                # Taken completely. Only the receive thread may replace the segment that it writes.
                segment = _Segment()
                self._segments.append(segment)
            if segment.file is not None:
                return segment.buf, 0
            return segment.buf, segment.used

    def wrote(self, position: int, commits: Ints) -> None:
        """Note records up to ``position`` of the writable buffer, with their ``commits``."""
        with self._lock:
            segment = self._segments[-1]
            if segment.file is not None:
                commits = commits.copy()
                commits[:, 0] += segment.used
                try:
                    write_all(segment.file, segment.buf[:position])
                    segment.commits.append(commits)
                except OSError as error:
                    raise _disk_error(self._directory, error) from None
                segment.used += position
            else:
                segment.commits.append(commits)
                segment.used = position
            if len(commits):
                segment.closed_to = int(commits[-1, 0])
            self._arrange(segment)

    def grow(self, need: int) -> None:
        """Make room for ``need`` more bytes, because the next record does not fit."""
        with self._lock:
            segment = self._segments[-1]
            if segment.file is None:
                want = segment.data + need
                others = sum(each.memory for each in self._segments) - segment.data
                if others + want <= self._memory_limit:
                    size = len(segment.buf)
                    if 2 * want > size:
                        size = max(want, 2 * size)
                    segment.resize(min(size, self._memory_limit - others))
                    return
                segment.spill(self._directory)
            if len(segment.buf) < need:
                segment.buf = np.empty(need, dtype=np.uint8)

    def _arrange(self, segment: _Segment) -> None:
        """Begin a new segment at a transaction boundary, or move the present segment to disk."""
        if segment.commits and segment.closed_to >= self._segment_bytes:
            self._begin_segment(segment)
            segment = self._segments[-1]
        memory = sum(each.memory for each in self._segments)
        if segment.file is None and memory > self._memory_limit:
            segment.spill(self._directory)

    def _begin_segment(self, segment: _Segment) -> None:
        """Begin a new segment, and move the open transaction after the last Commit to it."""
        fresh = _Segment()
        tail = segment.used - segment.closed_to
        if tail:
            data = self._read(segment, segment.closed_to, segment.used)
            if len(fresh.buf) < tail:
                fresh.buf = np.empty(max(tail * 2, SEGMENT_FIRST_BYTES), dtype=np.uint8)
            fresh.buf[:tail] = data
            fresh.used = tail
            segment.used = segment.closed_to
        if segment.file is not None:
            segment.buf = np.empty(0, dtype=np.uint8)  # the segment receives no more bytes
        self._segments.append(fresh)

    @staticmethod
    def _read(segment: _Segment, start: int, end: int) -> Bytes:
        if segment.file is None:
            return segment.buf[start:end]
        return np.frombuffer(os.pread(segment.file, end - start, start), dtype=np.uint8)

    # -- the main thread's side ---------------------------------------------------------------

    def take(self, max_bytes: int, max_rows: int) -> Batch | None:
        """Take the oldest whole transactions: at least one, and more while they fit.

        Several transactions hold at most ``max_bytes`` and ``max_rows`` changes. None if no
        transaction is complete. From here on the taken bytes belong to the batch.
        """
        with self._lock:
            while len(self._segments) > 1 and self._segments[0].start == self._segments[0].used:
                self._segments.popleft().close()
            segment = self._segments[0]
            if not segment.commits:
                return None
            start = segment.start
            commits = segment.commits.take(start, max_bytes, max_rows)
            segment.start = int(commits[-1, 0])
            return self._batch(segment, start, segment.start, commits)

    @staticmethod
    def _batch(segment: _Segment, start: int, end: int, commits: Ints) -> Batch:
        if segment.file is None:
            return Batch(segment.buf, start, end, commits)
        mapping = mmap.mmap(segment.file, end, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        buf = np.frombuffer(mapping, dtype=np.uint8)
        return Batch(buf, start, end, commits, mapping)

    def has_complete_transaction(self) -> bool:
        """True if ``take`` would return a batch."""
        with self._lock:
            return any(segment.commits for segment in self._segments)

    def is_empty(self) -> bool:
        """True if the spool holds no transaction, and no part of a transaction."""
        with self._lock:
            return all(segment.start == segment.used for segment in self._segments)

    def has_open_transaction(self) -> bool:
        """True if the spool holds a part of a transaction without its Commit."""
        with self._lock:
            last = self._segments[-1]
            return last.used > last.closed_to

    def size(self) -> tuple[int, int]:
        """The bytes that wait in memory and on disk."""
        with self._lock:
            memory = sum(segment.memory for segment in self._segments)
            total = sum(segment.data + segment.commits.size for segment in self._segments)
            return memory, total - memory

    def close(self) -> None:
        """Discard all bytes; the publisher will send them again."""
        with self._lock:
            for segment in self._segments:
                segment.close()
            self._segments.clear()
            self._segments.append(_Segment())
