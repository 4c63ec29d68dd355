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

A transaction that the publisher sends while it runs has a segment of its own, outside of the queue
(``workers.stream.in_progress``). The memory of these segments counts towards the same limit, and
the largest moves to disk first. At the commit a small transaction is copied to the end of the
queue, so that a batch can hold many; a large transaction's segment becomes a segment of the queue.

Trace: limit 64 MB. A 300 MB transaction arrives. The first 64 MB collect in memory, then move to a
file; the rest is appended through a small scratch buffer. The Commit closes the segment. The batch
reads the file through a mapping, and gives pages back on the way.
"""

from __future__ import annotations

import mmap
import threading
from collections import deque
from pathlib import Path

import numpy as np

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from config.limits import SEGMENT_FIRST_BYTES
from workers.columnar.drain import DrainResult
from workers.proto.messages import (
    StreamAbort,
    StreamCommit,
    StreamControl,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from workers.stream.batch import Batch, Bytes, Ints, Received
from workers.stream.in_progress import TransactionsInProgress
from workers.stream.segment import Segment, disk_error


class Spool:
    """The queue of segments: the receive thread fills it, the main thread takes batches."""

    def __init__(self, directory: Path, *, memory_limit: int, segment_bytes: int) -> None:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._directory = directory
        self._memory_limit = memory_limit
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        self._segments: deque[Segment] = deque([Segment()])
        self._in_progress = TransactionsInProgress(directory)
        self._look_after = 0
        self.has_grown = False  # by the bytes of ``look_after`` since ``running`` was asked

    def set_limits(self, *, memory_limit: int, segment_bytes: int) -> None:
        """Change the limits from the next record on; present bytes stay in place."""
        with self._lock:
            self._memory_limit = memory_limit
            self._segment_bytes = segment_bytes

    # -- the receive thread's side ------------------------------------------------------------

    def writable(self) -> tuple[Bytes, int]:
        """The place for the next records: a buffer and the first free offset."""
        with self._lock:
            return self._writable()

    def _writable(self) -> tuple[Bytes, int]:
        segment = self._target()
        if self._in_progress.current is None and segment.used and segment.start == segment.used:
            # Taken completely. Only the receive thread may replace the segment that it writes.
            segment = Segment()
            self._segments.append(segment)
        if segment.file is not None:
            return segment.buf, 0
        return segment.buf, segment.used

    def _target(self) -> Segment:
        """The segment that receives bytes."""
        current = self._in_progress.current
        return self._segments[-1] if current is None else current.segment

    def received(self, result: DrainResult) -> LSN | None:
        """Note what a call of the drain kernel brought.

        Returns the end of the transaction whose Stream Commit or Stream Prepare came last.
        """
        with self._lock:
            if self._in_progress.current is not None:
                self._in_progress.take_in(result)
                self._relieve(self._target())
            elif result.position:
                self._in_progress.announce(self._target().buf, result.relations)
                self._wrote(result.position, result.commits)
            if result.control is None:
                return None
            return self._control(result.control, LSN(result.last_end))

    def _control(self, control: StreamControl, end: LSN) -> LSN | None:
        """Obey a message around the parts of transactions in progress.

        ``end`` is the end of a transaction; a PREPARE that is sent again may itself lie behind.
        """
        last = self._segments[-1]
        if last.used > last.closed_to:
            raise ProtocolViolation(
                "logical replication message sent out of order",
                detail="A message of a streamed transaction came inside of a transaction.",
            )
        match control:
            case StreamStart(xid, first_segment):
                self._in_progress.start(xid, is_first=first_segment)
            case StreamStop():
                running = self._in_progress.current
                if running is not None and 0 < self._look_after <= running.unseen:
                    self.has_grown = True
                self._in_progress.stop()
            case StreamAbort():
                self._in_progress.abort(control)
            case StreamCommit() | StreamPrepare():
                segment, commit = self._in_progress.finish(control)
                commit[0, 2] = end
                self._queue(segment, commit)
                return end
        return None

    def _queue(self, segment: Segment, commit: Ints) -> None:
        """Put a transaction that was in progress at the end of the queue."""
        size, last = segment.data, self._segments[-1]
        if segment.file is None and size <= SEGMENT_FIRST_BYTES:
            buf, position = self._writable()
            while len(buf) - position < size:
                self._grow(size)
                buf, position = self._writable()
            buf[position : position + size] = segment.buf[segment.start : segment.used]
            commit[:, 0] = position + size
            self._wrote(position + size, commit)
            return
        segment.commits.append(commit)
        if last.start == last.used:
            self._segments.insert(len(self._segments) - 1, segment)
        else:
            self._segments.append(segment)
            self._segments.append(Segment())
        self._relieve(segment)

    def wrote(self, position: int, commits: Ints) -> None:
        """Note records up to ``position`` of the writable buffer, with their ``commits``."""
        with self._lock:
            self._wrote(position, commits)

    def _wrote(self, position: int, commits: Ints) -> None:
        segment = self._segments[-1]
        if segment.file is not None:
            commits = commits.copy()
            commits[:, 0] += segment.used
        try:
            segment.take_in(position)
            segment.commits.append(commits)
        except OSError as error:
            raise disk_error(self._directory, error) from None
        if len(commits):
            segment.closed_to = int(commits[-1, 0])
        self._arrange(segment)

    def grow(self, need: int) -> None:
        """Make room for ``need`` more bytes, because the next record does not fit."""
        with self._lock:
            self._grow(need)

    def _grow(self, need: int) -> None:
        segment = self._target()
        self._relieve(segment, need)
        if segment.file is None:
            want, size = segment.data + need, len(segment.buf)
            others = self._memory() - segment.data
            if 2 * want > size:
                size = max(want, 2 * size)
            segment.resize(min(size, self._memory_limit - others))
        elif len(segment.buf) < need:
            segment.buf = np.empty(need, dtype=np.uint8)

    def _memory(self) -> int:
        queued = sum(each.memory for each in self._segments)
        return queued + self._in_progress.sizes()[0]

    def _relieve(self, segment: Segment, need: int = 0) -> None:
        """Move bytes to disk until the rest, and ``need`` bytes of ``segment``, fit into memory.

        The largest transaction in progress goes first, unless ``segment`` is larger.
        """
        while segment.file is None and self._memory() + need > self._memory_limit:
            largest = self._in_progress.largest()
            if largest is not None and largest.segment.used >= segment.data:
                self._in_progress.spill(largest)
            else:
                segment.spill(self._directory)

    def _arrange(self, segment: Segment) -> None:
        """Begin a new segment at a transaction boundary, or move the present segment to disk."""
        if segment.commits and segment.closed_to >= self._segment_bytes:
            self._begin_segment(segment)
            segment = self._segments[-1]
        self._relieve(segment)

    def _begin_segment(self, segment: Segment) -> None:
        """Begin a new segment, and move the open transaction after the last Commit to it."""
        fresh = Segment()
        tail = segment.used - segment.closed_to
        if tail:
            data = segment.read(segment.closed_to, segment.used)
            if len(fresh.buf) < tail:
                fresh.buf = np.empty(max(tail * 2, SEGMENT_FIRST_BYTES), dtype=np.uint8)
            fresh.buf[:tail] = data
            fresh.used = tail
            segment.used = segment.closed_to
        if segment.file is not None:
            segment.buf = np.empty(0, dtype=np.uint8)  # the segment receives no more bytes
        self._segments.append(fresh)

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
    def _batch(segment: Segment, start: int, end: int, commits: Ints) -> Batch:
        if segment.file is None:
            return Batch(segment.buf, start, end, commits, None, segment.streamed)
        mapping = mmap.mmap(segment.file, end, prot=mmap.PROT_READ, flags=mmap.MAP_SHARED)
        buf = np.frombuffer(mapping, dtype=np.uint8)
        return Batch(buf, start, end, commits, mapping, segment.streamed)

    def running(self) -> list[Received]:
        """The transactions in progress, and those that are complete and wait in the queue."""
        with self._lock:
            self.has_grown = False
            waiting = [each.streamed for each in self._segments if each.streamed is not None]
            return [*self._in_progress.look(), *waiting]

    def read_running(self, number: int, start: int, size: int) -> Bytes | None:
        """A copy of some bytes of a transaction in progress.

        None if the transaction has ended, or if a part was rolled back since ``running``.
        """
        with self._lock:
            return self._in_progress.read(number, start, size)

    def look_after(self, size: int) -> None:
        """Say that ``running`` is of interest whenever a transaction has grown by ``size``."""
        self._look_after = size

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
        """The bytes in memory and on disk, those of transactions in progress included."""
        with self._lock:
            memory, total = self._memory(), self._waiting() + self._in_progress.sizes()[1]
            return memory, max(0, total - memory)

    def waiting(self) -> int:
        """The bytes that wait for the main thread: not those of transactions in progress."""
        with self._lock:
            return self._waiting()

    def _waiting(self) -> int:
        return sum(segment.data + segment.commits.size for segment in self._segments)

    def close(self) -> None:
        """Discard all bytes; the publisher will send them again."""
        with self._lock:
            for segment in self._segments:
                segment.close()
            self._in_progress.close()
            self._segments.clear()
            self._segments.append(Segment())
