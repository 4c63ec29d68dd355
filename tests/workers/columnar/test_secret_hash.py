"""Hashes of keys with a secret."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest

from tests.workers.columnar.test_key_search import VALUES
from workers.columnar.key_search import numbers_of
from workers.columnar.secret_hash import SECRET_BITS, secret_numbers_of

SECRET: Final = 0x0F0E0D0C0B0A09080706050403020100
MASK: Final = 2**64 - 1


def turned(word: int, by: int) -> int:
    return (word << by | word >> 64 - by) & MASK


def a_round(v: list[int]) -> None:
    """As in the paper on SipHash."""
    for a, b, by, turn in (
        (0, 1, 13, True),
        (2, 3, 16, False),
        (0, 3, 21, False),
        (2, 1, 17, True),
    ):
        v[a] = (v[a] + v[b]) & MASK
        v[b] = turned(v[b], by) ^ v[a]
        if turn:
            v[a] = turned(v[a], 32)


def siphash(words: list[int]) -> int:
    low, high = SECRET & MASK, SECRET >> 64
    start = b"somepseudorandomlygeneratedbytes"
    v = [int.from_bytes(start[n : n + 8]) for n in range(0, 32, 8)]
    v = [each ^ key for each, key in zip(v, (low, high, low, high), strict=True)]
    for word in words:
        v[3] ^= word
        a_round(v)
        v[0] ^= word
    v[2] ^= 0xFF
    for _ in range(3):
        a_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


def test_it_is_siphash() -> None:
    def unsigned(column: Any) -> list[int]:
        found: list[int] = secret_numbers_of(column, SECRET).view(np.uint64).tolist()
        return found

    assert unsigned([pa.array([7, -1], pa.int64())]) == [siphash([0, 7]), siphash([0, MASK])]
    text = "neun....."
    first = siphash([0, int.from_bytes(b"neun...."), ord("."), 9])
    assert unsigned([pa.array([text, ""])]) == [first, siphash([0, 0, 0])]
    assert unsigned([pa.array([text]), pa.array([5], pa.int32())]) == [siphash([first, 5])]


@pytest.mark.parametrize("name", VALUES)
def test_one_value_has_one_number_wherever_it_stands(name: str) -> None:
    type, values = VALUES[name]
    whole = pa.array([values[-1], None, *values, *values], type)
    found = secret_numbers_of([whole], SECRET)
    assert len(set(found[2:].tolist())) == len(values)
    assert found[2 : 2 + len(values)].tolist() == found[2 + len(values) :].tolist()
    assert found[0] == found[-1]
    assert secret_numbers_of([whole.slice(3)], SECRET).tolist() == found[3:].tolist()
    assert secret_numbers_of([whole[:0]], SECRET).tolist() == []
    assert set(secret_numbers_of([whole], SECRET + 2**64).tolist()).isdisjoint(found.tolist())
    assert 0 <= SECRET < 2**SECRET_BITS


def test_nobody_makes_keys_of_one_hash_without_the_secret() -> None:
    """Two keys of 16 bytes each: the first words differ in the highest bit, the second ones in the
    bits that come of it most often. One such pair in 2,000 has one number, whatever the first words
    are, and so whatever a start value is.
    """
    multiplier, added = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)

    def spread(number: Any) -> Any:
        state = (number ^ added) * multiplier
        return (state ^ (state >> np.uint64(29))) * multiplier

    def keys(first: Any, second: Any) -> Any:
        raw = np.stack([first, second], 1).astype(">u8").tobytes()
        return [pa.array([raw[n : n + 16] for n in range(0, len(raw), 16)], pa.binary())]

    words = np.random.default_rng(1).integers(0, 2**64, 100_000, dtype=np.uint64)
    others = words ^ np.uint64(2**63)
    differences, counts = np.unique(spread(words) ^ spread(others), return_counts=True)
    likely = np.full_like(words, differences[counts.argmax()])
    one, two = keys(words, np.zeros_like(words)), keys(others, likely)
    assert (numbers_of(one) == numbers_of(two)).sum() > 10
    assert not (secret_numbers_of(one, SECRET) == secret_numbers_of(two, SECRET)).any()
