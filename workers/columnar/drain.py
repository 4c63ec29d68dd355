"""Drain libpq: move received messages into a buffer without a Python object per message.

One kernel, compiled, without the GIL, calls the libpq that owns the connection:
``PQgetCopyData`` returns a message, ``PQconsumeInput`` reads the bytes in the socket. When a read
brought no message, the kernel returns and the caller waits on the socket.

When the socket is nearly empty the kernel naps before the next read (``columnar.naps``).

A WAL message (``w``) becomes a spool record: the payload after a little-endian u32 length. A
keepalive (``k``) only moves positions. The kernel ignores further types, as PostgreSQL does. For
each Commit the kernel notes the end of the record and the fields of the message.

Prepare, Commit Prepared and Rollback Prepared are noted like a Commit, because a batch may end
there. A publisher that enabled two-phase commit after a PREPARE sends the prepared transaction
again, before the COMMIT PREPARED. The end of the PREPARE then lies behind transactions that came
earlier. Positions never go back, so the kernel notes the end of the transaction before instead, or
the position at which the stream began.

A transaction in progress comes in parts, between Stream Start and Stream Stop. The kernel returns
at both, at Stream Commit, Stream Prepare and Stream Abort, so that the caller can change the
buffer. Inside a part every message but Origin has the id of a subtransaction behind the type byte.
The record is without the id: the record is that of an ordinary transaction. The kernel notes where
the changes of another subtransaction begin. Of every Relation message, streamed or not, the kernel
notes the place of the record.

Where logical messages were asked for, a Message becomes an Insert (``columnar.logical_message``).
A message outside of transactions becomes a transaction alone, and is noted like a Commit. No
transaction is sent in parts then (``workers.stream.start``). A message of pgsub's event triggers
stays a Message.

    run → IDLE             no bytes are left; wait for the socket
    run → MORE             the time budget or the table of commits is used up; call again
    run → FULL             the next message needs ``need`` bytes; the kernel keeps the message
    run → REPLY_REQUESTED  the server wants a status update at once
    run → STREAM           a message around the parts of a transaction in progress was taken
    run → END, ERROR       the stream is over; libpq has the result or the error message
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from catalog.errcodes import InternalError
from config.limits import (
    DRAIN_BUDGET_NANOSECONDS,
    DRAIN_COMMITS,
    DRAIN_FEW_BYTES,
    DRAIN_FIRST_NAP_NANOSECONDS,
)
from workers.columnar import libpq
from workers.columnar.kernel import kernel
from workers.columnar.logical_message import is_alone, is_of_triggers, size_as_rows, write_rows
from workers.columnar.naps import nap, now, waiting
from workers.columnar.tuples import Bytes, be32, be64
from workers.proto import decode
from workers.proto.messages import (
    StreamAbort,
    StreamCommit,
    StreamControl,
    StreamPrepare,
    StreamStart,
    StreamStop,
    XLogData,
)

# Cells of the kernel's state; the cells of the first line live from call to call. ``_STREAM`` is
# the id of the transaction whose part is being received, ``_SUB`` the last subtransaction's, and
# ``_AS_ROWS`` says whether logical messages become inserts.
_PENDING, _PENDING_LENGTH, _CHANGES, _NAP, _LAST_END, _STREAM, _SUB, _AS_ROWS = range(8)
_RECEIVED, _SEND_TIME, _KEEPALIVE, _REPLY, _NEED = 8, 9, 10, 11, 12
_MESSAGES, _BYTES, _COMMITS, _STATUS, _POSITION = 13, 14, 15, 16, 17
_STREAMED, _SUBS, _RELATIONS, _CONTROL = 18, 19, 20, 21
_CELLS: Final = 22

_MALFORMED: Final = 7  # only inside: ``_raise_malformed``
_IDLE, _MORE, _FULL, _ASKED, _END, _ERROR, _AT_STREAM = range(7)

_W, _K, _C = (np.uint8(ord(byte)) for byte in "wkC")
_I, _U, _D, _T = (np.uint8(ord(byte)) for byte in "IUDT")
_P, _PREPARED, _R = (np.uint8(ord(byte)) for byte in "PKr")
_START, _STOP, _ABORT = (np.uint8(ord(byte)) for byte in "SEA")
_STREAM_COMMIT, _STREAM_PREPARE = (np.uint8(ord(byte)) for byte in "cp")
_RELATION, _TYPE, _MESSAGE, _ORIGIN = (np.uint8(ord(byte)) for byte in "RYMO")

_HEADER: Final = 25  # type byte, start, end, clock
_KEEPALIVE_LENGTH: Final = 18
_COMMIT_LENGTH: Final = 26
_PREPARE_SHORTEST: Final = 31  # with an empty gid, of PREPARE and of COMMIT PREPARED
_ROLLBACK_SHORTEST: Final = 39
_SCRATCH: Final = 256  # header, and the longest end of a transaction: Stream Prepare with its gid


class DrainStatus(IntEnum):
    """The reason of a return from ``Drain.run``."""

    IDLE = _IDLE
    MORE = _MORE
    FULL = _FULL
    REPLY_REQUESTED = _ASKED
    END = _END
    ERROR = _ERROR
    STREAM = _AT_STREAM


@dataclass(frozen=True, slots=True)
class DrainResult:
    """The result of one call. LSNs and times are integers; 0 if no message had a value.

    ``position`` is the end of the records now in the buffer. ``last_received`` is the highest
    position in the taken messages (the kept message does not count), ``send_time`` the last server
    clock in µs since 2000-01-01, ``keepalive_end`` the highest position in a keepalive. ``need`` is
    the free space for the kept message when ``status`` is FULL. ``commits`` is
    int64 of shape (n, 5): the offset after the Commit's record, final_lsn, end_lsn, commit time,
    and the I, U, D and T messages since the previous Commit. The final_lsn of a Rollback Prepared
    is the end of the PREPARE.

    ``control`` is the message taken last when ``status`` is STREAM. ``streamed`` counts the changes
    of a part of a transaction in progress. ``last_end`` is the end of the last transaction.
    ``subs``, of shape (n, 3), has where the changes of another subtransaction begin: its id, the
    record's offset, the changes in this call before. ``relations`` are the offsets of the records
    of Relation messages.
    """

    position: int
    status: DrainStatus
    last_received: int
    send_time: int
    keepalive_end: int
    reply_requested: bool
    need: int
    messages: int
    bytes: int
    commits: npt.NDArray[np.int64]
    control: StreamControl | None = None
    streamed: int = 0
    last_end: int = 0
    subs: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty((0, 3), np.int64))
    relations: npt.NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))


class Drain:
    """Drains one connection in COPY_BOTH state; ``conn_ptr`` is its ``PGconn *``.

    ``longest_nap`` is in nanoseconds. The stream begins at ``start``. With ``messages`` logical
    messages become inserts. The caller owns the connection, and no further thread uses the
    connection during ``run``.
    """

    def __init__(
        self,
        conn_ptr: int,
        *,
        longest_nap: int = DRAIN_FIRST_NAP_NANOSECONDS,
        start: int = 0,
        messages: bool = False,
    ) -> None:
        libpq.register_symbols()
        self._conn = conn_ptr
        self._longest_nap = longest_nap
        self._state = np.zeros(_CELLS, np.int64)
        self._state[_NAP] = DRAIN_FIRST_NAP_NANOSECONDS
        self._state[_LAST_END] = start
        self._state[_AS_ROWS] = messages
        self._commits = np.empty((DRAIN_COMMITS, 5), np.int64)
        self._subs = np.empty((DRAIN_COMMITS, 3), np.int64)
        self._relations = np.empty(DRAIN_COMMITS, np.int64)
        self._scratch = np.zeros(_SCRATCH, np.uint8)
        self._words = np.zeros(3, np.int64)

    def run(
        self, buf: Bytes, pos: int, *, budget_ns: int = DRAIN_BUDGET_NANOSECONDS
    ) -> DrainResult:
        """Fill ``buf`` from ``pos`` on. Raises ``ProtocolViolation`` for a malformed envelope."""
        if not 0 <= pos <= len(buf):
            raise ValueError("pos must lie inside the buffer")
        state = self._state
        state[_RECEIVED:] = 0
        state[_POSITION] = pos
        limits = (
            budget_ns,
            DRAIN_FIRST_NAP_NANOSECONDS,
            self._longest_nap,
            DRAIN_FEW_BYTES,
        )
        notes = (self._commits, self._subs, self._relations)
        _drain(self._conn, buf, notes, state, self._scratch, self._words, limits)
        if state[_STATUS] == _MALFORMED:
            self._raise_malformed()
        return DrainResult(
            position=int(state[_POSITION]),
            status=DrainStatus(int(state[_STATUS])),
            last_received=int(state[_RECEIVED]),
            send_time=int(state[_SEND_TIME]),
            keepalive_end=int(state[_KEEPALIVE]),
            reply_requested=bool(state[_REPLY]),
            need=int(state[_NEED]),
            messages=int(state[_MESSAGES]),
            bytes=int(state[_BYTES]),
            commits=self._commits[: state[_COMMITS]].copy(),
            control=self._control() if state[_CONTROL] else None,
            streamed=int(state[_STREAMED]),
            last_end=int(state[_LAST_END]),
            subs=self._subs[: state[_SUBS]].copy(),
            relations=self._relations[: state[_RELATIONS]].copy(),
        )

    def _control(self) -> StreamControl:
        """Read the message around a part of a transaction in progress."""
        raw = self._scratch[_HEADER : _HEADER + int(self._state[_CONTROL])].tobytes()
        control = decode.message(raw)
        if not isinstance(
            control, StreamStart | StreamStop | StreamCommit | StreamPrepare | StreamAbort
        ):
            raise InternalError("a message of a streamed transaction is read as another")
        return control

    def _raise_malformed(self) -> NoReturn:
        """Read the kept message again: the error names the expected field and the byte."""
        raw = ctypes.string_at(int(self._state[_PENDING]), int(self._state[_PENDING_LENGTH]))
        received = decode.copy_data(raw)
        if isinstance(received, XLogData):
            if self._state[_STREAM]:
                decode.streamed(received.data)
            decode.message(received.data)
        raise InternalError("a message is refused in one place and taken in another")

    def close(self) -> None:
        """Free the kept message, if there is one; the caller closes the connection."""
        if self._state[_PENDING]:
            _release(self._state)


@kernel
def _release(state: Any) -> None:
    """Give the kept message back to libpq."""
    libpq.freemem(state[_PENDING])
    state[_PENDING] = state[_PENDING_LENGTH] = 0


@kernel
def _drain(
    conn: int, out: Any, notes: Any, state: Any, scratch: Any, words: Any, limits: Any
) -> None:
    """Take messages until a reason to return; the reason goes to ``state[_STATUS]``."""
    budget, first_nap, longest_nap, few_bytes = limits
    started = now(words)
    since_read = 0  # bytes
    fresh = True  # no read from the socket yet in this call
    while True:
        if state[_PENDING] == 0:
            got = libpq.get_copy_data(conn, words.ctypes.data + 16, 1)
            if got > 0:
                state[_PENDING], state[_PENDING_LENGTH] = words[2], got
            elif got < 0:
                state[_STATUS] = _END if got == -1 else _ERROR
                return
            else:
                if not fresh and since_read == 0:
                    trickle = state[_BYTES] < few_bytes
                    state[_NAP] = first_nap if trickle else max(state[_NAP] // 2, first_nap)
                    state[_STATUS] = _IDLE
                    return
                if now(words) - started > budget:
                    state[_STATUS] = _MORE
                    return
                if not fresh and since_read < few_bytes and waiting(conn, words) < few_bytes:
                    nap(words, state[_NAP])
                    state[_NAP] = min(state[_NAP] * 2, longest_nap)
                fresh = False
                since_read = 0
                if libpq.consume_input(conn) == 0:
                    state[_STATUS] = _ERROR
                    return
                continue
        status = _take(out, notes, state, scratch)
        if status in (_FULL, _MALFORMED):  # the message stays kept
            state[_STATUS] = status
            return
        since_read += state[_PENDING_LENGTH]
        _release(state)
        state[_MESSAGES] += 1
        if status != _IDLE:
            state[_STATUS] = status
            return
        full = len(notes[0])
        if state[_COMMITS] == full or state[_SUBS] == full or state[_RELATIONS] == full:
            state[_STATUS] = _MORE
            return


@kernel
def _take(out: Any, notes: Any, state: Any, head: Any) -> Any:
    """Store the kept message; ``_IDLE`` if the message needs no answer."""
    source, length = state[_PENDING], state[_PENDING_LENGTH]
    libpq.memcpy(head.ctypes.data, source, min(length, _SCRATCH))
    kind = head[0]
    if kind == _K:
        if length != _KEEPALIVE_LENGTH:
            return _MALFORMED
        end = be64(head, 1)
        state[_KEEPALIVE] = max(state[_KEEPALIVE], end)
        state[_RECEIVED] = max(state[_RECEIVED], end)
        state[_SEND_TIME] = be64(head, 9)
        if head[17] != 0:
            state[_REPLY] = 1
            return _ASKED
        return _IDLE
    if kind != _W:
        return _IDLE
    if length <= _HEADER:
        return _MALFORMED
    payload = length - _HEADER
    first = head[_HEADER]
    ordinary = first in (_I, _U, _D)  # most messages
    if not ordinary and first in (_START, _STOP, _ABORT, _STREAM_COMMIT, _STREAM_PREPARE):
        if length > _SCRATCH:
            return _MALFORMED
        state[_CONTROL] = payload
        state[_STREAM] = state[_SUB] = be32(head, _HEADER + 1) if first == _START else 0
        if first == _STREAM_COMMIT:
            state[_LAST_END] = be64(head, _HEADER + 14)
        elif first == _STREAM_PREPARE:
            state[_LAST_END] = max(state[_LAST_END], be64(head, _HEADER + 10))
        _note_position(head, state, payload)
        return _AT_STREAM
    cut = 0
    if state[_STREAM]:
        cut = _id_bytes(first, payload)
        if cut < 0:
            return _MALFORMED
    position = state[_POSITION]
    if first == _MESSAGE and state[_AS_ROWS] and not cut and not is_of_triggers(head, length):
        return _take_logical_message(out, notes[0], state, head, payload)
    if position + 4 + payload - cut > len(out):
        state[_NEED] = 4 + payload - cut
        return _FULL
    if first == _RELATION:
        notes[2][state[_RELATIONS]] = position
        state[_RELATIONS] += 1
    if cut and not _note_streamed(first, head, notes[1], state):
        return _MALFORMED
    for byte in range(4):
        out[position + byte] = np.uint8(((payload - cut) >> (8 * byte)) & 255)
    out[position + 4] = first
    behind = payload - cut - 1
    libpq.memcpy(out.ctypes.data + position + 5, source + _HEADER + 1 + cut, behind)
    state[_POSITION] = position + 4 + payload - cut
    _note_position(head, state, payload)
    return _IDLE if state[_STREAM] else _note(head, notes[0], state, payload)


@kernel
def _take_logical_message(out: Any, commits: Any, state: Any, head: Any, payload: int) -> Any:
    """Store a logical message as an insert, and as a transaction if it is not of one."""
    at, position = _HEADER + 1, state[_POSITION]
    alone = is_alone(head, at)
    size = size_as_rows(payload, alone)
    if position + size > len(out):
        state[_NEED] = size
        return _FULL
    source = state[_PENDING] + at
    if not write_rows(out, position, head, at, source, payload, alone):
        return _MALFORMED
    state[_POSITION] = position + size
    _note_position(head, state, payload)
    if alone:
        lsn = be64(head, at + 1)
        _enter(commits, state, lsn - 1, lsn, be64(head, 17), 1)
    else:
        state[_CHANGES] += 1
    return _IDLE


@kernel
def _note_position(head: Any, state: Any, payload: int) -> None:
    """Note the positions and the time in a message's envelope."""
    state[_BYTES] += payload
    state[_RECEIVED] = max(state[_RECEIVED], be64(head, 1), be64(head, 9))
    state[_SEND_TIME] = be64(head, 17)


@kernel
def _id_bytes(first: int, payload: int) -> Any:
    """The bytes of a subtransaction's id behind the type byte; -1 if the message may not come."""
    if first == _ORIGIN:
        return 0
    if first not in (_I, _U, _D, _T, _RELATION, _TYPE, _MESSAGE) or payload < 5:
        return -1
    return 4


@kernel
def _note_streamed(first: int, head: Any, subs: Any, state: Any) -> Any:
    """Count a change of a transaction in progress; False if the subtransaction's id is 0."""
    xid = be32(head, _HEADER + 1)
    if xid == 0:
        return False
    if xid != state[_SUB]:
        state[_SUB] = xid
        if xid != state[_STREAM]:
            row = state[_SUBS]
            subs[row, 0], subs[row, 1], subs[row, 2] = xid, state[_POSITION], state[_STREAMED]
            state[_SUBS] += 1
    if first in (_I, _U, _D, _T):
        state[_STREAMED] += 1
    return True


@kernel
def _note(head: Any, commits: Any, state: Any, payload: int) -> Any:
    """Count a change, or enter a Commit."""
    kind = head[_HEADER]
    if kind in (_I, _U, _D, _T):
        state[_CHANGES] += 1
    elif kind in (_C, _P, _PREPARED, _R):
        if kind == _C:
            malformed = payload != _COMMIT_LENGTH
        else:
            malformed = payload < (_ROLLBACK_SHORTEST if kind == _R else _PREPARE_SHORTEST)
        if malformed:
            return _MALFORMED
        end = be64(head, _HEADER + 10)
        if kind == _P:
            end = max(end, state[_LAST_END])
        time = be64(head, _HEADER + (26 if kind == _R else 18))
        _enter(commits, state, be64(head, _HEADER + 2), end, time, state[_CHANGES])
        state[_CHANGES] = 0
    return _IDLE


@kernel
def _enter(commits: Any, state: Any, final: int, end: int, time: int, changes: int) -> None:
    """Enter a transaction that ends with the last record."""
    row = state[_COMMITS]
    commits[row, 0] = state[_POSITION]
    commits[row, 1], commits[row, 2] = final, end
    commits[row, 3], commits[row, 4] = time, changes
    state[_LAST_END] = end
    state[_COMMITS] += 1
