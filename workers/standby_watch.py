"""A publisher that is a standby, and promoted while it streams to us.

A walsender's logical stream goes on through a promotion: what comes after it is WAL of the new
timeline, and nothing in the stream says so. Taken as the old timeline's, our positions would lie
behind the place where the new one left it, and the next connect would find a gap where there is
none; and sync workers, whose connections see the new timeline, would wait for an apply worker that
knows the old one.

So as long as the publisher is a standby it is asked, on a connection of its own, whether it still
is one: after something was received and before anything is made of it. A standby commits nothing,
so what was received before it said yes is the old timeline's. When it says no the worker ends, and
its successor finds all positions at or before the switch.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from catalog.pg_subscription import Subscription
from workers.exits import WorkerExit
from workers.publication import PublisherConn
from workers.remote_slots import is_in_recovery
from workers.stream import connect_publisher
from workers.walreceiver import WalReceiverConn, join_conninfo, parse_conninfo


class StandbyWatch:
    """Asks the publisher; nothing at all where ``conn`` is None: it is no standby.

    Both threads of a worker call ``check``.
    """

    def __init__(self, conn: PublisherConn | None) -> None:
        self._conn = conn
        self._lock = threading.Lock()

    def check(self) -> None:
        """``WorkerExit`` if the standby was promoted since."""
        if self._conn is None:
            return
        with self._lock:
            if is_in_recovery(self._conn):
                return
        raise WorkerExit("the publisher was a standby and was promoted")


def watch_standby(
    conn: WalReceiverConn, sub: Subscription, interrupted: Callable[[], bool]
) -> tuple[StandbyWatch, WalReceiverConn | None]:
    """The watch over the server that ``conn`` reached, and its connection, if it is a standby.

    To be called before the server is asked for its timeline: promoted in between, it is no standby
    any more when it is asked again.
    """
    if not is_in_recovery(conn):
        return StandbyWatch(None), None
    there = {**parse_conninfo(sub.subconninfo), **conn.host()}
    there.pop("target_session_attrs", None)
    pinned = replace(sub, subconninfo=join_conninfo(there))
    own = connect_publisher(pinned, sub.subname, interrupted, replication=False)
    return StandbyWatch(own), own
