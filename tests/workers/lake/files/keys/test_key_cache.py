"""Keys that are remembered; no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.limits import (
    KEY_BLOCK_ROWS,
    KEY_CACHE_ENTRY_BYTES,
    KEY_CACHE_IDLE_SECONDS,
    KEY_FILE_NOTED_SECONDS,
)
from workers.columnar.key_search import KeyNumbers, Numbers
from workers.lake.files.keys.key_cache import KeyCache, Packed, pack
from workers.lake.files.keys.key_files import KeyFiles

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
    rows=st.sampled_from([1, 2, KEY_BLOCK_ROWS - 1, KEY_BLOCK_ROWS, KEY_BLOCK_ROWS + 1, 1000]),
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
    rows = 100 * KEY_BLOCK_ROWS
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
    assert asked == [2 * KEY_BLOCK_ROWS]
    assert found(kept, numbers(-1, 200_000, 10 * 2 * KEY_BLOCK_ROWS - 1)) == []
    assert asked == [2 * KEY_BLOCK_ROWS]


ONE = packed(range(1000)).size + KEY_CACHE_ENTRY_BYTES
"""Bytes that a thousand rows take."""


def test_what_fits_is_remembered() -> None:
    known, kept = KeyCache(max_bytes=2 * ONE), [packed(range(1000))]
    assert known.get("a") is None
    assert known.takes("a", 1000)
    known.put("a", kept)
    known.put("a", kept)
    assert not known.takes("a", 1000), "it is there"
    assert known.takes("b", 1000)
    known.put("b", kept)
    assert not known.takes("c", 1)
    known.put("c", kept)
    assert [known.get(of) is kept for of in "abc"] == [True, True, False]


def test_files_of_few_rows_cost_what_they_take_besides() -> None:
    known, kept = KeyCache(max_bytes=10 * KEY_CACHE_ENTRY_BYTES), [packed([1])]
    for n in range(20):
        known.put(n, kept)
    assert sum(known.get(n) is not None for n in range(20)) == 7
    assert known._bytes <= known.max_bytes


def test_what_cannot_be_packed_is_not_tried_again() -> None:
    known = KeyCache()
    known.put("a", None)
    assert known.get("a") is None
    assert not known.takes("a", 1)
    assert known.takes("b", 1)
    assert not known.takes("b", known.max_bytes + 1)


def test_what_nobody_asks_for_makes_room() -> None:
    """And nothing else does: or of a table that is too large no file were there when it is asked
    for."""
    now = [0.0]
    kept = [packed(range(1000))]
    known = KeyCache(max_bytes=2 * ONE, clock=lambda: now[0])
    known.put("old", kept)
    now[0] = KEY_CACHE_IDLE_SECONDS
    known.put("young", kept)
    assert not known.takes("refused", 1000)
    known.put("refused", kept)
    now[0] += 1
    assert known.takes("new", 1000)
    known.put("large", [packed(range(10_000))])
    assert known.takes("new", 1000), "what would not fit anyway drives nothing out"
    known.put("new", kept)
    for of, there in (("old", False), ("young", True), ("refused", False), ("new", True)):
        assert (known.get(of) is kept) == there, of
    now[0] += KEY_CACHE_IDLE_SECONDS
    assert known.get("young"), "asked for: it is the last that goes"
    now[0] += 1
    known.put("newest", kept)
    for of, there in (("young", True), ("new", False), ("newest", True)):
        assert (known.get(of) is kept) == there, of


def mapped(
    patch: pytest.MonkeyPatch, folder: Path, *names: str, now: list[float] | None = None
) -> Any:
    """A cache with entries on the disk, and the list of the entries that are read."""
    files = KeyFiles(folder, 10**6)
    for name in names:
        entry = files.new(name, 1)
        assert entry
        entry.add(packed(range(1000)).arrays())
        assert entry.finish()
    times = now or [0.0]
    known = KeyCache(max_bytes=0, files=files, clock=lambda: times[0])
    reads: list[object] = []
    load = KeyFiles.load

    def counted(self: KeyFiles, of: object) -> Any:
        reads.append(of)
        return load(self, of)

    patch.setattr(KeyFiles, "load", counted)
    return known, reads


def test_what_is_mapped_is_read_once_though_the_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To read is to compute the checksum of the whole file, which no batch waits for."""
    known, reads = mapped(monkeypatch, tmp_path, "a", "b")
    for _ in range(3):
        assert known.get("a")
        assert known.get("b")
    assert reads == ["a", "b"]


def test_what_is_mapped_and_not_used_is_dropped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that is removed takes its room on the disk as long as anybody maps it."""
    now = [0.0]
    known, reads = mapped(monkeypatch, tmp_path, "a", "b", now=now)
    assert known.get("a")
    assert known.get("b")
    now[0] = KEY_CACHE_IDLE_SECONDS
    assert known.get("b")
    now[0] += 1
    assert known.get("b")
    assert list(known._mapped) == ["b"]
    assert known.get("a")
    assert reads == ["a", "b", "a"]


def test_the_use_of_what_is_mapped_is_noted_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    known, reads = mapped(monkeypatch, tmp_path, "a", now=now)
    assert known.get("a")
    path = known.files._path("a")
    path.unlink()
    now[0] = KEY_FILE_NOTED_SECONDS - 1
    assert known.get("a"), "what is mapped stays"
    now[0] += 1
    assert known.get("a") is None, "another process removed the file: the room is given back"
    assert not known._mapped
    assert reads == ["a", "a"]
