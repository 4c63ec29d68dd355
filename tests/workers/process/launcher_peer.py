"""The launcher's end of the socket, played by a test."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path
from typing import Any

from catalog.errcodes import ReplicationError
from workers.process.launcher_socket import (
    LOCK_FILE,
    LineReader,
    LockInfo,
    encode,
)


class Peer:
    """The launcher's end of one connection, played by the test."""

    def __init__(self, data_dir: Path) -> None:
        path = data_dir / "socket"
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(path))
        self._listener.listen()
        self._listener.settimeout(10)
        self._reader = LineReader()
        self._got: list[dict[str, Any]] = []
        self.sock = socket.socket()
        (data_dir / LOCK_FILE).write_bytes(LockInfo(os.getpid(), path, 1).to_json())

    def accept(self) -> None:
        self.sock.close()
        self.sock, _ = self._listener.accept()
        self.sock.settimeout(10)

    def receive(self) -> dict[str, Any]:
        while not self._got:
            data = self.sock.recv(65536)
            assert data, "the worker hung up"
            self._got += self._reader.feed(data)
        return self._got.pop(0)

    def send(self, **message: Any) -> None:
        self.sock.sendall(encode(message))

    def answer(self, **fields: Any) -> dict[str, Any]:
        request = self.receive()
        self.send(id=request["id"], **fields)
        return request

    def close(self) -> None:
        self.sock.close()
        self._listener.close()


def in_thread(call: Any) -> tuple[threading.Thread, list[Any]]:
    results: list[Any] = []

    def run() -> None:
        try:
            results.append(call())
        except ReplicationError as error:
            results.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, results
