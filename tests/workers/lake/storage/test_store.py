"""Staged files in a folder and in an object store: written, read back, removed, told apart."""

from __future__ import annotations

import re
import stat
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import fs

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from tests.object_store import ObjectStore, object_store
from workers.lake.connect.session import LakeSession
from workers.lake.sql.staged_frame import frame
from workers.lake.storage import store as store_module
from workers.lake.storage.staging import Staging, staged_columns, staged_schema
from workers.lake.storage.staging_folder import own_place
from workers.lake.storage.store import create, for_spark, remove, remove_folder, remove_folders

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
    store_module._bucket.cache_clear()
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
    remove_folder(f"{root}/1_7_1")
    assert files() == [name for name in sorted(kept) if "/1_7_1/" not in name]
    remove_folder(f"{root}/1_7_1")


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


def test_what_a_store_does_not_remove_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key without the right to remove, say; to list is needed."""

    class Refusing:
        def get_file_info(self, _: object) -> list[SimpleNamespace]:
            return [SimpleNamespace(base_name="1_0_1", path="bucket/p/1_0_1")]

        def delete_dir(self, _: str) -> None:
            raise OSError("AWS Error UNKNOWN (HTTP status 503) during DeleteObjects operation: p/1")

    monkeypatch.setattr(store_module, "_bucket", lambda _name: Refusing())
    remove_folders("s3://bucket/p", "1_0_")
    assert "staged files: AWS Error UNKNOWN (HTTP status 503) during DeleteObjects" in caplog.text
    assert "operation: p/1" not in caplog.text


def test_files_of_a_folder_are_private(tmp_path: Path) -> None:
    [name] = Staging(f"{tmp_path}/own/1_0_1", 10).stage(ROWS.to_batches(), ROWS.schema).paths
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "own" / "1_0_1").stat().st_mode) == 0o700


def test_spark_is_told_the_file_system() -> None:
    """A bare path is one of the cluster's default file system."""
    assert for_spark("/shared/x.parquet") == "file:/shared/x.parquet"
    assert for_spark("/[a]{b}/*?\\") == "file:/\\[a\\]\\{b\\}/\\*\\?\\\\"
    assert for_spark("s3a://bucket/x.parquet") == "s3a://bucket/x.parquet"


@pytest.mark.parametrize(
    "said",
    [
        {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"},
        {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
        {"spark.sql.session.timeZone": "Asia/Kolkata"},
    ],
    ids=lambda said: next(iter(said)).rpartition(".")[2],
)
def test_old_dates_are_what_they_were(
    lake_server: Lake, tmp_path: Path, said: dict[str, str]
) -> None:
    """Whatever the server, or ``spark.conf``, thinks of calendars and time zones."""
    moment = datetime(1500, 1, 1, 12, tzinfo=UTC)
    rows = pa.table(
        {
            "c0": pa.array([date(1500, 1, 1)]),
            "c1": pa.array([moment], pa.timestamp("us", "UTC")),
            "c2": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
        }
    )
    staged = Staging(f"{tmp_path}/own/1_0_1", local_rows=0).stage(rows.to_batches(), rows.schema)
    session = LakeSession(lake_server.url, "staging", str(uuid.uuid4()), said)
    try:
        session.configure()
        assert session.query("SELECT * FROM s", "reading", s=frame(session, staged)) == rows
    finally:
        session.close()


@pytest.fixture
def lenient(lake_server: Lake) -> Iterator[LakeSession]:
    """A session of a server that leaves out what it cannot read."""
    said = {
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.files.ignoreCorruptFiles": "true",
    }
    session = LakeSession(lake_server.url, "staging", str(uuid.uuid4()), said)
    session.configure()
    yield session
    session.close()


def test_a_folder_s_name_is_no_pattern(lenient: LakeSession, tmp_path: Path) -> None:
    """Whoever names the place, or the data directory, may be fond of brackets."""
    place = tmp_path / "a[b]{c,d}*?\\e %20é"
    place.mkdir()
    staged = Staging(f"{place}/1_0_1", local_rows=0).stage(ROWS.to_batches(), ROWS.schema)
    assert lenient.query("SELECT * FROM s", "reading", s=frame(lenient, staged)) == ROWS


def test_a_damaged_file_is_an_error(lenient: LakeSession, tmp_path: Path) -> None:
    staged = Staging(f"{tmp_path}/1_0_1", local_rows=0).stage(ROWS.to_batches(), ROWS.schema)
    rows = frame(lenient, staged)
    Path(staged.paths[0]).write_bytes(b"PAR1 and no more")
    with pytest.raises(ReplicationError):
        lenient.query("SELECT * FROM s", "reading", s=rows)


def test_a_file_that_spark_does_not_see(lenient: LakeSession, tmp_path: Path) -> None:
    """When it is looked for, and when its turn comes."""
    staging = Staging(f"{tmp_path}/1_0_1", local_rows=0)
    staged = staging.stage(ROWS.to_batches(), ROWS.schema)
    rows = frame(lenient, staged)
    rows.createOrReplaceTempView("listed")
    assert lenient.query("SELECT * FROM listed", "reading") == ROWS
    staging.discard(staged)
    for sql, views in (("SELECT * FROM s", {"s": rows}), ("SELECT * FROM listed", {})):
        with pytest.raises(ReplicationError) as error:
            lenient.query(sql, "writing", **views)
        assert error.value.code == "58030"
        assert error.value.primary == "the lake could not read staged rows while writing"
        assert '"spark.staging"' in (error.value.hint or "")


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
    store_module._bucket.cache_clear()
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
    monkeypatch.setattr(store_module, "_bucket", lambda _name: away)
    with pytest.raises(ReplicationError) as error:
        remove_folders("s3://bucket/p", "1_0_")
    assert error.value.code == "58030"
    assert "NETWORK_CONNECTION" in (error.value.detail or "")
    remove("s3://bucket/p/1_0_1/x.parquet")
    assert "could not remove staged files: AWS Error NETWORK_CONNECTION" in caplog.text
