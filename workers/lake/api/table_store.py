"""The store of a table's files, reached with the keys that Iceberg's object for the table has."""

from __future__ import annotations

from typing import Any, Final

from config.lake import is_bucket
from workers.lake.storage.choose_store import store_for
from workers.lake.storage.object_store import ObjectStore, bucket_of
from workers.lake.storage.store import TableStore
from workers.lake.storage.store_access import access_of

_CLASSES: Final = (
    "org.apache.iceberg.aws.s3.S3FileIO",
    "org.apache.iceberg.io.ResolvingFileIO",
)
"""Iceberg's file access of which the keys are known."""


def store_of_table(table: Any) -> TableStore | None:
    """The store of a loaded table; None if a worker cannot reach the store."""
    location = str(table.location())
    if not is_bucket(location):
        return store_for(location)
    io = table.io()
    if str(io.getClass().getName()) not in _CLASSES:
        return None
    lent = {str(each.prefix()): each.config() for each in io.credentials().toArray()}
    fitting = [prefix for prefix in lent if location.startswith(prefix)]
    if lent and not fitting:
        return None
    properties = _properties(io.properties())
    if fitting:
        properties |= _properties(lent[max(fitting, key=len)])
    access = access_of(properties)
    return None if access is None else ObjectStore(bucket_of(location), access)


def _properties(found: Any) -> dict[str, str]:
    """What a Java map has about the store and its client."""
    names = [str(name) for name in found.keySet().toArray()]
    wanted = [name for name in names if name.startswith(("s3.", "client."))]
    return {name: str(found.get(name)) for name in wanted}
