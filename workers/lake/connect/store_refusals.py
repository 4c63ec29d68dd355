"""What a store or a catalog refuses: a key, a right, a bucket, a certificate, a connection.

Java's clients of the stores name the cause in the last exceptions of a chain, among words about
requests. Each refusal has one error: what was refused, and what to grant or to correct. No error
quotes the client's words, because the words may have a key, a path or a host in them.

A refusal of a store is 58030 and of a connection 08001, and workers try again later, because a key
may be renewed meanwhile. A refusal of the catalog is 42501. Glue is a catalog of AWS, so a refusal
of Glue's comes from the same kind of client as one of S3, and has status 400.

A store or a catalog that fails for a moment, with a status of 5xx, too many requests or a cut
connection, refuses nothing: ``passing_failure`` says which of the two. Behind such an answer a
commit may have taken effect.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from catalog.errcodes import InsufficientPrivilege, IoError, LakeUnreached, ReplicationError

_LINE: Final = re.compile(r"^(?:\(|Caused by: )?(?P<name>[\w.$]+)(?:\)|:) (?P<said>.*)$", re.M)
"""An exception of a chain: class and message, of which Azure's and Google's have several lines."""
_STORE: Final = re.compile(
    r"software\.amazon\.awssdk\.|com\.google\.cloud\.storage\.|com\.azure\.(?:storage|identity)\."
    r"|com\.google\.api\.client\.(?:googleapis\.json|http)\."
)
_AWS_CATALOG: Final = re.compile(
    r"software\.amazon\.awssdk\.services\.(?:glue|lakeformation|dynamodb)\."
)
_SEVERAL_LINES: Final = re.compile(r"com\.(?:azure|google)\.")
_DENIED: Final = re.compile(r"not authorized to perform: (\w+:\w+)")
_SLOWER: Final = re.compile(r"Rate exceeded|[Tt]hrottl")
_STATUS: Final = re.compile(r"(?:Status Code: |Status code |^)(?P<number>\d{3})\b")
"""As AWS, Azure and Google write a status."""
_KEY: Final = re.compile(
    r"Access Key Id|signature we calculated|[Tt]oken (?:is|has|included)|provided token"
    r"|Signature expired|InvalidSignatureException|Invalid Credentials|AuthenticationFailed"
    r"|failed to authenticate the request",
    re.A,
)
_NO_KEY: Final = re.compile(
    r"Unable to load credentials|Anonymous caller does not have|DefaultAzureCredential"
)
_NO_REGION: Final = re.compile(r"Unable to load region")
_NO_BUCKET: Final = re.compile(
    r"specified (?:bucket|container|filesystem) does not exist|NoSuchBucket"
    r"|ContainerNotFound|FilesystemNotFound|\A404 Not Found\s+POST \S+/upload/"
)
_NO_RIGHT: Final = re.compile(r"does not have storage\.\w+\.\w+ access")
_REGION: Final = re.compile(r"must be addressed using the specified endpoint|region '.*' is wrong")
_TLS: Final = re.compile(
    r"(?:javax\.net\.ssl|sun\.security\.(?:validator|provider\.certpath))\.\w+Exception"
)
_UNREACHED: Final = re.compile(
    r"java\.net\.(?:ConnectException|UnknownHostException|NoRouteToHostException)"
    r"|[\w.]+\.HttpHostConnectException"
)
_NO_METASTORE: Final = "Failed to connect to Hive Metastore"
"""Iceberg's words for a metastore that does not answer. The cause is in the next exceptions, which
an error that comes through Spark does not have."""
_NO_LOCK: Final = "org.apache.iceberg.hive.LockException"
"""The cause of a failed commit; through Spark, the first words of the commit's error."""
_NO_FOLDER: Final = re.compile(
    r"^(?:\(|Caused by: )?[\w.]*\bMetaException(?:(?:\)|:) )?(?:(?:MetaException)?\(message:)?"
    r"(?:Unable to create |Got exception: )",
    re.M,
)
"""What a Hive Metastore says of a folder, or of the folder's file system."""
_UNKNOWN: Final = "CommitStateUnknownException"
"""Of a commit that lost its lock on the way. Such a commit may have taken effect."""
_CATALOG: Final = {
    "org.apache.iceberg.exceptions.NotAuthorizedException": "NotAuthorizedException (401)",
    "org.apache.iceberg.exceptions.ForbiddenException": "ForbiddenException (403)",
}

_CATALOG_FAILED: Final = re.compile(
    r"org\.apache\.iceberg\.exceptions\."
    r"(?:ServiceFailure|ServiceUnavailable|REST|CommitStateUnknown)Exception"
    r"|org\.apache\.thrift\.transport\.TTransportException"
)
_BUSY: Final = frozenset({"408", "429", "500", "502", "503", "504", "509"})
_CUT: Final = re.compile(r"Unable to execute HTTP request|Acquire operation took longer")
REGION: Final = "Name client.region in lake.catalog."
KEYS: Final = "Correct the key, its secret or its token in lake.catalog or in the environment."
RIGHTS: Final = (
    "Grant the key reading, writing, deleting and listing below the warehouse: on S3 s3:GetObject,"
    " s3:PutObject, s3:DeleteObject and s3:ListBucket, elsewhere the role in"
    " docs/catalogs/stores.md."
)

GLUE_RIGHTS: Final = (
    "Grant the key the actions of docs/catalogs/glue.md on the catalog, its databases and tables:"
    " glue:GetDatabase, glue:CreateDatabase, glue:GetTable, glue:GetTables, glue:CreateTable,"
    " glue:UpdateTable and glue:DeleteTable."
)


class _Said(NamedTuple):
    """One exception of a chain."""

    name: str
    message: str


def store_refusal(chain: str, what: str) -> ReplicationError | None:
    """The refusal in a chain of Java's exceptions, as an error about ``what``; None for others."""
    said = _exceptions(chain)
    if any(_TLS.fullmatch(each.name) for each in said):
        return LakeUnreached(
            f"the TLS certificate of the lake's store or catalog was not accepted while {what}",
            hint="If the certificate's authority is your own, name a file with all authorities to"
            " trust in SSL_CERT_FILE, in the environment of pgsub up, and start pgsub again.",
        )
    # Iceberg calls a refusal of Glue's "forbidden", and only Glue's words name the right.
    of_glue = (_of_aws_catalog(each, what) for each in said if _AWS_CATALOG.match(each.name))
    if (refused := next(filter(None, of_glue), None)) is not None:
        return refused
    for each in said:
        if each.name in _CATALOG:
            return InsufficientPrivilege(
                f"the lake's catalog refused access while {what}",
                detail=f"The catalog answered {_CATALOG[each.name]}.",
                hint="Correct credential or token in lake.catalog, and grant the role the right to"
                " make, read, change and drop schemas and tables.",
            )
        is_store = _STORE.match(each.name) and not _AWS_CATALOG.match(each.name)
        if is_store and (refused := _of_store(each.message, what)) is not None:
            return refused
    if any(_UNREACHED.fullmatch(each.name) or each.message == _NO_METASTORE for each in said):
        return LakeUnreached(
            f"the lake's store or catalog could not be reached while {what}",
            hint="Are uri, client.region and the endpoints (s3.endpoint, gcs.service.host,"
            " adls.connection-string, glue.endpoint) in lake.catalog right, and does the server"
            " run?",
        )
    if _NO_FOLDER.search(chain):
        return IoError(
            f"the Hive Metastore could not use a folder of the warehouse while {what}",
            hint="The metastore makes the folders of schemas and tables: the metastore's user needs"
            " the right to write below the warehouse, and the metastore has to know the warehouse's"
            " scheme (s3 or s3a, for example). The metastore's log has the cause.",
        )
    lockless = any(_NO_LOCK in (each.name, each.message.split(":")[0]) for each in said)
    if lockless and not any(each.name.endswith(_UNKNOWN) for each in said):
        return IoError(
            f"the Hive Metastore gave no lock while {what}",
            hint="The metastore's log has the cause. Are the tables of its locks in its database,"
            " as Hive's schema script makes them? Does a dead writer hold a lock (SHOW LOCKS)?",
        )
    return None


def passing_failure(chain: str, what: str) -> str | None:
    """The words for a server that failed for a moment; None if a chain of exceptions says less."""
    said = _exceptions(chain)
    for each in reversed(said):
        if _STORE.match(each.name):
            found = _STATUS.search(each.message)
            is_busy = found is not None and found["number"] in _BUSY
            if _AWS_CATALOG.match(each.name):
                if is_busy or _SLOWER.search(each.message):
                    return f"the lake's catalog failed while {what}"
            elif is_busy or _CUT.search(each.message):
                return f"the lake's store failed while {what}"
    if any(_CATALOG_FAILED.fullmatch(each.name) for each in said):
        return f"the lake's catalog failed while {what}"
    return None


def _exceptions(chain: str) -> list[_Said]:
    """The exceptions of a chain, the first cause last."""
    found = list(_LINE.finditer(chain))
    ends = [*(each.start() for each in found[1:]), len(chain)]
    return [
        _Said(
            each["name"],
            chain[each.start("said") : end] if _SEVERAL_LINES.match(each["name"]) else each["said"],
        )
        for each, end in zip(found, ends, strict=False)
    ]


def _of_aws_catalog(each: _Said, what: str) -> ReplicationError | None:
    """The error for an answer of Glue's, or of a service that Glue's client asks."""
    status = _STATUS.search(each.message)
    if _KEY.search(each.message):
        return InsufficientPrivilege(f"the lake's catalog refused the key while {what}", hint=KEYS)
    denied = each.name.endswith(".AccessDeniedException")
    if not denied and (status is None or status["number"] not in ("401", "403")):
        return None
    asked = _DENIED.search(each.message)
    return InsufficientPrivilege(
        f"the lake's catalog refused a right while {what}",
        detail=f"The right is {asked.group(1)}." if asked else None,
        hint=GLUE_RIGHTS,
    )


def _of_store(message: str, what: str) -> ReplicationError | None:
    """The error for an answer of a store's client."""
    found = _STATUS.search(message)
    status = found["number"] if found else ""
    detail = f"The store answered with status {status}." if status else None
    if _NO_BUCKET.search(message):
        primary, hint = "has no bucket of the warehouse's name", "Make the bucket, or correct it."
    elif _NO_KEY.search(message):
        primary, hint = "or catalog was asked without a key", KEYS
    elif _NO_REGION.search(message):
        primary, hint = "or catalog was asked without a region", REGION
    elif status == "301" or _REGION.search(message):
        primary, hint = "has the bucket in another region", REGION
    elif status == "401" or _KEY.search(message):
        primary, hint = "refused the key", KEYS
    elif status == "403" or _NO_RIGHT.search(message):
        primary, hint = "refused a right", RIGHTS
    else:
        return None
    return IoError(f"the lake's store {primary} while {what}", detail=detail, hint=hint)
