"""How a worker reaches a bucket of S3, or of a compatible store.

Only Iceberg's client does encryption with a key of the user, signing by the catalog, roles and
access points.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final, Self

from pyarrow import fs

from config.monitor_limits import S3_REPEATED_ATTEMPTS
from workers.lake.storage.bucket import Bucket
from workers.lake.storage.store_access import StoreAccess, seconds

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
_AMAZON_REGION: Final = re.compile(r"(?!cn-|us-iso|eu-iso)[a-z]+(-[a-z]+)+-\d+")
"""Amazon's regions whose hosts end in amazonaws.com: not China's, no secret ones."""
_HOST_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")
"""Names of buckets that can be a part of a host's name."""
_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_CHECKSUMS: Final = "AWS_REQUEST_CHECKSUM_CALCULATION"


@dataclass(frozen=True, slots=True)
class S3Access(StoreAccess):
    """Keys, region and endpoint."""

    prefixes: ClassVar[tuple[str, ...]] = ("s3.", "client.")

    key: str = field(default="", repr=False)
    secret: str = field(default="", repr=False)
    region: str = ""
    endpoint: str = field(default="", repr=False)
    path_style: bool = False
    token: str = field(default="", repr=False)

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
            properties.get(_KEY, ""),
            properties.get(_SECRET, ""),
            properties.get(_REGION, ""),
            properties.get(_ENDPOINT, ""),
            properties.get(_PATH_STYLE, "false").lower() == "true",
            properties.get(_TOKEN, ""),
            expires=seconds(properties.get(_EXPIRES, "0")),
        )

    def file_system(self, bucket: Bucket) -> Any:
        """See ``StoreAccess.file_system``."""
        settle_checksums(self.endpoint)
        given = self.arguments()
        if not self.region and not self.endpoint:
            given["region"] = fs.resolve_s3_region(bucket.name)
        # A small file is then one request. Otherwise every file is an upload of parts: three.
        given["allow_delayed_open"] = True
        given["retry_strategy"] = fs.AwsDefaultS3RetryStrategy(max_attempts=S3_REPEATED_ATTEMPTS)
        return fs.S3FileSystem(**given)

    def address(self, bucket: Bucket) -> str | None:
        """The URL of a bucket without a final slash; None if only pyarrow finds the address.

        For path style, the URL is the store's, and the bucket's name follows.
        """
        scheme, host = self._scheme_and_host()
        if not host:
            if not _AMAZON_REGION.fullmatch(self.region):
                return None
            host = f"s3.{self.region}.amazonaws.com"
        if self.is_path_style(bucket):
            return f"{scheme}://{host}"
        # Pyarrow has the path in place of such a host's name, whatever was asked for.
        if _may_be_number(host) or not _HOST_NAME.fullmatch(bucket.name):
            return None
        return f"{scheme}://{bucket.name}.{host}"

    def is_path_style(self, bucket: Bucket) -> bool:
        """Is the bucket's name in the path, in place of the host's name?

        Amazon's certificates are for one more part of a host's name; a bucket's name may have dots.
        """
        return self.path_style if self.endpoint else not _HOST_NAME.fullmatch(bucket.name)

    def _scheme_and_host(self) -> tuple[str, str]:
        """The two parts of the endpoint; the second one with the port, and empty for Amazon's."""
        scheme, _, host = self.endpoint.rpartition("://")
        return scheme or "https", host.rstrip("/")

    def arguments(self) -> dict[str, Any]:
        """The arguments of pyarrow's ``S3FileSystem``."""
        given: dict[str, Any] = {}
        if self.key:
            given |= {"access_key": self.key, "secret_key": self.secret}
            given |= {"session_token": self.token} if self.token else {}
        if self.region:
            given["region"] = self.region
        if self.endpoint:
            scheme, host = self._scheme_and_host()
            given |= {"endpoint_override": host, "scheme": scheme}
            given["force_virtual_addressing"] = not self.path_style
        return given


def _may_be_number(host: str) -> bool:
    """May a host, with a port or without, be an address in numbers? Letters at the end say no."""
    return not host.partition(":")[0].rpartition(".")[2].isalpha()


def settle_checksums(endpoint: str = "") -> None:
    """Send a store with an endpoint of its own no checksum behind the content of a request.

    The environment may say otherwise, and may name the endpoint. The setting is the process's.

    Many stores refuse such a checksum (``STREAMING-UNSIGNED-PAYLOAD-TRAILER``), or cut the
    connection behind the checksum: every hundredth request then failed, and was repeated after up
    to 0.4 s. The content stays safe: by the signature of the request, or by TLS.
    """
    if endpoint or any(os.environ.get(name) for name in _ENDPOINTS):
        os.environ.setdefault(_CHECKSUMS, "when_required")
