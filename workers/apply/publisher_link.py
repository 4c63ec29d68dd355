"""A worker's connection to the publisher, the same for the apply worker and the sync worker.

A worker has up to three connections: the walsender that sends the stream; on a standby, one that
watches the timeline; and for a moment, one for questions while the first one streams.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from catalog.pg_subscription import Subscription
from workers.apply.table_checks import TableChecks
from workers.process.worker_process import WorkerProcess
from workers.publisher.connect import connect_publisher
from workers.publisher.connection import WalReceiverConn
from workers.publisher.password_required import check_connected, check_conninfo
from workers.publisher.second_connection import ask_identities, fetch_published
from workers.publisher.standby_watch import StandbyWatch, watch_standby


@contextmanager
def connected_publisher(
    process: WorkerProcess, sub: Subscription, application_name: str
) -> Iterator[tuple[WalReceiverConn, StandbyWatch]]:
    """Connect as the subscription says, and close every connection at the end of the block.

    The watch begins before the caller asks which server this is: a timeline that changes in
    between is seen.
    """
    settings = process.settings
    check_conninfo(sub, settings)
    conn = connect_publisher(sub, application_name, process.interrupted)
    watching: WalReceiverConn | None = None
    try:
        check_connected(conn, sub, settings)
        patience = settings.wal_receiver_timeout
        watch, watching = watch_standby(conn, sub, process.interrupted, patience)
        yield conn, watch
    finally:
        conn.close()
        if watching is not None:
            watching.close()


def table_checks(process: WorkerProcess, sub: Subscription, conn: WalReceiverConn) -> TableChecks:
    """The checks of tables, which ask the publisher while ``conn`` streams."""
    return TableChecks(
        partial(fetch_published, sub, conn, process.interrupted),
        partial(ask_identities, sub, conn, process.interrupted),
    )
