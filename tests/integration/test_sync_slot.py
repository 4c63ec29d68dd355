"""A sync slot's name that is taken: by a dead session of ours, by nobody, by somebody else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from catalog.errcodes import AdminShutdown, ReplicationError
from tests.fix_publisher import Database, requested_publisher
from tests.servers import every_version
from tests.waiting import wait_until
from workers.publisher.connect import connect
from workers.publisher.connection import WalReceiverConn
from workers.publisher.replication_slots import fetch_slot
from workers.publisher.sync_slot import create_sync_slot, drop_sync_slot

SLOT = "pg_16384_sync_16385_7"


@pytest.fixture(scope="module", params=every_version(16, 18))
def database(request: pytest.FixtureRequest, make_database: Callable[..., Database]) -> Database:
    server = requested_publisher(request)
    return make_database(server, f"sync_slot_{request.param}")


@pytest.fixture(autouse=True)
def _nobody_has_it_yet(database: Database) -> None:
    """A closed session's temporary slot goes when its backend ends, which is later."""
    query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    wait_until(lambda: not database.value(query, (SLOT,)), 30, "the last test's slot is gone")


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


def test_who_is_told_to_stop_while_it_waits_says_so(database: Database) -> None:
    """A slot waits for transactions that are open; nothing is sent on that connection any more."""
    with database.connect() as writer, writer.transaction():
        writer.execute("SELECT pg_current_xact_id()")
        told = threading.Event()
        conn = connect(database.dsn, SLOT, interrupted=told.is_set)

        def tell() -> None:
            wait_until(lambda: database.value(query, (SLOT,)), 30, "the slot is being made")
            told.set()

        query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
        threading.Thread(target=tell).start()
        with pytest.raises(AdminShutdown):
            create_sync_slot(conn, SLOT)
        conn.close()


def test_h_8_a_permanent_slot_is_not_made_when_nobody_waits_for_it(database: Database) -> None:
    """H-8: the publisher would go on making it as long as the transaction that it waits for."""
    query = "SELECT count(*) FROM pg_replication_slots WHERE slot_name = %s"
    with database.connect() as writer, writer.transaction():
        writer.execute("SELECT pg_current_xact_id()")
        told = threading.Event()
        conn = connect(database.dsn, SLOT, interrupted=told.is_set)

        def tell() -> None:
            wait_until(lambda: database.value(query, (SLOT,)), 30, "the slot is being made")
            told.set()

        threading.Thread(target=tell).start()
        with pytest.raises(AdminShutdown):
            create_sync_slot(conn, SLOT, temporary=False)
        conn.close()
        wait_until(lambda: not database.value(query, (SLOT,)), 30, "it is not made any more")


def test_a_permanent_slot_whose_worker_is_dead(database: Database, conn: WalReceiverConn) -> None:
    """Its session may not know; then the name is free, and a slot of that name is another one."""
    other = connect(database.dsn, SLOT)
    before = create_sync_slot(other, SLOT, temporary=False)
    other.command("COMMIT")
    other.start_streaming(SLOT, before, {"proto_version": "1", "publication_names": '"none"'})
    drop_sync_slot(conn, SLOT)
    other.close()
    assert fetch_slot(conn, SLOT) is None
    drop_sync_slot(conn, SLOT)  # missing is fine
    create_sync_slot(conn, SLOT, temporary=False)
    conn.command("COMMIT")
    conn.close()
    with_next = connect(database.dsn, SLOT)
    assert create_sync_slot(with_next, SLOT) > before, "made again over a permanent one"
    with_next.close()


def test_a_name_that_somebody_else_holds(database: Database, conn: WalReceiverConn) -> None:
    other = holder(database, "somebody else")
    with pytest.raises(ReplicationError) as refused:
        create_sync_slot(conn, SLOT)
    assert refused.value.code == "55006"
    assert other.exec("SELECT 1") == [("1",)]
    other.close()
