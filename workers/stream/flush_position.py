"""Which positions may be reported to the publisher. Pure: no clock, no socket.

PostgreSQL's ``store_flush_position`` and ``get_flush_position``. A transaction enters the list
when its Commit is *received*, long before anything is done with it, and leaves it, in order,
when every table of the subscription holds it durably. What is reported as flushed is the end of
the last transaction that left; only when the list is empty *and* no transaction is partly
received may it be the last position received, which is how an idle or filtered stream lets the
publisher recycle its WAL.

Trace (what goes wrong without "when received"): Commit ending at 500 is received and spooled; a
keepalive at 510 asks for a reply; a list filled only after the lake commit is empty, so 510 would
be confirmed; a crash now loses 500 for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from catalog.errcodes import InternalError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr


@dataclass(frozen=True, slots=True)
class Positions:
    """What a standby status update says; all are "last byte + 1"."""

    write: LSN
    flush: LSN


class FlushPositions:
    """The list of received, not yet durable transactions, and what follows from it."""

    def __init__(self) -> None:
        self._pending: deque[int] = deque()
        self._durable = InvalidXLogRecPtr
        self._received = InvalidXLogRecPtr
        self._reported = InvalidXLogRecPtr

    def store_flush_position(self, remote_end: int) -> None:
        """A Commit was received; ``remote_end`` is its end LSN."""
        if self._pending and remote_end < self._pending[-1]:
            raise InternalError("a transaction's end LSN is behind its predecessor's")
        self._pending.append(remote_end)

    def received(self, last_received: int) -> None:
        """The highest position any message named."""
        self._received = LSN(max(self._received, last_received))

    def mark_durable(self, remote_end: int) -> None:
        """Every transaction that ends at or before ``remote_end`` is durable in every table."""
        while self._pending and self._pending[0] <= remote_end:
            self._durable = LSN(max(self._durable, self._pending.popleft()))

    @property
    def pending(self) -> int:
        """How many received transactions are not durable yet."""
        return len(self._pending)

    @property
    def last_received(self) -> LSN:
        """The highest position received."""
        return self._received

    def get_flush_position(self, *, open_transaction: bool) -> Positions:
        """What may be reported now; never behind what was reported before.

        ``open_transaction``: bytes of a transaction whose Commit has not come are spooled.
        """
        flush = self._durable
        if not self._pending and not open_transaction:
            flush = LSN(max(flush, self._received))
        if self._pending and flush >= self._pending[0]:
            raise InternalError("a pending transaction ends at or before the flush position")
        self._reported = LSN(max(self._reported, flush))
        return Positions(self._received, self._reported)
