"""A sync slot's name that is taken: by a dead session of ours, by nobody, by somebody else."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from catalog.errcodes import ReplicationError
from subscriber.publisher import EmbeddedPublisher
from tests.fix_publisher import Database
from workers.publication import fetch_slot
from workers.sync_slot import create_sync_slot
from workers.walreceiver import WalReceiverConn, connect

SLOT = "pg_16384_sync_16385_7"


@pytest.fixture(scope="module", params=[16, 18])
def database(
    request: pytest.FixtureRequest, make_database: Callable[..., Database]
) -> Iterator[Database]:
    name = "publisher" if request.param == 18 else "publisher_16"
    server: EmbeddedPublisher = request.getfixturevalue(name)
    return make_database(server, f"sync_slot_{request.param}")


@pytest.fixture
def conn(database: Database) -> Iterator[WalReceiverConn]:
    conn = connect(database.dsn, SLOT)
    yield conn
    conn.close()


def holder(database: Database, appname: str) -> WalReceiverConn:
    """A session that does not know yet that its subscriber is dead."""
    other = connect(database.dsn, appname)
    other.command("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
    other.create_slot(SLOT, temporary=True, snapshot="use")
    return other


def test_a_name_that_is_free(conn: WalReceiverConn) -> None:
    assert create_sync_slot(conn, SLOT) > 0
    assert conn.exec("SHOW transaction_isolation") == [("repeatable read",)]


def test_a_name_that_a_dead_session_holds(database: Database, conn: WalReceiverConn) -> None:
    other = holder(database, SLOT)
    assert create_sync_slot(conn, SLOT) > 0
    slot = fetch_slot(conn, SLOT)
    assert slot is not None
    assert slot.active_pid == int(conn.exec("SELECT pg_backend_pid()")[0][0] or 0)
    with pytest.raises(ReplicationError) as ended:
        other.exec("SELECT 1")
    assert ended.value.code in ("57P01", "08006")
    other.close()


def test_a_name_that_nobody_uses(database: Database, conn: WalReceiverConn) -> None:
    database.execute("SELECT pg_create_logical_replication_slot(%s, 'pgoutput')", (SLOT,))
    assert create_sync_slot(conn, SLOT) > 0


def test_a_name_that_somebody_else_holds(database: Database, conn: WalReceiverConn) -> None:
    other = holder(database, "somebody else")
    with pytest.raises(ReplicationError) as refused:
        create_sync_slot(conn, SLOT)
    assert refused.value.code == "42710"
    assert other.exec("SELECT 1") == [("1",)]
    other.close()
