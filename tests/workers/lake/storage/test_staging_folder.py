"""The folders that data directories have in one staging place."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.storage.conftest import Place
from tests.workers.lake.storage.test_staging import ROWS
from workers.lake.storage.staging import Staging
from workers.lake.storage.staging_folder import own_place, remove_folder, remove_folders


def test_a_successor_removes_its_predecessor_s_files_only(place: Place) -> None:
    root, kept = place.location, list[str]()
    for folder in ("1_0_1", "1_0_2", "1_7_1", "11_0_1"):
        staged = Staging(f"{root}/{folder}", local_rows=10).stage(ROWS.to_batches(), ROWS.schema)
        kept += [] if folder == "1_0_1" else staged.paths
    remove_folders(root, "1_0_", keep=f"{root}/1_0_2")
    assert place.files() == sorted(kept)
    remove_folders(f"{root}/nothing", "1_0_")
    remove_folder(f"{root}/1_7_1")
    assert place.files() == [name for name in sorted(kept) if "/1_7_1/" not in name]
    remove_folder(f"{root}/1_7_1")


def test_two_data_directories_have_folders_of_their_own(place: Place, tmp_path: Path) -> None:
    root = place.location
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert own_place(root, one) == own_place(root, one)
    assert own_place(root, one) != own_place(root, other)
    assert own_place(root, one).startswith(f"{root}/")
    assert stat.S_IMODE((one / "staging" / "id").stat().st_mode) == 0o600
    assert [path.name for path in (one / "staging").iterdir()] == ["id"]


def test_an_empty_name_is_made_anew(tmp_path: Path) -> None:
    """Of a data directory after a power cut, or set up by hand: else many would share the place."""
    (tmp_path / "staging").mkdir()
    (tmp_path / "staging" / "id").touch()
    named = own_place("s3://bucket/p", tmp_path)
    assert re.fullmatch(r"s3://bucket/p/[0-9a-f]{32}", named)
    assert own_place("s3://bucket/p", tmp_path) == named


def test_a_data_directory_that_cannot_keep_its_name_is_told(tmp_path: Path) -> None:
    (tmp_path / "staging").touch()
    with pytest.raises(ReplicationError) as error:
        own_place("s3://bucket/p", tmp_path)
    assert (error.value.code, error.value.detail) == ("58030", "File exists.")


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ReplicationError) as error:
        own_place(str(tmp_path / "mnt"), tmp_path)
    assert (error.value.code, error.value.detail) == ("58030", "No such file or directory.")
    with pytest.raises(ReplicationError) as error:
        Staging(f"{tmp_path}/mnt/own/1_0_1", 10).stage(ROWS.to_batches(), ROWS.schema)
    assert (error.value.code, error.value.detail) == ("58030", "No such file or directory.")
    assert not (tmp_path / "mnt").exists()
