"""The launcher's socket: many clients, none of which can hold up another."""

from __future__ import annotations

import errno
import selectors
import signal
import socket
import time
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from subscriber.launcher.socket_server import LocalServer
from tests.subscriber.launcher_family import Family
from workers.process.launcher_client import notify_launcher
from workers.process.launcher_socket import dial, encode, read_lock_file


def test_the_socket_is_the_owner_s_alone(family: Family) -> None:
    family.start()
    info = read_lock_file(family.data_dir)
    assert info is not None
    assert info.socket.stat().st_mode & 0o777 == 0o600


def test_garbage_is_hung_up_on(family: Family) -> None:
    family.start()
    sock = dial(family.data_dir)
    assert sock is not None
    with sock:
        sock.settimeout(10)
        sock.sendall(b"GET / HTTP/1.0\r\n\r\n")
        assert sock.recv(1) == b""
    assert family.status().phase == "running"


def test_a_frozen_client_holds_up_nobody(family: Family) -> None:
    (subid,) = family.subscribe("steady")
    launcher = family.start()
    frozen = family.await_worker(subid)
    family.kill(frozen.pid, signal.SIGSTOP)
    sock = dial(family.data_dir)
    assert sock is not None
    with sock:
        sock.settimeout(0.5)
        flood = encode({"id": 1, "op": "status"}) * 100_000
        with pytest.raises(TimeoutError):  # it asks and asks, and never reads
            sock.sendall(flood)
        for _ in range(2000):
            notify_launcher(family.data_dir, subid)
        assert psutil.Process(launcher.pid).memory_info().rss < 200 * 2**20
        (other,) = family.subscribe("steady-2")
        notify_launcher(family.data_dir)
        family.await_worker(other)
    family.kill(frozen.pid, signal.SIGCONT)
    assert notify_launcher(family.data_dir, subid, wait=10)


def test_many_clients_come_and_go(family: Family) -> None:
    family.start()
    held = []
    try:
        for _ in range(100):
            sock = dial(family.data_dir)
            assert isinstance(sock, socket.socket)
            held.append(sock)
        assert family.status().phase == "running"
    finally:
        for sock in held:
            sock.close()
    assert family.status().phase == "running"


def test_the_loop_rests_when_no_descriptor_is_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The waiting client makes the socket ready at once, for as long as no descriptor is free."""
    rests: list[float] = []
    monkeypatch.setattr(time, "sleep", rests.append)
    with selectors.DefaultSelector() as selector:
        server = LocalServer(selector, tmp_path / "socket", lambda *_: None, lambda _: None)
        listening = server._sock

        def refuse(number: int) -> Any:
            raise OSError(number, "refused")

        for number, rested in ((errno.EMFILE, 1), (errno.ENFILE, 2), (errno.ECONNABORTED, 2)):
            server._sock = cast("Any", SimpleNamespace(accept=partial(refuse, number)))
            server._accept(selectors.EVENT_READ)
            assert len(rests) == rested
        server._sock = listening
        server.close()
