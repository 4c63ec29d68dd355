"""Keys that are remembered; no server."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.columnar.key_numbers import KeyNumbers, Numbers
from workers.lake.known_keys import BLOCK, STALE, KnownKeys, Packed, pack

ENDS = -(2**63), 2**63 - 1
SPANS = st.sampled_from([0, 1, 255, 256, 65_535, 65_536, 2**32 - 1])


def numbers(*values: int) -> Numbers:
    return np.array(values, np.int64)


def packed(rows: Any, start: int = 0) -> Packed:
    found = pack(np.array(rows, np.int64), start)
    assert found is not None
    return found


def found(kept: Packed, keys: Numbers) -> list[tuple[int, int]]:
    search = KeyNumbers(keys)
    parts = kept.search(search, np.sort(keys))
    return [pair for rows, of in parts for pair in zip(rows.tolist(), of.tolist(), strict=True)]


@given(
    first=st.integers(*ENDS),
    span=SPANS,
    seed=st.integers(0, 2**32 - 1),
    rows=st.sampled_from([1, 2, BLOCK - 1, BLOCK, BLOCK + 1, 1000]),
    ascending=st.booleans(),
    start=st.integers(0, 2**40),
)
def test_rows_are_found_as_if_they_were_not_packed(
    first: int, span: int, seed: int, rows: int, ascending: bool, start: int
) -> None:
    chance = np.random.default_rng(seed)
    least = min(first, ENDS[1] - span)

    def some(count: int) -> Numbers:
        above: Numbers = chance.integers(0, span + 1, count, dtype=np.int64)
        return above + least

    values = np.sort(some(rows)) if ascending else some(rows)
    keys = np.unique(np.concatenate([chance.choice(values, 5), some(5), numbers(0)]))
    chance.shuffle(keys)
    where = {key: at for at, key in enumerate(keys.tolist())}
    expected = [
        (start + row, where[value]) for row, value in enumerate(values.tolist()) if value in where
    ]
    assert found(packed(values, start), keys) == expected


def test_a_number_takes_as_few_bytes_as_its_neighbours_need() -> None:
    rows = 100 * BLOCK
    for step, width in ((1, 1), (2, 2), (300, 4)):
        kept = packed(range(-step * rows // 2, step * rows // 2, step))
        assert kept.above.itemsize == width
        assert kept.size == rows * width + 100 * 16
    assert pack(numbers(0, 2**32), 0) is None
    assert pack(numbers(*ENDS), 0) is None


def test_blocks_in_which_no_key_can_be_are_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    search = KeyNumbers.search

    def counted(self: KeyNumbers, some: Numbers) -> Any:
        asked.append(len(some))
        return search(self, some)

    monkeypatch.setattr(KeyNumbers, "search", counted)
    kept = packed(np.arange(100_000) * 2)
    assert found(kept, numbers(10, 11, 100_000)) == [(5, 0), (50_000, 2)]
    assert asked == [2 * BLOCK]
    assert found(kept, numbers(-1, 200_000, 10 * 2 * BLOCK - 1)) == []
    assert asked == [2 * BLOCK]


def test_what_fits_is_remembered() -> None:
    known, kept = KnownKeys(most=2 * packed(range(1000)).size), [packed(range(1000))]
    assert known.get("a") is None
    assert known.has_room(1000)
    known.put("a", kept)
    known.put("a", kept)
    assert known.has_room(1000), "it is there once"
    known.put("b", kept)
    assert not known.has_room(1)
    known.put("c", kept)
    assert [known.get(of) is kept for of in "abc"] == [True, True, False]


def test_what_nobody_asks_for_makes_room() -> None:
    """And nothing else does: or of a table that is too large no file were there when it is asked
    for."""
    kept = [packed(range(1000))]
    known = KnownKeys(most=2 * kept[0].size)
    known.put("old", kept)
    for _ in range(STALE):
        known.look_up()
    known.put("young", kept)
    known.put("refused", kept)
    known.look_up()
    assert known.has_room(1000)
    known.put("new", kept)
    assert [known.get(of) is kept for of in ("old", "young", "refused", "new")] == [
        False,
        True,
        False,
        True,
    ]
    for _ in range(STALE):
        known.look_up()
    assert known.get("young"), "asked for: it is the last that goes"
    known.look_up()
    known.put("newest", kept)
    assert [known.get(of) is kept for of in ("young", "new", "newest")] == [True, False, True]
