"""The store of a table's files, reached with the keys that Iceberg's object for the table has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from workers.lake.storage.bucket import FileStore, bucket_at
from workers.lake.storage.choose_store import store_for
from workers.lake.storage.object_store import ACCESS, ObjectStore
from workers.lake.storage.store import TableStore

_ANY_STORE: Final = "org.apache.iceberg.io.ResolvingFileIO"
"""Iceberg's file access that hands each file to the class of the file's store."""


def store_of_table(table: Any) -> TableStore | None:
    """The store of a loaded table; None if a worker cannot reach the store."""
    location = str(table.location())
    bucket = bucket_at(location)
    if bucket is None:
        return store_for(location)
    io = table.io()
    name = str(io.getClass().getName())
    if name not in (bucket.kind.value, _ANY_STORE):
        return None
    # Azure's class has no list: a catalog lends the account's signature as a property.
    listed = io.credentials().toArray() if name != FileStore.ADLS.value else ()
    lent = {str(each.prefix()): each.config() for each in listed}
    fitting = [prefix for prefix in lent if location.startswith(prefix)]
    if lent and not fitting:
        return None
    of_store = ACCESS[bucket.kind]
    properties = _properties(io.properties(), of_store.prefixes)
    if fitting:
        properties |= _properties(lent[max(fitting, key=len)], of_store.prefixes)
    access = of_store.of(bucket, properties)
    if access is None:
        return None
    return ObjectStore(bucket, replace(access, is_lent=True) if fitting else access)


def _properties(found: Any, prefixes: tuple[str, ...]) -> dict[str, str]:
    """What a Java map has about the store and its client."""
    names = [str(name) for name in found.keySet().toArray()]
    return {name: str(found.get(name)) for name in names if name.startswith(prefixes)}
