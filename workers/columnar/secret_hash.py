"""Hashes of keys that nobody can compute, or make equal, without a secret: SipHash-1-3.

The number that look-ups use (``numbers_of``) is quick to make, and anybody can look for two keys
with one number. A secret start value would not help: with the quick hash, keys of two words whose
first words differ in the highest bit, and whose second words differ in the right bits, have equal
hashes for one start value in 2,000. SipHash by Aumasson and Bernstein is made for hash tables of
foreign keys, and takes about as long.

The hash of several columns is made column by column: the hash of the columns before is the first
word of a column's message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from workers.columnar.kernel import inner_kernel, kernel
from workers.columnar.key_search import Numbers, is_text, text_of, words_of

SECRET_BITS: Final = 128
_WORD: Final = 2**64 - 1
_INIT0, _INIT1 = np.uint64(0x736F6D6570736575), np.uint64(0x646F72616E646F6D)
_INIT2, _INIT3 = np.uint64(0x6C7967656E657261), np.uint64(0x7465646279746573)
_END: Final = np.uint64(0xFF)
_8, _13, _16, _17, _21, _32 = (np.uint64(n) for n in (8, 13, 16, 17, 21, 32))
_51, _48, _47, _43 = (np.uint64(64 - int(n)) for n in (_13, _16, _17, _21))


def secret_numbers_of(columns: Sequence[pa.Array[Any]], secret: int) -> Numbers:
    """A hash for each row of searchable columns; any number for a row with a NULL."""
    state = np.zeros(len(columns[0]), np.uint64)
    words = np.uint64(secret & _WORD), np.uint64(secret >> 64 & _WORD)
    for column in columns:
        if not len(column):
            continue
        if is_text(column.type):
            hash_texts(*text_of(column), *words, state)
        else:
            for numbers in words_of(column):
                hash_numbers(numbers, *words, state)
    found: Numbers = state.view(np.int64)
    found.flags.writeable = False
    return found


@inner_kernel
def _round(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0 += v1
    v2 += v3
    v1 = (v1 << _13 | v1 >> _51) ^ v0
    v3 = (v3 << _16 | v3 >> _48) ^ v2
    v0 = v0 << _32 | v0 >> _32
    v2 += v1
    v0 += v3
    v1 = (v1 << _17 | v1 >> _47) ^ v2
    v3 = (v3 << _21 | v3 >> _43) ^ v0
    v2 = v2 << _32 | v2 >> _32
    return v0, v1, v2, v3


@inner_kernel
def _take(word: Any, v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v0, v1, v2, v3 = _round(v0, v1, v2, v3 ^ word)
    return v0 ^ word, v1, v2, v3


@inner_kernel
def _end(v0: Any, v1: Any, v2: Any, v3: Any) -> Any:
    v2 ^= _END
    for _ in range(3):
        v0, v1, v2, v3 = _round(v0, v1, v2, v3)
    return v0 ^ v1 ^ v2 ^ v3


@kernel
def hash_numbers(numbers: Any, low: Any, high: Any, state: Any) -> None:
    """Replace the hash of each row by the hash with a column of numbers."""
    for row in range(len(numbers)):
        v0, v1, v2, v3 = low ^ _INIT0, high ^ _INIT1, low ^ _INIT2, high ^ _INIT3
        v0, v1, v2, v3 = _take(state[row], v0, v1, v2, v3)
        v0, v1, v2, v3 = _take(np.uint64(numbers[row]), v0, v1, v2, v3)
        state[row] = _end(v0, v1, v2, v3)


@kernel
def hash_texts(offsets: Any, data: Any, low: Any, high: Any, state: Any) -> None:
    """Replace the hash of each row by the hash with a column of bytes."""
    for row in range(len(offsets) - 1):
        start, stop = offsets[row], offsets[row + 1]
        v0, v1, v2, v3 = low ^ _INIT0, high ^ _INIT1, low ^ _INIT2, high ^ _INIT3
        v0, v1, v2, v3 = _take(state[row], v0, v1, v2, v3)
        word = np.uint64(0)
        for at in range(start, stop):
            word = word << _8 | np.uint64(data[at])
            if (at - start) & 7 == 7:
                v0, v1, v2, v3 = _take(word, v0, v1, v2, v3)
                word = np.uint64(0)
        v0, v1, v2, v3 = _take(word, v0, v1, v2, v3)
        v0, v1, v2, v3 = _take(np.uint64(stop - start), v0, v1, v2, v3)
        state[row] = _end(v0, v1, v2, v3)
