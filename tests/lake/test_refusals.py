"""What a store or a catalog refuses is one clear error of ``check``, before any row.

A wrong key, a key without a right, a bucket that is not there, a certificate of an unknown
authority, and an address where nobody listens. The last line of each answer says what to do.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
import trustme

from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database, new_database
from tests.harness import SETTINGS
from tests.lake.lake_stack import LakePgsub, LakeStack
from tests.object_store import Keys
from tests.ports import free_port

pytestmark = [pytest.mark.lake, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher) -> Iterator[Database]:
    made = new_database(publisher, "refusals", schema="refusals")
    made.run(
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE PUBLICATION pub_refusals FOR TABLES IN SCHEMA refusals",
    )
    yield made
    made.drop()


@pytest.fixture
def pgsub(tmp_path: Path) -> Iterator[LakePgsub]:
    made = LakePgsub(tmp_path / "data")
    yield made
    made.stop()


def check(pgsub: LakePgsub, database: Database, catalog: dict[str, str], status: int = 1) -> str:
    """What ``check`` says of a file with this catalog."""
    entry = {"connection": database.dsn, "publication": ["pub_refusals"]}
    content = {
        "subscriptions": {"refused": entry},
        "lake": {"catalog": catalog},
        "settings": SETTINGS,
    }
    done = pgsub.command("check", str(pgsub.file(content)), status=status, timeout=600)
    return done.stdout + done.stderr


def test_a_fit_catalog_passes_and_keeps_no_scratch_table(
    pgsub: LakePgsub, database: Database, stack: LakeStack
) -> None:
    said = check(pgsub, database, stack.catalog_keys(), 0)
    assert "could be created" in said
    left = stack.store.files("warehouse", stack.keys)
    assert not [name for name in left if "pgsub_probe" in name]


@pytest.mark.parametrize(
    ("keys", "words", "hint"),
    [
        ("unknown", "58030: the lake's store refused the key", "Correct the key"),
        ("wrong secret", "58030: the lake's store refused the key", "Correct the key"),
        ("may only read", "58030: the lake's store refused a right", "s3:PutObject"),
    ],
)
def test_a_key_that_the_store_refuses(
    pgsub: LakePgsub, database: Database, stack: LakeStack, keys: str, words: str, hint: str
) -> None:
    given = {
        "unknown": Keys("planted3key", "planted3secret"),
        "wrong secret": Keys(stack.keys.key, "planted3secret"),
        "may only read": stack.reader,
    }[keys]
    said = check(pgsub, database, stack.catalog_keys(given))
    assert words in said
    assert hint in said
    assert given.secret not in said
    assert given.key not in said


def test_a_bucket_that_is_not_there(
    pgsub: LakePgsub, database: Database, stack: LakeStack, tmp_path: Path
) -> None:
    catalog = {
        "type": "jdbc",
        "uri": f"jdbc:sqlite:{tmp_path / 'catalog.db'}",
        "jdbc.schema-version": "V1",
        "warehouse": "s3://nobodys/warehouse",
        **stack.keys_for(),
    }
    said = check(pgsub, database, catalog)
    assert "58030: the lake's store has no bucket of the warehouse's name" in said


def test_an_address_where_nobody_listens(pgsub: LakePgsub, database: Database) -> None:
    catalog = {"type": "rest", "uri": f"http://127.0.0.1:{free_port()}", "warehouse": "s3://b/p"}
    said = check(pgsub, database, catalog)
    assert "08001: the lake's store or catalog could not be reached" in said


@contextmanager
def tls_server() -> Iterator[int]:
    """A port that shakes hands with a certificate of an authority that nobody knows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost", "127.0.0.1").configure_cert(context)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:

        def serve() -> None:
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with closing(client):
                    try:
                        context.wrap_socket(client, server_side=True).close()
                    except OSError:
                        continue

        threading.Thread(target=serve, name="tls", daemon=True).start()
        yield listener.getsockname()[1]
        listener.shutdown(socket.SHUT_RDWR)


def test_a_certificate_of_an_unknown_authority(pgsub: LakePgsub, database: Database) -> None:
    with tls_server() as port:
        catalog = {"type": "rest", "uri": f"https://localhost:{port}", "warehouse": "s3://b/p"}
        said = check(pgsub, database, catalog)
    assert "08001: the TLS certificate of the lake's store or catalog was not accepted" in said
    assert "SSL_CERT_FILE" in said
