"""Connecting, to a listener that never says a word."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any, cast

import pytest
from psycopg import pq

from catalog.errcodes import AdminShutdown, ConnectionFailure
from catalog.pg_subscription import Subscription
from config.limits import CONNECT_SECONDS
from tests.waiting import wait_until
from workers.publisher.connect import connect, connect_beside, full_conninfo


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    """Connections are made by the kernel and never answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def conninfo(listener: socket.socket, more: str = "") -> str:
    return f"host=127.0.0.1 port={listener.getsockname()[1]} sslmode=disable gssencmode=disable" + (
        f" {more}"
    )


def test_a_worker_that_connects_can_be_told_to_stop(silent: socket.socket) -> None:
    asked: list[int] = []

    def interrupted() -> bool:
        asked.append(1)
        return len(asked) > 3

    with pytest.raises(AdminShutdown):
        connect(conninfo(silent), "test", interrupted=interrupted)


def test_a_server_that_does_not_answer_is_given_up(silent: socket.socket) -> None:
    with pytest.raises(ConnectionFailure) as caught:
        connect(conninfo(silent, "connect_timeout=1"), "test")  # libpq makes it 2 s
    assert "timeout expired" in (caught.value.detail or "")
    assert "firewalls" in (caught.value.hint or "")


def test_other_threads_run_while_one_connects(silent: socket.socket) -> None:
    silent.settimeout(5)
    seen: list[int] = []
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(connect, conninfo(silent), "test", interrupted=lambda: len(seen) > 0)
        client, _ = silent.accept()
        with client:
            assert client.recv(8), "the startup packet"
            seen.append(1)
            wait_until(trying.done, 5, "it stops")
            assert isinstance(trying.exception(), AdminShutdown)


def test_a_wrong_timeout_is_libpq_s_to_refuse(silent: socket.socket) -> None:
    with pytest.raises(ConnectionFailure) as caught:
        connect(conninfo(silent, "connect_timeout=soon"), "test")
    assert "connect_timeout" in (caught.value.detail or "")


@pytest.mark.parametrize(
    ("more", "expected"),
    [("", (10, 10, 3, 30_000)), ("keepalives_idle=77 tcp_user_timeout=5000", (77, 10, 3, 5_000))],
    ids=["by default", "as the connection string says"],
)
def test_a_publisher_that_vanishes_is_noticed_within_a_minute(
    silent: socket.socket, more: str, expected: tuple[int, ...]
) -> None:
    """Also under a COPY or a query, where no time limit of the stream applies."""
    pgconn = pq.PGconn.connect_start(full_conninfo(conninfo(silent, more), "test").encode())
    try:
        with socket.socket(fileno=os.dup(pgconn.socket)) as connection:
            options = (
                socket.TCP_KEEPIDLE,
                socket.TCP_KEEPINTVL,
                socket.TCP_KEEPCNT,
                socket.TCP_USER_TIMEOUT,
            )
            pgconn.connect_poll()
            found = [connection.getsockopt(socket.IPPROTO_TCP, option) for option in options]
    finally:
        pgconn.finish()
    assert tuple(found) == expected


def test_a_question_beside_a_lost_stream_ends_with_the_stream_s_error(
    silent: socket.socket,
) -> None:
    """A frozen publisher answers nothing; the receive thread gives it up."""
    lost = ConnectionFailure("terminating logical replication worker due to timeout")
    streaming = cast("Any", SimpleNamespace(host=dict, stream_lost=None))
    sub = Subscription("mysub", conninfo(silent), ("pub",))
    with ThreadPoolExecutor(1) as pool:
        trying = pool.submit(connect_beside, sub, streaming, lambda: False)
        client, _ = silent.accept()
        with client:
            assert client.recv(8), "the startup packet"
            streaming.stream_lost = lost
            wait_until(trying.done, 5, "the question ends")
    assert trying.exception() is lost


def test_a_question_has_a_limit_while_nobody_watches_the_stream(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While the spool is full, reading is paused and the silence of a stream is not counted."""
    conn: Any = SimpleNamespace(patience=None)
    monkeypatch.setattr("workers.publisher.connect.connect_publisher", lambda *_, **__: conn)
    streaming = cast("Any", SimpleNamespace(host=dict, stream_lost=None))
    sub = Subscription("mysub", "host=db", ("pub",))
    assert connect_beside(sub, streaming, lambda: False) is conn
    assert conn.patience == CONNECT_SECONDS
