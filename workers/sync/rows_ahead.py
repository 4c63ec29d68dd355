"""Rows of a COPY that arrive while the lake table is made.

To make a lake table takes several requests to catalog and store, one behind the other, and the
worker waits for each answer. The publisher can send the rows meanwhile. A thread takes the rows
from the connection and keeps them in memory, up to a limit. As soon as the lake table is there, the
worker goes on in the same COPY, where the thread stopped. At any time one thread owns the
connection: the reading thread until ``pieces`` or ``close`` has seen the thread end.

Trace: the COPY of table t starts. The thread keeps 4 MB, 8 MB, while the worker waits for the
catalog. The worker asks for the rows: the thread ends behind the piece that is just arriving. The
worker reads 12 MB from memory, and the rest of the COPY from the connection.

An error of the COPY that the thread met is raised before its rows: they are of no use. If the lake
table cannot be made, the rest of the COPY is given up with the connection. The publisher's session
ends when it next sends something.

A shared table may wait half an hour for the copies of other sources. A COPY that stands still so
long would keep a page of the publisher's table from being vacuumed. So the rows of a shared table
are read when they are asked for.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager

from config.monitor_limits import COPY_AHEAD_BYTES
from workers.publisher.connection import WalReceiverConn


class RowsAhead:
    """The data of a COPY; with ``at_once`` a thread reads ahead of the caller."""

    def __init__(self, conn: WalReceiverConn, statement: str, *, at_once: bool = True) -> None:
        self._conn = conn
        self._data = conn.copy_out(statement)
        self._kept: deque[bytes] = deque()
        self._stop = threading.Event()
        pool = ThreadPoolExecutor(1, thread_name_prefix="rows ahead")
        self._reading = pool.submit(self._read) if at_once else None
        pool.shutdown(wait=False)  # the thread ends with the reading

    def pieces(self) -> Iterator[bytes | memoryview]:
        """Yield pieces of whole rows, each valid until the next piece; raises the COPY's error."""
        self._stop.set()
        if self._reading is not None:
            self._reading.result()  # the thread, too, ends when the worker is to end
        while self._kept:
            yield self._kept.popleft()
        yield from self._data

    def close(self) -> None:
        """End the reading. A COPY that is not at its end makes the connection useless."""
        self._stop.set()
        if self._reading is not None and not self._reading.done():
            self._conn.give_up()
            wait([self._reading])
        self._kept.clear()

    def _read(self) -> None:
        size = 0
        for piece in self._data:
            self._kept.append(bytes(piece))
            size += len(piece)
            if size >= COPY_AHEAD_BYTES or self._stop.is_set():
                return


@contextmanager
def reading_ahead(
    conn: WalReceiverConn, statements: Sequence[str], *, at_once: bool = True
) -> Iterator[RowsAhead | None]:
    """Read the COPY if there is only one: several are made by Spark tasks."""
    if len(statements) > 1:
        yield None
        return
    ahead = RowsAhead(conn, statements[0], at_once=at_once)
    try:
        yield ahead
    finally:
        ahead.close()
