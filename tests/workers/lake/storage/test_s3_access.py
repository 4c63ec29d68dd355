"""A worker's way into a bucket of S3, from the properties of a table's file access."""

from __future__ import annotations

import os
import pickle
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import ClassVar

import pytest

from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.object_store import ObjectStore
from workers.lake.storage.s3_access import S3Access, settle_checksums

BUCKET = Bucket(FileStore.S3, "bucket")
KEYS = {"s3.access-key-id": "planted-key", "s3.secret-access-key": "planted-secret"}


def test_keys_and_address_become_pyarrow_s_arguments() -> None:
    access = S3Access.of(
        BUCKET,
        {
            **KEYS,
            "client.region": "eu-central-1",
            "s3.endpoint": "http://127.0.0.1:9000/",
            "s3.path-style-access": "true",
            "s3.retry.num-retries": "9",
            "uri": "a catalog's",
        },
    )
    assert access is not None
    assert access.arguments() == {
        "access_key": "planted-key",
        "secret_key": "planted-secret",
        "region": "eu-central-1",
        "endpoint_override": "127.0.0.1:9000",
        "scheme": "http",
        "force_virtual_addressing": False,
    }


def test_without_properties_the_environment_counts() -> None:
    access = S3Access.of(BUCKET, {})
    assert access == S3Access()
    assert access.arguments() == {}


@pytest.mark.parametrize(
    "name",
    [
        "s3.sse.type",
        "s3.remote-signing-enabled",
        "s3.access-points.bucket",
        "s3.acl",
        "client.assume-role.arn",
        "client.factory",
        "client.credentials-provider",
        "s3.some-later-property",
    ],
)
def test_what_only_iceberg_s_client_does_is_left_to_spark(name: str) -> None:
    assert S3Access.of(BUCKET, {**KEYS, name: "x"}) is None


@pytest.mark.parametrize(
    ("endpoint", "chosen", "expected"),
    [
        ("http://127.0.0.1:9000", None, "when_required"),
        ("http://127.0.0.1:9000", "when_supported", "when_supported"),
        ("", None, None),
    ],
)
def test_only_amazon_s_own_store_gets_checksums_behind_the_content(
    monkeypatch: pytest.MonkeyPatch, endpoint: str, chosen: str | None, expected: str | None
) -> None:
    name = "AWS_REQUEST_CHECKSUM_CALCULATION"
    monkeypatch.setenv(name, chosen or "")
    if chosen is None:
        monkeypatch.delenv(name)
    S3Access("k", "s", region="eu-central-1", endpoint=endpoint).file_system(BUCKET)
    assert os.environ.get(name) == expected


@pytest.mark.parametrize("name", ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"])
def test_the_environment_may_name_another_store(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("AWS_REQUEST_CHECKSUM_CALCULATION", "")
    monkeypatch.delenv("AWS_REQUEST_CHECKSUM_CALCULATION")
    monkeypatch.setenv(name, "http://127.0.0.1:9000")
    settle_checksums()
    assert os.environ["AWS_REQUEST_CHECKSUM_CALCULATION"] == "when_required"


def test_lent_keys_have_a_token_and_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    lent = {**KEYS, "s3.session-token": "planted", "s3.session-token-expires-at-ms": "1000000"}
    access = S3Access.of(BUCKET, lent)
    assert access is not None
    assert access.arguments()["session_token"] == "planted"
    for now, stale in ((699.0, False), (701.0, True), (2000.0, True)):
        monkeypatch.setattr("time.time", lambda now=now: now)
        assert access.is_stale is stale
        assert ObjectStore(BUCKET, access).is_stale is stale
    assert not S3Access("k", "s", token="for ever").is_stale
    assert "planted" not in repr(access)


class EverySecondRefused(BaseHTTPRequestHandler):
    """A store that is busy at every second request."""

    protocol_version = "HTTP/1.1"
    asked: ClassVar[Iterator[int]] = count()

    def do_HEAD(self) -> None:
        is_busy = next(self.asked) % 2 == 0
        self.send_response(503 if is_busy else 200)
        self.send_header("Content-Length", "7")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def test_repetitions_do_not_run_out_in_a_long_life() -> None:
    """Arrow's other strategy has a quota of a hundred, of a whole life."""
    with ThreadingHTTPServer(("127.0.0.1", 0), EverySecondRefused) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        endpoint = f"http://127.0.0.1:{server.server_address[1]}"
        store = ObjectStore(BUCKET, S3Access("k", "s", "eu-central-1", endpoint, path_style=True))
        assert {store.size(f"s3://bucket/data/{n}") for n in range(150)} == {7}
        server.shutdown()


def test_the_keys_are_neither_shown_nor_pickled() -> None:
    access = S3Access.of(BUCKET, {**KEYS, "s3.endpoint": "http://planted-host"})
    store = ObjectStore(BUCKET, access)
    assert "planted" not in repr(store)
    with pytest.raises(TypeError, match="stay in the process"):
        pickle.dumps(store)
    pickle.dumps(ObjectStore(BUCKET))
