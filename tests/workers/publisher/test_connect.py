"""Connecting, to a listener that never says a word."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from catalog.errcodes import AdminShutdown, ConnectionFailure
from tests.waiting import wait_until
from workers.publisher.connect import connect


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
