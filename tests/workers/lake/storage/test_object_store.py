"""What is particular to files in a bucket: what a store refuses, and a store that is away."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from pyarrow import fs

from catalog.errcodes import ReplicationError
from tests.workers.lake.storage.conftest import SECRET
from workers.lake.storage import object_store
from workers.lake.storage.object_store import ObjectStore


def test_spark_is_told_the_same_name() -> None:
    assert ObjectStore("bucket").spark_path("s3a://bucket/x.parquet") == "s3a://bucket/x.parquet"


def test_what_a_store_does_not_remove_stops_nobody(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A key without the right to remove, say; to list is needed."""

    class Refusing:
        def get_file_info(self, _: object) -> list[SimpleNamespace]:
            return [SimpleNamespace(base_name="1_0_1", path="bucket/p/1_0_1")]

        def delete_dir(self, _: str) -> None:
            raise OSError("AWS Error UNKNOWN (HTTP status 503) during DeleteObjects operation: p/1")

    monkeypatch.setattr(object_store, "bucket_file_system", lambda _name: Refusing())
    ObjectStore("bucket").remove_folders("s3://bucket/p", "1_0_")
    assert "staged files: AWS Error UNKNOWN (HTTP status 503) during DeleteObjects" in caplog.text
    assert "operation: p/1" not in caplog.text


def test_a_store_that_is_away_is_told_and_what_it_keeps_is_no_error(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    away = fs.S3FileSystem(
        endpoint_override="127.0.0.1:1", scheme="http", access_key="key", secret_key=SECRET
    )
    monkeypatch.setattr(object_store, "bucket_file_system", lambda _name: away)
    store = ObjectStore("bucket")
    with pytest.raises(ReplicationError) as error:
        store.remove_folders("s3://bucket/p", "1_0_")
    assert error.value.code == "58030"
    assert "NETWORK_CONNECTION" in (error.value.detail or "")
    assert SECRET not in error.value.report()
    store.remove("s3://bucket/p/1_0_1/x.parquet")
    assert "could not remove staged files: AWS Error NETWORK_CONNECTION" in caplog.text
