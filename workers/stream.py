"""One replication stream: the connection, its spool and its receive thread, started and ended.

Both kinds of worker run one; they differ in slot, start position and what they do with a batch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from catalog.namespace import quote_identifier
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from config.guc import Settings, parse_duration
from workers.receive import ReceiveLimits, Receiver, ReceiveStats
from workers.spool import Spool
from workers.walreceiver import WalReceiverConn, connect

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Stream:
    """A running stream; ``receiver`` owns ``conn`` until ``end``."""

    conn: WalReceiverConn
    spool: Spool
    receiver: Receiver

    def end(self) -> None:
        """Last feedback out, thread ended, what was spooled and not taken thrown away."""
        self.receiver.stop()
        self.spool.close()


def connect_publisher(
    sub: Subscription, appname: str, interrupted: Callable[[], bool]
) -> WalReceiverConn:
    """A walsender connection of this subscription."""
    return connect(
        sub.subconninfo,
        appname,
        passfile=sub.passfile,
        password_env=sub.password_env,
        interrupted=interrupted,
    )


def start_options(sub: Subscription, server_version: int) -> dict[str, str]:
    """START_REPLICATION's options, in the order of PostgreSQL's own subscriber.

    ``streaming`` is left out whatever the subscription says: it runs as off.
    """
    if server_version >= 16:
        proto = "4"
    elif server_version == 15:
        proto = "3"
    else:
        proto = "2" if server_version == 14 else "1"
    options = {"proto_version": proto}
    if server_version >= 16 and sub.suborigin != "any":
        options["origin"] = sub.suborigin
    options["publication_names"] = ",".join(quote_identifier(name) for name in sub.subpublications)
    return options


def start_stream(
    conn: WalReceiverConn,
    sub: Subscription,
    slot: str,
    start: LSN,
    settings: Settings,
    spool_dir: Path,
    *,
    wake_main: Callable[[], None],
    report: Callable[[ReceiveStats], None],
    remember_flush: Callable[[LSN], None],
) -> Stream:
    """START_REPLICATION and the receive thread."""
    wal_sender_timeout = parse_duration(conn.exec("SHOW wal_sender_timeout")[0][0] or "60s")
    conn.start_streaming(slot, start, start_options(sub, conn.server_version))
    spool = Spool(
        spool_dir, memory_limit=settings.spool_memory, segment_bytes=settings.batch_max_bytes
    )
    limits = ReceiveLimits(
        wal_receiver_timeout=settings.wal_receiver_timeout,
        wal_receiver_status_interval=settings.wal_receiver_status_interval,
        wal_sender_timeout=wal_sender_timeout,
        spool_max_size=settings.spool_max_size,
    )
    receiver = Receiver(
        conn, spool, limits, wake_main=wake_main, report=report, remember_flush=remember_flush
    )
    receiver.start()
    log.info("action=start_replication subid=%d slot=%s lsn=%s", sub.oid, slot, start)
    return Stream(conn, spool, receiver)
