"""Identify the publisher: check that the subscription's positions fit, and store the identity.

The apply worker, which streams, decides to which server and timeline the subscription's positions
belong. The apply worker stores this identity *before* START_REPLICATION, and therefore before any
answer to a sync worker. A sync worker, which copies, has a separate connection. After a failover
the sync worker may reach the old server while the apply worker streams from the new one, or the
reverse. The copy would then end at a position of one server and be continued from another server.
The sync worker therefore compares its connection with the stored identity, at its start and before
each decisive step:

* The sync worker accepts the answer ``c`` only after reading the catalog. The apply worker stored
  its server and timeline before answering: the sync worker notices an answer from another server.
* The sync worker stores ``s`` in the transaction that compares once more. The apply worker compares
  the highest position, with every ``s``, with the switch point in the transaction that stores the
  new timeline. One of the two transactions is first. Either the sync worker sees the new timeline,
  and the copy starts again; or the apply worker sees the ``s``, and the switch has to lie at or
  after the ``s``.
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
    """Check that the subscription's positions fit this server and slot, and store the identity.

    Returns the subscription with the identity, and the server's WAL position. Raises 55000 with
    the gap and the remedies if the positions do not fit.
    """
    # Read before IDENTIFY_SYSTEM: a sync worker may meanwhile store a position that the server
    # had not reached at the time of the answer.
    received = highest_lsn(sub, origin, store.rels(sub.oid))
    identity = conn.identify_system()
    history = fetch_history(conn, sub, identity)
    slot = fetch_slot(conn, sub.subslotname) if sub.subslotname is not None else None
    check_publisher(sub, received, identity, history, slot)
    known = identity.stored()
    if sub.max_flush_lsn == InvalidXLogRecPtr and slot is not None:
        # The first position is the slot's; from here on no other subscriber may move the slot.
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
    # Other columns stay as the worker read them: the worker has to notice later that they changed.
    return replace(sub, **known), identity.xlogpos


def fetch_history(
    conn: IdentityConn, sub: Subscription, identity: SystemIdentity
) -> TimeLineHistory:
    """Ask for the history of the server's timeline if the timeline is newer than the stored one.

    Empty if the server has lost the file: an empty history continues no timeline.
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
    """Raise ``WorkerExit`` if the subscription goes on from another server than the copy's."""
    if now is None:
        raise WorkerExit(f'subscription "{made_on.subname}" was removed')
    if not made_on.has_same_publisher(now):
        raise WorkerExit(
            f"the copy was made on {_place(made_on)}, the subscription goes on from {_place(now)}; "
            "the copy starts again"
        )


def check_own_server(conn: IdentityConn, sub: Subscription) -> None:
    """Raise ``WorkerExit`` if ``conn`` reached another publisher than the apply worker did."""
    reached = replace(sub, **conn.identify_system().stored())
    if not sub.has_same_publisher(reached):
        raise WorkerExit(
            f"its connection reached {_place(reached)}, the apply worker streams from "
            f"{_place(sub)}; it is tried again"
        )


def _place(sub: Subscription) -> str:
    return f"timeline {sub.timeline} of system {sub.sysid}, database {sub.datoid}"
