"""What is particular to files in a bucket: what a store refuses, and a store that is away."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest
from pyarrow import fs

from catalog.errcodes import ReplicationError
from config.monitor_limits import STORE_THREADS, WRITE_THREADS
from tests.object_store import REGION
from tests.object_store import object_store as running
from tests.workers.lake.storage.conftest import SECRET
from workers.lake.storage import object_store
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.s3_access import S3Access

BUCKET = Bucket(FileStore.S3, "bucket")


def test_as_many_requests_run_together_as_there_are_writers() -> None:
    pa.set_io_thread_count(8)
    ObjectStore(BUCKET)
    assert pa.io_thread_count() == STORE_THREADS >= WRITE_THREADS
    pa.set_io_thread_count(STORE_THREADS + 1)
    ObjectStore(BUCKET)
    assert pa.io_thread_count() == STORE_THREADS + 1
    pa.set_io_thread_count(STORE_THREADS)


def test_spark_is_told_the_same_name() -> None:
    assert ObjectStore(BUCKET).spark_path("s3a://bucket/x.parquet") == "s3a://bucket/x.parquet"


def test_what_a_store_does_not_remove_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key without the right to remove, say; to list is needed."""

    class Refusing:
        def get_file_info(self, _: object) -> list[SimpleNamespace]:
            return [SimpleNamespace(base_name="1_0_1", path="bucket/p/1_0_1")]

        def delete_dir(self, _: str) -> None:
            raise OSError("AWS Error UNKNOWN (HTTP status 503) during DeleteObjects operation: p/1")

    monkeypatch.setattr(object_store, "bucket_file_system", lambda *_: Refusing())
    ObjectStore(BUCKET).remove_folders("s3://bucket/p", "1_0_")
    assert "staged files: AWS Error UNKNOWN (HTTP status 503) during DeleteObjects" in caplog.text
    assert "operation: p/1" not in caplog.text


def test_a_store_that_is_away_is_told_and_what_it_keeps_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = fs.S3FileSystem(
        endpoint_override="127.0.0.1:1", scheme="http", access_key="key", secret_key=SECRET
    )
    monkeypatch.setattr(object_store, "bucket_file_system", lambda *_: away)
    store = ObjectStore(BUCKET)
    with pytest.raises(ReplicationError) as error:
        store.remove_folders("s3://bucket/p", "1_0_")
    assert error.value.code == "58030"
    assert "NETWORK_CONNECTION" in (error.value.detail or "")
    assert SECRET not in error.value.report()
    store.remove("s3://bucket/p/1_0_1/x.parquet")
    assert "could not remove staged files: AWS Error NETWORK_CONNECTION" in caplog.text


def test_a_table_s_keys_open_a_store_that_the_environment_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store checks signatures; the environment has other keys, and no address."""
    with running(tmp_path, strict=True) as server:
        keys = server.user("table", ["s3:*"])
        server.begin_to_check()
        for name, value in {**server.environment("other", SECRET), "AWS_ENDPOINT_URL": ""}.items():
            monkeypatch.setenv(name, value)
        given = {
            "s3.endpoint": server.endpoint,
            "s3.path-style-access": "true",
            "s3.access-key-id": keys.key,
            "s3.secret-access-key": keys.secret,
            "client.region": REGION,
        }
        path = f"s3://{server.bucket}/lake/t/data/a.parquet"
        bucket = Bucket(FileStore.S3, server.bucket)
        store = ObjectStore(bucket, S3Access.of(bucket, given))
        with store.create(path) as file:
            file.write(b"0123")
        assert store.size(path) == 4
        assert store.list_prefix(path.rpartition("/")[0], "a") == [path]
        other = {**given, "s3.secret-access-key": "planted-wrong"}
        wrong = ObjectStore(bucket, S3Access.of(bucket, other))
        with pytest.raises(ReplicationError) as error, wrong.create(path) as file:
            file.write(b"0123")
        assert error.value.primary == "could not use the files of a lake table"
        assert "planted" not in error.value.report()
