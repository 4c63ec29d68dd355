"""A worker's way into a container of Azure's, from the properties of a table's file access."""

from __future__ import annotations

import pytest

from catalog.errcodes import IoError
from tests.lake.azurite_store import Azurite
from workers.lake.storage.adls_access import AdlsAccess
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.object_store import ObjectStore

HOST = "account.dfs.core.windows.net"
BUCKET = Bucket(FileStore.ADLS, "box", HOST)
KEY = {
    "adls.auth.shared-key.account.name": "account",
    "adls.auth.shared-key.account.key": "planted",
}
USUAL = {
    "account_name": "account",
    "dfs_storage_authority": ".dfs.core.windows.net",
    "dfs_storage_scheme": "https",
    "blob_storage_authority": ".blob.core.windows.net",
    "blob_storage_scheme": "https",
}


def arguments(properties: dict[str, str]) -> dict[str, str]:
    access = AdlsAccess.of(BUCKET, properties)
    assert access is not None
    return access.arguments(HOST)


def test_the_account_s_key_becomes_pyarrow_s_argument() -> None:
    assert arguments({}) == USUAL
    assert arguments({**KEY, "adls.read.block-size-bytes": "9", "uri": "a catalog's"}) == {
        **USUAL,
        "account_key": "planted",
    }


def test_a_signature_of_the_account_comes_before_the_key() -> None:
    renewed = {"adls.refresh-credentials-endpoint": "v1/credentials"}
    for signature in ("planted", "?planted"):
        lent = {f"adls.sas-token.{HOST}": signature, "adls.sas-token.other.host": "other"}
        assert arguments({**KEY, **lent, **renewed}) == {**USUAL, "sas_token": "?planted"}


@pytest.mark.parametrize(
    ("address", "authority"),
    [
        ("http://127.0.0.1:10000/account", "127.0.0.1:10000"),
        ("http://account.private.net:8080/", ".private.net:8080"),
    ],
)
def test_another_address_of_the_account(address: str, authority: str) -> None:
    given = arguments({f"adls.connection-string.{HOST}": address})
    assert given["dfs_storage_authority"] == given["blob_storage_authority"] == authority
    assert given["dfs_storage_scheme"] == given["blob_storage_scheme"] == "http"


@pytest.mark.parametrize(
    "properties",
    [
        {"adls.token": "x"},
        {"adls.token-credential-provider": "some.Class"},
        {"adls.token-credential-provider.key": "x"},
        {"adls.some-later-property": "x"},
        {"adls.refresh-credentials-endpoint": "v1/credentials"},
        {**KEY, "adls.auth.shared-key.account.name": "other"},
        {f"adls.connection-string.{HOST}": "http://127.0.0.1:10000/other"},
        {f"adls.connection-string.{HOST}": "AccountName=account;AccountKey=planted"},
    ],
    ids=lambda properties: "".join(properties),
)
def test_what_only_iceberg_s_client_does_is_left_to_spark(properties: dict[str, str]) -> None:
    assert AdlsAccess.of(BUCKET, properties) is None


@pytest.mark.lake
def test_a_signature_opens_the_container_as_far_as_its_rights_go(azure: Azurite) -> None:
    bucket = Bucket(FileStore.ADLS, azure.container, azure.host)
    folder = azure.location("signed")
    for rights, may_write in (("racwdl", True), ("rl", False)):
        store = ObjectStore(bucket, AdlsAccess.of(bucket, azure.signed(rights)))
        if may_write:
            with store.create(f"{folder}/a") as file:
                file.write(b"0123")
            store.copy(f"{folder}/a", f"{folder}/b")
            store.remove(f"{folder}/a")
            continue
        assert store.list_prefix(folder, "") == [f"{folder}/b"]
        assert store.size(f"{folder}/b") == 4
        with pytest.raises(IoError, match="files of a lake table"), store.create(f"{folder}/c"):
            pass


@pytest.mark.lake
def test_refusals_are_told_in_azure_s_words_without_names(azure: Azurite) -> None:
    bucket = Bucket(FileStore.ADLS, "planted", azure.host)
    wrong = "cGxhbnRlZA=="
    for container, key, word in (
        ("planted", azure.keys(), "ContainerNotFound (HTTP status 404)"),
        (azure.container, azure.keys(wrong), "AuthorizationFailure (HTTP status 403)"),
    ):
        bucket = Bucket(FileStore.ADLS, container, azure.host)
        path = f"abfss://{container}@{azure.host}/planted"
        store = ObjectStore(bucket, AdlsAccess.of(bucket, key))
        with pytest.raises(IoError) as error, store.create(path) as file:
            file.write(b"x")
        assert (error.value.code, error.value.detail) == ("58030", f"Azure Error {word}.")
        assert "planted" not in error.value.report()
        assert wrong not in error.value.report()
