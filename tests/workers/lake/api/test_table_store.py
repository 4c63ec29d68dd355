"""The store of a table, with the keys of Iceberg's object for the table's files."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import pytest

from workers.lake.api.table_store import store_of_table
from workers.lake.storage.adls_access import AdlsAccess
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.local_store import LocalStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.s3_access import S3Access

S3, GCS, ADLS = (each.value for each in FileStore)
BUCKET = Bucket(FileStore.S3, "bucket")
KEYS = {"s3.access-key-id": "k", "s3.secret-access-key": "s", "uri": "http://catalog"}


LENT = {
    "s3.access-key-id": "lent",
    "s3.session-token": "t",
    "s3.session-token-expires-at-ms": "2500",
    "client.refresh-credentials-endpoint": "v1/credentials",
}


class JavaMap(dict[str, str]):
    """As py4j shows a map of Java's."""

    def keySet(self) -> Any:  # noqa: N802 - Java's name
        return self

    def toArray(self) -> list[str]:  # noqa: N802 - Java's name
        return list(self)


class Table:
    """A loaded table, as far as the module looks at one."""

    def __init__(
        self,
        location: str,
        of: str = S3,
        lent: Mapping[str, dict[str, str]] = MappingProxyType({}),
        properties: dict[str, str] = KEYS,
    ) -> None:
        self._location, self._of = location, of
        self._lent = [
            SimpleNamespace(prefix=lambda at=at: at, config=lambda keys=keys: JavaMap(keys))
            for at, keys in lent.items()
        ]
        self._properties = JavaMap(properties)

    def location(self) -> str:
        return self._location

    def io(self) -> Any:
        return self

    def getClass(self) -> Any:  # noqa: N802 - Java's name
        return self

    def getName(self) -> str:  # noqa: N802 - Java's name
        return self._of

    def credentials(self) -> Any:
        return SimpleNamespace(toArray=lambda: self._lent)

    def properties(self) -> JavaMap:
        return self._properties


def test_a_table_in_a_bucket_is_reached_with_its_own_keys() -> None:
    expected = ObjectStore(BUCKET, S3Access("k", "s"))
    assert store_of_table(Table("s3://bucket/lake/t")) == expected
    resolving = Table("s3a://bucket/lake/t", "org.apache.iceberg.io.ResolvingFileIO")
    assert store_of_table(resolving) == expected


def test_lent_keys_are_those_of_the_nearest_folder() -> None:
    lent = {"s3://": {}, "s3://bucket/lake": LENT, "s3://bucket/lake/u": {}}
    found = store_of_table(Table("s3://bucket/lake/t", lent=lent))
    assert found == ObjectStore(BUCKET, S3Access("lent", "s", token="t", expires=2.5))
    assert isinstance(found, ObjectStore)
    assert found.access is not None
    assert found.access.is_lent
    told = store_of_table(Table("s3://bucket/lake/t", properties={**KEYS, **LENT}))
    assert told == found, "or the catalog tells them as properties of the table"


def test_a_table_on_google_s_store_is_reached_with_the_token_that_is_lent() -> None:
    token = {"gcs.oauth2.token": "t", "gcs.oauth2.token-expires-at": "2500"}
    found = store_of_table(Table("gs://box/t", GCS, {"gs://box": token}, {"gcs.project-id": "p"}))
    access = GcsAccess("t", project="p", expires=2.5)
    assert found == ObjectStore(Bucket(FileStore.GCS, "box"), access)


def test_a_table_on_azure_is_reached_with_the_signature_of_its_account() -> None:
    class WithoutList(Table):
        def credentials(self) -> Any:
            raise AssertionError("Iceberg's class for Azure has no such method")

    host = "account.dfs.core.windows.net"
    lent = {f"adls.sas-token.{host}": "s", f"adls.sas-token-expires-at-ms.{host}": "2500"}
    found = store_of_table(WithoutList(f"abfss://box@{host}/t", ADLS, properties={**KEYS, **lent}))
    access = AdlsAccess(signature="s", expires=2.5)
    assert found == ObjectStore(Bucket(FileStore.ADLS, "box", host), access)


def test_a_table_on_a_disk_is_reached_as_before() -> None:
    assert store_of_table(Table("/srv/lake/t", "org.apache.iceberg.hadoop.HadoopFileIO")) == (
        LocalStore()
    )


@pytest.mark.parametrize(
    "table",
    [
        Table("s3://bucket/t", lent={"s3://other": LENT}),
        Table("s3://bucket/t", properties={**KEYS, "s3.remote-signing-enabled": "true"}),
        Table("s3://bucket/t", "org.apache.iceberg.encryption.EncryptingFileIO"),
        Table("s3://bucket/t", "some.FileIO"),
        Table("gs://bucket/t", S3),
        Table("wasbs://box@account.host/t", ADLS),
    ],
    ids=["keys for elsewhere", "signed", "encrypted", "another", "another store", "unreached"],
)
def test_a_table_that_only_iceberg_reaches_has_no_store(table: Table) -> None:
    assert store_of_table(table) is None
