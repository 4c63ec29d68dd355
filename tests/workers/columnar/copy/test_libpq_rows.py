"""Taking the data of a COPY out of a real libpq whose other end is a few lines of Python."""

from __future__ import annotations

import select
import socket
import threading
from collections.abc import Callable, Generator

import pytest
from psycopg import pq

from config.limits import COPY_PIECE_BYTES
from tests.workers.columnar.stub_publisher import COPY_DONE, streaming
from tests.workers.columnar.stub_publisher import copy_data as message
from workers.columnar.copy.libpq_rows import CopyFailed, copy_data


def pieces(conn: pq.abc.PGconn) -> list[bytes]:
    return [bytes(piece) for piece in begun(conn)]


def begun(conn: pq.abc.PGconn, waiting: Callable[[], None] = lambda: None) -> Generator[memoryview]:
    """The pieces as they come; ``waiting`` is told before the socket is waited for."""
    pointer = getattr(conn, "pgconn_ptr")  # noqa: B009 - the protocol class lacks it

    def wait_readable() -> None:
        waiting()
        assert select.select([conn.socket], [], [], 10)[0]

    return copy_data(pointer, wait_readable)


@pytest.mark.parametrize(
    "rows",
    [
        [],
        [b"1\n"],
        [b"x" * 99 + b"\n"] * 50_000,
        [b"a" * (COPY_PIECE_BYTES - 1), b"b", b"c"],
        [b"a", b"b" * COPY_PIECE_BYTES, b"c"],
        [b"a", b"b" * (3 * COPY_PIECE_BYTES), b"c" * (2 * COPY_PIECE_BYTES), b"d"],
    ],
    ids=["nothing", "a row", "many", "to the brim", "a piece of its own", "large ones"],
)
def test_pieces_end_where_rows_end_and_nothing_is_missing(rows: list[bytes]) -> None:
    ends, total = {0}, 0
    for row in rows:
        total += len(row)
        ends.add(total)

    def script(sock: socket.socket) -> None:
        sock.sendall(b"".join(map(message, rows)) + COPY_DONE)

    with streaming(script) as conn:
        found = pieces(conn)
    assert b"".join(found) == b"".join(rows)
    at = 0
    for piece in found:
        at += len(piece)
        assert at in ends
        assert piece
    assert len(found) <= total // (COPY_PIECE_BYTES // 2) + 2


def test_a_reader_that_is_faster_than_the_server_waits() -> None:
    go = threading.Event()

    def script(sock: socket.socket) -> None:
        sock.sendall(message(b"first\n")[:7])
        assert go.wait(10)
        sock.sendall(message(b"first\n")[7:] + COPY_DONE)

    with streaming(script) as conn:
        assert [bytes(piece) for piece in begun(conn, go.set)] == [b"first\n"]
    assert go.is_set()


def test_the_end_of_the_connection_is_an_error_of_libpq() -> None:
    with streaming(lambda sock: sock.sendall(message(b"1\n"))) as conn:
        with pytest.raises(CopyFailed):
            pieces(conn)
        assert conn.error_message


def test_who_stops_in_between_leaves_no_row_behind() -> None:
    """A generator that is closed gives the row back that had no room; libpq goes on."""

    def script(sock: socket.socket) -> None:
        sock.sendall(message(b"a") + message(b"b" * COPY_PIECE_BYTES) + message(b"c") + COPY_DONE)

    with streaming(script) as conn:
        data = begun(conn)
        assert bytes(next(data)) == b"a"
        data.close()
        assert pieces(conn) == [b"c"]
