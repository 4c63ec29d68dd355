"""Choose the store of a table's location or of a staging folder."""

from __future__ import annotations

from collections.abc import Iterable

from config.lake import is_bucket
from workers.lake.storage.local_path import is_local
from workers.lake.storage.local_store import LocalStore
from workers.lake.storage.object_store import ObjectStore, bucket_of
from workers.lake.storage.store import TableStore


def store_for(location: str) -> TableStore | None:
    """The store of a table's location (a path, ``file:``, ``s3:``, ``s3a:``); None for others."""
    if is_local(location):
        return LocalStore()
    return ObjectStore(bucket_of(location)) if is_bucket(location) else None


def staging_store(folder: str) -> TableStore:
    """The store of a staging folder or of a staged file, by its path."""
    return ObjectStore(bucket_of(folder)) if is_bucket(folder) else LocalStore(is_staging=True)


def make_durable(folders: Iterable[str]) -> None:
    """Put everything written below the folders onto the disk; every store is called once."""
    of: dict[TableStore, list[str]] = {}
    for folder in folders:
        store = store_for(folder)
        if store is not None:
            of.setdefault(store, []).append(folder)
    for store, found in of.items():
        store.make_durable(found)
