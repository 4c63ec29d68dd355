"""The file store of a catalog's tables: S3, Google Cloud Storage, Azure, or a disk.

Iceberg's runtime has the classes that speak to the stores, but not the clients of the stores. The
clients are up to 80 MB, so only a configuration that names a store gets the client.

The store follows from the first of: ``io-impl``, the kind of the catalog, the scheme of
``warehouse``, and the keys of a store (``s3.…``, ``gcs.…``, ``adls.…``). A REST catalog may know
its warehouse by a name, and the configuration need not name a store: then no client is on the
class path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from config.lake import catalog_kind, plain_keys
from workers.lake.storage.bucket import FileStore

_SCHEMES: Final = {
    "s3": FileStore.S3,
    "s3a": FileStore.S3,
    "s3n": FileStore.S3,
    "gs": FileStore.GCS,
    "abfs": FileStore.ADLS,
    "abfss": FileStore.ADLS,
    "wasb": FileStore.ADLS,
    "wasbs": FileStore.ADLS,
}
_PACKAGES: Final = {
    "org.apache.iceberg.aws.": FileStore.S3,
    "org.apache.iceberg.gcp.": FileStore.GCS,
    "org.apache.iceberg.azure.": FileStore.ADLS,
}
_KEYS: Final = {
    "s3.": FileStore.S3,
    "gcs.": FileStore.GCS,
    "adls.": FileStore.ADLS,
}
_TYPES: Final = {"glue": FileStore.S3}
_WITHOUT_OWN_IO: Final = ("jdbc", "hive")
"""Types that take Hadoop's file systems by default. Spark's Hadoop has none for a store."""


def store_of(catalog: Mapping[str, str]) -> FileStore | None:
    """The store of the tables; None for a disk, and if the configuration names no store."""
    keys = plain_keys(catalog)
    if "io-impl" in keys and not keys["io-impl"].endswith(".ResolvingFileIO"):
        return _of_class(keys["io-impl"])
    named = (
        _TYPES.get(catalog_kind(keys)),
        _of_class(keys.get("catalog-impl", "")),
        _SCHEMES.get(_scheme(keys.get("warehouse", ""))),
        next(
            (store for name, store in _KEYS.items() if any(k.startswith(name) for k in keys)), None
        ),
    )
    return next((store for store in named if store is not None), None)


def clients_of(catalog: Mapping[str, str]) -> frozenset[FileStore]:
    """The stores' clients that the catalog needs: the tables' store, and AWS to sign requests."""
    keys = plain_keys(catalog)
    signs = keys.get("rest.sigv4-enabled", "").lower() == "true"
    signs = signs or keys.get("rest.auth.type", "").lower() == "sigv4"
    google = keys.get("rest.auth.type", "").lower() == "google"
    found = {store_of(catalog)}
    found |= {FileStore.S3} if signs else set()
    found |= {FileStore.GCS} if google else set()
    return frozenset(store for store in found if store is not None)


def missing_io(catalog: Mapping[str, str]) -> dict[str, str]:
    """``io-impl`` for a catalog that would take Hadoop's file systems for a store; else nothing."""
    keys = plain_keys(catalog)
    store = store_of(catalog)
    if store is None or "io-impl" in keys or catalog_kind(keys) not in _WITHOUT_OWN_IO:
        return {}
    return {"io-impl": store.value}


def _scheme(place: str) -> str:
    found = re.match(r"([A-Za-z][A-Za-z0-9+.-]*):", place)
    return found.group(1).lower() if found else ""


def _of_class(name: str) -> FileStore | None:
    return next((store for prefix, store in _PACKAGES.items() if name.startswith(prefix)), None)
