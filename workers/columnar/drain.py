"""Drain libpq: move received messages into a buffer without a Python object per message.

One kernel, compiled, without the GIL, calls the libpq that owns the connection:
``PQgetCopyData`` returns a message, ``PQconsumeInput`` reads the bytes in the socket. When a read
brought no message, the kernel returns and the caller waits on the socket.

A reader that keeps up costs the publisher dearly: the walsender sends each message separately, and
on TCP each message becomes a packet. So when the socket is nearly empty the kernel naps, twice as
long each time while messages keep coming, up to ``longest_nap``: messages sent in the meantime go
out, and come in, in one piece. Half a million small rows cost a walsender on this machine 3.8 to
4.5 s of CPU with naps of 0.2 ms and 1.9 to 2.8 s with naps of 20 ms, with a receive buffer that a
nap fills (``workers.publisher.connection``); the reader's CPU time went from 1.0 to 0.2 s. Naps
shrink again whenever no message came, to the first nap if little had come before: a trickle is
passed on at once.

A WAL message (``w``) becomes a spool record: the payload after a little-endian u32 length. A
keepalive (``k``) only moves positions. The kernel ignores further types, as PostgreSQL does. For
each Commit the kernel notes the end of the record and the fields of the message.

Prepare, Commit Prepared and Rollback Prepared are noted like a Commit, because a batch may end
there. A publisher that enabled two-phase commit after a PREPARE sends the prepared transaction
again, before the COMMIT PREPARED. The end of the PREPARE then lies behind transactions that came
earlier. Positions never go back, so the kernel notes the end of the transaction before instead, or
the position at which the stream began.

    run → IDLE             no bytes are left; wait for the socket
    run → MORE             the time budget or the table of commits is used up; call again
    run → FULL             the next message needs ``need`` bytes; the kernel keeps the message
    run → REPLY_REQUESTED  the server wants a status update at once
    run → END, ERROR       the stream is over; libpq has the result or the error message
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
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
from workers.columnar.tuples import Bytes, be64
from workers.proto import decode
from workers.proto.messages import XLogData

# Cells of the kernel's state; the cells of the first line live from call to call.
_PENDING, _PENDING_LENGTH, _CHANGES, _NAP, _LAST_END = 0, 1, 2, 3, 4
_RECEIVED, _SEND_TIME, _KEEPALIVE, _REPLY, _NEED = 5, 6, 7, 8, 9
_MESSAGES, _BYTES, _COMMITS, _STATUS, _POSITION = 10, 11, 12, 13, 14
_CELLS: Final = 15

_MALFORMED: Final = 6  # only inside: ``_raise_malformed``
_IDLE, _MORE, _FULL, _ASKED, _END, _ERROR = range(6)

_W, _K, _C = (np.uint8(ord(byte)) for byte in "wkC")
_I, _U, _D, _T = (np.uint8(ord(byte)) for byte in "IUDT")
_P, _PREPARED, _R = (np.uint8(ord(byte)) for byte in "PKr")

_HEADER: Final = 25  # type byte, start, end, clock
_KEEPALIVE_LENGTH: Final = 18
_COMMIT_LENGTH: Final = 26
_PREPARE_SHORTEST: Final = 31  # with an empty gid, of PREPARE and of COMMIT PREPARED
_ROLLBACK_SHORTEST: Final = 39
_SCRATCH: Final = 64  # header, and the positions and times of the longest end of a transaction
_FIONREAD: Final = 0x541B  # Linux: bytes that can be read from a socket


class DrainStatus(IntEnum):
    """The reason of a return from ``Drain.run``."""

    IDLE = _IDLE
    MORE = _MORE
    FULL = _FULL
    REPLY_REQUESTED = _ASKED
    END = _END
    ERROR = _ERROR


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


class Drain:
    """Drains one connection in COPY_BOTH state; ``conn_ptr`` is its ``PGconn *``.

    ``longest_nap`` is in nanoseconds. The stream begins at ``start``. The caller owns the
    connection, and no further thread uses the connection during ``run``.
    """

    def __init__(
        self, conn_ptr: int, *, longest_nap: int = DRAIN_FIRST_NAP_NANOSECONDS, start: int = 0
    ) -> None:
        libpq.register_symbols()
        self._conn = conn_ptr
        self._longest_nap = longest_nap
        self._state = np.zeros(_CELLS, np.int64)
        self._state[_NAP] = DRAIN_FIRST_NAP_NANOSECONDS
        self._state[_LAST_END] = start
        self._commits = np.empty((DRAIN_COMMITS, 5), np.int64)
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
        _drain(self._conn, buf, self._commits, state, self._scratch, self._words, limits)
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
        )

    def _raise_malformed(self) -> NoReturn:
        """Read the kept message again: the error names the expected field and the byte."""
        raw = ctypes.string_at(int(self._state[_PENDING]), int(self._state[_PENDING_LENGTH]))
        received = decode.copy_data(raw)
        if isinstance(received, XLogData):
            decode.message(received.data)
        raise InternalError("a message is refused in one place and taken in another")

    def close(self) -> None:
        """Free the kept message, if there is one; the caller closes the connection."""
        if self._state[_PENDING]:
            _release(self._state)


@kernel
def _now(words: Any) -> Any:
    """Nanoseconds of the monotonic clock (Linux's clock 1)."""
    libpq.clock_gettime(1, words.ctypes.data)
    return words[0] * 1_000_000_000 + words[1]


@kernel
def _nap(words: Any, nanoseconds: int) -> None:
    words[0], words[1] = 0, nanoseconds
    libpq.nanosleep(words.ctypes.data, 0)


@kernel
def _waiting(conn: int, words: Any) -> Any:
    """The number of bytes in the socket."""
    words[0] = 0  # the answer is an int, half a word
    libpq.ioctl(libpq.socket(conn), _FIONREAD, words.ctypes.data)
    return words[0]


@kernel
def _release(state: Any) -> None:
    """Give the kept message back to libpq."""
    libpq.freemem(state[_PENDING])
    state[_PENDING] = state[_PENDING_LENGTH] = 0


@kernel
def _drain(
    conn: int, out: Any, commits: Any, state: Any, scratch: Any, words: Any, limits: Any
) -> None:
    """Take messages until a reason to return; the reason goes to ``state[_STATUS]``."""
    budget, first_nap, longest_nap, few_bytes = limits
    started = _now(words)
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
                if _now(words) - started > budget:
                    state[_STATUS] = _MORE
                    return
                if not fresh and since_read < few_bytes and _waiting(conn, words) < few_bytes:
                    _nap(words, state[_NAP])
                    state[_NAP] = min(state[_NAP] * 2, longest_nap)
                fresh = False
                since_read = 0
                if libpq.consume_input(conn) == 0:
                    state[_STATUS] = _ERROR
                    return
                continue
        status = _take(out, commits, state, scratch)
        if status in (_FULL, _MALFORMED):  # the message stays kept
            state[_STATUS] = status
            return
        since_read += state[_PENDING_LENGTH]
        _release(state)
        state[_MESSAGES] += 1
        if status != _IDLE:
            state[_STATUS] = status
            return
        if state[_COMMITS] == len(commits):
            state[_STATUS] = _MORE
            return


@kernel
def _take(out: Any, commits: Any, state: Any, head: Any) -> Any:
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
    position = state[_POSITION]
    if position + 4 + payload > len(out):
        state[_NEED] = 4 + payload
        return _FULL
    for byte in range(4):
        out[position + byte] = np.uint8((payload >> (8 * byte)) & 255)
    position += 4
    libpq.memcpy(out.ctypes.data + position, source + _HEADER, payload)
    state[_POSITION] = position + payload
    state[_BYTES] += payload
    state[_RECEIVED] = max(state[_RECEIVED], be64(head, 1), be64(head, 9))
    state[_SEND_TIME] = be64(head, 17)
    return _note(head, commits, state, payload)


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
        row = state[_COMMITS]
        end = be64(head, _HEADER + 10)
        if kind == _P:
            end = max(end, state[_LAST_END])
        commits[row, 0] = state[_POSITION]
        commits[row, 1] = be64(head, _HEADER + 2)
        commits[row, 2] = end
        commits[row, 3] = be64(head, _HEADER + (26 if kind == _R else 18))
        commits[row, 4] = state[_CHANGES]
        state[_LAST_END] = end
        state[_CHANGES] = 0
        state[_COMMITS] += 1
    return _IDLE
