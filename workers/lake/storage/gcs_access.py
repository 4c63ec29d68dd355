"""How a worker reaches a bucket of Google Cloud Storage.

Without a token, and without ``gcs.no-auth``, pyarrow takes Google's default credentials, as Iceberg
does: the file that ``GOOGLE_APPLICATION_CREDENTIALS`` names, or the machine's service account.

Only Iceberg's client does encryption with a key of the user, a project that pays, and delegates or
scopes of an impersonation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, ClassVar, Final, Self

from pyarrow import fs

from config.monitor_limits import GCS_RETRY_SECONDS
from workers.lake.storage.bucket import Bucket
from workers.lake.storage.store_access import StoreAccess, seconds

_TOKEN: Final = "gcs.oauth2.token"  # noqa: S105 - the name of a property
_EXPIRES: Final = "gcs.oauth2.token-expires-at"
_NO_AUTH: Final = "gcs.no-auth"
_HOST: Final = "gcs.service.host"
_PROJECT: Final = "gcs.project-id"
_TAKEN: Final = "gcs.impersonate.service-account"
_UNDERSTOOD: Final = frozenset({_TOKEN, _EXPIRES, _NO_AUTH, _HOST, _PROJECT, _TAKEN})
_WITHOUT_EFFECT: Final = (
    "gcs.client-lib-token",
    "gcs.user-agent",
    "gcs.channel.",
    "gcs.oauth2.refresh-credentials-",
    "gcs.delete.",
    "gcs.analytics-core.",
    "gcs.impersonate.lifetime-seconds",
)
"""Properties that change how Iceberg's client works, and no file."""
_NO_END: Final = datetime(2200, 1, 1, tzinfo=UTC)
"""Pyarrow asks for the end of a token, and a token of the configuration may have none."""


@dataclass(frozen=True, slots=True)
class GcsAccess(StoreAccess):
    """A token, nobody's rights, or the default credentials; ``service_account`` is impersonated."""

    prefixes: ClassVar[tuple[str, ...]] = ("gcs.",)

    token: str = field(default="", repr=False)
    no_auth: bool = False
    endpoint: str = field(default="", repr=False)
    project: str = field(default="", repr=False)
    service_account: str = field(default="", repr=False)

    @property
    def _token(self) -> str:
        return self.token

    @classmethod
    def of(cls, bucket: Bucket, properties: Mapping[str, str]) -> Self | None:
        """See ``StoreAccess.of``. A bucket's name changes nothing."""
        del bucket
        if not cls._understands(properties, _UNDERSTOOD, _WITHOUT_EFFECT):
            return None
        return cls(
            properties.get(_TOKEN, ""),
            properties.get(_NO_AUTH, "false").lower() == "true",
            properties.get(_HOST, ""),
            properties.get(_PROJECT, ""),
            properties.get(_TAKEN, ""),
            expires=seconds(properties.get(_EXPIRES, "0")),
        )

    def file_system(self, bucket: Bucket) -> Any:
        """See ``StoreAccess.file_system``. A bucket's name changes nothing."""
        del bucket
        return fs.GcsFileSystem(**self.arguments())

    def arguments(self) -> dict[str, Any]:
        """The arguments of pyarrow's ``GcsFileSystem``. Of several ways in, Iceberg's first."""
        given: dict[str, Any] = {"retry_time_limit": timedelta(seconds=GCS_RETRY_SECONDS)}
        if self.endpoint:
            scheme, _, host = self.endpoint.rpartition("://")
            given |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
        if self.project:
            given["project_id"] = self.project
        if self.token:
            end = datetime.fromtimestamp(self.expires, UTC) if self.expires else _NO_END
            given |= {"access_token": self.token, "credential_token_expiration": end}
        elif self.no_auth:
            given["anonymous"] = True
        elif self.service_account:
            given["target_service_account"] = self.service_account
        return given
