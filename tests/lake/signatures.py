"""AWS Signature Version 4 as a catalog checks the requests of a client.

A request is signed with a key that both sides know. The signature is of the method, of the path, of
the headers that the client names, and of the body's hash. ``Signatures`` computes the signature
once more and compares: a request that was changed on the way, or signed for another region, another
service or by another key, is refused.

The rules are those of the AWS documentation, "Create a signed AWS API request". Iceberg's client
writes the body's hash in base64 into ``x-amz-content-sha256``.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import urllib.parse
from dataclasses import dataclass, field
from email.message import Message
from typing import Final

_SIGNED: Final = re.compile(
    r"AWS4-HMAC-SHA256 Credential=([^/]+)/(\d{8})/([^/]+)/([^/]+)/aws4_request,"
    r" ?SignedHeaders=([^,]+), ?Signature=([0-9a-f]{64})"
)


@dataclass
class Signatures:
    """The key, region and service that a request has to be signed with.

    ``seen`` are the signatures of the requests that were let in.
    """

    key: str = "AKIATESTS"
    secret: str = "tests-signing-secret"
    region: str = "eu-tests-1"
    service: str = "glue"
    seen: list[str] = field(default_factory=list)

    def lets_in(self, method: str, path: str, headers: Message, body: bytes) -> bool:
        """Has a request the right signature?"""
        found = _SIGNED.fullmatch(headers.get("Authorization", ""))
        if found is None:
            return False
        key, day, region, service, names, signature = found.groups()
        if (key, region, service) != (self.key, self.region, self.service):
            return False
        digest = hashlib.sha256(body)
        told = headers.get("x-amz-content-sha256", "")
        if told not in (digest.hexdigest(), base64.b64encode(digest.digest()).decode()):
            return False
        at = headers.get("x-amz-date", "")
        request = _canonical(method, path, headers, names, digest.hexdigest())
        whole = hashlib.sha256(request.encode()).hexdigest()
        scope = f"{day}/{region}/{service}/aws4_request"
        sealed = "\n".join(["AWS4-HMAC-SHA256", at, scope, whole])
        signing = f"AWS4{self.secret}".encode()
        for part in (day, region, service, "aws4_request"):
            signing = hmac.digest(signing, part.encode(), "sha256")
        right = hmac.digest(signing, sealed.encode(), "sha256").hex()
        if not (at.startswith(day) and hmac.compare_digest(right, signature)):
            return False
        self.seen.append(signature)
        return True


def _canonical(method: str, path: str, headers: Message, names: str, digest: str) -> str:
    """A request in the form that is signed; ``names`` are the signed headers."""
    place, _, query = path.partition("?")
    pairs = sorted(urllib.parse.parse_qsl(query, keep_blank_values=True))
    quoted = "&".join(f"{_quote(name)}={_quote(value)}" for name, value in pairs)
    lines = [f"{name}:{' '.join(headers.get(name, '').split())}" for name in names.split(";")]
    return "\n".join([method, urllib.parse.quote(place), quoted, *lines, "", names, digest])


def _quote(text: str) -> str:
    return urllib.parse.quote(text, safe="")
