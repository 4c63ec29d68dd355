"""The HTTP listener: it serves, is bounded, and never holds up its launcher."""

from __future__ import annotations

import http.client
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from catalog.store_sqlite import CatalogStore
from config.monitor_limits import (
    HTTP_CLIENTS,
)
from subscriber.messages import Notice
from subscriber.status import listener
from subscriber.status.listener import Show, StatusListener
from subscriber.status.pages import Page
from tests.ports import free_port
from tests.waiting import wait_until

Start = Callable[..., StatusListener]


class PagesTwin:
    """In the place of the pages: shows what was asked."""

    def __init__(self, _data_dir: Path, _store: CatalogStore) -> None:
        return

    def get(self, target: str, accept: str) -> Page:
        if target == "/broken":
            raise ValueError("planted")
        return Page(503 if target == "/down" else 200, "text/plain", f"{target} {accept}".encode())


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Start]:
    monkeypatch.setattr(listener, "Pages", PagesTwin)
    monkeypatch.setattr(listener, "LISTEN_RETRY_SECONDS", 0.02)
    CatalogStore.open(tmp_path).close()
    started: list[StatusListener] = []

    def begin(port: int, show: Show | None = None) -> StatusListener:
        made = StatusListener(("127.0.0.1", port), tmp_path, show)
        started.append(made)
        made.start()
        return made

    yield begin
    for each in started:
        each.stop()


def asked(port: int, target: str, method: str = "GET") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request(method, target, headers={"Accept": "text/x"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


def test_pages_and_methods(start: Start) -> None:
    port = free_port()
    start(port)
    wait_until(lambda: listens(port), 10)
    assert asked(port, "/metrics?x") == (200, b"/metrics?x text/x")
    assert asked(port, "/down") == (503, b"/down text/x")
    assert asked(port, "/metrics", "HEAD") == (200, b"")
    assert asked(port, "/metrics", "POST")[0] == 501
    with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
        asked(port, "/broken")
    assert asked(port, "/metrics")[0] == 200


def test_the_listener_is_gone_after_stop(start: Start) -> None:
    port = free_port()
    made = start(port)
    wait_until(lambda: listens(port), 10)
    made.stop()
    assert not listens(port)


def test_stop_right_after_start_returns(start: Start) -> None:
    for _ in range(5):
        start(free_port()).stop()


def test_an_address_in_use_is_told_once_and_tried_again(
    start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """In the log, and to the user; who hears of the trouble hears of its end."""
    shown: list[Notice] = []
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        start(port, shown.append)
        wait_until(lambda: "could not bind metrics address" in caplog.text, 10)
    wait_until(lambda: listens(port), 10)
    wait_until(lambda: len(shown) == 2, 10)
    assert caplog.text.count("could not bind") == 1
    first, last = shown
    assert (first.severity, last.severity) == ("WARNING", "NOTICE")
    assert f'"127.0.0.1", port {port}: Address already in use' in first.primary
    assert "metrics_listen" in str(first.hint)
    assert last.primary == f"metrics and health on http://127.0.0.1:{port}"


def test_a_host_that_does_not_exist_stops_nothing(
    start: Start, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = StatusListener(("no-such-host.invalid", 1), tmp_path)
    made.start()
    wait_until(lambda: "could not bind metrics address" in caplog.text, 10)
    made.stop()


def test_clients_that_say_nothing_take_no_more_than_their_places(start: Start) -> None:
    port = free_port()
    start(port)
    wait_until(lambda: listens(port), 10)
    with ExitStack() as stack:
        for _ in range(HTTP_CLIENTS):
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        further = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
        further.settimeout(10)
        assert further.recv(1) == b""  # hung up on at once
    wait_until(lambda: _served(port), 10)


def _served(port: int) -> bool:
    try:
        return asked(port, "/metrics")[0] == 200
    except (http.client.HTTPException, OSError):
        return False
