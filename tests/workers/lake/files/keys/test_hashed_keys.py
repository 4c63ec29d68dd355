"""Keys that are remembered as hashes; no server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.limits import HASHED_KEY_BYTES
from workers.columnar.key_search import numbers_of
from workers.lake.files.keys import hashed_keys
from workers.lake.files.keys.hashed_keys import HashedKeys, Hashing, SearchedHashes, hash_rows

SEED = 2**63 + 5
TEXTS = st.sampled_from(["", "a", "b", "ab", "lang" * 9, "sieben.", "achtacht", None])


def hashed(parts: list[list[str | None]], start: int = 0) -> list[HashedKeys]:
    hashing, found = Hashing(SEED), list[HashedKeys]()
    for part in parts:
        columns: list[Any] = [pa.array(part, pa.string())]
        found += hashing.add(columns, numbers_of(columns), start)
        start += len(part)
    return [*found, *hashing.end()]


def search(parts: list[HashedKeys], keys: list[str], seed: int = SEED) -> list[tuple[int, int]]:
    columns: list[Any] = [pa.array(keys, pa.string())]
    searched = SearchedHashes.of(columns, numbers_of(columns), seed)
    found = [part.search(searched) for part in parts]
    pairs = [zip(rows.tolist(), at.tolist(), strict=True) for rows, at in found]
    return sorted(pair for each in pairs for pair in each)


@given(
    parts=st.lists(st.lists(TEXTS, max_size=30), max_size=4),
    keys=st.lists(TEXTS.filter(lambda each: each is not None), max_size=8),
    start=st.integers(0, 2**40),
    most=st.sampled_from([1, 10, 1000]),
)
def test_every_row_with_a_key_is_found_and_no_other(
    parts: list[list[str | None]], keys: list[Any], start: int, most: int
) -> None:
    """A key that is searched twice, and a key of many rows, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hashed_keys, "HASHED_AT_ONCE_ROWS", most)
        made = hashed(parts, start)
    rows = [text for part in parts for text in part]
    expected = [
        (start + row, at)
        for row, text in enumerate(rows)
        for at, key in enumerate(keys)
        if text == key
    ]
    assert search(made, keys) == sorted(expected)
    again = [HashedKeys.from_arrays(part.arrays()) for part in made]
    assert search(again, keys) == sorted(expected)


def test_keys_of_several_columns() -> None:
    columns: list[Any] = [pa.array(["a", "a", None, "b"]), pa.array([1, 2, 1, None], pa.int64())]
    hashing = Hashing(SEED)
    assert list(hashing.add(columns, numbers_of(columns), 7)) == []
    (made,) = hashing.end()
    keys: list[Any] = [pa.array(["b", "a"]), pa.array([0, 2], pa.int64())]
    rows, at = made.search(SearchedHashes.of(keys, numbers_of(keys), SEED))
    assert (rows.tolist(), at.tolist()) == ([8], [1])


def test_equal_first_hashes_alone_are_no_equal_keys() -> None:
    """Who knows how the first hash is made could look for two keys that have it in common."""
    numbers = np.array([5, 5], np.int64)
    checks = np.array([1, 2], np.int64)
    for array in (numbers, checks):
        array.flags.writeable = False
    made = hash_rows(0, np.array([0, 1], np.int32), numbers, checks)
    rows, at = made.search(SearchedHashes(numbers[:1], checks[1:], np.array([0])))
    assert (rows.tolist(), at.tolist()) == ([1], [0])


def test_another_seed_finds_nothing() -> None:
    assert search(hashed([["a", "b"]]), ["a", "b"], seed=SEED + 1) == []


def test_what_a_row_takes() -> None:
    (made,) = hashed([[str(n) for n in range(100_000)]])
    assert made.size / 100_000 < HASHED_KEY_BYTES + 2


def test_a_part_is_full_in_the_middle_of_what_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hashed_keys, "HASHED_AT_ONCE_ROWS", 3)
    made = hashed([["a", None, "b"], ["c", "d", "e", "f", "g", "h"]], start=10)
    assert [(part.start, len(part.places)) for part in made] == [(10, 3), (14, 3), (17, 2)]
