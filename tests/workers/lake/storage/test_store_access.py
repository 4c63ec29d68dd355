"""What the ways into all stores have in common: the keys end, and stay in the process."""

from __future__ import annotations

import pickle

import pytest

from workers.lake.storage.adls_access import AdlsAccess
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.object_store import ACCESS, ObjectStore
from workers.lake.storage.s3_access import S3Access
from workers.lake.storage.store_access import StoreAccess

LENT = (
    S3Access("planted", "planted", token="planted", expires=1000.0),
    GcsAccess("planted", endpoint="planted", expires=1000.0),
    AdlsAccess(key="planted", signature="planted", expires=1000.0),
)


@pytest.mark.parametrize("access", LENT, ids=lambda access: type(access).__name__)
def test_lent_keys_end_and_are_neither_shown_nor_pickled(
    access: StoreAccess, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = ObjectStore(Bucket(FileStore.S3, "bucket"), access)
    assert "planted" not in repr(store)
    with pytest.raises(TypeError, match="stay in the process"):
        pickle.dumps(store)
    for now, stale in ((699.0, False), (701.0, True), (2000.0, True)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        assert store.is_stale is stale


@pytest.mark.parametrize("kind", FileStore)
def test_every_kind_of_store_has_a_way_in_without_keys(kind: FileStore) -> None:
    bucket = Bucket(kind, "bucket", "account.dfs.core.windows.net")
    access = ACCESS[kind].of(bucket, {})
    assert access == ACCESS[kind]()
    assert not access.is_stale
