"""What the creation of a slot waits for is told; who gives up leaves no slot."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

from catalog.errcodes import AdminShutdown
from catalog.pg_subscription import Subscription
from tests.fix_publisher import Database
from tests.waiting import wait_until
from workers.publisher import connection
from workers.publisher.connect import connect_publisher
from workers.publisher.connection import WalReceiverConn
from workers.publisher.slot_wait import WaitedTransaction, telling_waits

SLOT = "waited_for"


@pytest.fixture
def database(database: Database) -> Database:
    database.run("CREATE TABLE other (id int)")
    return database


@pytest.fixture
def sub(database: Database) -> Subscription:
    return Subscription("mysub", database.dsn, ("pub",), subuuid="u", subslotname=SLOT)


@pytest.fixture
def conn(sub: Subscription, monkeypatch: pytest.MonkeyPatch) -> Iterator[WalReceiverConn]:
    monkeypatch.setattr(connection, "WAIT_NOTICE_SECONDS", 0.1)
    monkeypatch.setattr(connection, "STILL_WAITING_SECONDS", math.inf)
    made = connect_publisher(sub, "creator", lambda: False)
    yield made
    made.close()


def slots(database: Database) -> list[tuple[object, ...]]:
    return database.execute(
        "SELECT slot_name FROM pg_replication_slots WHERE slot_name = 'waited_for'"
    )


def test_the_open_transaction_is_told_and_its_end_lets_the_creation_go_on(
    database: Database, sub: Subscription, conn: WalReceiverConn
) -> None:
    told: list[str] = []
    with database.connect() as holder:
        holder.execute("BEGIN")
        holder.execute("INSERT INTO other VALUES (1)")
        pid = holder.info.backend_pid

        def tell(text: str) -> None:
            told.append(text)
            holder.execute("COMMIT")

        with telling_waits(sub, conn, SLOT, tell):
            assert conn.create_slot(SLOT, temporary=True, snapshot="nothing") > 0
    (text,) = told
    assert text.startswith(f'replication slot "{SLOT}" waits for the end of transaction ')
    assert f" of PID {pid}" in text
    assert ", open for " in text
    assert conn.on_wait is None


@pytest.mark.parametrize("interruption", [KeyboardInterrupt(), AdminShutdown("told to stop")])
def test_ctrl_c_leaves_no_slot(
    database: Database, conn: WalReceiverConn, interruption: BaseException
) -> None:
    """The publisher would wait on, and create the slot when the transaction ends."""

    def give_up() -> None:
        raise interruption

    conn.on_wait = give_up
    with database.connect() as holder:
        holder.execute("BEGIN")
        holder.execute("INSERT INTO other VALUES (1)")
        with pytest.raises(type(interruption)):
            conn.create_slot(SLOT, temporary=False, snapshot="nothing")
        conn.on_wait = None
        assert conn.exec("SELECT 1") == [("1",)]
        holder.execute("COMMIT")
    wait_until(lambda: slots(database) == [], 20, lambda: "the slot stays")


@pytest.mark.parametrize(
    ("waited", "text"),
    [
        (
            WaitedTransaction("735", 4, "psql", None, 9),
            "transaction 735 of PID 4 (psql), open for 9 s",
        ),
        (WaitedTransaction("735", 4, "", None, None), "transaction 735 of PID 4"),
        (
            WaitedTransaction("735", None, None, "orphan", 60),
            "prepared transaction 735 ('orphan'), open for 60 s",
        ),
        (WaitedTransaction("735", None, None, None, None), "transaction 735"),
    ],
)
def test_a_transaction_is_named(waited: WaitedTransaction, text: str) -> None:
    assert str(waited) == text


def test_a_connection_of_another_kind_is_left_alone(sub: Subscription) -> None:
    with telling_waits(sub, object(), SLOT, lambda _: None):
        pass
