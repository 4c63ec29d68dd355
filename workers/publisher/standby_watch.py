"""A publisher that is a standby, and whose timeline changes while it streams to us.

It is promoted, or follows another primary, and stays a standby then. A walsender's logical stream
goes on through either: what comes after it is WAL of the new timeline, and nothing in the stream
says so. Taken as the old timeline's, our positions would lie behind the place where the new one
left it, and the next connect would find a gap where there is none; and sync workers, whose
connections see the new timeline, would wait for an apply worker that knows the old one.

So as long as the publisher is a standby it is asked, on a connection of its own, for its timeline:
after something was received and before anything is made of it. A standby decodes what it has
replayed, so what was received before it named the old timeline is the old timeline's. When it names
another the worker ends, and its successor finds all positions at or before the switch.
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
    """Asks the publisher; nothing at all where ``conn`` is None: it is no standby.

    Both threads of a worker call ``check``.
    """

    def __init__(self, conn: IdentityConn | None) -> None:
        self._conn = conn
        self._lock = threading.Lock()
        self._timeline = None if conn is None else conn.identify_system().timeline

    def check(self) -> None:
        """``WorkerExit`` if the standby was promoted or follows another primary since."""
        if self._conn is None:
            return
        with self._lock:
            now = self._conn.identify_system().timeline
        if now != self._timeline:
            raise WorkerExit("the publisher is a standby, or was, and its timeline has changed")


def watch_standby(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool], patience: float
) -> tuple[StandbyWatch, WalReceiverConn | None]:
    """The watch over the server that ``conn`` reached, and its connection, if it is a standby.

    To be called before the server is asked for its timeline: one that changes in between is not the
    watch's any more when it is asked again. 08006 where an answer takes longer than ``patience``
    seconds (0: for ever); a host that vanished would be waited for as long as TCP does.
    """
    if not is_in_recovery(conn):
        return StandbyWatch(None), None
    own = connect_publisher(with_host_of(sub, conn), sub.subname, interrupted)
    own.patience = patience or None
    return StandbyWatch(own), own
