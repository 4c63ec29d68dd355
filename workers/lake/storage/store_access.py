"""How a worker reaches a bucket: keys, region and endpoint, as a table's own file access has them.

Iceberg gives every table an object that reads and writes the table's files, with properties from
the catalog and from the configuration. A worker uses the same properties, so that a table has one
set of keys. Without a key in the properties, pyarrow takes the environment, a profile or an
instance's role, as Iceberg does.

A catalog may lend keys with a session token, for a time. Iceberg has new keys whenever a table is
loaded; ``is_stale`` says when the worker has to ask for them.

The worker leaves a table to Spark if a property asks for something that only Iceberg's client does:
encryption with a key of the user, signing by the catalog, roles, access points.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from config.monitor_limits import LENT_KEYS_SECONDS

_KEY: Final = "s3.access-key-id"
_SECRET: Final = "s3.secret-access-key"  # noqa: S105 - the name of a property
_ENDPOINT: Final = "s3.endpoint"
_PATH_STYLE: Final = "s3.path-style-access"
_REGION: Final = "client.region"
_TOKEN: Final = "s3.session-token"  # noqa: S105 - the name of a property
_EXPIRES: Final = "s3.session-token-expires-at-ms"
_UNDERSTOOD: Final = frozenset({_KEY, _SECRET, _ENDPOINT, _PATH_STYLE, _REGION, _TOKEN, _EXPIRES})
_WITHOUT_EFFECT: Final = (
    "s3.checksum-enabled",
    "s3.multipart.",
    "s3.staging-dir",
    "s3.retry.",
    "s3.delete.",
    "s3.preload-client-enabled",
    "s3.analytics-accelerator.",
    "s3.connection.",
    "client.refresh-credentials-",
)
"""Properties that change how Iceberg's client works, and no file."""


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """Keys and address of a store. A value is never shown, and never leaves the process.

    ``expires`` is the Unix time at which lent keys end; 0 for keys that do not.
    """

    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = field(default="", repr=False)
    path_style: bool = False
    token: str = field(default="", repr=False)
    expires: float = 0.0

    @property
    def is_stale(self) -> bool:
        """Do lent keys end within ``LENT_KEYS_SECONDS``, so that the catalog has to lend others?"""
        return 0 < self.expires < time.time() + LENT_KEYS_SECONDS

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled: what Spark's tasks get is part of a plan."""
        raise TypeError("the keys of a store stay in the process")

    def arguments(self) -> dict[str, Any]:
        """The arguments of pyarrow's ``S3FileSystem``."""
        given: dict[str, Any] = {}
        if self.key:
            given |= {"access_key": self.key, "secret_key": self.secret}
            given |= {"session_token": self.token} if self.token else {}
        if self.region:
            given["region"] = self.region
        if self.endpoint:
            scheme, _, host = self.endpoint.rpartition("://")
            given |= {"endpoint_override": host.rstrip("/"), "scheme": scheme or "https"}
            given["force_virtual_addressing"] = not self.path_style
        return given


def access_of(properties: Mapping[str, str]) -> StoreAccess | None:
    """The access that the properties of a table's file access give; None if only Iceberg has it."""
    for name in properties:
        if name.startswith(("s3.", "client.")) and not (
            name in _UNDERSTOOD or name.startswith(_WITHOUT_EFFECT)
        ):
            return None
    return StoreAccess(
        properties.get(_KEY, ""),
        properties.get(_SECRET, ""),
        properties.get(_REGION, ""),
        properties.get(_ENDPOINT, ""),
        properties.get(_PATH_STYLE, "false").lower() == "true",
        properties.get(_TOKEN, ""),
        int(properties.get(_EXPIRES, "0")) / 1000,
    )
