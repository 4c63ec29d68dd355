"""Questions to the publisher while the first connection streams."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from catalog.errcodes import LOCK_NOT_AVAILABLE, ReplicationError
from catalog.pg_subscription import Subscription
from config.limits import LOCK_WAIT_SECONDS
from workers.publisher.connect import connect_publisher, with_host_of
from workers.publisher.connection import WalReceiverConn
from workers.publisher.publications import fetch_fingerprints
from workers.publisher.replica_identity import Identities, fetch_identities

_LOCK_TIMEOUT: Final = (
    f"SELECT pg_catalog.set_config('lock_timeout', '{LOCK_WAIT_SECONDS}s', false)"
)


def _connect(
    sub: Subscription, streaming: WalReceiverConn, interrupted: Callable[[], bool]
) -> WalReceiverConn:
    here = with_host_of(sub, streaming)
    return connect_publisher(here, sub.subname, interrupted, replication=False)


def fetch_published(
    sub: Subscription, streaming: WalReceiverConn, interrupted: Callable[[], bool]
) -> dict[tuple[str, str], str]:
    """The fingerprint of every published table, asked on a connection of its own: the walsender's
    is streaming. Another host, a standby that lags, would answer with what was so before.

    Nothing, and so no trust in any table, while a table is locked exclusively: who holds the lock
    may be waiting for our confirmation (TRUNCATE under synchronous_standby_names).
    """
    conn = connect_publisher(
        with_host_of(sub, streaming), sub.subname, interrupted, replication=False
    )
    try:
        conn.exec(_LOCK_TIMEOUT)
        return fetch_fingerprints(conn, sub.subpublications)
    except ReplicationError as error:
        if error.code != LOCK_NOT_AVAILABLE:
            raise
        return {}
    finally:
        conn.close()


def ask_identities(
    sub: Subscription,
    streaming: WalReceiverConn,
    interrupted: Callable[[], bool],
    relids: Collection[int],
) -> Identities:
    """The replica identities of these relations, asked in the same way; no lock is in its way."""
    conn = connect_publisher(
        with_host_of(sub, streaming), sub.subname, interrupted, replication=False
    )
    try:
        return fetch_identities(conn, sub.subpublications, relids)
    finally:
        conn.close()
