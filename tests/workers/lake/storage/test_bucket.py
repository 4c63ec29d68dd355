"""The buckets of locations."""

from __future__ import annotations

import pytest

from workers.lake.storage.bucket import Bucket, FileStore, bucket_at, is_in_bucket, key_of

HOST = "account.dfs.core.windows.net"


@pytest.mark.parametrize(
    ("location", "bucket", "key"),
    [
        ("s3://box/lake/t", Bucket(FileStore.S3, "box"), "box/lake/t"),
        ("s3a://box/lake/t", Bucket(FileStore.S3, "box"), "box/lake/t"),
        ("gs://a_box/lake/t", Bucket(FileStore.GCS, "a_box"), "a_box/lake/t"),
        (f"abfss://box@{HOST}/a@b", Bucket(FileStore.ADLS, "box", HOST), "box/a@b"),
        (f"abfs://box@{HOST}", Bucket(FileStore.ADLS, "box", HOST), "box"),
    ],
)
def test_a_location_in_a_bucket(location: str, bucket: Bucket, key: str) -> None:
    assert bucket_at(location) == bucket
    assert is_in_bucket(location)
    assert key_of(location) == key


@pytest.mark.parametrize(
    "location", ["/srv/lake", "file:///srv/lake", "hdfs://host/a", f"wasbs://box@{HOST}/a", "s3://"]
)
def test_a_location_in_none_that_a_worker_reaches(location: str) -> None:
    assert bucket_at(location) is None
    assert not is_in_bucket(location)
