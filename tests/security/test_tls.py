"""TLS with ``sslmode=verify-full`` against an authority of the test's own, end to end.

What is copied (by the worker's connection and by Spark's tasks) and what is streamed goes through
TLS; a certificate of another authority or for another host stops CREATE with nothing made, and a
running subscription until it is right again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trustme

from catalog.errcodes import ConnectionFailure
from subscriber.demo.embedded_postgres import EmbeddedPublisher
from tests.fix_publisher import Database
from tests.harness import Pgsub
from tests.security.tls_front import TlsFront
from tests.twin import native_rows
from tests.waiting import wait_until
from workers.publisher.connect import connect

NAME = "through_tls"
LARGE = 65_000
"""Rows of a table that is more than one range to copy."""


@pytest.fixture(scope="module")
def database(publisher: EmbeddedPublisher, make_database: Callable[..., Database]) -> Database:
    database = make_database(publisher, "tls")
    database.run(
        "CREATE SCHEMA tls",
        "CREATE TABLE tls.small (id int PRIMARY KEY, v text)",
        "INSERT INTO tls.small SELECT i, 'v' || i FROM generate_series(1, 100) i",
        "CREATE TABLE tls.large (id int PRIMARY KEY, v text)",
        f"INSERT INTO tls.large SELECT i, repeat('x', 1000) FROM generate_series(1, {LARGE}) i",
        "CREATE PUBLICATION pub FOR TABLES IN SCHEMA tls",
    )
    return database


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture(scope="module")
def front(database: Database, authority: trustme.CA) -> Iterator[TlsFront]:
    with TlsFront(database, authority.issue_cert("localhost")) as front:
        yield front


def conninfo(
    database: Database, front: TlsFront, roots: Path | str, host: str = "localhost"
) -> str:
    return (
        f"{database.dsn} host={host} hostaddr=127.0.0.1 port={front.port}"
        f" sslmode=verify-full sslrootcert={roots}"
    )


def roots_of(authority: trustme.CA, folder: Path) -> Path:
    path = folder / "roots.pem"
    authority.cert_pem.write_to_path(str(path))
    return path


def test_copy_and_stream(
    pgsub: Pgsub, database: Database, front: TlsFront, authority: trustme.CA
) -> None:
    roots = roots_of(authority, pgsub.scratch)  # where the configuration file is, too
    pgsub.create(NAME, conninfo(database, front, roots.name), ["pub"])
    pgsub.wait(NAME)
    log = pgsub.data_dir / "log" / "pgsub.log"
    seen = len(log.read_bytes())

    front.show(trustme.CA().issue_cert("localhost"))
    front.hang_up()
    database.run(
        "UPDATE tls.large SET v = 'changed' WHERE id % 40 = 0",
        "DELETE FROM tls.small WHERE id % 10 = 0",
        "INSERT INTO tls.small VALUES (1000, repeat('y', 100000))",
    )
    wait_until(lambda: b"certificate verify failed" in log.read_bytes()[seen:], 60, "the refusal")
    wait_until(lambda: b"HINT:  The publisher's cert" in log.read_bytes()[seen:], 10, "its hint")
    front.show(authority.issue_cert("localhost"))

    pgsub.wait(NAME)
    for table in ("small", "large"):
        assert pgsub.rows("tls", table) == native_rows(database, f"tls.{table}")
    kinds = {re.sub("[0-9]+", "0", name) for name in front.names}
    assert kinds == {NAME, "pg_0_sync_0_0", "pg_0_sync_0_copy"}, "command and apply, sync, tasks"
    copies = [name for name in front.names if name.endswith("_copy")]
    assert len(copies) > 1, "a connection for each of Spark's tasks"
    pgsub.drop(NAME)


def refused(pgsub: Pgsub, database: Database, connection: str, words: str, hint: str) -> None:
    done = pgsub.create("refused_tls", connection, ["pub"], status=1)
    assert "ERROR:  08006: could not connect to the publisher" in done.stderr
    assert words in done.stderr
    assert f"HINT:  {hint}" in done.stderr
    assert "Traceback" not in done.stderr
    slots = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'refused_tls'"
    assert database.value(slots) == 0
    assert "refused_tls" not in {row["subname"] for row in pgsub.status("pg_subscription")}


def test_another_authority(
    pgsub: Pgsub, database: Database, front: TlsFront, tmp_path: Path
) -> None:
    connection = conninfo(database, front, roots_of(trustme.CA(), tmp_path))
    refused(
        pgsub, database, connection, "certificate verify failed", "The publisher's certificate is"
    )


def test_another_host(
    pgsub: Pgsub, database: Database, front: TlsFront, authority: trustme.CA, tmp_path: Path
) -> None:
    roots = roots_of(authority, tmp_path)
    connection = conninfo(database, front, roots, host="elsewhere.example")
    refused(pgsub, database, connection, "does not match host name", "Correct host of the conn")


def test_no_authority(pgsub: Pgsub, database: Database, front: TlsFront, tmp_path: Path) -> None:
    connection = conninfo(database, front, tmp_path / "nosuch.pem")
    refused(pgsub, database, connection, "does not exist", "Correct sslrootcert of the connection")


def test_no_tls(database: Database) -> None:
    with pytest.raises(ConnectionFailure, match="could not connect to the publisher") as error:
        connect(f"{database.dsn} sslmode=verify-full sslrootcert=system", "refused_tls")
    assert str(error.value.hint).startswith("Set ssl = on and a certificate on the publisher")
