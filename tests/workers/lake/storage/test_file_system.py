"""The file systems that are synchronised."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from workers.lake.storage.file_system import FileSystem, file_systems


def test_folders_of_one_file_system_are_synchronised_once(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (found,) = file_systems([tmp_path / "a", tmp_path / "b", tmp_path / "missing"])
    found.synchronise()
    assert file_systems([tmp_path]) == [found]


def test_each_file_system_is_synchronised(tmp_path: Path) -> None:
    assert len(file_systems([tmp_path, Path("/proc")])) == 2


def test_a_disk_that_refuses_is_an_error() -> None:
    with pytest.raises(OSError, match="Bad file descriptor") as caught:
        FileSystem(-1).synchronise()
    assert caught.value.errno == errno.EBADF


def test_where_there_is_no_such_call_everything_is_synchronised(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    called: list[str] = []

    def library(*_: Any, **__: Any) -> object:
        return object()

    monkeypatch.setattr(ctypes, "CDLL", library)
    monkeypatch.setattr(os, "sync", lambda: called.append("sync"))
    FileSystem(-1).synchronise()
    assert called == ["sync"]
