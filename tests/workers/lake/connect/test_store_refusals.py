"""What a store or a catalog refuses is one error that says what to grant or correct."""

from __future__ import annotations

import pytest

from workers.lake.connect.store_refusals import (
    GLUE_RIGHTS,
    KEYS,
    RIGHTS,
    passing_failure,
    store_refusal,
)

S3 = "software.amazon.awssdk.services.s3.model.S3Exception"
END = "(Service: S3, Status Code: {}, Request ID: planted, Extended Request ID: planted)"
GLUE = "software.amazon.awssdk.services.glue.model."
GLUE_END = "(Service: Glue, Status Code: {}, Request ID: planted)"
DENIED = "User: planted is not authorized to perform: glue:CreateTable on resource: planted "
CLIENT = "software.amazon.awssdk.core.exception.SdkClientException"
GOOGLE = "com.google.cloud.storage.StorageException"
AZURE = "com.azure.storage.file.datalake.models.DataLakeStorageException"
CHAIN = "java.io.UncheckedIOException: x\nCaused by: {}: {}"


def said(name: str, message: str) -> str:
    return CHAIN.format(name, message)


@pytest.mark.parametrize(
    ("chain", "code", "words", "hint"),
    [
        (
            said(S3, "The AWS Access Key Id you provided does not exist " + END.format(403)),
            "58030",
            "store refused the key",
            KEYS,
        ),
        (
            said(S3, "The request signature we calculated does not match " + END.format(403)),
            "58030",
            "store refused the key",
            KEYS,
        ),
        (
            said(S3, "The provided token has expired. " + END.format(400)),
            "58030",
            "store refused the key",
            KEYS,
        ),
        (said(S3, "Access Denied " + END.format(403)), "58030", "store refused a right", RIGHTS),
        (said(S3, "null " + END.format(403)), "58030", "store refused a right", RIGHTS),
        (
            said(
                "software.amazon.awssdk.services.s3.model.NoSuchBucketException",
                "The specified bucket does not exist " + END.format(404),
            ),
            "58030",
            "no bucket of the warehouse's name",
            "Make the bucket",
        ),
        (
            said(GOOGLE, "The specified bucket does not exist."),
            "58030",
            "no bucket of the warehouse's name",
            "Make the bucket",
        ),
        (
            said(GOOGLE, "planted does not have storage.objects.create access to planted."),
            "58030",
            "store refused a right",
            RIGHTS,
        ),
        (
            said(GOOGLE, "Anonymous caller does not have storage.objects.get access to planted."),
            "58030",
            "asked without a key",
            KEYS,
        ),
        (said(GOOGLE, "401 Unauthorized"), "58030", "store refused the key", KEYS),
        (
            said(
                "com.google.api.client.http.HttpResponseException",
                "404 Not Found\nPOST https://planted/upload/storage/v1/b/planted/o\n{}",
            ),
            "58030",
            "no bucket of the warehouse's name",
            "Make the bucket",
        ),
        (
            said(
                AZURE, 'Status code 404, "<?xml?>\n<Error>\n<Code>ContainerNotFound</Code>planted"'
            ),
            "58030",
            "no bucket of the warehouse's name",
            "Make the bucket",
        ),
        (
            said(AZURE, 'Status code 403, "<Code>AuthorizationPermissionMismatch</Code>planted"'),
            "58030",
            "store refused a right",
            RIGHTS,
        ),
        (
            said(AZURE, "Status code 403, Server failed to authenticate the request. planted"),
            "58030",
            "store refused the key",
            KEYS,
        ),
        (
            said(S3, "null " + END.format(301)),
            "58030",
            "the bucket in another region",
            "client.region",
        ),
        (
            said(CLIENT, "Unable to load credentials from any of the providers"),
            "58030",
            "asked without a key",
            KEYS,
        ),
        (
            said(CLIENT, "Unable to load region from any of the providers in the chain"),
            "58030",
            "asked without a region",
            "client.region",
        ),
        (
            said("javax.net.ssl.SSLHandshakeException", "PKIX path building failed"),
            "08001",
            "TLS certificate",
            "SSL_CERT_FILE",
        ),
        (
            said("java.net.ConnectException", "Connection refused"),
            "08001",
            "could not be reached",
            "s3.endpoint",
        ),
        (
            "(org.apache.iceberg.hive.RuntimeMetaException) Failed to connect to Hive Metastore",
            "08001",
            "could not be reached",
            "uri",
        ),
        (
            "Caused by: MetaException(message:Unable to create database path planted, failed)",
            "58030",
            "could not use a folder",
            "right to write",
        ),
        (
            said(
                "a.b.MetaException", "MetaException(message:Got exception: planted No FileSystem)"
            ),
            "58030",
            "could not use a folder",
            "scheme",
        ),
        (
            said("org.apache.iceberg.hive.LockException", "Metastore operation failed for a.b"),
            "58030",
            "gave no lock",
            "the tables of its locks",
        ),
        (
            "(org.apache.iceberg.exceptions.CommitFailedException)"
            " org.apache.iceberg.hive.LockException: Metastore operation failed for a.b",
            "58030",
            "gave no lock",
            "the tables of its locks",
        ),
        (
            said("org.apache.iceberg.exceptions.NotAuthorizedException", "Not authorized: no"),
            "42501",
            "catalog refused access",
            "credential or token",
        ),
        (
            said("org.apache.iceberg.exceptions.ForbiddenException", "Forbidden: no"),
            "42501",
            "catalog refused access",
            "grant the role",
        ),
        (
            said(
                f"{GLUE}GlueException",
                "The security token included in the request is invalid. " + GLUE_END.format(400),
            ),
            "42501",
            "catalog refused the key",
            KEYS,
        ),
        (
            said(
                f"{GLUE}GlueException",
                "The request signature we calculated does not match " + GLUE_END.format(400),
            ),
            "42501",
            "catalog refused the key",
            KEYS,
        ),
        (
            said(f"{GLUE}AccessDeniedException", DENIED + GLUE_END.format(400)),
            "42501",
            "catalog refused a right",
            GLUE_RIGHTS,
        ),
        (
            "org.apache.iceberg.exceptions.ForbiddenException: Cannot commit planted\nCaused by: "
            f"{GLUE}AccessDeniedException: {DENIED}{GLUE_END.format(400)}",
            "42501",
            "catalog refused a right",
            GLUE_RIGHTS,
        ),
    ],
)
def test_a_refusal_says_what_to_grant(chain: str, code: str, words: str, hint: str) -> None:
    error = store_refusal(chain, "doing so")
    assert error is not None
    assert error.code == code
    assert words in error.primary
    assert "while doing so" in error.primary
    assert hint in str(error.hint)
    assert "planted" not in f"{error.primary} {error.detail} {error.hint}"


def test_glue_s_refusal_names_the_right() -> None:
    refusal = store_refusal(said(f"{GLUE}AccessDeniedException", DENIED), "doing so")
    assert refusal is not None
    assert refusal.detail == "The right is glue:CreateTable."


@pytest.mark.parametrize(
    "chain",
    [
        "",
        said(f"{GLUE}EntityNotFoundException", "Database x not found. " + GLUE_END.format(400)),
        said(f"{GLUE}ConcurrentModificationException", "Update " + GLUE_END.format(400)),
        said(S3, "Please reduce your request rate. " + END.format(503)),
        said("org.apache.iceberg.exceptions.CommitFailedException", "Status Code: 403"),
        "org.apache.iceberg.exceptions.CommitStateUnknownException: Failed to heartbeat\n"
        + said("org.apache.iceberg.hive.LockException", "Failed to heartbeat for hive lock"),
        "a row quotes org.apache.iceberg.hive.LockException: no",
        "a row quotes Access Denied (Service: S3, Status Code: 403)",
        "[CAST_INVALID_INPUT] javax.net.ssl.SSLHandshakeException: x cannot be cast",
    ],
)
def test_other_errors_are_none(chain: str) -> None:
    assert store_refusal(chain, "doing so") is None


ICEBERG = "org.apache.iceberg.exceptions."
CATALOG, STORE = "the lake's catalog", "the lake's store"


@pytest.mark.parametrize(
    ("name", "message", "who"),
    [
        (f"{ICEBERG}ServiceFailureException", "Server error: null: planted", CATALOG),
        (f"{ICEBERG}ServiceUnavailableException", "Service failed: 503: planted", CATALOG),
        (f"{ICEBERG}RESTException", "Error occurred while processing POST request", CATALOG),
        (f"{ICEBERG}CommitStateUnknownException", "Service failed: 503: planted", CATALOG),
        ("org.apache.thrift.transport.TTransportException", "Broken pipe", CATALOG),
        (S3, "Please reduce your request rate. " + END.format(503), STORE),
        (S3, "null " + END.format(500), STORE),
        (GOOGLE, "503 Service Unavailable", STORE),
        (GOOGLE, "429 Too Many Requests", STORE),
        (AZURE, 'Status code 503, "<Code>ServerBusy</Code>planted"', STORE),
        (f"{GLUE}InternalServiceException", "null " + GLUE_END.format(500), CATALOG),
        (f"{GLUE}GlueException", "Rate exceeded " + GLUE_END.format(400), CATALOG),
        (CLIENT, "Unable to execute HTTP request: Connection reset", STORE),
        (f"{ICEBERG}CommitFailedException", "Requirement failed", None),
        (f"{ICEBERG}NoSuchTableException", "Table does not exist", None),
        (S3, "The specified key does not exist. " + END.format(404), None),
    ],
)
def test_who_failed_for_a_moment(name: str, message: str, who: str | None) -> None:
    words = None if who is None else f"{who} failed while reading"
    assert passing_failure(said(name, message), "reading") == words
    assert store_refusal(said(name, message), "reading") is None
