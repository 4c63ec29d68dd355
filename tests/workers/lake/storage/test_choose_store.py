"""Which store a location is in."""

from __future__ import annotations

import pytest

from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.choose_store import make_durable, staging_store, store_for
from workers.lake.storage.local_store import LocalStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.store import TableStore

S3 = Bucket(FileStore.S3, "bucket")


@pytest.mark.parametrize(
    ("location", "store"),
    [
        ("/lake/t", LocalStore()),
        ("file:/lake/t", LocalStore()),
        ("file:///lake/t", LocalStore()),
        ("s3://bucket/lake/t", ObjectStore(S3)),
        ("s3a://bucket/lake/t", ObjectStore(S3)),
        ("gs://bucket/lake/t", ObjectStore(Bucket(FileStore.GCS, "bucket"))),
        ("abfss://box@a.host/lake/t", ObjectStore(Bucket(FileStore.ADLS, "box", "a.host"))),
        ("abfss://box/lake/t", None),
        ("hdfs://host/lake/t", None),
        ("file://host/lake/t", None),
    ],
)
def test_a_table_s_store(location: str, store: TableStore | None) -> None:
    assert store_for(location) == store


def test_a_staging_folder_s_store() -> None:
    assert staging_store("/shared/1_0_1") == LocalStore(is_staging=True)
    assert staging_store("s3a://bucket/p/1_0_1") == ObjectStore(S3)


def test_every_store_is_made_durable_once(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[tuple[TableStore, list[str]]] = []
    for kind in (LocalStore, ObjectStore):
        monkeypatch.setattr(
            kind, "make_durable", lambda store, folders: called.append((store, folders))
        )
    make_durable(["/lake/a", "s3://bucket/b", "hdfs://host/c", "file:/lake/d"])
    assert called == [
        (LocalStore(), ["/lake/a", "file:/lake/d"]),
        (ObjectStore(S3), ["s3://bucket/b"]),
    ]
