"""Create and drop a sync worker's slot, even if a dead session still holds the slot's name.

A temporary slot lives as long as its session. After a machine or a network died under a sync
worker, the publisher notices only by unanswered keepalives, and until then the next attempt gets
42710. The slot's name contains the subscription's number, so the holder is a sync worker of this
table; and the launcher starts a sync worker only after the last is dead. The new worker therefore
ends the holder's session, which has the slot's name as application name, and drops an inactive
slot. The worker leaves any other holder alone.

A permanent slot stays behind when its worker dies. The worker that copies the table again drops the
slot first: the slot begins at the previous copy's position.

Trace: the machine of a sync worker loses power. Its successor on another machine::

    CREATE_REPLICATION_SLOT pg_16406_sync_16399_7 TEMPORARY   42710: the name exists
    free_slot: held by PID 77, application_name pg_16406_sync_16399_7, same role
                                                              PID 77 is terminated
    CREATE_REPLICATION_SLOT pg_16406_sync_16399_7 TEMPORARY   0/19BDA20
"""

from __future__ import annotations

import logging
from typing import Final

from catalog.errcodes import DUPLICATE_OBJECT, ObjectInUse, ReplicationError
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
    """Begin the copy's transaction, create the slot in it, and return the consistent point.

    Raises 55006 if another session has the name, and 55000 if the creation takes longer than
    ``timeout`` seconds (0: no limit) on a standby. A temporary slot cannot have ``failover``.
    """
    limit = timeout if timeout and is_in_recovery(conn) else None

    def create() -> LSN:
        conn.command(_BEGIN)
        return conn.create_slot(
            slot, temporary=temporary, snapshot="use", failover=failover, timeout=limit
        )

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
    """Drop the slot of an earlier worker, if there is one; 55006 if another session holds it."""
    freed = free_slot_name(conn, slot)
    if freed and fetch_slot(conn, slot) is not None:
        freed = free_slot_name(conn, slot)  # the session has ended; the slot is a permanent slot
    if not freed:
        raise ObjectInUse(
            f'replication slot "{slot}" is in use by another session',
            detail="Its session is not one of this table's, or did not end when told to.",
            hint="It is tried again; see pg_replication_slots and pg_stat_activity on the "
            "publisher.",
        )


def free_slot_name(conn: WalReceiverConn, name: str) -> bool:
    """Drop an inactive slot of a sync worker, or end the sync worker's session that holds the slot.

    False if another session holds the slot. Takes up to five seconds.
    """
    rows = conn.exec(query("free_slot", slot=quote_literal(name)))
    return not rows or rows[0][0] == "t"
