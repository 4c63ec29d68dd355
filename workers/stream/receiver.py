"""The receive thread owns the socket, from START_REPLICATION to the end of the stream.

PostgreSQL's apply loop reads, applies and answers in one thread. Here a lake commit takes a second,
so a separate thread reads, spools and answers: keepalives get an answer on time, and feedback goes
out while Spark works. The thread takes no decision about any change.

One turn: the drain kernel (no Python per message, the GIL released) moves the bytes in libpq into
the spool. The kernel stops when no bytes are left, when the buffer is full, or when the server asks
for a reply. Then Commits enter the flush list, the main thread is woken, and feedback is sent if
feedback is due.

Feedback is due when the server asked, when the flush position moved, or when
``wal_receiver_status_interval`` has passed. Silence for half of ``wal_receiver_timeout`` sends one
ping; silence for the whole time ends the stream with 08006. While the spool is over the limit the
thread does not read: the silence clock stands still, and unasked status messages go out often
enough to keep ``wal_sender_timeout`` away. The log reports the pause and the end of the pause, and
``ReceiveStats`` shows the pause.
"""

from __future__ import annotations

import logging
import os
import select
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from catalog.errcodes import ConnectionFailure
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.remedies import SPOOL_FULL
from config.limits import (
    DRAIN_FIRST_NAP_NANOSECONDS,
    DRAIN_LONGEST_NAP_NANOSECONDS,
    PAUSED_FEEDBACK_SECONDS,
    RECEIVE_TURN_SECONDS,
    RECEIVED_FEEDBACK_SECONDS,
    SENDER_TIMEOUT_CONFIRMATIONS,
    SENDER_TIMEOUT_SECONDS,
)
from config.quantities import format_memory, pretty_size
from workers.columnar.drain import Drain, DrainResult, DrainStatus
from workers.process import failpoints
from workers.proto.encode import standby_status_update
from workers.proto.messages import (
    PG_EPOCH_US,
    StreamAbort,
    StreamCommit,
    StreamPrepare,
    StreamStart,
    StreamStop,
)
from workers.publisher.connection import WalReceiverConn
from workers.stream.flush_position import FlushPositions, Positions
from workers.stream.spool import Spool

log = logging.getLogger(__name__)

_PLACES: Final[Mapping[type, str]] = {
    StreamStop: failpoints.STREAM_STOPPED,
    StreamAbort: failpoints.STREAM_ABORTED,
    StreamCommit: failpoints.STREAM_COMMITTED,
    StreamPrepare: failpoints.STREAM_PREPARED,
}
"""A message around the parts of a transaction in progress → the place behind the message."""


@dataclass(frozen=True, slots=True)
class ReceiveLimits:
    """The thread's limits in seconds and bytes, under PostgreSQL's GUC names."""

    wal_receiver_timeout: float
    wal_receiver_status_interval: float
    wal_sender_timeout: float
    spool_max_size: int


@dataclass(frozen=True, slots=True)
class ReceiveStats:
    """A stream's columns of pg_stat_subscription and spools. Times are µs since 1970, 0 = never.

    Only keepalives move ``reply_lsn`` and ``reply_time``: the received position at the last
    keepalive, and the time at which the publisher sent the keepalive. ``flush_lsn`` was last
    confirmed to the publisher. ``spool_bytes`` are received and not yet taken; what transactions in
    progress hold does not count, because no batch can take it. ``paused_since`` is
    the time at which the spool became full, 0 for a spool with room. ``received_bytes`` counts all
    bytes of changes since the stream's start.
    """

    last_lsn: LSN = InvalidXLogRecPtr
    last_send_time: int = 0
    last_recv_time: int = 0
    reply_lsn: LSN = InvalidXLogRecPtr
    reply_time: int = 0
    flush_lsn: LSN = InvalidXLogRecPtr
    spool_bytes: int = 0
    paused_since: int = 0
    received_bytes: int = 0


class Receiver(threading.Thread):
    """Owns ``conn`` while running; the main thread uses only the methods below.

    ``keys`` identify the stream in a log line, for example ``subid=16384 slot=sales``. The stream
    begins at ``start``. With ``messages`` the publisher was asked for logical messages.
    """

    def __init__(
        self,
        conn: WalReceiverConn,
        spool: Spool,
        limits: ReceiveLimits,
        *,
        keys: str,
        start: LSN = InvalidXLogRecPtr,
        messages: bool = False,
        wake_main: Callable[[], None],
        report: Callable[[ReceiveStats], None],
        remember_flush: Callable[[LSN], None],
    ) -> None:
        super().__init__(name="receive", daemon=True)
        self.error: BaseException | None = None
        self._conn = conn
        self._spool = spool
        self._limits = limits
        self._keys = keys
        self._wake_main = wake_main
        self._report = report
        self._remember_flush = remember_flush
        self._remembered = InvalidXLogRecPtr
        longest_nap = (
            DRAIN_LONGEST_NAP_NANOSECONDS if conn.is_near() else DRAIN_FIRST_NAP_NANOSECONDS
        )
        self._drain = Drain(
            conn.pgconn_ptr, longest_nap=longest_nap, start=start, messages=messages
        )
        self._lock = threading.Lock()
        self._positions = FlushPositions()
        self._reported = Positions(InvalidXLogRecPtr, InvalidXLogRecPtr)
        self._stats = ReceiveStats()
        self._stop_asked = threading.Event()
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        now = time.monotonic()
        self._heard = now
        self._sent = now
        self._pinged = False
        self._kept_alive = False

    # -- the main thread's side ---------------------------------------------------------------

    def idle_position(self) -> LSN | None:
        """The highest received position if no transaction is spooled or pending, else None.

        The lock makes the answer exact: a transaction counts, or is not received yet.
        """
        with self._lock:
            if self._positions.is_pending or not self._spool.is_empty():
                return None
            return self._positions.last_received

    def mark_durable(self, end_lsn: LSN) -> None:
        """Note that the transactions up to ``end_lsn`` are durable; feedback goes out at once."""
        with self._lock:
            self._positions.mark_durable(end_lsn)
        self.wake()

    def flush_position(self) -> LSN:
        """The position that is, or may now be, confirmed to the publisher."""
        with self._lock:
            return self._get_flush_position().flush

    @property
    def limits(self) -> ReceiveLimits:
        """The thread's present limits."""
        return self._limits

    def set_limits(self, limits: ReceiveLimits) -> None:
        """Change the limits from the next look at the clock on; the past silence counts."""
        self._limits = limits
        self.wake()

    def wake(self) -> None:
        """Wake the thread."""
        try:
            os.write(self._wake_w, b"x")
        except (BlockingIOError, OSError):
            return  # a full pipe wakes the thread; a closed pipe means that the thread has ended

    def stop(self) -> None:
        """Send the last feedback and end the thread; the caller owns the connection again."""
        self._stop_asked.set()
        self.wake()
        self.join()
        os.close(self._wake_r)
        os.close(self._wake_w)

    # -- the thread ---------------------------------------------------------------------------

    def run(self) -> None:
        """Drain until ``stop`` or the end of the stream; keep the error for the main thread."""
        try:
            while not self._stop_asked.is_set():
                paused = self._paused()
                self._log_pause(paused)
                if not paused:
                    self._turn()
                else:
                    self._wait_paused()
            self._send_feedback(force=False)
        except BaseException as error:
            self.error = error
            self._conn.stream_lost = error
        self._wake_main()

    def _turn(self) -> None:
        buf, start = self._spool.writable()
        result = self._drain.run(buf, start)
        if result.position > start or result.last_received or result.control is not None:
            with self._lock:
                streamed_end = self._spool.received(result)
                self._positions.received(result.last_received)
                for end_lsn in result.commits[:, 2].tolist():
                    self._positions.store_flush_position(end_lsn)
                if streamed_end is not None:
                    self._positions.store_flush_position(streamed_end)
            if (place := _PLACES.get(type(result.control))) is not None:
                failpoints.reach(place)
            self._heard_something(result, result.position - start)
        if result.status == DrainStatus.REPLY_REQUESTED:
            self._send_feedback(force=True)
        elif result.status == DrainStatus.FULL:
            self._spool.grow(result.need)
        elif result.status in (DrainStatus.END, DrainStatus.ERROR):
            raise self._conn.stream_error()
        else:
            self._maybe_send_feedback()
            if result.status == DrainStatus.IDLE:
                self._wait()

    def _heard_something(self, result: DrainResult, size: int) -> None:
        self._heard = time.monotonic()
        self._pinged = False
        before, last_lsn = self._stats, self._positions.last_received
        sent = result.send_time + PG_EPOCH_US if result.send_time else before.last_send_time
        self._stats = replace(
            before,
            last_lsn=last_lsn,
            last_send_time=sent,
            last_recv_time=time.time_ns() // 1000,
            reply_lsn=last_lsn if result.keepalive_end else before.reply_lsn,
            reply_time=sent if result.keepalive_end else before.reply_time,
            received_bytes=before.received_bytes + size,
        )
        self._kept_alive |= bool(result.keepalive_end)
        is_part = isinstance(result.control, StreamStart | StreamStop)
        if not is_part or len(result.commits) or self._spool.has_grown:
            self._wake_main()

    def _paused(self) -> bool:
        over = self._spool.waiting() > self._limits.spool_max_size
        return over and self._spool.has_complete_transaction()

    def _log_pause(self, paused: bool) -> None:
        """Log the start and the end of a pause in the reading; both go to ``status`` at once.

        A full spool has room for a moment after each batch that the lake takes. These moments
        belong to one pause. The pause is over when half of the spool is free, or when no whole
        transaction is left in the spool.
        """
        since, limit = self._stats.paused_since, self._limits.spool_max_size
        spooled = self._spool.waiting()
        still = 2 * spooled > limit and self._spool.has_complete_transaction()
        if paused and not since:
            self._stats = replace(self._stats, paused_since=time.time_ns() // 1000)
            log.warning(
                "action=spool_full %s reading from the publisher is paused: %s received and not "
                "applied, spool_max_size is %s",
                self._keys,
                pretty_size(spooled),
                format_memory(limit),
                extra={"HINT": SPOOL_FULL},
            )
        elif since and not still:
            self._stats = replace(self._stats, paused_since=0)
            log.info(
                "action=spool_resumed %s reading from the publisher goes on after %d s: %s "
                "received and not applied, spool_max_size is %s",
                self._keys,
                (time.time_ns() // 1000 - since) // 10**6,
                pretty_size(spooled),
                format_memory(limit),
            )
        else:
            return
        self._send_feedback(force=True)

    def _wait_paused(self) -> None:
        """Do not read; send feedback unasked, and let the silence clock stand still."""
        often = min(
            self._limits.wal_receiver_status_interval or PAUSED_FEEDBACK_SECONDS,
            (self._limits.wal_sender_timeout or SENDER_TIMEOUT_SECONDS)
            / SENDER_TIMEOUT_CONFIRMATIONS,
        )
        if time.monotonic() - self._sent >= often:
            self._send_feedback(force=True)
        self._maybe_send_feedback()
        self._select([self._wake_r], often)
        self._heard = time.monotonic()

    def _wait(self) -> None:
        now = time.monotonic()
        waits = [RECEIVE_TURN_SECONDS, self._seconds_to_feedback(now)]
        if timeout := self._limits.wal_receiver_timeout:
            silent = now - self._heard
            if silent >= timeout:
                raise ConnectionFailure(
                    "terminating logical replication worker due to timeout",
                    detail=f"The publisher was silent for {silent:.0f} seconds.",
                    hint="If it is alive but slow, raise wal_receiver_timeout.",
                )
            if silent >= timeout / 2 and not self._pinged:
                self._pinged = True
                self._send_feedback(force=True, reply=True)
            waits.append(max(0.0, timeout / 2 - silent) if not self._pinged else timeout - silent)
        self._select([self._conn.fileno(), self._wake_r], min(waits))

    def _select(self, fds: list[int], seconds: float) -> None:
        ready, _, _ = select.select(fds, [], [], seconds)
        if self._wake_r in ready:
            os.read(self._wake_r, 4096)

    # -- feedback -----------------------------------------------------------------------------

    def _get_flush_position(self) -> Positions:
        return self._positions.get_flush_position(
            open_transaction=self._spool.has_open_transaction()
        )

    def _maybe_send_feedback(self) -> None:
        if self._seconds_to_feedback(time.monotonic()) <= 0:
            self._send_feedback(force=False)

    def _seconds_to_feedback(self, now: float) -> float:
        """A durable transaction is confirmed at once, a synchronous commit may wait for that.

        So is the position of a keepalive: behind a commit of which nothing is published, the
        publisher sends a keepalive, and the commit waits. A position that only pieces of a
        transaction moved is confirmed after a while.
        """
        with self._lock:
            flush, durable = self._get_flush_position().flush, self._positions.durable
        moved = flush != self._reported.flush
        if durable > self._reported.flush or (moved and self._kept_alive):
            return 0.0
        waits = [RECEIVED_FEEDBACK_SECONDS] if moved else []
        if interval := self._limits.wal_receiver_status_interval:
            waits.append(interval)
        return max(0.0, self._sent + min(waits, default=inf) - now)

    def _send_feedback(self, *, force: bool, reply: bool = False) -> None:
        """Send a standby status update; without ``force`` only if a position is known."""
        with self._lock:
            positions = self._get_flush_position()
        if not force and positions.write == InvalidXLogRecPtr:
            self._sent = time.monotonic()  # nothing to tell: the next look is an interval away
            return
        if positions.flush > self._remembered:
            # Stored before the sending: a later worker can then tell a slot that another client
            # moved from a slot at the subscription's position.
            self._remember_flush(positions.flush)
            self._remembered = positions.flush
        now_us = time.time_ns() // 1000
        self._conn.send(
            standby_status_update(
                positions.write, positions.flush, positions.flush, now_us - PG_EPOCH_US, reply
            )
        )
        self._sent = time.monotonic()
        self._reported = positions
        self._kept_alive = False
        self._stats = replace(
            self._stats,
            last_lsn=positions.write,
            flush_lsn=positions.flush,
            spool_bytes=self._spool.waiting(),
        )
        self._report(self._stats)

    def raise_if_failed(self) -> None:
        """Raise the error that ended the thread; for the main thread."""
        if self.error is not None:
            raise self.error
