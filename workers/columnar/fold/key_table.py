"""A hash table from key bytes to rows, as kernels: the owner of each key during a fold.

Keys are compared by the bytes from the publisher, in text or binary form. The comparison is sound:
the old key in a message and the last key of the row are one stored datum, sent twice in one form.
Two texts of one value (1.0, 1.00) are two keys in this table; the lake compares values.

The table is an int32 array of shape (capacity, 2), open addressing, capacity a power of two: the
entry (0 = empty) and 31 bits of the hash. An entry is ``(ref << 1 | absent) + 1``: ``ref`` names a
tuple with the key, ``absent`` means that no row of the segment has the key any more.

Trace: I 1 (change 0), U 1→2 (change 1)::

    I 1      new entry for key 1: ref 1, the new tuple of change 0
    U 1→2    key 1 is found and becomes absent; new entry for key 2: ref 3
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from workers.columnar.kernel import kernel
from workers.columnar.tuples import KEY_MISSING, KEY_NULL, MISSING, NULL, WRONG_COUNT, be32, fits

MOST_CHANGES: Final = 1 << 29
"""Most changes in a table: a ref and a flag share 31 bits."""

_N, _U, _T, _B = (np.uint8(ord(byte)) for byte in "nutb")
_SEED, _MULTIPLIER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_8, _32, _33 = (np.uint64(n) for n in (8, 32, 33))


def new_table(entries: int) -> npt.NDArray[np.int32]:
    """An empty table with room for ``entries``; only used parts take memory."""
    capacity = 16
    while capacity < entries + entries // 2:
        capacity *= 2
    return np.zeros((capacity, 2), np.int32)


@kernel
def mark_alone(
    buf: Any, changes: Any, key: Any, table: Any, loc: Any, length: Any, alone: Any
) -> None:
    """Mark the changes that share no key with a further change: mostly all.

    Only a part of the hash is compared: a change that is alone may stay unmarked, but a marked
    change is always alone. A change whose key cannot be placed stays unmarked; the fold then raises
    the error. An entry of ``table``, from ``new_table``, is a change plus one.
    """
    _, old_off, new_off = changes
    slot, highest = key
    mask = table.shape[0] - 1
    for change in range(len(alone)):
        alone[change] = True
        for new in range(2):
            off = new_off[change] if new else old_off[change]
            if off == 0:
                continue
            # The beginning of place_key; a call with tuples of arrays costs more than this block.
            missing = _place_key(buf, off, slot, highest, loc, length, 0, False, not new)
            if missing > 0:
                missing = place_key(buf, changes, change * 2 + new, key, loc, length, 0)
            if missing != 0:
                alone[change] = False
                break
            code = hash_row(buf, loc, length, 0)
            tag = np.int32(code >> _33)
            at = np.int64(code & np.uint64(mask))
            while table[at, 0] != 0 and table[at, 1] != tag:
                at = (at + 1) & mask
            owner = table[at, 0] - 1
            if owner < 0:
                table[at, 0], table[at, 1] = change + 1, tag
            elif owner != change:
                alone[change] = alone[owner] = False


@kernel
def place_key(buf: Any, changes: Any, ref: int, key: Any, loc: Any, length: Any, row: int) -> Any:
    """Note the place of the key in the tuple ``ref``; 0 or an error code.

    ``changes`` is (old_kind, old_off, new_off), ``key`` is (slot of each ordinal, the highest
    key ordinal). A key column that is unchanged in the new tuple is read from the old one.
    """
    _, old_off, new_off = changes
    slot, highest = key
    change = ref >> 1
    off = new_off[change] if ref & 1 else old_off[change]
    missing = _place_key(buf, off, slot, highest, loc, length, row, False, not ref & 1)
    if missing <= 0:
        return -missing
    if not ref & 1 or old_off[change] == 0:
        return KEY_MISSING
    missing = _place_key(buf, old_off[change], slot, highest, loc, length, row, True, True)
    return -missing if missing <= 0 else KEY_MISSING


@kernel
def _place_key(
    buf: Any,
    off: int,
    slot: Any,
    highest: int,
    loc: Any,
    length: Any,
    row: int,
    again: bool,
    old: bool,
) -> Any:
    """Place the key columns of a tuple (``again``: only columns that are still missing).

    Returns the number of missing columns, or minus an error code.
    """
    if not fits(buf, off, len(slot), old):
        return -WRONG_COUNT
    pos = off + 2
    missing = 0
    for ordinal in range(highest + 1):
        status = buf[pos]
        pos += 1
        where = slot[ordinal]
        wanted = where >= 0 and not (again and length[where, row] != MISSING)
        size = 0
        if status in (_T, _B):
            size = be32(buf, pos)
            pos += 4
        if wanted:
            if status == _N:
                return -KEY_NULL
            missing += status == _U
            loc[where, row] = pos
            length[where, row] = MISSING if status == _U else size
        pos += size
    return missing


@kernel
def hash_row(buf: Any, loc: Any, length: Any, row: int) -> Any:
    """64 bits over the values placed in ``row``, NULLs and lengths included."""
    state = _SEED
    for where in range(loc.shape[0]):
        size = np.int64(length[where, row])
        state = (state ^ np.uint64(size + 3)) * _MULTIPLIER
        pos = loc[where, row]
        stop = pos + size
        while pos + 8 <= stop:
            word = np.uint64(be32(buf, pos)) << _32 | np.uint64(be32(buf, pos + 4))
            state = (state ^ word) * _MULTIPLIER
            state ^= state >> _32
            pos += 8
        word = np.uint64(0)
        while pos < stop:
            word = word << _8 | np.uint64(buf[pos])
            pos += 1
        state = (state ^ word) * _MULTIPLIER
        state ^= state >> _32
    return state


@kernel
def same_row(buf: Any, loc: Any, length: Any, one: int, other: int) -> Any:
    """True if two placed rows hold equal bytes; NULL equals NULL."""
    for where in range(loc.shape[0]):
        size = length[where, one]
        if size != length[where, other]:
            return False
        if size == NULL:
            continue
        here, there = loc[where, one], loc[where, other]
        for byte in range(size):
            if buf[here + byte] != buf[there + byte]:
                return False
    return True


@kernel
def find_key(buf: Any, changes: Any, key: Any, table: Any, loc: Any, length: Any, row: int) -> Any:
    """The table's index of the key placed in ``row``, or of the empty entry for the key.

    An empty entry gets the hash; the caller writes the entry. Row 1 of ``loc`` and ``length`` is
    overwritten.
    """
    code = hash_row(buf, loc, length, row)
    mask = table.shape[0] - 1
    tag = np.int32(code >> _33)
    at = np.int64(code & np.uint64(mask))
    while table[at, 0] != 0:
        if table[at, 1] == tag:
            place_key(buf, changes, (table[at, 0] - 1) >> 1, key, loc, length, 1)
            if same_row(buf, loc, length, row, 1):
                return at
        at = (at + 1) & mask
    table[at, 1] = tag
    return at
