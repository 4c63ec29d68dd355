"""Connections to the gateway: what py4j would do by itself, and must not."""

from __future__ import annotations

import gc
import socket
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest

from catalog.errcodes import RequiredProcessGone
from workers.lake.api.connection import connect
from workers.lake.api.gateway import Gateway
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.table import LakeIdent

SECRET = "0a.b=c"
WHAT = "testing"


@pytest.fixture
def mute() -> Iterator[tuple[int, list[bytes]]]:
    """The port of a gateway that takes a call and breaks off, and the calls."""
    calls: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    with connection, connection.makefile("rb") as said:
                        assert said.readline() == b"A\n"
                        said.readline()
                        connection.sendall(b"!yv\n")
                        calls.append(said.readline())

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1]), calls
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_a_call_without_an_answer_is_not_made_again_and_nothing_is_logged(
    mute: tuple[int, list[bytes]], caplog: pytest.LogCaptureFixture
) -> None:
    port, calls = mute
    with pytest.raises(RequiredProcessGone), Gateway(port, SECRET).api(WHAT):
        raise AssertionError("the gateway answered")
    assert len(calls) == 1
    assert caplog.records == []


def test_what_is_collected_is_told_by_the_next_call_and_by_nobody_else(
    gateway_tables: GatewayTableApi,
    lake_gateway: Gateway,
    dest: Any,
    lake_ident: LakeIdent,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert dest.table(lake_ident) is not None
    gateway_tables.metadata(lake_ident, WHAT)
    gc.collect()
    client = lake_gateway.connections.client
    held = list(client.dropped)
    assert held, "objects that Java keeps until it hears"
    asked: list[str] = []
    send = client.send_command

    def listening(command: str, *more: Any) -> Any:
        asked.append(command)
        return send(command, *more)

    monkeypatch.setattr(client, "send_command", listening)
    gateway_tables.metadata(lake_ident, WHAT)
    assert all(any(f"\n{each}\n" in command for command in asked) for each in held)
    assert not set(held) & set(client.dropped)


def test_threads_that_forget_at_once_may_find_the_last_object_gone(
    mute: tuple[int, list[bytes]],
) -> None:
    """Each looks whether there is an object, and one takes it."""

    class Raced(deque[str]):
        def __bool__(self) -> bool:
            return True

        def __len__(self) -> int:
            return 1

    client = connect(mute[0], SECRET).client
    client.dropped = Raced()
    client.forget_dropped()
    assert list(client.dropped) == []
