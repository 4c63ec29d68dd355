"""Choose the store of a table's location or of a staging folder."""

from __future__ import annotations

from collections.abc import Iterable

from workers.lake.storage.bucket import bucket_at
from workers.lake.storage.local_path import is_local
from workers.lake.storage.local_store import LocalStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.store import TableStore


def store_for(location: str) -> TableStore | None:
    """The store of a table's location: a path, ``file:``, or a bucket; None for others."""
    if is_local(location):
        return LocalStore()
    bucket = bucket_at(location)
    return None if bucket is None else ObjectStore(bucket)


def staging_store(folder: str) -> TableStore:
    """The store of a staging folder or of a staged file, by its path."""
    bucket = bucket_at(folder)
    return LocalStore(is_staging=True) if bucket is None else ObjectStore(bucket)


def make_durable(folders: Iterable[str]) -> None:
    """Put everything written below the folders onto the disk; every store is called once."""
    of: dict[TableStore, list[str]] = {}
    for folder in folders:
        store = store_for(folder)
        if store is not None:
            of.setdefault(store, []).append(folder)
    for store, found in of.items():
        store.make_durable(found)
