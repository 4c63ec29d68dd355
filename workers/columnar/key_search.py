"""Find the rows of a lake table that have one of many keys, by kernels over a number for each key.

A single column of integers, days or moments serves directly as the number; for further types, and
for several columns, the number is a hash. Nearly all rows of a table have none of the keys. A Bloom
filter that fits the processor's cache therefore sorts most rows out, and only the rest look into
the hash table.

``search`` over 3 M rows for 200,000 of them takes 0.04 s; Arrow's ``index_in`` takes 0.3 s.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from workers.columnar.kernel import inner_kernel, kernel

Numbers = npt.NDArray[np.int64]

_SEED, _MULTIPLIER = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xD6E8FEB86659FD93)
_1, _8, _29, _32, _63 = (np.uint64(n) for n in (1, 8, 29, 32, 63))
_SLOTS: Final = 1
"""Slots are at least twice the keys: 2 to this power."""
_BITS: Final = 4
"""Bits of the filter are at least sixteen times the keys."""


def is_searchable(type: pa.DataType) -> bool:
    """True if Spark calls values of the type equal exactly if the bytes are equal.

    Not true for floats (-0.0 and 0.0); lists are never keys.
    """
    return bool(_is_number(type) or is_text(type) or pa.types.is_decimal128(type))


def _is_number(type: pa.DataType) -> bool:
    return bool(
        pa.types.is_integer(type)
        or pa.types.is_boolean(type)
        or pa.types.is_date32(type)
        or pa.types.is_timestamp(type)
    )


def is_text(type: pa.DataType) -> bool:
    """True for text and bytes."""
    return bool(pa.types.is_string(type) or pa.types.is_binary(type))


def is_own_number(types: Sequence[pa.DataType]) -> bool:
    """True if keys of these columns are equal exactly if the numbers are equal."""
    return len(types) == 1 and _is_number(types[0])


def numbers_of(columns: Sequence[pa.Array[Any]]) -> Numbers:
    """A number for each row of searchable columns; any number for a row with a NULL."""
    if is_own_number([column.type for column in columns]):
        return _plain(columns[0])
    state = np.full(len(columns[0]), _SEED, np.uint64)
    for column in columns:
        _mix_column(column, state)
    found: Numbers = _constant(state.view(np.int64))
    return found


def _constant(array: Any) -> Any:
    """A read-only array as Arrow's arrays are; a writable array would compile a second kernel."""
    array.flags.writeable = False
    return array


def _plain(column: Any) -> Numbers:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.int8())
    elif pa.types.is_date32(column.type):
        column = column.cast(pa.int32())
    elif pa.types.is_timestamp(column.type):
        column = column.cast(pa.int64())
    if column.null_count:
        column = pc.fill_null(column, 0)
    found: Numbers = _constant(column.to_numpy().astype(np.int64, copy=False))
    return found


def _mix_column(column: Any, state: npt.NDArray[np.uint64]) -> None:
    if not len(column):
        return
    if is_text(column.type):
        mix_texts(*text_of(column), state)
    else:
        for words in words_of(column):
            mix_numbers(words, state)


def text_of(column: Any) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.uint8]]:
    """Where the values of a column of bytes begin, and the last one ends, and the bytes."""
    _, offsets, text = column.buffers()
    ends = np.frombuffer(offsets, np.int32)[column.offset : column.offset + len(column) + 1]
    return _constant(ends), _constant(np.frombuffer(text or b"\0", np.uint8))


def words_of(column: Any) -> list[Numbers]:
    """The values of a column without text: a word of 64 bits each, or two."""
    if not pa.types.is_decimal128(column.type):
        return [_plain(column)]
    words = np.frombuffer(column.buffers()[1], np.int64).reshape(-1, 2)
    words = words[column.offset : column.offset + len(column)]
    return [_constant(words[:, 0].copy()), _constant(words[:, 1].copy())]


class KeyNumbers:
    """The numbers of the keys to look for, with repetitions."""

    def __init__(self, numbers: Numbers) -> None:
        width = max(4, len(numbers).bit_length() + _SLOTS)
        self._keys = numbers
        self._slots = np.zeros(1 << width, np.int32)
        self._bits = np.zeros(max(1, 1 << (width - _SLOTS + _BITS - 6)), np.uint64)
        self._shifts = 64 - width, 64 - 6 - (len(self._bits).bit_length() - 1)
        self.distinct: bool = enter_keys(numbers, self._slots, self._bits, *self._shifts)
        """True if all keys have different numbers."""

    def search(self, numbers: Numbers) -> tuple[Numbers, Numbers]:
        """The rows with the number of a key, and the first key with the number."""
        rows = np.empty(len(numbers), np.int64)
        keys = np.empty(len(numbers), np.int64)
        table = (self._keys, self._slots, self._bits, *self._shifts)
        count = search_keys(_constant(numbers), *table, rows, keys)
        return rows[:count].copy(), keys[:count].copy()


@inner_kernel
def _spread(number: Any) -> Any:
    state = (np.uint64(number) ^ _SEED) * _MULTIPLIER
    return (state ^ (state >> _29)) * _MULTIPLIER


@kernel
def mix_numbers(numbers: Any, state: Any) -> None:
    """Mix a column of numbers into the number of each row."""
    for row in range(len(numbers)):
        state[row] = _spread(state[row] ^ _spread(numbers[row]))


@kernel
def mix_texts(offsets: Any, data: Any, state: Any) -> None:
    """Mix a column of bytes into the number of each row."""
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        mixed = _spread(state[row] ^ np.uint64(stop - start))
        word = np.uint64(0)
        for at in range(start, stop):
            word = word << _8 | np.uint64(data[at])
            if (at - start) & 7 == 7:
                mixed = _spread(mixed ^ word)
                word = np.uint64(0)
        state[row] = _spread(mixed ^ word)


@kernel
def enter_keys(keys: Any, slots: Any, bits: Any, shift: int, bit_shift: int) -> Any:
    """Fill a hash table (0 is an empty slot) and a filter; False if a number occurs twice."""
    mask = len(slots) - 1
    distinct = True
    for at in range(len(keys)):
        state = _spread(keys[at])
        bit = state >> np.uint64(bit_shift)
        bits[np.int64(bit >> np.uint64(6))] |= _1 << (bit & _63)
        place = np.int64(state >> np.uint64(shift))
        taken = False
        while slots[place] != 0 and not taken:
            taken = keys[slots[place] - 1] == keys[at]
            place = (place + 1) & mask
        if taken:
            distinct = False
        else:
            slots[place] = at + 1
    return distinct


@kernel
def search_keys(
    numbers: Any, keys: Any, slots: Any, bits: Any, shift: int, bit_shift: int, rows: Any, at: Any
) -> Any:
    """Write the found rows to ``rows`` and their keys to ``at``; return the number of rows."""
    mask = len(slots) - 1
    count = 0
    for row in range(len(numbers)):
        state = _spread(numbers[row])
        bit = state >> np.uint64(bit_shift)
        if (bits[np.int64(bit >> np.uint64(6))] >> (bit & _63)) & _1:
            place = np.int64(state >> np.uint64(shift))
            while slots[place] != 0:
                if keys[slots[place] - 1] == numbers[row]:
                    rows[count], at[count] = row, slots[place] - 1
                    count += 1
                    break
                place = (place + 1) & mask
    return count
