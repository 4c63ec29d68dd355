"""Notice when a standby that is the publisher changes its timeline in the middle of the stream.

A standby may be promoted, or may follow another primary and stay a standby. The walsender's logical
stream goes on in both cases: WAL of the new timeline follows, and no message of the stream mentions
the change. A worker that did not notice would store positions of the new timeline as positions of
the old one. These lie beyond the switch point, so the next connect would report a gap where no gap
is. Sync workers, whose connections see the new timeline, would wait for an apply worker that knows
the old one.

While the publisher is a standby, the worker therefore asks for the timeline on a second connection:
after data was received, and before the data is used. A standby decodes only WAL that it has
replayed. If the standby names the old timeline, all data received before is of the old timeline. If
the standby names a new timeline, the worker ends. The successor finds all positions at or before
the switch point.

Trace: the stream is on timeline 1. A batch up to 500 is received, the standby answers "timeline 1":
the batch is applied. The standby is promoted at 520. A batch up to 560 is received, the standby
answers "timeline 2": the worker ends, and no position above 500 was stored. The successor asks for
the history of timeline 2, finds the switch at 520, and goes on from 500.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from catalog.pg_subscription import Subscription
from workers.process.worker_exit import WorkerExit
from workers.publisher.connect import connect_publisher, with_host_of
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import IdentityConn
from workers.publisher.replication_slots import is_in_recovery


class StandbyWatch:
    """Compares the publisher's timeline with the timeline at the start.

    ``conn`` is None if the publisher is no standby: then ``check`` does nothing. Both threads of a
    worker call ``check``.
    """

    def __init__(self, conn: IdentityConn | None) -> None:
        self._conn = conn
        self._lock = threading.Lock()
        self._timeline = None if conn is None else conn.identify_system().timeline

    def check(self) -> None:
        """Raise ``WorkerExit`` if the standby was promoted, or now follows another primary."""
        if self._conn is None:
            return
        with self._lock:
            now = self._conn.identify_system().timeline
        if now != self._timeline:
            raise WorkerExit("the publisher is a standby, or was, and its timeline has changed")


def watch_standby(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool], patience: float
) -> tuple[StandbyWatch, WalReceiverConn | None]:
    """Make the watch over the server of ``conn``, and the watch's connection if there is one.

    Call this before IDENTIFY_SYSTEM on ``conn``: a timeline that changes between the two calls
    differs from the watch's timeline at the next ``check``. The watch raises 08006 if an answer
    takes longer than ``patience`` seconds (0: no limit); without a limit, a vanished host would
    block the worker for as long as TCP waits.
    """
    if not is_in_recovery(conn):
        return StandbyWatch(None), None
    own = connect_publisher(with_host_of(sub, conn), sub.subname, interrupted)
    own.patience = patience or None
    return StandbyWatch(own), own
