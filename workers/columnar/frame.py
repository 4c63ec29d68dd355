"""Framing: find the place of every row change in a buffer of spool records.

A spool record is an unsigned 32-bit little-endian length and one pgoutput message (without the
CopyData header). ``frame`` walks over a run of records that begins and ends between transactions.
The walk checks every byte of structure (lengths, counts, order of Begin and Commit) and leaves row
data in place: a row change becomes an entry in a few arrays, every further message a ``Control``.

Framing covers version 1 of the protocol; a streamed or prepared transaction raises 08P01. All
errors are ``ProtocolViolation`` (``workers.columnar.frame_errors``).

A frame takes about 30 bytes of memory for a change. A large transaction is therefore framed slice
by slice (``workers.columnar.frame_slices``). A slice begins and ends between two records.

Trace: of the records Begin, Relation, Insert, Insert, Commit comes one transaction with the changes
0 and 1, a ``Control`` with before_change 0, and two entries with the offsets of the new tuples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from config.limits import FRAME_WINDOW_BYTES
from workers.columnar.column_reader import Changes
from workers.columnar.frame_errors import (
    CUT_OFF,
    MALFORMED,
    OUT_OF_ORDER,
    UNFINISHED,
    WRONG_COMMIT,
    check,
)
from workers.columnar.kernel import kernel
from workers.columnar.tuples import Bytes, be16, be32, be64, readonly

_B, _C, _O, _R, _Y, _T, _M = (np.uint8(ord(byte)) for byte in "BCORYTM")
_I, _U, _D, _K, _N = (np.uint8(ord(byte)) for byte in "IUDKN")
_NULL, _UNCHANGED, _TEXT, _BINARY = (np.uint8(ord(byte)) for byte in "nutb")

_MOST_COLUMNS: Final = 0x7FFF  # the count is a signed 16-bit number


@dataclass(frozen=True, slots=True)
class Control:
    """A Relation, Type, Truncate, Message or Origin message.

    ``buf[offset:offset + length]`` is the message for ``workers.proto.decode.message``. ``txn`` is
    the transaction's index (-1: outside of transactions), ``before_change`` the index of the next
    row change.
    """

    kind: int
    offset: int
    length: int
    txn: int
    before_change: int


@dataclass(frozen=True, slots=True)
class Transactions:
    """Arrays of int64 with an entry per transaction; ``commit_time`` in µs since 2000-01-01.

    ``begin`` and ``end`` are the offsets of the Begin record and of the byte after the Commit
    record; the row changes of transaction ``t`` are ``first_change[t]:first_change[t + 1]``.
    """

    final_lsn: npt.NDArray[np.int64]
    end_lsn: npt.NDArray[np.int64]
    commit_time: npt.NDArray[np.int64]
    xid: npt.NDArray[np.int64]
    begin: npt.NDArray[np.int64]
    end: npt.NDArray[np.int64]
    first_change: npt.NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.final_lsn)


OpenTransaction = npt.NDArray[np.int64]
"""The entry in ``Transactions`` of a transaction whose Commit is not framed yet."""


@dataclass(frozen=True, slots=True)
class Frame:
    """Row changes in commit order, as arrays of one length, beside controls and transactions.

    ``kind`` is ``I``, ``U`` or ``D``; ``old_kind`` ``K``, ``O`` or 0; ``old_off`` and ``new_off``
    are offsets into ``buf`` of a tuple's 16-bit column count, 0 without a tuple (a record's header
    precedes every tuple). ``unsent`` counts the unchanged large values that the publisher left out.
    Zeros are never written, and so take no memory. ``opened`` is the transaction that goes on in
    the next slice, which begins at ``end``.
    """

    buf: Bytes
    kind: npt.NDArray[np.uint8]
    relid: npt.NDArray[np.uint32]
    txn: npt.NDArray[np.int32]
    old_kind: npt.NDArray[np.uint8]
    old_off: npt.NDArray[np.int64]
    new_off: npt.NDArray[np.int64]
    unsent: npt.NDArray[np.uint16]
    control: list[Control]
    txns: Transactions
    opened: OpenTransaction | None = None
    end: int = 0

    def __len__(self) -> int:
        return len(self.kind)

    def changes(self, index: npt.NDArray[Any] | slice) -> Changes:
        """Pick changes by ``index`` (positions, a mask or a slice), for a fold."""
        return Changes(
            buf=self.buf,
            kind=self.kind[index],
            old_kind=self.old_kind[index],
            old_off=self.old_off[index],
            new_off=self.new_off[index],
            unsent=self.unsent[index],
            txn=self.txn[index],
        )


def frame(
    buf: Bytes, start: int, end: int, give_back: Callable[[int, int], None] | None = None
) -> Frame:
    """Frame the spool records in ``buf[start:end]``; raises ``ProtocolViolation`` (08P01).

    ``give_back`` is for a buffer that maps a file: called with the bounds of each window after the
    walk over the window, whose pages need not stay in memory.
    """
    return frame_part(buf, start, end, give_back, None, is_last=True)


def frame_part(
    buf: Bytes,
    start: int,
    end: int,
    give_back: Callable[[int, int], None] | None,
    opened: OpenTransaction | None,
    *,
    is_last: bool,
) -> Frame:
    """Frame records that continue the transaction ``opened``, and may end inside a transaction."""
    if not 0 <= start <= end <= len(buf):
        raise ValueError("start and end must lie inside the buffer")
    view = readonly(buf)
    counts, state = np.zeros(3, np.int64), np.zeros(2, np.int64)

    def walk(step: Callable[[int, int], int]) -> None:
        pos = start
        while pos < end:
            begun = pos
            pos = step(pos, end if give_back is None else min(pos + FRAME_WINDOW_BYTES, end))
            check(view, state)
            if give_back is not None:
                give_back(begun, pos)

    walk(lambda pos, stop: _count(view, pos, stop, end, counts, state))
    changes, controls, transactions = (int(count) for count in counts)
    before = 0 if opened is None else 1
    kind, old_kind = np.empty(changes, np.uint8), np.zeros(changes, np.uint8)
    relid, txn = np.empty(changes, np.uint32), np.zeros(changes, np.int32)
    old_off, new_off = np.zeros(changes, np.int64), np.zeros(changes, np.int64)
    unsent = np.zeros(changes, np.uint16)
    control = np.empty((controls, 5), np.int64)
    txns = np.zeros((7, before + transactions + 1), np.int64)
    arrays = kind, relid, txn, old_kind, old_off, new_off, unsent
    filled = np.zeros(4, np.int64)
    if opened is not None:
        txns[:6, 0], filled[2], filled[3] = opened[:6], 1, 1
    walk(lambda pos, stop: _fill(view, pos, stop, end, arrays, control, txns, filled, state))
    if filled[3] and is_last:
        state[:] = UNFINISHED, end
        check(view, state)
    txns[6, before + transactions] = changes
    return Frame(
        buf=view,
        kind=kind,
        relid=relid,
        txn=txn,
        old_kind=old_kind,
        old_off=old_off,
        new_off=new_off,
        unsent=unsent,
        control=[Control(*row) for row in control.tolist()],
        txns=_transactions(txns),
        opened=txns[:, -2].copy() if filled[3] else None,
        end=end,
    )


def _transactions(fields: npt.NDArray[np.int64]) -> Transactions:
    final_lsn, end_lsn, commit_time, xid, begin, end = fields[:6, :-1]
    return Transactions(final_lsn, end_lsn, commit_time, xid, begin, end, fields[6])


@kernel
def record_end(buf: Any, pos: int, end: int) -> Any:
    """The position after the record at ``pos``, or -1 if the record does not fit before ``end``."""
    if end - pos < 5:
        return -1
    length = (
        np.int64(buf[pos])
        | np.int64(buf[pos + 1]) << 8
        | np.int64(buf[pos + 2]) << 16
        | np.int64(buf[pos + 3]) << 24
    )
    after = pos + 4 + length
    if length < 1 or after > end:
        return -1
    return after


@kernel
def _count(buf: Any, pos: int, stop: int, end: int, counts: Any, state: Any) -> Any:
    """Count changes, controls and transactions, so that the arrays can be allocated once.

    The two passes take the records that begin before ``stop`` and return the next record's start.
    """
    while pos < stop:
        after = record_end(buf, pos, end)
        if after < 0:
            state[0], state[1] = CUT_OFF, pos
            return pos
        byte = buf[pos + 4]
        if byte in (_I, _U, _D):
            counts[0] += 1
        elif byte == _B:
            counts[2] += 1
        elif byte in (_R, _Y, _T, _M, _O):
            counts[1] += 1
        elif byte != _C:
            state[0], state[1] = MALFORMED, pos
            return pos
        pos = after
    return pos


@kernel
def _fill(
    buf: Any,
    pos: int,
    stop: int,
    end: int,
    changes: Any,
    control: Any,
    txns: Any,
    filled: Any,
    state: Any,
) -> Any:
    """Second pass: check each message and note its place.

    ``filled`` counts up to now: (changes, controls, transactions, 1 within a transaction).
    """
    nchange, ncontrol, ntxn, opened = filled[0], filled[1], filled[2], filled[3] != 0
    code = 0
    while pos < stop:
        after = record_end(buf, pos, end)
        at = pos + 4
        byte = buf[at]
        if byte in (_I, _U, _D):
            code = _change(buf, at, after, changes, nchange) if opened else OUT_OF_ORDER
            if ntxn > 1:
                changes[2][nchange] = ntxn - 1
            nchange += 1
        elif byte == _B:
            code = _begin(buf, at, after, txns, ntxn) if not opened else OUT_OF_ORDER
            txns[4, ntxn], txns[6, ntxn] = pos, nchange
            opened = True
            ntxn += 1
        elif byte == _C:
            code = _commit(buf, at, after, txns, ntxn - 1) if opened else OUT_OF_ORDER
            opened = False
        else:
            code = _control(buf, at, after)
            if not code and byte == _O and not opened:
                code = OUT_OF_ORDER
            control[ncontrol, 0], control[ncontrol, 1] = byte, at
            control[ncontrol, 2] = after - at
            control[ncontrol, 3] = ntxn - 1 if opened else -1
            control[ncontrol, 4] = nchange
            ncontrol += 1
        if code:
            state[0], state[1] = code, pos
            return pos
        pos = after
    filled[0], filled[1], filled[2], filled[3] = nchange, ncontrol, ntxn, opened
    return pos


@kernel
def _tuple(buf: Any, pos: int, end: int, unsent: Any, index: int) -> Any:
    """The position after the tuple at ``pos``, or minus an error code; counts ``unsent`` values."""
    if end - pos < 2:
        return -MALFORMED
    ncols = be16(buf, pos)
    if ncols > _MOST_COLUMNS:
        return -MALFORMED
    pos += 2
    for _ in range(ncols):
        if pos >= end:
            return -MALFORMED
        status = buf[pos]
        pos += 1
        if status in (_TEXT, _BINARY):
            if end - pos < 4:
                return -MALFORMED
            pos += 4 + be32(buf, pos)
            if pos > end:
                return -MALFORMED
        elif status == _UNCHANGED:
            unsent[index] += 1
        elif status != _NULL:
            return -MALFORMED
    return pos


@kernel
def _change(buf: Any, at: int, end: int, changes: Any, index: int) -> Any:
    """Check the I, U or D at ``at`` and fill the entry; 0 or an error code."""
    kind, relid, _, old_kind, old_off, new_off, unsent = changes
    if end - at < 6:
        return MALFORMED
    byte = buf[at]
    kind[index], relid[index] = byte, be32(buf, at + 1)
    mark = buf[at + 5]
    pos = at + 6
    if byte != _I and mark in (_K, _O):
        old_kind[index], old_off[index] = mark, pos
        pos = _tuple(buf, pos, end, unsent, index)
        if pos < 0:
            return -pos
        if byte == _U:
            if pos >= end:
                return MALFORMED
            mark = buf[pos]
            pos += 1
    elif byte == _D:
        return MALFORMED
    if byte != _D:
        if mark != _N:
            return MALFORMED
        new_off[index] = pos
        pos = _tuple(buf, pos, end, unsent, index)
        if pos < 0:
            return -pos
    return 0 if pos == end else MALFORMED


@kernel
def _begin(buf: Any, at: int, end: int, txns: Any, index: int) -> Any:
    if end - at != 21:
        return MALFORMED
    txns[0, index], txns[2, index] = be64(buf, at + 1), be64(buf, at + 9)
    txns[3, index] = be32(buf, at + 17)
    return 0 if txns[0, index] > 0 else MALFORMED


@kernel
def _commit(buf: Any, at: int, end: int, txns: Any, index: int) -> Any:
    if end - at != 26 or buf[at + 1] != 0:
        return MALFORMED
    if be64(buf, at + 2) != txns[0, index]:
        return WRONG_COMMIT
    txns[1, index], txns[2, index] = be64(buf, at + 10), be64(buf, at + 18)
    txns[5, index] = end
    return 0 if txns[1, index] > txns[0, index] else MALFORMED


@kernel
def _string(buf: Any, pos: int, end: int) -> Any:
    """The position after a NUL-terminated string, or minus an error code."""
    if pos < 0:
        return pos
    while pos < end:
        pos += 1
        if buf[pos - 1] == 0:
            return pos
    return -MALFORMED


@kernel
def _control(buf: Any, at: int, end: int) -> Any:
    """Check a control message; 0 or an error code."""
    byte = buf[at]
    pos = at + 1
    if byte == _R:
        pos = _relation(buf, pos, end)
    elif byte == _Y:
        pos = _string(buf, _string(buf, pos + 4, end), end)
    elif byte == _O:
        pos = _string(buf, pos + 8, end)
    elif byte == _T:
        if end - pos < 5:
            return MALFORMED
        count = be32(buf, pos)
        pos += 5 + 4 * count
    else:
        pos = _string(buf, pos + 9, end)
        if pos >= 0:
            if end - pos < 4:
                return MALFORMED
            pos += 4 + be32(buf, pos)
    if pos < 0:
        return -pos
    return 0 if pos == end else MALFORMED


@kernel
def _relation(buf: Any, pos: int, end: int) -> Any:
    pos = _string(buf, _string(buf, pos + 4, end), end)
    if pos < 0:
        return pos
    if end - pos < 3:
        return -MALFORMED
    identity = buf[pos]
    if identity not in (ord("d"), ord("n"), ord("f"), ord("i")):
        return -MALFORMED
    ncols = be16(buf, pos + 1)
    if ncols > _MOST_COLUMNS:
        return -MALFORMED
    pos += 3
    for _ in range(ncols):
        pos = _string(buf, pos + 1, end)
        if pos < 0:
            return pos
        pos += 8
        if pos > end:
            return -MALFORMED
    return pos
