"""A server that speaks just enough of the protocol to bring a libpq into COPY_BOTH."""

from __future__ import annotations

import select
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

from psycopg import pq


def copy_data(payload: bytes) -> bytes:
    return b"d" + struct.pack(">I", len(payload) + 4) + payload


def wal(payload: bytes, *, start: int = 0, end: int = 0, clock: int = 0) -> bytes:
    return copy_data(b"w" + struct.pack(">qqq", start, end, clock) + payload)


def keepalive(end: int, *, clock: int = 0, reply: bool = False) -> bytes:
    return copy_data(b"k" + struct.pack(">qqb", end, clock, reply))


def status_update(sock: socket.socket) -> tuple[int, int]:
    """The next one that comes: what was received, and what is flushed."""
    kind, size = struct.unpack(">cI", _read(sock, 5))
    if kind == b"X":  # Terminate
        raise ConnectionError
    message, write, flush, *_ = struct.unpack(">cqqqqb", _read(sock, size - 4))
    assert message == b"r"
    return write, flush


COPY_DONE = b"c" + struct.pack(">I", 4)


def _read(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = sock.recv(size - len(data))
        if not part:
            raise ConnectionError
        data += part
    return data


def _greet(sock: socket.socket) -> None:
    """Startup, one simple query, and the answer CopyBothResponse."""
    (size,) = struct.unpack(">I", _read(sock, 4))
    _read(sock, size - 4)
    sock.sendall(b"R" + struct.pack(">II", 8, 0) + b"Z" + struct.pack(">I", 5) + b"I")
    _, size = struct.unpack(">cI", _read(sock, 5))
    _read(sock, size - 4)
    sock.sendall(b"W" + struct.pack(">IbH", 7, 0, 0))


@contextmanager
def streaming(script: Callable[[socket.socket], None]) -> Iterator[pq.abc.PGconn]:
    """A connection in COPY_BOTH whose other end runs ``script``, then closes.

    The test may end the connection earlier.
    """
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        sock, _ = listener.accept()
        with sock, suppress(BrokenPipeError, ConnectionResetError):
            _greet(sock)
            script(sock)

    server = threading.Thread(target=serve)
    server.start()
    conn = _connect(listener.getsockname()[1])
    try:
        yield conn
    finally:
        conn.finish()
        server.join()
        listener.close()


def _connect(port: int) -> pq.abc.PGconn:
    """Never a blocking call of libpq: some keep the GIL, which the serving thread needs."""
    conn = pq.PGconn.connect_start(
        f"host=127.0.0.1 port={port} sslmode=disable gssencmode=disable".encode()
    )
    while (status := conn.connect_poll()) != pq.PollingStatus.OK:
        assert status != pq.PollingStatus.FAILED, conn.error_message
        reading = status == pq.PollingStatus.READING
        select.select([conn.socket] if reading else [], [] if reading else [conn.socket], [], 10)
    conn.send_query(b"START_REPLICATION")
    while conn.is_busy():
        select.select([conn.socket], [], [], 10)
        conn.consume_input()
    result = conn.get_result()
    assert result is not None
    assert result.status == pq.ExecStatus.COPY_BOTH
    return conn
