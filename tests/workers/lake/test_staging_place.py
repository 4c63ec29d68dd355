"""Staged files in a folder and in an object store: written, read back, removed, told apart."""

from __future__ import annotations

import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import fs

from catalog.errcodes import ReplicationError
from tests.object_store import ObjectStore, object_store
from workers.lake import staging_place
from workers.lake.staging import Staging, staged_columns, staged_schema
from workers.lake.staging_place import create, for_spark, own_place, remove, remove_folders

ROWS = pa.table({"c0": pa.array(range(50), pa.int64()), "c1": [f"row {n}" for n in range(50)]})
SECRET = "planted-4c1dSecretKey"

Files = Callable[[], list[str]]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ObjectStore]:
    with object_store(tmp_path_factory.mktemp("store")) as running:
        yield running


@pytest.fixture(params=["folder", "s3", "s3a"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[str, Files]:
    """A place, and the files in it."""
    if request.param == "folder":
        root = tmp_path / "shared"
        root.mkdir()
        return str(root), lambda: sorted(str(p) for p in root.rglob("*") if p.is_file())
    running: ObjectStore = request.getfixturevalue("store")
    for name, value in running.environment("key", SECRET).items():
        monkeypatch.setenv(name, value)
    staging_place._bucket.cache_clear()
    prefix = f"{tmp_path.name}/{request.param}"
    return (
        f"{request.param}://{running.bucket}/{prefix}",
        lambda: [f"{request.param}://{name}" for name in running.files(prefix)],
    )


def test_what_is_staged_is_read_back_and_removed(place: tuple[str, Files]) -> None:
    root, files = place
    staging = Staging(f"{root}/1_0_1", local_rows=10)
    staged = staging.stage(ROWS.to_batches(20), ROWS.schema)
    assert staged.rows == 50
    assert files() == list(staged.paths)
    assert staged_schema(staged) == ROWS.schema
    assert staged_columns(staged, ["c1"]) == ROWS.select(["c1"])
    staging.discard(staged)
    assert files() == []
    staging.discard(staged)


def test_nothing_stays_of_what_could_not_be_staged(place: tuple[str, Files]) -> None:
    root, files = place

    def torn() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError):
        Staging(f"{root}/1_0_1", local_rows=10).stage(torn(), ROWS.schema)
    assert files() == []


def test_a_successor_removes_its_predecessor_s_files_only(place: tuple[str, Files]) -> None:
    root, files = place
    kept: list[str] = []
    for folder in ("1_0_1", "1_0_2", "1_7_1", "11_0_1"):
        staged = Staging(f"{root}/{folder}", local_rows=10).stage(ROWS.to_batches(), ROWS.schema)
        kept += [] if folder == "1_0_1" else staged.paths
    remove_folders(root, "1_0_", keep=f"{root}/1_0_2")
    assert files() == sorted(kept)
    remove_folders(f"{root}/nothing", "1_0_")


def test_two_data_directories_have_folders_of_their_own(
    place: tuple[str, Files], tmp_path: Path
) -> None:
    root, _ = place
    one, other = tmp_path / "one", tmp_path / "other"
    one.mkdir()
    other.mkdir()
    assert own_place(root, one) == own_place(root, one)
    assert own_place(root, one) != own_place(root, other)
    assert own_place(root, one).startswith(f"{root}/")
    assert stat.S_IMODE((one / "staging" / "id").stat().st_mode) == 0o600
    assert [path.name for path in (one / "staging").iterdir()] == ["id"]


def test_files_of_a_folder_are_private(tmp_path: Path) -> None:
    [name] = Staging(f"{tmp_path}/own/1_0_1", 10).stage(ROWS.to_batches(), ROWS.schema).paths
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "own" / "1_0_1").stat().st_mode) == 0o700


def test_spark_is_told_the_file_system() -> None:
    """A bare path is one of the cluster's default file system."""
    assert for_spark("/shared/x.parquet") == "file:/shared/x.parquet"
    assert for_spark("s3a://bucket/x.parquet") == "s3a://bucket/x.parquet"


def test_a_folder_that_is_not_mounted_is_not_made(tmp_path: Path) -> None:
    with pytest.raises(ReplicationError) as error:
        own_place(str(tmp_path / "mnt"), tmp_path)
    assert (error.value.code, error.value.detail) == ("58030", "No such file or directory.")
    with pytest.raises(FileNotFoundError):
        create(str(tmp_path / "mnt" / "own" / "1_0_1"), "x")
    assert not (tmp_path / "mnt").exists()


def test_a_store_s_refusal_is_told_in_aws_s_word(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in store.environment("key", SECRET).items():
        monkeypatch.setenv(name, value)
    staging_place._bucket.cache_clear()
    with pytest.raises(ReplicationError) as error:
        Staging("s3://nosuch/p/1_0_1", 10).stage(ROWS.to_batches(), ROWS.schema)
    assert error.value.code == "58030"
    assert error.value.detail == "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation."
    assert "nosuch" not in error.value.report()
    assert SECRET not in error.value.report()


def test_a_store_that_is_away_is_told_and_what_it_keeps_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = fs.S3FileSystem(
        endpoint_override="127.0.0.1:1", scheme="http", access_key="key", secret_key=SECRET
    )
    monkeypatch.setattr(staging_place, "_bucket", lambda _name: away)
    with pytest.raises(ReplicationError) as error:
        remove_folders("s3://bucket/p", "1_0_")
    assert error.value.code == "58030"
    assert "NETWORK_CONNECTION" in (error.value.detail or "")
    remove("s3://bucket/p/1_0_1/x.parquet")
    assert "could not remove a staged file: AWS Error NETWORK_CONNECTION" in caplog.text
