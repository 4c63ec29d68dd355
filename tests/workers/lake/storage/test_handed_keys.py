"""The keys of a store reach Spark's tasks in a file, and nothing of them is in what is pickled."""

from __future__ import annotations

import pickle
import stat
from pathlib import Path
from typing import Any

import pytest

from workers.lake.storage.adls_access import AdlsAccess
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.handed_keys import can_hand_over, handed_over, with_keys
from workers.lake.storage.local_store import LocalStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.s3_access import S3Access

SECRET = "sesame-open"
STORES = [
    ObjectStore(Bucket(FileStore.S3, "b"), S3Access("key", SECRET, "", "http://h", True)),
    ObjectStore(Bucket(FileStore.GCS, "b"), GcsAccess("", True, "http://h", SECRET)),
    ObjectStore(Bucket(FileStore.ADLS, "b", "a.dfs.core.windows.net"), AdlsAccess(SECRET)),
]


@pytest.mark.parametrize("store", STORES, ids=lambda store: store.bucket.kind.name)
def test_a_task_has_the_keys_and_the_plan_has_not(store: ObjectStore, tmp_path: Path) -> None:
    folder = tmp_path / "staging" / "16384_16385_7"
    assert can_hand_over(store, str(folder))
    with handed_over(store, str(folder)) as handed:
        plan = pickle.dumps(handed)
        assert SECRET.encode() not in plan
        bare, path = pickle.loads(plan)  # noqa: S301 - pickled above
        assert with_keys(bare, path) == store
        assert (bare.access, Path(path).parent) == (None, folder)
        modes = [stat.S_IMODE(each.stat().st_mode) for each in (Path(path), folder, folder.parent)]
        assert modes == [0o600, 0o700, 0o700]
    assert list(folder.iterdir()) == []


def test_the_file_goes_with_a_copy_that_fails(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), handed_over(STORES[0], str(tmp_path)):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_a_copy_that_was_killed_is_replaced(tmp_path: Path) -> None:
    """Whoever could have opened the former file does not see the new keys."""
    (tmp_path / "store-keys").write_text("old")
    (tmp_path / "store-keys").chmod(0o644)
    with handed_over(STORES[0], str(tmp_path)) as (_, path):
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o600


def test_a_folder_needs_no_keys(tmp_path: Path) -> None:
    store: Any = LocalStore()
    assert can_hand_over(store, "")
    with handed_over(store, str(tmp_path)) as (handed, path):
        assert (with_keys(handed, path), path) == (store, "")
    assert list(tmp_path.iterdir()) == []


def test_lent_keys_and_staged_files_are_handed_to_nobody() -> None:
    """Spark renews lent keys by itself; a copy may last longer than the keys."""
    bucket = Bucket(FileStore.S3, "b")
    for access in (
        S3Access("key", SECRET, expires=1.0),
        S3Access("key", SECRET, is_lent=True),
        S3Access("key", SECRET, token="t"),
    ):
        assert not can_hand_over(ObjectStore(bucket, access), "/f")
    assert not can_hand_over(ObjectStore(bucket), "/f")
    assert not can_hand_over(STORES[0], "")
