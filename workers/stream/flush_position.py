"""Compute the positions that may be reported to the publisher. Pure: no clock, no socket.

PostgreSQL's ``store_flush_position`` and ``get_flush_position``. A transaction is pending from the
moment when its Commit is *received*, long before the transaction is applied. Transactions cease to
be pending in order, when every table of the subscription holds them durably. The flush position is
the end of the last durable transaction. The last received position counts as flushed only if
nothing is pending *and* no transaction is partly received: so the publisher can recycle WAL during
an idle or filtered stream.

PostgreSQL keeps a list of the pending transactions. Here batches become durable in order, and a
batch ends with a transaction. So the ends of the last pending and of the last durable transaction
are enough, and a million pending transactions take no memory.

Trace (why a transaction is pending when received, not when applied): a Commit ending at 500 is
received and spooled. A keepalive at 510 asks for a reply. If 500 were pending only after the lake
commit, 510 would be confirmed. A crash now would lose 500 for ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from catalog.errcodes import InternalError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr


@dataclass(frozen=True, slots=True)
class Positions:
    """The positions of a standby status update, as "last byte + 1"."""

    write: LSN
    flush: LSN


class FlushPositions:
    """The received, not yet durable transactions, and the positions to report."""

    def __init__(self) -> None:
        self._last_end = InvalidXLogRecPtr
        self._durable = InvalidXLogRecPtr
        self._received = InvalidXLogRecPtr
        self._reported = InvalidXLogRecPtr

    def store_flush_position(self, remote_end: int) -> None:
        """Note a received Commit; ``remote_end`` is the end LSN."""
        if remote_end < self._last_end:
            raise InternalError("a transaction's end LSN is behind its predecessor's")
        self._last_end = LSN(remote_end)

    def received(self, last_received: int) -> None:
        """Note the highest position in the received messages."""
        self._received = LSN(max(self._received, last_received))

    def mark_durable(self, remote_end: int) -> None:
        """Note that all tables hold the transactions up to ``remote_end``.

        ``remote_end`` is the end of a transaction.
        """
        self._durable = LSN(max(self._durable, min(remote_end, self._last_end)))

    @property
    def is_pending(self) -> bool:
        """True if a received transaction is not durable yet."""
        return self._durable < self._last_end

    @property
    def durable(self) -> LSN:
        """The end of the last durable transaction."""
        return self._durable

    @property
    def last_received(self) -> LSN:
        """The highest position received."""
        return self._received

    def get_flush_position(self, *, open_transaction: bool) -> Positions:
        """The positions that may be reported now; never lower than reported before.

        ``open_transaction`` is true if the spool holds a part of a transaction without its Commit.
        """
        flush = self._durable
        if not self.is_pending and not open_transaction:
            flush = LSN(max(flush, self._received))
        self._reported = LSN(max(self._reported, flush))
        return Positions(self._received, self._reported)
