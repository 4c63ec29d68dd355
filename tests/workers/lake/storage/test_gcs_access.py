"""A worker's way into a bucket of Google's, from the properties of a table's file access."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from catalog.errcodes import IoError
from tests.lake.fake_gcs import FakeGcs
from workers.lake.storage.bucket import Bucket, FileStore
from workers.lake.storage.gcs_access import GcsAccess
from workers.lake.storage.object_store import ObjectStore

BUCKET = Bucket(FileStore.GCS, "lake")
TOKEN = {"gcs.oauth2.token": "planted"}


def arguments(properties: dict[str, str]) -> dict[str, object]:
    access = GcsAccess.of(BUCKET, properties)
    assert access is not None
    given = access.arguments()
    assert given.pop("retry_time_limit").total_seconds() < 60
    return given


def test_the_properties_become_pyarrow_s_arguments() -> None:
    assert arguments(
        {
            **TOKEN,
            "gcs.oauth2.token-expires-at": "1900000000000",
            "gcs.service.host": "http://127.0.0.1:9000/",
            "gcs.project-id": "project",
            "gcs.no-auth": "true",
            "gcs.oauth2.refresh-credentials-endpoint": "v1/credentials",
            "gcs.delete.batch-size": "50",
            "uri": "a catalog's",
        }
    ) == {
        "access_token": "planted",
        "credential_token_expiration": datetime(2030, 3, 17, 17, 46, 40, tzinfo=UTC),
        "endpoint_override": "127.0.0.1:9000",
        "scheme": "http",
        "project_id": "project",
    }


def test_of_several_ways_in_the_first_of_iceberg_s_counts() -> None:
    taken = {"gcs.impersonate.service-account": "a@b", "gcs.impersonate.lifetime-seconds": "60"}
    assert arguments({}) == {}
    assert arguments(taken) == {"target_service_account": "a@b"}
    assert arguments({**taken, "gcs.no-auth": "true"}) == {"anonymous": True}
    token = arguments({**taken, **TOKEN, "gcs.no-auth": "true"})
    assert token.keys() == {"access_token", "credential_token_expiration"}


@pytest.mark.parametrize(
    "name",
    [
        "gcs.encryption-key",
        "gcs.decryption-key",
        "gcs.user-project",
        "gcs.impersonate.delegates",
        "gcs.impersonate.scopes",
        "gcs.some-later-property",
    ],
)
def test_what_only_iceberg_s_client_does_is_left_to_spark(name: str) -> None:
    assert GcsAccess.of(BUCKET, {**TOKEN, name: "x"}) is None


@pytest.mark.lake
def test_without_a_key_the_default_credentials_count(
    google: FakeGcs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _tokens() as (address, asked):
        login = {"type": "authorized_user", "client_id": "i", "client_secret": "s"}
        file = tmp_path / "login.json"
        file.write_text(json.dumps({**login, "refresh_token": "planted", "token_uri": address}))
        monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
        access = GcsAccess.of(BUCKET, {"gcs.service.host": google.endpoint})
        store = ObjectStore(BUCKET, access)
        with store.create("gs://lake/by_default/a") as written:
            written.write(b"0123")
        assert store.size("gs://lake/by_default/a") == 4
        assert asked, "pyarrow took a token with the file's login"


@pytest.mark.lake
def test_a_refusal_is_told_in_google_s_words_without_names(google: FakeGcs) -> None:
    access = GcsAccess(no_auth=True, endpoint=google.endpoint)
    store = ObjectStore(Bucket(FileStore.GCS, "planted"), access)
    with pytest.raises(IoError) as error, store.create("gs://planted/a") as file:
        file.write(b"x")
    said = "Google Error NOT_FOUND (HTTP status 404) during CreateResumableUpload."
    assert (error.value.code, error.value.detail) == ("58030", said)
    assert "planted" not in error.value.report()


@contextmanager
def _tokens() -> Iterator[tuple[str, list[str]]]:
    """A server that gives a token to everybody; the bodies of the requests."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
            body = b'{"access_token": "t", "token_type": "Bearer", "expires_in": 3600}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token", asked
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
