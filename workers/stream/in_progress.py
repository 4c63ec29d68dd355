"""Transactions in progress: received in parts while they run, handed over whole at their commit.

PostgreSQL's apply worker keeps a file of changes for each transaction that is streamed, and replays
the file at Stream Commit. Here each transaction has a segment of its own, in memory or on disk as
the other segments of the spool. A record in the segment is the record of an ordinary transaction,
because the drain kernel leaves the subtransaction's id out. In front there is room for Begin. At
Stream Commit the positions are known: Begin is filled in, Commit is appended, and the segment is
that of an ordinary transaction. Stream Prepare gives Begin Prepare and Prepare in the same way. So
nothing behind the spool knows streamed transactions, and the gate decides at the commit.

Stream Abort cuts the segment where the subtransaction began (``workers.columnar.subtransactions``),
or removes the segment. A worker that ends loses all segments: the publisher sends a transaction
without a confirmed commit again, from the first part on.

Relation messages of a part say how *this* transaction sees a table, up to the commit. Afterwards
they hold for all, as the publisher counts them as sent; but not where a later Relation message came
outside of the transaction meanwhile. The later message is then repeated behind the changes.

Trace: part 1 of transaction 7 brings R(t: a, b) and rows of t. ALTER PUBLICATION sets other columns
of t. An ordinary transaction brings R(t: a, c) and rows. Transaction 7 commits: ``Begin R(t: a, b)
rows R(t: a, c) Commit``. The next rows of t, without a Relation message, have columns a and c.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Self

import numpy as np

from catalog.errcodes import ProtocolViolation
from catalog.pg_lsn import LSN
from config.limits import SEGMENT_SCRATCH_BYTES
from workers.columnar.drain import DrainResult
from workers.columnar.subtransactions import Subtransactions
from workers.proto import encode
from workers.proto.messages import (
    Begin,
    BeginPrepare,
    Commit,
    Message,
    Prepare,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
)
from workers.stream.batch import Bytes, Ints, Received
from workers.stream.segment import Segment, disk_error

_ROOM: Final = 240  # for the record of Begin, or of Begin Prepare with the longest gid
_NOTHING: Final[Bytes] = np.empty(0, np.uint8)
_LENGTH: Final = struct.Struct("<I")
_RELID: Final = struct.Struct(">4x x I")  # of the record of a Relation message


@dataclass(frozen=True, slots=True)
class Announced:
    """A Relation message: its record, and when the message came, as a number that grows."""

    record: bytes
    arrival: int

    @classmethod
    def at(cls, buf: Bytes, offset: int, arrival: int) -> Self:
        """Read the record at an offset."""
        (length,) = _LENGTH.unpack(buf[offset : offset + 4].tobytes())
        return cls(buf[offset : offset + 4 + length].tobytes(), arrival)

    @property
    def relid(self) -> int:
        """The relation."""
        found: int = _RELID.unpack_from(self.record)[0]
        return found


class TransactionInProgress:
    """What was received of a transaction, without what was rolled back."""

    def __init__(self, xid: int, number: int = 0) -> None:
        self.xid = xid
        self.number = number
        self.unseen = 0  # bytes received since ``look``
        self._cut: int | None = None
        self.segment = Segment()
        self.segment.used = _ROOM
        self._changes = 0
        self._subs = Subtransactions()
        self._announced: dict[int, list[tuple[int, Announced]]] = {}
        """Relation messages by relation, with the offsets of the records, which grow."""

    @property
    def memory(self) -> int:
        """The bytes in memory."""
        return self.segment.memory + self._subs.memory

    def take_in(self, result: DrainResult, first_arrival: int) -> None:
        """Note what a call of the drain kernel wrote into the segment's buffer."""
        buf, segment = self.segment.buf, self.segment
        distance = segment.used if segment.file is not None else 0
        for arrival, offset in enumerate(result.relations.tolist(), start=first_arrival):
            self._announce(distance + offset, Announced.at(buf, offset, arrival))
        self._subs.add(result.subs, distance, self._changes)
        self._changes += result.streamed
        used = segment.used
        segment.take_in(result.position)
        self.unseen += segment.used - used

    def _announce(self, offset: int, announced: Announced) -> None:
        """Note a Relation message; of equal messages in a row one is kept, the time is the last's.

        The publisher repeats the message after each roll-back.
        """
        own = self._announced.setdefault(announced.relid, [])
        if own and own[-1][1].record == announced.record:
            offset, _ = own.pop()
        own.append((offset, announced))

    def roll_back(self, subxid: int) -> None:
        """Forget the changes of a subtransaction, and of all that began inside."""
        found = self._subs.cut(subxid)
        if found is None:
            return
        offset, self._changes = found
        self.segment.cut(offset)
        self._cut = offset if self._cut is None else min(offset, self._cut)
        for own in self._announced.values():
            while own and own[-1][0] >= offset:
                own.pop()

    def look(self) -> Received:
        """Tell how much was received, and the least size since the last look."""
        size, last = self.segment.used - _ROOM, self._subs.last_start
        cut, self._cut, self.unseen = self._cut, None, 0
        return Received(
            self.number,
            self.xid,
            size,
            size if last is None else last - _ROOM,
            None if cut is None else cut - _ROOM,
            is_altered=any(len(own) > 1 for own in self._announced.values()),
        )

    def read(self, start: int, size: int) -> Bytes | None:
        """A copy of some bytes of records; fewer at the end of what was received.

        None if a subtransaction was rolled back since the last look: the bytes may be others.
        """
        if self._cut is not None:
            return None
        end = min(_ROOM + start + size, self.segment.used)
        return self.segment.read(_ROOM + start, end)

    def announced(self) -> dict[int, Announced]:
        """The last Relation message of each relation."""
        return {relid: own[-1][1] for relid, own in self._announced.items() if own}

    def finish(self, end: StreamCommit | StreamPrepare, repeated: Iterable[Announced]) -> Ints:
        """Make the segment that of an ordinary transaction; its row for ``Batch.commits``."""
        positions: tuple[LSN, LSN, int]
        if isinstance(end, StreamCommit):
            self.segment.streamed = replace(self.look(), is_complete=True)
            positions = end.commit_lsn, end.end_lsn, end.committime
            first: Message = Begin(end.commit_lsn, end.committime, end.xid)
            last: Message = Commit(*positions)
        else:
            positions = end.prepare_lsn, end.end_lsn, end.prepare_time
            first = BeginPrepare(*positions, end.xid, end.gid)
            last = Prepare(*positions, end.xid, end.gid)
        self.segment.extend(b"".join(each.record for each in repeated) + _record(last))
        self.segment.begin_with(_record(first), _ROOM)
        self.segment.closed_to = self.segment.used
        return np.array([[self.segment.used, *positions, self._changes]], np.int64)


class TransactionsInProgress:
    """All transactions in progress; ``current`` is the one whose part is being received."""

    def __init__(self, directory: Path) -> None:
        self.current: TransactionInProgress | None = None
        self._directory = directory
        self._scratch: Bytes = np.empty(SEGMENT_SCRATCH_BYTES, np.uint8)
        """The buffer of a transaction on disk while a part is being received."""
        self._open: dict[int, TransactionInProgress] = {}
        self._arrivals = 0
        self._begun = 0
        self._elsewhere: dict[int, Announced] = {}
        """The last Relation message of each relation since a transaction is in progress, among
        those of ordinary and of committed transactions."""

    def sizes(self) -> tuple[int, int]:
        """The bytes in memory, and of records in memory or on disk."""
        every = self._open.values()
        return sum(each.memory for each in every), sum(each.segment.used for each in every)

    def look(self) -> list[Received]:
        """How much was received of each transaction."""
        return [each.look() for each in self._open.values()]

    def read(self, number: int, start: int, size: int) -> Bytes | None:
        """A copy of some bytes of a transaction; None if it has ended, or was cut meanwhile."""
        found = next((each for each in self._open.values() if each.number == number), None)
        return None if found is None else found.read(start, size)

    def largest(self) -> TransactionInProgress | None:
        """The transaction with the most bytes of records in memory; None if all are on disk."""
        held = [each for each in self._open.values() if each.segment.file is None]
        return max(held, key=lambda each: each.segment.used, default=None)

    def spill(self, transaction: TransactionInProgress) -> None:
        """Move a transaction to disk."""
        transaction.segment.spill(self._directory, with_index=False)
        if transaction is not self.current:
            transaction.segment.buf = _NOTHING

    def announce(self, buf: Bytes, offsets: Ints) -> None:
        """Note Relation messages of ordinary transactions."""
        if self._open:
            for offset in offsets.tolist():
                self._hold_elsewhere(Announced.at(buf, offset, self._next_arrival()))

    def take_in(self, result: DrainResult) -> None:
        """Note what a call of the drain kernel brought of the current transaction."""
        if self.current is not None:
            first = self._next_arrival(len(result.relations))
            with _disk_errors(self._directory):
                self.current.take_in(result, first)

    def _next_arrival(self, count: int = 1) -> int:
        first = self._arrivals + 1
        self._arrivals += count
        return first

    def _hold_elsewhere(self, announced: Announced) -> None:
        before = self._elsewhere.get(announced.relid)
        if before is None or before.arrival < announced.arrival:
            self._elsewhere[announced.relid] = announced

    # -- the messages around the parts --------------------------------------------------------

    def start(self, xid: int, *, is_first: bool) -> None:
        """``apply_handle_stream_start``."""
        if self.current is not None:
            raise _out_of_order("duplicate STREAM START message", "STREAM STOP")
        if is_first == (xid in self._open):
            raise ProtocolViolation(
                "a part of a streamed transaction was sent out of order",
                detail=f"STREAM START of transaction {xid} says that it is "
                f"{'the first' if is_first else 'not the first'}; the first was "
                f"{'received before' if is_first else 'not received'}.",
            )
        if is_first:
            self._begun += 1
            self._open[xid] = TransactionInProgress(xid, self._begun)
        self.current = self._open[xid]
        if self.current.segment.file is not None:
            self.current.segment.buf = self._scratch

    def stop(self) -> None:
        """``apply_handle_stream_stop``."""
        if self.current is None:
            raise _out_of_order("STREAM STOP message without STREAM START", "STREAM START")
        if self.current.segment.file is not None:
            self._scratch, self.current.segment.buf = self.current.segment.buf, _NOTHING
        self.current = None

    def abort(self, abort: StreamAbort) -> None:
        """``apply_handle_stream_abort``; nothing is done about a transaction without a part."""
        self._check_outside("STREAM ABORT")
        transaction = self._open.get(abort.xid)
        if transaction is None:
            return
        if abort.subxid != abort.xid:
            with _disk_errors(self._directory):
                transaction.roll_back(abort.subxid)
            return
        del self._open[abort.xid]
        transaction.segment.close()
        self._forget_elsewhere()

    def finish(self, end: StreamCommit | StreamPrepare) -> tuple[Segment, Ints]:
        """``apply_handle_stream_commit``, ``apply_handle_stream_prepare``.

        Returns the transaction as a segment, and its row of the index. The row is not in the
        segment's index yet.
        """
        name = "STREAM COMMIT" if isinstance(end, StreamCommit) else "STREAM PREPARE"
        self._check_outside(name)
        transaction = self._open.pop(end.xid, None)
        if transaction is None:
            raise ProtocolViolation(
                f"{name} message of an unknown transaction",
                detail=f"No part of transaction {end.xid} was received.",
            )
        own = transaction.announced()
        later = [
            elsewhere
            for relid, each in own.items()
            if (elsewhere := self._elsewhere.get(relid)) is not None
            and elsewhere.arrival > each.arrival
            and elsewhere.record != each.record
        ]
        for each in own.values():
            self._hold_elsewhere(each)
        self._forget_elsewhere()
        with _disk_errors(self._directory):
            row = transaction.finish(end, later)
        return transaction.segment, row

    def _forget_elsewhere(self) -> None:
        if not self._open:
            self._elsewhere.clear()

    def _check_outside(self, message: str) -> None:
        if self.current is not None:
            raise _out_of_order(f"{message} message without STREAM STOP", "STREAM STOP")

    def close(self) -> None:
        """Discard all transactions in progress."""
        for transaction in self._open.values():
            transaction.segment.close()
        self._open.clear()
        self._elsewhere.clear()
        self.current = None


class _disk_errors:  # noqa: N801 (a context manager that is called like a function)
    """Turn an operating system's error into the error of a spool that cannot be written."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __enter__(self) -> None:
        return None

    def __exit__(self, _type: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, OSError):
            raise disk_error(self._directory, error) from None


def _out_of_order(primary: str, expected: str) -> ProtocolViolation:
    return ProtocolViolation(primary, detail=f"A message {expected} was expected.")


def _record(message: Message) -> bytes:
    data = encode.message(message)
    return _LENGTH.pack(len(data)) + data
