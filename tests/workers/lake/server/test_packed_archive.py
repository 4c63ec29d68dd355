"""An archive is unpacked once, whole, and anew for another image."""

from __future__ import annotations

import lzma
import os
import time
from pathlib import Path

import pytest

from config.limits import CLASS_DUMP_STALE_SECONDS
from workers.lake.server.packed_archive import packed, unpacked


def pack(archive: Path, content: bytes, moment: float = 1e9) -> Path:
    packed(archive).write_bytes(lzma.compress(content))
    os.utime(packed(archive), (moment, moment))
    return archive


def test_it_is_unpacked_once(tmp_path: Path) -> None:
    archive, folder = pack(tmp_path / "a.jsa", b"classes"), tmp_path / "cache" / "unpacked"
    [first] = unpacked([archive], folder)
    assert first is not None
    assert first.read_bytes() == b"classes"
    inode = first.stat().st_ino
    assert unpacked([archive], folder) == [first]
    assert first.stat().st_ino == inode
    assert folder.stat().st_mode & 0o077 == 0, "nobody else may write what the JVM maps"


def test_a_newer_image_s_archive_takes_the_place_of_the_older_image_s(tmp_path: Path) -> None:
    archive, folder = tmp_path / "a.jsa", tmp_path / "unpacked"
    [old] = unpacked([pack(archive, b"older")], folder)
    [new] = unpacked([pack(archive, b"newer", 2e9)], folder)
    assert new is not None
    assert new != old
    assert [path.read_bytes() for path in folder.iterdir()] == [b"newer"]


def test_unfinished_files_go_when_their_writer_must_be_dead(tmp_path: Path) -> None:
    archive, folder = pack(tmp_path / "a.jsa", b"classes"), tmp_path / "unpacked"
    folder.mkdir()
    for name, age in (("young.1", 0), ("old.2", CLASS_DUMP_STALE_SECONDS + 60)):
        (folder / name).touch()
        moment = time.time() - age
        os.utime(folder / name, (moment, moment))
    [path] = unpacked([archive], folder)
    assert path is not None
    assert {each.name for each in folder.iterdir()} == {"young.1", path.name}


@pytest.mark.parametrize("fault", ["cut", "other format", "missing", "no folder", "full disk"])
def test_without_a_whole_archive_a_start_does_without(
    tmp_path: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive, folder = pack(tmp_path / "a.jsa", b"classes" * 1000), tmp_path / "unpacked"
    match fault:
        case "cut":
            packed(archive).write_bytes(packed(archive).read_bytes()[:-20])
        case "other format":
            packed(archive).write_bytes(b"classes")
        case "missing":
            packed(archive).unlink()
        case "no folder":
            folder.write_text("a file is in the way")
        case "full disk":

            def full(_descriptor: int) -> None:
                raise OSError(28, "No space left on device")

            monkeypatch.setattr(os, "fsync", full)
    assert unpacked([archive], folder) == [None]
    assert not folder.is_dir() or list(folder.iterdir()) == []
