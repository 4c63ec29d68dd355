"""Where and how the keys of a file are remembered; no server."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from workers.columnar.key_search import numbers_of
from workers.lake.files.keys import remember_keys
from workers.lake.files.keys.hashed_keys import HashedKeys
from workers.lake.files.keys.key_cache import KeyCache, Packed
from workers.lake.files.keys.key_files import KeyFiles
from workers.lake.files.keys.remember_keys import remember

INTS = pa.array([5, 6, 9], pa.int64())
TEXTS = pa.array(["a", "b", None])


def a_cache(folder: Path) -> KeyCache:
    return KeyCache(files=KeyFiles(folder, 100_000))


def collect(
    cache: KeyCache, values: Any, *, cheap: bool = False, skip: bool = False, fails: bool = False
) -> None:
    hashed = values.type == pa.string()
    with remember(cache, "a", len(values), hashed=hashed, has_cheap_requests=cheap) as entry:
        entry.add([values], numbers_of([values]), 0)
        if skip:
            entry.skip()
        if fails:
            raise ValueError("unreadable")


def on_disk(folder: Path) -> bool:
    return bool(list(folder.glob("*.keys")))


@pytest.mark.parametrize(
    ("values", "cheap", "large", "disk"),
    [
        (INTS, False, True, True),
        (INTS, True, True, False),
        (INTS, False, False, False),
        (TEXTS, False, True, True),
        (TEXTS, True, True, True),
        (TEXTS, True, False, False),
    ],
)
def test_the_disk_has_what_is_large_and_expensive_to_read(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    values: Any,
    cheap: bool,
    large: bool,
    disk: bool,
) -> None:
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 2 if large else 3)
    cache = a_cache(tmp_path)
    collect(cache, values, cheap=cheap)
    assert on_disk(tmp_path) == disk
    (part,) = cache.get("a") or ()
    assert isinstance(part, HashedKeys if values is TEXTS else Packed)
    after_restart = a_cache(tmp_path).get("a")
    assert (after_restart is not None) == disk
    if after_restart:
        given, found = part.arrays(), after_restart[0].arrays()
        assert {name: each.tolist() for name, each in given.items()} == {
            name: each.tolist() for name, each in found.items()
        }


def test_without_a_folder_all_is_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 0)
    cache = KeyCache()
    collect(cache, TEXTS)
    assert cache.get("a")


@pytest.mark.parametrize("values", [INTS, TEXTS], ids=["numbers", "texts"])
@pytest.mark.parametrize("large", [True, False])
def test_a_file_that_is_not_read_whole_is_not_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Any, large: bool
) -> None:
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 2 if large else 3)
    cache = a_cache(tmp_path)
    collect(cache, values, skip=True)
    with pytest.raises(ValueError, match="unreadable"):
        collect(cache, values, fails=True)
    assert cache.get("a") is None
    assert [path.name for path in tmp_path.iterdir()] == ["seed"]
    collect(cache, values)
    assert cache.get("a") is not None


@pytest.mark.parametrize("values", [INTS[:0], pa.array([None, None], pa.string())])
def test_a_piece_without_keys_is_remembered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: Any
) -> None:
    """A file with one row group has pieces without rows: no batch opens the file for them."""
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 1)
    cache = a_cache(tmp_path)
    hashed = values.type == pa.string()
    with remember(cache, "a", 2, hashed=hashed, has_cheap_requests=False) as entry:
        if len(values):
            entry.add([values], numbers_of([values]), 0)
    assert cache.get("a") == []
    assert not on_disk(tmp_path)


def test_a_disk_that_refuses_costs_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 1)
    cache = a_cache(tmp_path)
    with remember(cache, "a", 3, hashed=True, has_cheap_requests=True) as entry:
        entry.add([TEXTS], numbers_of([TEXTS]), 0)
        (tmp_path / "seed").unlink()
        tmp_path.rmdir()
    assert cache.get("a") is None, "an entry without parts would say that the file has no rows"


@pytest.mark.parametrize("values", [[1, 2**40], [1, None]])
def test_numbers_that_cannot_be_packed_are_not_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, values: list[Any]
) -> None:
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 1)
    cache = a_cache(tmp_path)
    collect(cache, pa.array(values, pa.int64()))
    assert cache.get("a") is None
    assert not on_disk(tmp_path)
    assert not cache.takes("a", 1)
    monkeypatch.setattr(KeyFiles, "new", None)
    with remember(cache, "a", 2, hashed=False, has_cheap_requests=False) as entry:
        assert not entry.is_open


def test_nothing_is_remembered_without_a_cache() -> None:
    with remember(None, "a", 3, hashed=True, has_cheap_requests=False) as entry:
        assert not entry.is_open
        entry.add([TEXTS], numbers_of([TEXTS]), 0)
        entry.skip()
