"""Waiting for the publisher's answer to a statement, on a connection that never gets one."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any, cast

import pytest
from psycopg import pq

from catalog.errcodes import AdminShutdown, ConnectionFailure, ReplicationError
from workers.publisher.connection import WalReceiverConn


class Result:
    """The error that a server sends for a statement that was cancelled."""

    status = pq.ExecStatus.FATAL_ERROR
    error_message = b"canceling statement"

    def error_field(self, field: pq.DiagnosticField) -> bytes | None:
        words = {
            pq.DiagnosticField.SQLSTATE: b"57014",
            pq.DiagnosticField.MESSAGE_PRIMARY: b"canceling statement",
            pq.DiagnosticField.MESSAGE_HINT: b"Try again.",
        }
        return words.get(field)


class Libpq:
    """Sends and waits; has a result once the statement is cancelled."""

    server_version = 180000
    host, hostaddr, port = b"db", b"127.0.0.1", b"5432"

    def __init__(self) -> None:
        self._ours, self._theirs = socket.socketpair()
        self.socket = self._ours.fileno()
        self.sent: list[bytes] = []
        self.results: list[Result] = []

    def send_query(self, sql: bytes) -> None:
        self.sent.append(sql)

    def is_busy(self) -> bool:
        return not self.results and not self.closed

    closed = False

    def consume_input(self) -> None:
        self._ours.recv(1)

    def get_result(self) -> Result | None:
        self.closed = True
        return self.results.pop() if self.results else None

    def get_cancel(self) -> Libpq:
        return self

    def cancel(self) -> None:
        self.results.append(Result())
        self._theirs.send(b"x")

    def finish(self) -> None:
        self._ours.close()
        self._theirs.close()


@pytest.fixture
def libpq() -> Iterator[Libpq]:
    made = Libpq()
    yield made
    made.finish()


def connection(libpq: Libpq, *, interrupted: bool = False) -> WalReceiverConn:
    return WalReceiverConn(cast("Any", libpq), lambda: interrupted)


def test_a_worker_that_waits_can_be_told_to_stop(libpq: Libpq) -> None:
    with pytest.raises(AdminShutdown):
        connection(libpq, interrupted=True).exec("SELECT 1")
    assert libpq.sent == [b"SELECT 1"]


def test_an_answer_is_waited_for_with_patience(libpq: Libpq) -> None:
    conn = connection(libpq)
    conn.patience = 0.01
    with pytest.raises(ConnectionFailure, match="does not answer"):
        conn.exec("SELECT 1")


def test_a_slot_that_takes_too_long_on_a_standby_is_cancelled(libpq: Libpq) -> None:
    with pytest.raises(ReplicationError) as caught:
        connection(libpq).create_slot("s", temporary=True, snapshot="use", timeout=0.01)
    assert caught.value.code == "55000"
    assert "pg_log_standby_snapshot" in (caught.value.hint or "")


def test_the_publisher_s_error_keeps_its_fields(libpq: Libpq) -> None:
    conn = connection(libpq)
    libpq.cancel()
    with pytest.raises(ReplicationError) as caught:
        conn.exec("SELECT 1")
    error = caught.value
    assert (error.code, error.primary, error.hint) == ("57014", "canceling statement", "Try again.")


def test_the_host_is_the_one_that_was_reached(libpq: Libpq) -> None:
    found = {"host": "db", "hostaddr": "127.0.0.1", "port": "5432"}
    assert connection(libpq).host() == found
