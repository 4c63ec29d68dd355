"""A sync worker's slot, though a session that is dead may still hold its name.

A temporary slot lives as long as its session. When a machine or a network dies under a sync
worker, the publisher notices only when a keepalive stays unanswered, and until then the next
attempt meets 42710. The name holds the subscription's own number, so who has it is this table's
sync worker; and the launcher starts one only when the last is dead. So the slot's session, told by
its application name, is ended, and an inactive slot dropped. Any other holder is left alone.

A permanent slot stays behind when its worker dies. Whoever copies the table anew drops it first: it
begins where the copy before began.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

from catalog.errcodes import DUPLICATE_OBJECT, AdminShutdown, ObjectInUse, ReplicationError
from catalog.namespace import quote_literal
from catalog.pg_lsn import LSN
from workers.publisher.connection import WalReceiverConn
from workers.publisher.queries import query
from workers.publisher.replication_slots import fetch_slot, is_in_recovery

log = logging.getLogger(__name__)

_BEGIN: Final = "BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ"


def create_sync_slot(
    conn: WalReceiverConn,
    slot: str,
    timeout: float = 0.0,
    *,
    temporary: bool = True,
    failover: bool = False,
) -> LSN:
    """Begin the transaction of the copy and make the slot in it; the consistent point.

    Raises 55006 if somebody else has the name, 55000 where it takes longer than ``timeout``
    seconds (0 for ever) on a standby. A temporary slot cannot have ``failover``.
    """
    limit = timeout if timeout and is_in_recovery(conn) else None

    def create() -> LSN:
        conn.command(_BEGIN)
        try:
            return conn.create_slot(
                slot, temporary=temporary, snapshot="use", failover=failover, timeout=limit
            )
        except AdminShutdown:
            # Left alone the publisher would go on making it, and nobody would have it.
            with suppress(Exception):  # then the connection is lost, and its statement with it
                conn.pgconn.get_cancel().cancel()
            raise

    try:
        return create()
    except ReplicationError as error:
        if error.code != DUPLICATE_OBJECT:
            raise
    conn.command("ROLLBACK")
    drop_sync_slot(conn, slot)
    log.info("action=free_slot slot=%s its name was held by a dead session", slot)
    return create()


def drop_sync_slot(conn: WalReceiverConn, slot: str) -> None:
    """Drop what an earlier worker left; 55006 if the name is somebody else's. Missing is fine."""
    freed = free_slot_name(conn, slot)
    if freed and fetch_slot(conn, slot) is not None:
        freed = free_slot_name(conn, slot)  # its session has ended; that slot was a permanent one
    if not freed:
        raise ObjectInUse(
            f'replication slot "{slot}" is in use by another session',
            detail="Its session is not one of this table's, or did not end when told to.",
            hint="It is tried again; see pg_replication_slots and pg_stat_activity on the "
            "publisher.",
        )


def free_slot_name(conn: WalReceiverConn, name: str) -> bool:
    """Drop a sync worker's slot that nobody uses, or end the session of ours that does.

    False if it is somebody else's. Takes up to five seconds.
    """
    rows = conn.exec(query("free_slot", slot=quote_literal(name)))
    return not rows or rows[0][0] == "t"
