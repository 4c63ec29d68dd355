"""Whether our positions mean anything on the server that answers: asked at every connect. Pure.

An LSN is a place in the WAL of one server. On another one, on a restored backup, on a standby that
took over before it had everything, or with a slot that was dropped and made again, what lies
between our position and the server's would be missing, and nothing would say so: START_REPLICATION
silently begins where the slot is. So each of the following is an error that names the gap.

Trace: confirmed up to 500; the slot is dropped and made again at 900. The highest position this
subscription ever confirmed is 500, the slot stands at 900: somebody else moved it. 55000.

Another: received up to 500 on timeline 1; a standby that had replayed up to 450 is promoted. Its
timeline 2 began at 450, so what it commits next lies between 450 and 500 too, and would be skipped
as something we have. Had it begun at 500 or later, every position of ours would mean the same on
it, and the subscription would go on by itself.

The databases of a server share its WAL. In another one every position fits, and so does a slot that
was made there; only the tables are others, even those of the same names. It is known by its oid:
one that was renamed is what it was.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from catalog.errcodes import ObjectNotInPrerequisiteState, ReplicationGap
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.remedies import after_a_gap
from workers.publisher.interfaces import SystemIdentity
from workers.publisher.replication_slots import RemoteSlot
from workers.publisher.timeline import TimeLineHistory, tli_switch_point

SYNCED: Final = (SubRelState.SYNCDONE, SubRelState.READY)
"""States in which a table's position counts."""


@dataclass(frozen=True, slots=True)
class ServerMisfit:
    """Why our positions mean nothing on a server, and up to where they do all the same.

    ``fork`` is the end of the WAL that the server has in common with what we received, None where
    that cannot be told.
    """

    error: ObjectNotInPrerequisiteState
    fork: LSN | None = None


def highest_lsn(sub: Subscription, origin: LSN, rels: Iterable[SubscriptionRel]) -> LSN:
    """The highest position that anything of the subscription stands at.

    A table that is not synchronised stands nowhere: it is copied from the beginning.
    """
    tables = [rel.lake_lsn for rel in rels if rel.srsubstate in SYNCED]
    return LSN(max([origin, sub.max_flush_lsn, *tables]))


def start_position(origin: LSN, rels: Iterable[SubscriptionRel]) -> LSN:
    """Where to ask the publisher to begin: never ahead of what a table may need.

    An older position than needed is harmless: the server begins at what was confirmed at the
    latest, and what a table holds, or what was before it joined (its floor), it skips by itself. A
    table that is not synchronised takes nothing from this stream before it is.
    """
    return LSN(min([origin, *(rel.floor for rel in rels if rel.srsubstate in SYNCED)]))


def judge_server(
    sub: Subscription, highest: LSN, identity: SystemIdentity, history: TimeLineHistory
) -> ServerMisfit | None:
    """Is this the server, or one that goes on where it was, that ``highest`` was received from?

    ``history`` is that of ``identity.timeline``; it is looked into only if that is above ours.
    """
    if sub.sysid is not None and sub.sysid != identity.systemid:
        return _misfit(
            sub,
            "the publisher is not the server this subscription was made for",
            f"Its system identifier is {identity.systemid}, expected {sub.sysid}; what was "
            f"received up to {highest} has no place in its WAL.",
        )
    if sub.datoid is not None and sub.datoid != identity.datoid:
        return _misfit(
            sub,
            "the connection leads to another database than this subscription was made for",
            f'It is database "{identity.dbname}" (OID {identity.datoid}), expected OID '
            f"{sub.datoid} of the same server; what was received up to {highest} is of other "
            "tables.",
        )
    ours, theirs = sub.timeline, identity.timeline
    if ours is not None and theirs < ours:
        return _misfit(
            sub,
            "the publisher is on an older timeline than this subscription",
            f"It is on timeline {theirs}; {highest} was received on timeline {ours}. It is the "
            "server that another one took over from, or was restored from a backup.",
        )
    if ours is not None and theirs > ours:
        switch = tli_switch_point(ours, history)
        if switch is None:
            return _misfit(
                sub,
                "the publisher's timeline does not go on from the one this subscription received",
                f"Timeline {ours}, on which {highest} was received, is not in the history of its "
                f"timeline {theirs}.",
            )
        if switch < highest:
            return _misfit(
                sub,
                "the publisher is behind what this subscription received from its predecessor",
                f"It left timeline {ours} at {switch}; {highest} was received. A standby that "
                "lagged behind took over, or the server was restored to an earlier time: what was "
                f"committed from {switch} to {highest} is in the lake and not on it.",
                fork=switch,
            )
    if identity.xlogpos < highest:
        return _misfit(
            sub,
            "the publisher is behind what this subscription received from it",
            f"It stands at {identity.xlogpos}; {highest} was received: from {identity.xlogpos} to "
            f"{highest} at least its WAL is missing. It was restored from a backup, or it is a "
            "standby that has not caught up.",
        )
    return None


def judge_slot(sub: Subscription, slot: RemoteSlot | None) -> ObjectNotInPrerequisiteState | None:
    """Can the slot give us everything after what we have?

    A slot that is missing is START_REPLICATION's error.
    """
    if slot is None:
        return None
    name, known = sub.subslotname, sub.max_flush_lsn
    if not slot.ours:
        return ObjectNotInPrerequisiteState(
            f'replication slot "{name}" is not one of pgoutput in the database of the connection',
            detail=f"It is of {slot.plugin or 'no plugin'} in "
            + (f'database "{slot.database}"' if slot.database else "no database")
            + f"; what was committed after {known} cannot be had from it.",
            hint="If nobody needs it, drop it on the publisher with pg_drop_replication_slot(). "
            + after_a_gap(sub.subname),
        )
    if slot.invalidation is not None:
        return ReplicationGap(
            f'replication slot "{name}" was invalidated',
            detail=f"The publisher gives {slot.invalidation} as the reason. What was committed "
            f"after {known} cannot be had any more.",
            hint=after_a_gap(sub.subname),
        )
    confirmed = slot.confirmed_flush_lsn
    if confirmed is not None and known != InvalidXLogRecPtr and confirmed > known:
        return ReplicationGap(
            f'replication slot "{name}" was moved on by somebody else',
            detail=f"It stands at {confirmed}; this subscription confirmed {known}. "
            f"What was committed from {known} to {confirmed} cannot be had any more.",
            hint=after_a_gap(sub.subname),
        )
    return None


def check_publisher(
    sub: Subscription,
    highest: LSN,
    identity: SystemIdentity,
    history: TimeLineHistory,
    slot: RemoteSlot | None,
) -> None:
    """55000 where the server or the slot is not the one that our positions come from."""
    server = judge_server(sub, highest, identity, history)
    error = server.error if server is not None else judge_slot(sub, slot)
    if error is not None:
        raise error


def _misfit(
    sub: Subscription, primary: str, detail: str, *, fork: LSN | None = None
) -> ServerMisfit:
    error = ReplicationGap(primary, detail=detail, hint=after_a_gap(sub.subname))
    return ServerMisfit(error, fork)
