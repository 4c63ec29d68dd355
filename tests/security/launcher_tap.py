"""A tap on the launcher's socket: what workers and commands say to the launcher, and it to them."""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from workers.process.launcher_socket import read_lock_file

_CHUNK = 2**16


class LauncherTap:
    """Takes the place of the socket of a launcher that runs; a context manager ends it.

    ``behind`` is where the launcher's own socket lies meanwhile. ``streams`` has what went one way
    on one connection, whole, so that no word is missed that came in two pieces.
    """

    def __init__(self, data_dir: Path) -> None:
        lock = read_lock_file(data_dir)
        assert lock is not None, "no launcher runs"
        self.path = lock.socket
        self.behind = self.path.with_name(f"{self.path.name}.launcher")
        self.streams: list[bytearray] = []
        self._listener = socket.socket(socket.AF_UNIX)
        self._accepting = threading.Thread(target=self._accept, name="tap", daemon=True)
        self._serving: list[threading.Thread] = []
        self._clients: set[socket.socket] = set()

    def __enter__(self) -> Self:
        self.path.rename(self.behind)
        self._listener.bind(str(self.path))
        self.path.chmod(0o600)
        self._listener.listen(64)
        self._accepting.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)  # accept() returns
        self._accepting.join()
        self._listener.close()
        for client in list(self._clients):
            with suppress(OSError):
                client.shutdown(socket.SHUT_RDWR)
        for thread in self._serving:
            thread.join(10)
            assert not thread.is_alive(), "the launcher does not hang up"

    def messages(self) -> list[dict[str, Any]]:
        """Everything that was said to its end, in no order."""
        whole = [line for stream in self.streams for line in bytes(stream).split(b"\n")[:-1]]
        return [json.loads(line) for line in whole]

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                serving = threading.Thread(target=self._serve, args=(client,), daemon=True)
                self._serving.append(serving)
                serving.start()

    def _serve(self, client: socket.socket) -> None:
        self._clients.add(client)
        with client, socket.socket(socket.AF_UNIX) as launcher:
            try:
                launcher.connect(str(self.behind))
            except OSError:
                return  # it is gone: the client is hung up on, as it would have been
            back = threading.Thread(target=self._pass_on, args=(launcher, client), daemon=True)
            back.start()
            self._pass_on(client, launcher)
            back.join()
            self._clients.discard(client)

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        stream = bytearray()
        self.streams.append(stream)
        with suppress(OSError):
            while data := source.recv(_CHUNK):
                stream += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
