"""Buckets: where an object store has files. Azure's word for a bucket is container.

========================================  ===========================
``s3://NAME/…``, ``s3a://NAME/…``         S3 and compatible stores
``gs://NAME/…``                           Google Cloud Storage
``abfss://NAME@HOST/…``, ``abfs://…``     Azure Data Lake Storage Gen2
========================================  ===========================

No Arrow is loaded for these functions, because the launcher uses them.
"""

from __future__ import annotations

import re
from enum import Enum
from typing import Final, NamedTuple


class FileStore(Enum):
    """A kind of object store; the value is the class of Iceberg's that speaks to the store."""

    S3 = "org.apache.iceberg.aws.s3.S3FileIO"
    GCS = "org.apache.iceberg.gcp.gcs.GCSFileIO"
    ADLS = "org.apache.iceberg.azure.adlsv2.ADLSFileIO"


_FORMS: Final = (
    (FileStore.S3, re.compile(r"s3a?://(?P<name>[^/]+)(?P<host>)")),
    (FileStore.GCS, re.compile(r"gs://(?P<name>[^/]+)(?P<host>)")),
    (FileStore.ADLS, re.compile(r"abfss?://(?P<name>[^/@]+)@(?P<host>[^/@]+)")),
)


class Bucket(NamedTuple):
    """A bucket. ``host`` is the address of Azure's storage account, else empty."""

    kind: FileStore
    name: str
    host: str = ""


def bucket_at(location: str) -> Bucket | None:
    """The bucket of a location; None if the location is in no bucket that a worker can reach."""
    for kind, form in _FORMS:
        if (found := form.match(location)) is not None:
            return Bucket(kind, found["name"], found["host"])
    return None


def is_in_bucket(location: str) -> bool:
    """Is the location in a bucket that a worker can reach?"""
    return bucket_at(location) is not None


def key_of(path: str) -> str:
    """The path as pyarrow writes one: bucket and key, without scheme and host."""
    name, slash, key = path.partition("://")[2].partition("/")
    return f"{name.partition('@')[0]}{slash}{key}"
