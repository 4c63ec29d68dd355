"""Remembered keys on the disk; no server."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from config.limits import KEY_CACHE_IDLE_SECONDS, KEY_FILE_NOTED_SECONDS, KEY_FILES_SPARED_BYTES
from workers.lake.files.keys import key_files
from workers.lake.files.keys.key_files import Arrays, KeyFiles, MappedArrays, open_key_files

MOST = 100_000
NOW = 10_000.0
PART: Arrays = {"start": np.array([7]), "places": np.arange(300, dtype=np.int32)}


def keep(files: KeyFiles, of: object, *parts: Arrays) -> bool:
    size = sum(array.nbytes for part in parts for array in part.values())
    entry = files.new(of, size)
    if entry is None:
        return False
    for part in parts:
        entry.add(part)
    return entry.finish()


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.keys*"))


def equal(found: Sequence[Arrays] | None, *parts: Arrays) -> bool:
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
    assert again.secret == files.secret
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


def resident_kb(path: Path) -> int:
    """What this process has in memory of a file that it maps."""
    lines = Path("/proc/self/smaps").read_text().splitlines()
    at = [n for n, line in enumerate(lines) if line.endswith(str(path))]
    sizes = [next(each for each in lines[n:] if each.startswith("Rss:")) for n in at]
    return sum(int(size.split()[1]) for size in sizes)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells")
def test_what_was_searched_is_given_back(tmp_path: Path) -> None:
    """The arrays are in the file's pages, not in a copy, and are still there afterwards."""
    part: Arrays = {"places": np.arange(300_000), "empty": np.zeros(0, np.int32)}
    files = KeyFiles(tmp_path, 10_000_000)
    keep(files, "a", part, part)
    (path,) = entries(tmp_path)
    found = files.load("a")
    assert found is not None
    assert equal(found, part, part)
    assert not found[0]["places"].flags.writeable, "a second kernel would be compiled for a copy"
    size = part["places"].nbytes >> 10
    assert resident_kb(path) > 2 * size - 100
    found[0].let_go()
    assert size - 100 < resident_kb(path) < size + 200
    found[1].let_go()
    assert resident_kb(path) < 200
    assert equal(found, part, part)


def test_nothing_is_given_back_of_an_empty_part_or_without_the_system_s_help(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    MappedArrays({"empty": np.zeros(0, np.int32)}, pa.py_buffer(b"")).let_go()
    monkeypatch.setattr(key_files, "_MADVISE", None)
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    found = files.load("a")
    assert found is not None
    found[0].let_go()
    assert equal(found, PART)


def test_memory_that_is_not_of_the_file_keeps_its_content() -> None:
    """The system would give zeros for it: keys would not be found."""
    own = np.arange(100_000)
    MappedArrays({"own": own}, pa.py_buffer(bytes(80))).let_go()
    assert own.tolist() == list(range(100_000))


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


def kept(files: KeyFiles, *names: str) -> list[bool]:
    return [files._path(name).exists() for name in names]


def a_full_folder(folder: Path, clock: Any = lambda: NOW) -> tuple[KeyFiles, int]:
    """Three entries, last used at the times 2, 1 and 3."""
    keep(KeyFiles(folder, MOST), "one", PART)
    size = entries(folder)[0].stat().st_size
    files = KeyFiles(folder, 3 * size, clock)
    assert keep(files, "two", PART)
    assert keep(files, "three", PART)
    for n, name in enumerate(("two", "one", "three")):
        os.utime(files._path(name), (n, n))
    return files, size


def test_the_oldest_make_room(tmp_path: Path) -> None:
    files, _ = a_full_folder(tmp_path)
    assert files.load("two") is not None, "asked for: it is the last that goes"
    assert keep(files, "four", PART)
    assert kept(files, "one", "two", "three", "four") == [False, True, True, True]


@pytest.mark.parametrize("used", [NOW, NOW - KEY_CACHE_IDLE_SECONDS])
def test_entries_in_use_stay_and_the_new_one_is_refused(tmp_path: Path, used: float) -> None:
    """Else no file of a table that is too large were there when it is needed, and each batch
    would write all entries again. A removed entry that is mapped takes its room all the same."""
    now = [NOW]
    files, size = a_full_folder(tmp_path, lambda: now[0])
    for name in ("one", "two", "three"):
        os.utime(files._path(name), (used, used))
    assert not keep(files, "four", PART)
    assert kept(files, "one", "two", "three", "four") == [True, True, True, False]
    assert sum(path.stat().st_size for path in entries(tmp_path)) == 3 * size
    assert files.use("two")
    now[0] += KEY_CACHE_IDLE_SECONDS - 1
    assert files.use("one")
    now[0] += 2
    assert keep(files, "four", PART)
    assert kept(files, "one", "four") == [True, True]
    assert sum(kept(files, "two", "three")) == 1
    assert not files.use("none")


def test_what_was_used_in_the_future_is_old(tmp_path: Path) -> None:
    """The clock was set back: without this no entry would ever go."""
    files, _ = a_full_folder(tmp_path)
    for name in ("one", "two", "three"):
        os.utime(files._path(name), (2 * NOW, 2 * NOW))
    assert keep(files, "four", PART)


def test_no_room_is_looked_for_again_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A look-up asks for every file of a table that is too large."""
    now = [NOW]
    files, _ = a_full_folder(tmp_path, lambda: now[0])
    for name in ("one", "two", "three"):
        os.utime(files._path(name), (NOW, NOW))
    assert files.new("four", 1) is None
    with monkeypatch.context() as patch:
        patch.setattr(KeyFiles, "make_room", None)
        assert files.new("four", 1) is None
    now[0] += KEY_FILE_NOTED_SECONDS
    for path in entries(tmp_path):
        path.unlink()
    assert files.new("four", 1) is not None


def test_the_disk_keeps_room_for_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The catalog and the spool need the last bytes of the disk more."""

    class Usage:
        free = KEY_FILES_SPARED_BYTES + 10

    monkeypatch.setattr(key_files, "disk_usage", lambda _folder: Usage)
    files = KeyFiles(tmp_path, MOST)
    assert files.new("a", 10) is not None
    assert files.new("a", 11) is None


def test_a_folder_that_is_removed_is_made_again(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path / "keys", MOST)
    (tmp_path / "keys" / "seed").unlink()
    (tmp_path / "keys").rmdir()
    assert keep(files, "a", PART)
    assert equal(files.load("a"), PART)
    assert (tmp_path / "keys").stat().st_mode & 0o777 == 0o700


def test_parts_have_numbers_of_different_widths(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    parts: list[Arrays] = [{"above": np.arange(3, dtype=each)} for each in ("u1", "u2", "u4")]
    assert keep(files, "a", *parts)
    assert equal(files.load("a"), *parts)


def test_an_entry_of_other_code_is_not_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    monkeypatch.setattr(key_files, "KEY_BLOCK_ROWS", 512)
    assert key_files._version() != key_files._VERSION
    monkeypatch.setattr(key_files, "_VERSION", key_files._version())
    assert files.load("a") is None


def test_an_entry_that_is_too_large_drives_nothing_out(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    keep(files, "a", PART)
    assert files.new("b", MOST + 1) is None
    entry = files.new("b", 1)
    assert entry is not None
    entry.add({"places": np.zeros(MOST, np.int8)})
    assert not entry.finish(), "larger than expected"
    assert files.load("a") is not None
    assert len(entries(tmp_path)) == 1


def test_an_entry_that_is_given_up_leaves_no_file(tmp_path: Path) -> None:
    files = KeyFiles(tmp_path, MOST)
    entry, other = files.new("a", 1), files.new("b", 1)
    assert entry
    assert other
    entry.add(PART)
    entry.discard()
    entry.add(PART)
    assert not entry.finish()
    assert not other.finish(), "nothing was written"
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
    entry = files.new("a", 1)
    assert entry
    entry.add(PART)
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
    assert again.secret != files.secret
    assert again.load("a") is None
    assert keep(again, "a", PART)
