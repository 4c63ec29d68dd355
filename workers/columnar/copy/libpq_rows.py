"""Take a COPY's data out of libpq, without a Python object per row.

The server sends a COPY in messages of a row each. The kernel takes message after message from the
libpq of the connection and puts the rows side by side, until the buffer is full or no row is left.
The result are large pieces of whole rows. All pieces share one buffer: new memory for each of 184
pieces (2 M rows), and the copying, took 0.1 s of 1.7 s. A piece is as large as a read of the
reader, so that the reader needs no copy of the rows.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, Final

import numpy as np

from config.limits import COPY_PIECE_BYTES
from workers.columnar import libpq
from workers.columnar.kernel import kernel

_PENDING, _LENGTH, _POSITION = range(3)
_CELLS: Final = 3

_FULL: Final = 1
_NOTHING_YET: Final = 0
_FAILED: Final = -2


class CopyFailed(Exception):  # noqa: N818 - libpq's words for it
    """libpq cannot go on with the COPY; the connection has the message."""


def copy_data(
    conn_ptr: int, wait_readable: Callable[[], None] | None = None
) -> Generator[memoryview]:
    """Yield the data of a COPY that has begun on the connection at ``conn_ptr`` (``PGconn *``).

    A piece is valid until the next piece is requested.

    ``wait_readable`` returns when the socket has bytes to read; without the function libpq waits.
    Afterwards the caller has to take the COPY's result. Raises ``CopyFailed``.
    """
    libpq.register_symbols()
    state = np.zeros(_CELLS, np.int64)
    pointer = np.zeros(1, np.int64)
    nowait = int(wait_readable is not None)
    room = np.empty(COPY_PIECE_BYTES, np.uint8)
    status = _FULL
    try:
        while status >= 0:
            state[_POSITION] = 0
            while (status := _take(conn_ptr, nowait, room, state, pointer)) == _NOTHING_YET:
                if wait_readable is not None:
                    wait_readable()
            if status == _FAILED:
                raise CopyFailed
            if state[_POSITION]:
                piece = room.data[: state[_POSITION]]
                yield piece
                piece.release()  # a caller that kept the piece gets an error instead of later rows
            size = max(COPY_PIECE_BYTES, int(state[_LENGTH]))
            if len(room) != size:
                room = np.empty(size, np.uint8)
    finally:
        if state[_PENDING]:
            _give_back(state)


@kernel
def _take(conn: int, nowait: int, out: Any, state: Any, pointer: Any) -> Any:
    """Take rows while the buffer has room.

    ``_FULL`` keeps the row without room, ``_NOTHING_YET`` means that the socket is empty, too; any
    further result is libpq's report of the end.
    """
    looked = False  # at the socket, since the last row
    while True:
        if state[_PENDING] == 0:
            got = libpq.get_copy_data(conn, pointer.ctypes.data, nowait)
            if got < 0 or (got == 0 and looked):
                return got
            if got == 0:
                if libpq.consume_input(conn) == 0:
                    return _FAILED
                looked = True
                continue
            looked = False
            state[_PENDING], state[_LENGTH] = pointer[0], got
        position, length = state[_POSITION], state[_LENGTH]
        if position + length > len(out):
            return _FULL
        libpq.memcpy(out.ctypes.data + position, state[_PENDING], length)
        state[_POSITION] = position + length
        _give_back(state)


@kernel
def _give_back(state: Any) -> None:
    """Free the kept row."""
    libpq.freemem(state[_PENDING])
    state[_PENDING] = state[_LENGTH] = 0
