"""Walk over pgoutput tuples inside a byte buffer: the kernels below all columnar code.

A tuple is a 16-bit column count and, per column, a status byte: ``n`` NULL, ``u`` unchanged
out-of-line value (not sent), ``t`` 32-bit length and text, ``b`` 32-bit length and binary. The
kernels trust the structure, because ``frame`` has checked every byte, but not the count.

A *ref* names one tuple of a change: ``2 * change`` is the old tuple, ``2 * change + 1`` the new
tuple. The place of a value is a position and a length, in arrays of shape (slots, rows); a length
below zero is ``NULL`` or ``MISSING``.

Trace: change 3 is an UPDATE whose new tuple is ``(t "7", u)``. For ref 7 slot 0 gets the position
of "7" and length 1, slot 1 is MISSING in the new tuple. Under REPLICA IDENTITY FULL slot 1 is then
found in ref 6, the old tuple; else in the row's previous change.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from workers.columnar.copy_bytes import copy_bytes
from workers.columnar.kernel import kernel

Bytes: TypeAlias = npt.NDArray[np.uint8]

INSERT, UPDATE, DELETE = (np.uint8(ord(byte)) for byte in "IUD")
"""The kinds of changes, by the first byte of the message."""

NULL: Final = -1
MISSING: Final = -2

# Error codes of the kernels; 0 is success.
WRONG_COUNT: Final = 1
BINARY_VALUE: Final = 2
KEY_MISSING: Final = 3
KEY_NULL: Final = 4
OLD_MISSING: Final = 5
VALUE_MISSING: Final = 6

# For a value in binary form, with the SQLSTATEs of PostgreSQL's receive functions.
INSUFFICIENT: Final = 7  # 08P01
INCORRECT: Final = 8  # 22P03
OUT_OF_RANGE: Final = 9  # 22008
NO_ROOM: Final = 10  # no error: the text does not fit the room

_N, _U, _T, _B, _O = (np.uint8(ord(byte)) for byte in "nutbO")


def readonly(buf: Bytes) -> Bytes:
    """A read-only plain-ndarray view of ``buf`` (which may be a ``np.memmap``); copies nothing.

    Kernels are compiled for a single kind of array.
    """
    view = buf.view(np.ndarray)
    view.flags.writeable = False
    return view


@kernel
def be16(buf: Any, pos: int) -> Any:
    """Unsigned 16-bit big-endian."""
    return np.int64(buf[pos]) << 8 | np.int64(buf[pos + 1])


@kernel
def be32(buf: Any, pos: int) -> Any:
    """Unsigned 32-bit big-endian."""
    return (
        np.int64(buf[pos]) << 24
        | np.int64(buf[pos + 1]) << 16
        | np.int64(buf[pos + 2]) << 8
        | np.int64(buf[pos + 3])
    )


@kernel
def be64(buf: Any, pos: int) -> Any:
    """Signed 64-bit big-endian."""
    return be32(buf, pos) << 32 | be32(buf, pos + 4)


@kernel
def fits(buf: Any, off: int, ncols: int, old: bool) -> Any:
    """True if the tuple at ``off`` has the relation's number of columns.

    An ``old`` tuple may have more: PostgreSQL before 15.2 sends columns that the publication leaves
    out. They are ignored, as in PostgreSQL's subscriber.
    """
    sent = be16(buf, off)
    return sent == ncols or (old and sent > ncols)


@kernel
def place(buf: Any, off: int, slot: Any, loc: Any, length: Any, row: int, old: bool) -> Any:
    """Note the place of each mapped column in the tuple at ``off``; count the missing values.

    ``slot[ordinal]`` is the column's slot, -1 for an unread column. Returns minus an error code for
    a column count that does not fit ``len(slot)``.
    """
    if not fits(buf, off, len(slot), old):
        return -WRONG_COUNT
    pos = off + 2
    missing = 0
    for ordinal in range(len(slot)):
        status = buf[pos]
        pos += 1
        size = 0
        where = slot[ordinal]
        if status in (_T, _B):
            size = be32(buf, pos)
            pos += 4
            if where >= 0:
                loc[where, row], length[where, row] = pos, size
            pos += size
        elif where >= 0:
            loc[where, row] = -1
            if status == _U:
                missing += 1
                length[where, row] = MISSING
            else:
                length[where, row] = NULL
    return missing


@kernel
def fill(
    buf: Any, off: int, slot: Any, taken: Any, loc: Any, length: Any, row: int, old: bool
) -> Any:
    """Complete the missing slots that ``taken`` allows from the tuple at ``off``.

    Returns the number of found values, or minus an error code.
    """
    if not fits(buf, off, len(slot), old):
        return -WRONG_COUNT
    pos = off + 2
    found = 0
    for ordinal in range(len(slot)):
        status = buf[pos]
        pos += 1
        where = slot[ordinal]
        wanted = where >= 0 and length[where, row] == MISSING and taken[where]
        size = 0
        if status in (_T, _B):
            size = be32(buf, pos)
            pos += 4
        if wanted and status != _U:
            found += 1
            if status != _N:
                loc[where, row], length[where, row] = pos, size
            else:
                length[where, row] = NULL
        pos += size
    return found


@kernel
def place_row(
    buf: Any, changes: Any, prev: Any, ref: int, slots: Any, loc: Any, length: Any, row: int
) -> Any:
    """Note the places of a row's values after the tuple ``ref``, however long ago they were sent.

    A value that the new tuple lacks is taken from the old tuple of the message (from the whole
    tuple under REPLICA IDENTITY FULL, else from the key), then from the row's previous change in
    the segment (``prev``, may be empty), and so on. Returns the number of values that are nowhere
    in the segment, or minus an error code. ``slots`` is (slot of each ordinal, every slot, key
    slots).
    """
    _, old_off, new_off = changes
    slot, _, _ = slots
    change = ref >> 1
    off = new_off[change] if ref & 1 else old_off[change]
    missing = place(buf, off, slot, loc, length, row, not ref & 1)
    if missing <= 0 or not ref & 1:
        return missing
    return _complete(buf, changes, prev, change, slots, loc, length, row, missing)


@kernel
def _complete(
    buf: Any,
    changes: Any,
    prev: Any,
    change: int,
    slots: Any,
    loc: Any,
    length: Any,
    row: int,
    missing: int,
) -> Any:
    """Find the values that the change's new tuple lacks; returns as ``place_row``."""
    old_kind, old_off, new_off = changes
    slot, every, key = slots
    while missing > 0:
        if old_off[change] > 0:
            taken = every if old_kind[change] == _O else key
            found = fill(buf, old_off[change], slot, taken, loc, length, row, True)
            if found < 0:
                return found
            missing -= found
        if len(prev) == 0 or prev[change] < 0 or missing == 0:
            break
        change = prev[change]
        found = fill(buf, new_off[change], slot, every, loc, length, row, False)
        if found < 0:
            return found
        missing -= found
    return missing


@kernel
def are_whole(buf: Any, new_off: Any, refs: Any, ncols: int) -> Any:
    """True if all new tuples of ``refs`` have the given number of values, all sent."""
    for ref in refs:
        pos = new_off[ref >> 1]
        if be16(buf, pos) != ncols:
            return False
        pos += 2
        for _ in range(ncols):
            status = buf[pos]
            pos += 1
            if status == _U:
                return False
            if status != _N:
                pos += 4 + be32(buf, pos)
    return True


@kernel
def first_in_other_form(buf: Any, old_off: Any, new_off: Any, roots: Any, binary: bool) -> Any:
    """The first change with a value in the wrong form for the column; -1 if all forms are right.

    With ``binary`` a column with a root has binary form, and columns after ``roots`` do not matter;
    without ``binary`` no value may be binary.
    """
    for change in range(len(new_off)):
        for which in range(2):
            off = new_off[change] if which else old_off[change]
            if off == 0:
                continue
            pos = off + 2
            columns = be16(buf, off)
            if binary:
                columns = min(columns, len(roots))
            for column in range(columns):
                status = buf[pos]
                pos += 1
                if status in (_T, _B):
                    if (status == _B) != (binary and roots[column] >= 0):
                        return change
                    pos += 4 + be32(buf, pos)
    return -1


@kernel
def place_rows(
    buf: Any,
    changes: Any,
    prev: Any,
    refs: Any,
    slots: Any,
    loc: Any,
    length: Any,
    max_bytes: int,
    state: Any,
) -> Any:
    """``place_row`` for ``refs`` until the refs or ``max_bytes`` run out; at least one row.

    A ref below zero is a row of NULLs. Returns the number of rows done; ``state`` is
    (error code, row, number of missing values).
    """
    nslots = loc.shape[0]
    _, old_off, new_off = changes
    slot, _, _ = slots
    total = 0
    for row in range(len(refs)):
        ref = refs[row]
        if ref < 0:
            for where in range(nslots):
                loc[where, row] = -1
                length[where, row] = NULL
            continue
        # As in place_row; a call with tuples of arrays costs more than most rows.
        change = ref >> 1
        off = new_off[change] if ref & 1 else old_off[change]
        missing = place(buf, off, slot, loc, length, row, not ref & 1)
        if missing > 0 and ref & 1:
            missing = _complete(buf, changes, prev, change, slots, loc, length, row, missing)
        if missing < 0:
            state[0], state[1] = -missing, row
            return row
        state[2] += missing
        for where in range(nslots):
            if length[where, row] > 0:
                total += length[where, row]
        if total > max_bytes and row > 0:
            return row
    return len(refs)


@kernel
def measure(length: Any, offsets: Any, valid: Any) -> Any:
    """Offsets and validity bits of a column from the lengths; returns the number of NULLs."""
    nulls = 0
    total = 0
    offsets[0] = 0
    for row in range(len(length)):
        if length[row] >= 0:
            total += length[row]
            valid[row >> 3] |= np.uint8(1 << (row & 7))
        else:
            nulls += 1
        offsets[row + 1] = total
    return nulls


@kernel
def gather(buf: Any, loc: Any, length: Any, offsets: Any, data: Any) -> None:
    """Copy the values of a column side by side."""
    for row in range(len(length)):
        if length[row] > 0:
            copy_bytes(data, offsets[row], buf, loc[row], length[row])
