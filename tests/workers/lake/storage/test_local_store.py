"""What is particular to files on a local disk."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from catalog.errcodes import IoError
from workers.lake.storage.file_system import FileSystem
from workers.lake.storage.local_store import LocalStore


def test_a_file_that_exists_is_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("kept")
    with pytest.raises(IoError) as error, LocalStore().create(str(tmp_path / "a")):
        pass
    assert (error.value.code, error.value.detail) == ("58030", "File exists.")
    assert (tmp_path / "a").read_text() == "kept"


def test_folders_are_made(tmp_path: Path) -> None:
    with LocalStore().create(f"file:{tmp_path}/a/b/c/d"):
        pass
    assert (tmp_path / "a" / "b" / "c" / "d").exists()


def test_staged_files_are_private_and_two_folders_are_made_at_most(tmp_path: Path) -> None:
    staging = LocalStore(is_staging=True)
    with staging.create(f"{tmp_path}/own/1_0_1/a"):
        pass
    for path, mode in (("own", 0o700), ("own/1_0_1", 0o700), ("own/1_0_1/a", 0o600)):
        assert stat.S_IMODE((tmp_path / path).stat().st_mode) == mode
    with pytest.raises(IoError), staging.create(f"{tmp_path}/mnt/own/1_0_1/a"):
        pass
    assert not (tmp_path / "mnt").exists()


def test_a_copy_is_a_link(tmp_path: Path) -> None:
    (tmp_path / "a").touch()
    LocalStore().copy(f"file:{tmp_path}/a", f"{tmp_path}/b")
    assert (tmp_path / "a").samefile(tmp_path / "b")


def test_spark_is_told_the_file_system() -> None:
    """A bare path is one of the cluster's default file system."""
    store = LocalStore(is_staging=True)
    assert store.spark_path("/shared/x.parquet") == "file:/shared/x.parquet"
    assert store.spark_path("/[a]{b}/*?\\") == "file:/\\[a\\]\\{b\\}/\\*\\?\\\\"


def test_a_disk_that_refuses_to_write_is_an_error_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FileSystem) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FileSystem, "synchronise", refuse)
    LocalStore().make_durable([str(tmp_path / "of another machine")])
    with pytest.raises(IoError) as error:
        LocalStore().make_durable([f"file:{tmp_path}"])
    assert (error.value.code, error.value.detail) == ("58030", "Input/output error.")
