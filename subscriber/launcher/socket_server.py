"""The server side of the launcher's socket: many clients, a single thread, no blocking call.

A slow client delays no other client. The server reads a client's next request only after the client
has taken the reply to the last, and keeps only the latest push of every kind. A frozen client
therefore holds a few kilobytes and no more.
"""

from __future__ import annotations

import errno
import logging
import os
import selectors
import socket
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from catalog.errcodes import IoError, ProtocolViolation
from config.limits import (
    ACCEPT_PAUSE_SECONDS,
    LAUNCHER_BACKLOG_CLIENTS,
    LAUNCHER_CLIENTS,
    SOCKET_CHUNK_BYTES,
)
from workers.process.launcher_socket import LineReader, encode
from workers.process.worker_slots import Tenant

log = logging.getLogger(__name__)


class Client:
    """A connection. ``tenant`` is set once a worker has attached."""

    def __init__(self, server: LocalServer, sock: socket.socket) -> None:
        self.tenant: Tenant | None = None
        self.closed = False
        self._server = server
        self._sock = sock
        self._reader = LineReader()
        self._requests: deque[dict[str, Any]] = deque()
        self._out = bytearray()
        self._pushes: dict[str, dict[str, Any]] = {}
        self._interest = selectors.EVENT_READ
        server.selector.register(sock, self._interest, self._ready)

    def send(self, message: dict[str, Any]) -> None:
        """Queue a reply."""
        if not self.closed:
            self._out += encode(message)
            self._watch()

    def push(self, kind: str, **arguments: Any) -> None:
        """Queue a message without a request; replaces a waiting message of the same kind."""
        if not self.closed:
            self._pushes[kind] = {"push": kind, **arguments}
            self._watch()

    def close(self) -> None:
        """Close the connection; a reply still goes out if the socket has room."""
        if not self.closed:
            self.closed = True
            with suppress(OSError):
                self._sock.send(self._out)
            self._server.selector.unregister(self._sock)
            self._sock.close()
            self._server.forget(self)

    def _watch(self) -> None:
        """Tell the selector to wait for writing if messages wait, else for reading."""
        writes = bool(self._out or self._pushes)
        interest = selectors.EVENT_WRITE if writes else selectors.EVENT_READ
        if interest != self._interest:
            self._interest = interest
            self._server.selector.modify(self._sock, interest, self._ready)

    def _ready(self, mask: int) -> None:
        if self.closed:  # by an earlier event of the turn
            return
        try:
            if mask & selectors.EVENT_WRITE:
                self._write()
            else:
                self._read()
            self._serve()
        except ProtocolViolation as error:
            log.warning("action=hang_up sqlstate=%s %s", error.code, error.primary)
            self.close()
        except OSError:
            self.close()

    def _write(self) -> None:
        if not self._out:
            for message in self._pushes.values():
                self._out += encode(message)
            self._pushes.clear()
        try:
            sent = self._sock.send(self._out)
        except BlockingIOError:
            return
        del self._out[:sent]
        self._watch()

    def _read(self) -> None:
        try:
            data = self._sock.recv(SOCKET_CHUNK_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
        else:
            self._requests.extend(self._reader.feed(data))

    def _serve(self) -> None:
        """Answer the requests in turn, the next after the client has taken the last reply."""
        while self._requests and not self._out and not self.closed:
            self._server.on_message(self, self._requests.popleft())


class LocalServer:
    """Listens on ``path`` (made with mode 0600) and calls ``on_message`` and ``on_close``."""

    def __init__(
        self,
        selector: selectors.BaseSelector,
        path: Path,
        on_message: Callable[[Client, dict[str, Any]], None],
        on_close: Callable[[Client], None],
    ) -> None:
        self.selector = selector
        self.on_message = on_message
        self._on_close = on_close
        self._clients: set[Client] = set()
        self._sock = _listen(path)
        selector.register(self._sock, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Close all connections and stop listening."""
        for client in list(self._clients):
            client.close()
        self.selector.unregister(self._sock)
        self._sock.close()

    def forget(self, client: Client) -> None:
        """The client is closed."""
        self._clients.discard(client)
        self._on_close(client)

    def _accept(self, _mask: int) -> None:
        try:
            sock, _ = self._sock.accept()
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # The client still waits, so the socket is ready at once: do not spin.
                time.sleep(ACCEPT_PAUSE_SECONDS)
            return  # or the client has hung up already
        if len(self._clients) >= LAUNCHER_CLIENTS:
            sock.close()
            return
        sock.setblocking(False)
        self._clients.add(Client(self, sock))


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # of a dead launcher: the caller holds the data directory's lock
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        sock.bind(os.fspath(path))
    except OSError as error:
        sock.close()
        raise IoError(f'could not create socket "{path}": {error.strerror}') from None
    finally:
        os.umask(mask)
    sock.listen(LAUNCHER_BACKLOG_CLIENTS)
    sock.setblocking(False)
    return sock
