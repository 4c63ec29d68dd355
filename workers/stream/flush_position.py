"""Compute the positions that may be reported to the publisher. Pure: no clock, no socket.

PostgreSQL's ``store_flush_position`` and ``get_flush_position``. A transaction enters the list when
its Commit is *received*, long before the transaction is applied. The transaction leaves the list,
in order, when every table of the subscription holds it durably. The flush position is the end of
the last transaction that left the list. The last received position counts as flushed only if the
list is empty *and* no transaction is partly received: so the publisher can recycle WAL during an
idle or filtered stream.

Trace (why a transaction enters the list when received, not when applied): a Commit ending at 500 is
received and spooled. A keepalive at 510 asks for a reply. A list that is filled only after the lake
commit would be empty, so 510 would be confirmed. A crash now would lose 500 for ever.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from catalog.errcodes import InternalError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of a standby status update, as "last byte + 1"."""

    write: LSN
    flush: LSN


class FlushPositions:
    """The list of received, not yet durable transactions, and the positions to report."""

    def __init__(self) -> None:
        self._pending: deque[int] = deque()
        self._durable = InvalidXLogRecPtr
        self._received = InvalidXLogRecPtr
        self._reported = InvalidXLogRecPtr

    def store_flush_position(self, remote_end: int) -> None:
        """Note a received Commit; ``remote_end`` is the end LSN."""
        if self._pending and remote_end < self._pending[-1]:
            raise InternalError("a transaction's end LSN is behind its predecessor's")
        self._pending.append(remote_end)

    def received(self, last_received: int) -> None:
        """Note the highest position in the received messages."""
        self._received = LSN(max(self._received, last_received))

    def mark_durable(self, remote_end: int) -> None:
        """Note that the transactions up to ``remote_end`` are durable in every table."""
        while self._pending and self._pending[0] <= remote_end:
            self._durable = LSN(max(self._durable, self._pending.popleft()))

    @property
    def pending(self) -> int:
        """The number of received transactions that are not durable yet."""
        return len(self._pending)

    @property
    def last_received(self) -> LSN:
        """The highest position received."""
        return self._received

    def get_flush_position(self, *, open_transaction: bool) -> Positions:
        """The positions that may be reported now; never lower than reported before.

        ``open_transaction`` is true if the spool holds a part of a transaction without its Commit.
        """
        flush = self._durable
        if not self._pending and not open_transaction:
            flush = LSN(max(flush, self._received))
        if self._pending and flush >= self._pending[0]:
            raise InternalError("a pending transaction ends at or before the flush position")
        self._reported = LSN(max(self._reported, flush))
        return Positions(self._received, self._reported)
