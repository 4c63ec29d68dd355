"""Meeting the publisher: who is it, does it go on where we were, and if so: remember it.

Who streams (the apply worker) decides which server and timeline the subscription's positions
belong to, and stores that *before* START_REPLICATION, so before it answers any sync worker. Who
copies (a sync worker) has a connection of its own, which after a failover may reach the old server
while the apply worker streams from the new one, or the other way round. Its copy would end at a
position of one server and be continued from another. So it compares its connection with what is
stored when it starts and before each step that counts:

* it takes an answer ``c`` only after reading the catalog, and who answered had stored its own
  server and timeline before: an answer of another world is seen as one;
* it stores ``s`` in the transaction that compares once more. The apply worker compares its highest
  position, ``s`` among them, with the switch point in the transaction that stores the new
  timeline. One of the two transactions comes first: either the new timeline is seen, and the copy
  starts again, or the ``s`` is seen, and the switch has to lie at or after it.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from catalog.errcodes import UNDEFINED_FILE, ReplicationError, error_context
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.process.worker_exit import WorkerExit
from workers.publisher.interfaces import IdentityConn, SystemIdentity
from workers.publisher.replication_slots import fetch_slot
from workers.publisher.same_server import check_publisher, highest_lsn, judge_server
from workers.publisher.timeline import TimeLineHistory, parse_timeline_history

log = logging.getLogger(__name__)


def identify_publisher(
    conn: IdentityConn, store: CatalogStore, sub: Subscription, origin: LSN
) -> tuple[Subscription, LSN]:
    """Check that our positions mean something on this server and its slot, and remember both.

    The row with them, and where the server stands; 55000 with the gap and the remedies if they
    do not.
    """
    # Before the server is asked: a sync worker that goes on meanwhile may store a position that
    # the server had not reached when it answered.
    received = highest_lsn(sub, origin, store.rels(sub.oid))
    identity = conn.identify_system()
    history = fetch_history(conn, sub, identity)
    slot = fetch_slot(conn, sub.subslotname) if sub.subslotname is not None else None
    check_publisher(sub, received, identity, history, slot)
    known = identity.stored()
    if sub.max_flush_lsn == InvalidXLogRecPtr and slot is not None:
        # At first it is what the slot says; from here on nobody else may move it.
        known["max_flush_lsn"] = slot.confirmed_flush_lsn or InvalidXLogRecPtr
    if all(getattr(sub, name) == value for name, value in known.items()):
        return sub, identity.xlogpos
    with store.transaction():
        if sub.timeline is not None and identity.timeline != sub.timeline:
            highest = highest_lsn(sub, origin, store.rels(sub.oid))
            misfit = judge_server(sub, highest, identity, history)
            if misfit is not None:
                raise misfit.error
            log.info(
                "action=timeline subid=%d the publisher went over from timeline %d to %d; %s was "
                "received before",
                sub.oid,
                sub.timeline,
                identity.timeline,
                highest,
            )
        store.update_subscription(sub.oid, **known)
    # What else was changed meanwhile the worker has not followed: it is to find it changed.
    return replace(sub, **known), identity.xlogpos


def fetch_history(
    conn: IdentityConn, sub: Subscription, identity: SystemIdentity
) -> TimeLineHistory:
    """The history of the server's timeline, if it may be one that came after ours.

    Empty, and so no continuation of anything, where the server has lost the file.
    """
    same_system = sub.sysid in (None, identity.systemid)
    if sub.timeline is None or identity.timeline <= sub.timeline or not same_system:
        return ()
    try:
        content = conn.timeline_history(identity.timeline)
    except ReplicationError as error:
        if error.code != UNDEFINED_FILE:
            raise
        return ()
    with error_context("reading the timeline history of the publisher"):
        return parse_timeline_history(identity.timeline, content)


def check_same_publisher(made_on: Subscription, now: Subscription | None) -> None:
    """``WorkerExit`` if the subscription's positions belong to another server than the copy's."""
    if now is None:
        raise WorkerExit(f'subscription "{made_on.subname}" was removed')
    if not made_on.same_world(now):
        raise WorkerExit(
            f"the copy was made on {_place(made_on)}, the subscription goes on from {_place(now)}; "
            "the copy starts again"
        )


def check_own_server(conn: IdentityConn, sub: Subscription) -> None:
    """``WorkerExit`` if this connection reached another publisher than the apply worker's."""
    reached = replace(sub, **conn.identify_system().stored())
    if not sub.same_world(reached):
        raise WorkerExit(
            f"its connection reached {_place(reached)}, the apply worker streams from "
            f"{_place(sub)}; it is tried again"
        )


def _place(sub: Subscription) -> str:
    return f"timeline {sub.timeline} of system {sub.sysid}, database {sub.datoid}"
