"""Which store a catalog's tables lie in, and which clients the store needs."""

from __future__ import annotations

import pytest

from workers.lake.server.file_store import clients_of, missing_io, store_of
from workers.lake.storage.bucket import FileStore

S3, GCS, ADLS = FileStore.S3, FileStore.GCS, FileStore.ADLS


@pytest.mark.parametrize(
    ("catalog", "store"),
    [
        ({}, None),
        ({"type": "jdbc", "warehouse": "/srv/lake"}, None),
        ({"type": "jdbc", "warehouse": "file:///srv/lake"}, None),
        ({"type": "hive", "warehouse": "hdfs://name/lake"}, None),
        ({"type": "rest", "warehouse": "s3://bucket/prefix"}, S3),
        ({"type": "rest", "warehouse": "S3A://bucket/prefix"}, S3),
        ({"type": "rest", "warehouse": "a_name"}, None),
        ({"type": "rest", "warehouse": "a_name", "s3.endpoint": "http://store"}, S3),
        ({"type": "rest", "warehouse": "a_name", "io-impl": S3.value}, S3),
        ({"type": "rest", "spark.sql.catalog.lake.io-impl": GCS.value}, GCS),
        ({"type": "jdbc", "warehouse": "gs://bucket/prefix"}, GCS),
        ({"type": "jdbc", "warehouse": "abfss://container@account.example/prefix"}, ADLS),
        ({"type": "rest", "adls.auth.shared-key.account.name": "account"}, ADLS),
        ({"type": "glue", "warehouse": "a_name"}, S3),
        ({"catalog-impl": "org.apache.iceberg.aws.glue.GlueCatalog"}, S3),
        ({"io-impl": "org.apache.iceberg.io.ResolvingFileIO", "warehouse": "gs://b/p"}, GCS),
        ({"io-impl": "org.apache.iceberg.hadoop.HadoopFileIO", "warehouse": "s3a://b/p"}, None),
    ],
    ids=str,
)
def test_the_store_follows_from_what_the_catalog_names(
    catalog: dict[str, str], store: FileStore | None
) -> None:
    assert store_of(catalog) is store
    assert clients_of(catalog) == ({store} if store else set())


@pytest.mark.parametrize(
    ("catalog", "clients"),
    [
        ({"type": "rest", "warehouse": "gs://b/p", "rest.sigv4-enabled": "true"}, [S3, GCS]),
        ({"type": "rest", "warehouse": "name", "rest.auth.type": "SigV4"}, [S3]),
        ({"type": "rest", "warehouse": "name", "rest.auth.type": "google"}, [GCS]),
        ({"type": "rest", "warehouse": "name", "rest.sigv4-enabled": "false"}, []),
    ],
    ids=str,
)
def test_signed_requests_need_a_client_too(
    catalog: dict[str, str], clients: list[FileStore]
) -> None:
    assert clients_of(catalog) == set(clients)


@pytest.mark.parametrize(
    ("catalog", "added"),
    [
        ({"type": "jdbc", "warehouse": "s3://b/p"}, {"io-impl": S3.value}),
        ({"type": "hive", "warehouse": "gs://b/p"}, {"io-impl": GCS.value}),
        ({"type": "jdbc", "warehouse": "s3://b/p", "io-impl": "other.FileIO"}, {}),
        ({"type": "jdbc", "warehouse": "/srv/lake"}, {}),
        ({"type": "rest", "warehouse": "s3://b/p"}, {}),
        ({"type": "glue", "warehouse": "s3://b/p"}, {}),
    ],
    ids=str,
)
def test_a_catalog_that_would_take_hadoop_s_file_systems_is_told_iceberg_s(
    catalog: dict[str, str], added: dict[str, str]
) -> None:
    assert missing_io(catalog) == added
