"""How a worker reaches a container of Azure Data Lake Storage Gen2.

Without a key and without a shared access signature, pyarrow takes Azure's default credentials, as
Iceberg does: the environment, or a managed identity. Properties of an account name the account by
its address, as the locations of tables do.

Only Iceberg's client takes a bearer token, another provider of tokens, or an address of a form that
pyarrow does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self
from urllib.parse import urlsplit

from pyarrow import fs

from workers.lake.storage.bucket import Bucket
from workers.lake.storage.store_access import StoreAccess, seconds

_ACCOUNT: Final = "adls.auth.shared-key.account.name"
_KEY: Final = "adls.auth.shared-key.account.key"
_SIGNATURE: Final = "adls.sas-token."
_EXPIRES: Final = "adls.sas-token-expires-at-ms."
_ADDRESS: Final = "adls.connection-string."
_RENEWAL: Final = "adls.refresh-credentials-endpoint"
_WITHOUT_EFFECT: Final = (
    _SIGNATURE,  # of this account, or of others
    _EXPIRES,
    _ADDRESS,
    "adls.read.",
    "adls.write.",
    "adls.refresh-credentials-",
)
"""Properties that change how Iceberg's client works, and no file; and those of other accounts."""


@dataclass(frozen=True, slots=True)
class AdlsAccess(StoreAccess):
    """The account's key, or a shared access signature, or the default credentials."""

    prefixes: ClassVar[tuple[str, ...]] = ("adls.",)

    key: str = field(default="", repr=False)
    signature: str = field(default="", repr=False)
    endpoint: str = field(default="", repr=False)

    @property
    def _token(self) -> str:
        return self.signature

    @classmethod
    def of(cls, bucket: Bucket, properties: Mapping[str, str]) -> Self | None:
        """See ``StoreAccess.of``."""
        host = bucket.host
        account, key = properties.get(_ACCOUNT, ""), properties.get(_KEY, "")
        signature = properties.get(f"{_SIGNATURE}{host}", "").removeprefix("?")
        if not cls._understands(properties, {_ACCOUNT, _KEY}, _WITHOUT_EFFECT):
            return None
        if not signature and (_RENEWAL in properties or account not in ("", _account(host))):
            return None
        found = cls(
            "" if signature else key,
            signature,
            properties.get(f"{_ADDRESS}{host}", ""),
            expires=seconds(properties.get(f"{_EXPIRES}{host}", "0")),
        )
        return None if found._address(host) is None else found

    def file_system(self, bucket: Bucket) -> Any:
        """See ``StoreAccess.file_system``."""
        return fs.AzureFileSystem(**self.arguments(bucket.host))

    def arguments(self, host: str) -> dict[str, Any]:
        """The arguments of pyarrow's ``AzureFileSystem``."""
        given: dict[str, Any] = {"account_name": _account(host), **(self._address(host) or {})}
        if self.signature:
            given["sas_token"] = f"?{self.signature}"  # pyarrow puts the text behind the address
        elif self.key:
            given["account_key"] = self.key
        return given

    def _address(self, host: str) -> dict[str, str] | None:
        """The address of the account in pyarrow's words; None for another form of address.

        Pyarrow puts the account before an authority that begins with a dot, else behind.
        """
        url, account = urlsplit(self.endpoint or f"https://{host}"), _account(host)
        path = url.path.strip("/")
        if not path and url.netloc.startswith(f"{account}."):
            lake = url.netloc.removeprefix(account)
        elif path == account and url.netloc:
            lake = url.netloc
        else:
            return None
        return {
            "dfs_storage_authority": lake,
            "dfs_storage_scheme": url.scheme,
            "blob_storage_authority": lake.replace(".dfs.", ".blob.", 1),
            "blob_storage_scheme": url.scheme,
        }


def _account(host: str) -> str:
    return host.partition(".")[0]
