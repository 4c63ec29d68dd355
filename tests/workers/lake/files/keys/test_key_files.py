"""Remembered keys on the disk; no server."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workers.lake.files.keys.key_files import Arrays, KeyFiles, open_key_files

MOST = 100_000
PART: Arrays = {"start": np.array([7]), "places": np.arange(300, dtype=np.int32)}


def keep(files: KeyFiles, of: object, *parts: Arrays) -> bool:
    entry = files.new(of)
    for part in parts:
        entry.add(part)
    return entry.finish()


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.keys*"))


def equal(found: list[Arrays] | None, *parts: Arrays) -> bool:
    if found is None or len(found) != len(parts):
        return False
    return all(
        one.keys() == two.keys()
        and all(one[name].dtype == two[name].dtype for name in one)
        and all(np.array_equal(one[name], two[name]) for name in one)
        for one, two in zip(found, parts, strict=True)
    )


def test_an_entry_is_there_for_the_next_process(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path / "keys", MOST)
    assert files.load(("a", 1)) is None
    other = {"start": np.array([9]), "places": np.zeros(0, np.int32)}
    assert keep(files, ("a", 1), PART, other)
    again = KeyFiles(tmp_path / "keys", MOST)
    assert again.seed == files.seed
    assert equal(again.load(("a", 1)), PART, other)
    assert again.load(("a", 2)) is None
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "keys").iterdir()} == {0o600}


def test_descriptors_are_closed_while_an_entry_is_in_use(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    before = len(os.listdir("/proc/self/fd"))
    found = [files.load("a") for _ in range(20)]
    assert len(os.listdir("/proc/self/fd")) == before
    entries(tmp_path)[0].unlink()
    assert all(equal(each, PART) for each in found), "what is mapped stays"


@pytest.mark.parametrize("cut", [0, 3, 4, 100, -1])
def test_a_torn_entry_is_removed(tmp_path: Path, cut: int) -> None:
    """As a power cut leaves one: shorter, or with zeros."""
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    (path,) = entries(tmp_path)
    whole = path.read_bytes()
    path.write_bytes(whole[:cut] if cut >= 0 else whole[:200] + bytes(len(whole) - 200))
    assert files.load("a") is None
    assert entries(tmp_path) == []


def test_the_oldest_make_room(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    keep(files, "one", PART)
    size = entries(tmp_path)[0].stat().st_size
    files = KeyFiles(tmp_path, 3 * size)
    keep(files, "two", PART)
    keep(files, "three", PART)
    for n, path in enumerate(files._path(of) for of in ("two", "one", "three")):
        os.utime(path, (n, n))
    assert files.load("two") is not None, "asked for: it is the last that goes"
    keep(files, "four", PART)
    assert [files.load(of) is not None for of in ("one", "two", "three", "four")] == [
        False,
        True,
        True,
        True,
    ]


def test_an_entry_that_is_too_large_drives_nothing_out(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    large = {"places": np.zeros(MOST, np.int8)}
    assert not files.takes(MOST + 1)
    assert not keep(files, "b", large)
    assert files.load("a") is not None
    assert len(entries(tmp_path)) == 1


def test_an_entry_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    entry = files.new("a")
    entry.add(PART)
    entry.discard()
    entry.add(PART)
    assert not entry.finish()
    assert not files.new("b").finish(), "nothing was written"
    assert entries(tmp_path) == []


@pytest.mark.parametrize("place", ["open", "rename"])
def test_a_disk_that_refuses_costs_the_entry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    files = KeyFiles(tmp_path, MOST)

    def full(*_args: Any, **_keys: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os if place == "open" else Path, place, full)
        assert not keep(files, "a", PART)
    assert entries(tmp_path) == []
    assert keep(files, "a", PART)


def test_what_a_killed_process_left_makes_room_too(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    files.new("a").add(PART)
    (left,) = entries(tmp_path)
    os.utime(left, (1, 1))
    files.make_room(MOST)
    assert entries(tmp_path) == []


def test_without_a_folder_nothing_is_on_the_disk(tmp_path: Path) -> None:
    assert open_key_files(tmp_path / "keys", MOST) is not None
    assert open_key_files(None, MOST) is None
    assert open_key_files(tmp_path / "none", 0) is None
    (tmp_path / "file").touch()
    assert open_key_files(tmp_path / "file", MOST) is None, "the disk refuses"
    assert not (tmp_path / "none").exists()


def test_a_torn_seed_is_made_anew(tmp_path: Path) -> None:
    """The names of the entries depend on the seed: no entry of the old one is found."""
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    (tmp_path / "seed").write_bytes(b"")
    again = KeyFiles(tmp_path, MOST)
    assert again.seed != files.seed
    assert again.load("a") is None
    assert keep(again, "a", PART)
