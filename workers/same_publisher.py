"""Whether our positions mean anything on the server that answers: asked at every connect.

An LSN is a place in the WAL of one server. On another one, on a restored backup, or with a slot
that was dropped and made again, what lies between our position and the server's would be missing,
and nothing would say so: START_REPLICATION silently begins where the slot is. So each of the
following is an error that names the gap.

Trace: confirmed up to 500; the slot is dropped and made again at 900. The highest position this
subscription ever confirmed is 500, the slot stands at 900: somebody else moved it. 55000.
"""

from __future__ import annotations

from collections.abc import Iterable

from catalog.errcodes import ObjectNotInPrerequisiteState
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from workers.publication import RemoteSlot
from workers.walreceiver import SystemIdentity

_COPY_AGAIN = (
    'Copy the tables again: pgsub drop the subscription, pgsub sql "DROP TABLE lake.…" for each of '
    "them, and pgsub up FILE; or point the connection at the server the subscription was made for."
)


def check_publisher(
    sub: Subscription,
    origin: LSN,
    rels: Iterable[SubscriptionRel],
    identity: SystemIdentity,
    slot: RemoteSlot | None,
) -> None:
    """55000 where the server or the slot is not the one that ``origin`` and the tables come from.

    A slot that is missing is START_REPLICATION's error.
    """
    if sub.sysid is not None and sub.sysid != identity.systemid:
        raise ObjectNotInPrerequisiteState(
            "the publisher is not the server this subscription was made for",
            detail=f"Its system identifier is {identity.systemid}, expected {sub.sysid}.",
            hint=_COPY_AGAIN,
        )
    highest = max([origin, sub.max_flush_lsn, *(rel.lake_lsn for rel in rels)])
    if identity.xlogpos < highest:
        raise ObjectNotInPrerequisiteState(
            "the publisher is behind what this subscription received from it",
            detail=f"It stands at {identity.xlogpos}; {highest} was received. It was restored from "
            "a backup, or a standby that lagged behind took over.",
            hint=_COPY_AGAIN,
        )
    if slot is None or slot.confirmed_flush_lsn is None:
        return
    known = sub.max_flush_lsn
    if known != InvalidXLogRecPtr and slot.confirmed_flush_lsn > known:
        raise ObjectNotInPrerequisiteState(
            f'replication slot "{sub.subslotname}" was moved on by somebody else',
            detail=f"It stands at {slot.confirmed_flush_lsn}; this subscription confirmed {known}. "
            "What was committed in between cannot be had any more.",
            hint=_COPY_AGAIN,
        )
