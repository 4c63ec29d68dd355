"""Judge at every connect whether the subscription's positions fit the server and the slot. Pure.

An LSN is a place in the WAL of one server. On another server, on a restored backup, on a standby
that took over too early, or with a slot that was dropped and created again, changes that the
subscription has not received would be lost, or skipped as known. No message would say so:
START_REPLICATION silently begins at the slot's position. Each of these cases is therefore an error
that names the gap.

Trace: the subscription confirmed 500. The slot is dropped and created again at 900. The
subscription confirmed no position above 500, so the slot has lost the changes from 500 to 900:
error 55000.

Another trace: the subscription received up to 500 on timeline 1. A standby that had replayed up to
450 is promoted. Timeline 2 of the standby began at 450, so new transactions also lie between 450
and 500. The worker would take them for transactions that the lake has, and skip them. If timeline 2
began at 500 or later, every position of the subscription would mean the same on the new server, and
the subscription would go on without help.

The databases of one server share the WAL. In another database every position fits, and a slot of
that database fits, too; but the tables are different, even if the names are equal. The oid
identifies a database, because a database can be renamed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from catalog.errcodes import ObjectNotInPrerequisiteState, ReplicationGap
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.remedies import after_a_gap
from workers.publisher.interfaces import SystemIdentity
from workers.publisher.replication_slots import RemoteSlot
from workers.publisher.timeline import TimeLineHistory, tli_switch_point


@dataclass(frozen=True, slots=True)
class ServerMisfit:
    """The reason why the subscription's positions do not fit a server.

    ``fork`` is the end of the WAL that the server shares with the received changes; None if the end
    is unknown.
    """

    error: ObjectNotInPrerequisiteState
    fork: LSN | None = None


def highest_lsn(sub: Subscription, origin: LSN, rels: Iterable[SubscriptionRel]) -> LSN:
    """The highest position of the subscription, its origin and its synchronised tables.

    A table that is not synchronised has no position: the table is copied from the beginning. Nor
    has a suspended table, which ``accept-gap`` leaves at its former position.
    """
    tables = [rel.lake_lsn for rel in rels if rel.srsubstate in SYNCED and not rel.suspended]
    return LSN(max([origin, sub.max_flush_lsn, *tables]))


def start_position(origin: LSN, rels: Iterable[SubscriptionRel]) -> LSN:
    """The start position for START_REPLICATION: the lowest position that any table may need.

    A start that is too low does no harm: the server begins at the confirmed position at the
    earliest, and each table skips the transactions that the table holds, and those before its copy
    position. A table that is not synchronised takes no change from this stream.
    """
    return LSN(min([origin, *(rel.floor for rel in rels if rel.srsubstate in SYNCED)]))


def judge_server(
    sub: Subscription, highest: LSN, identity: SystemIdentity, history: TimeLineHistory
) -> ServerMisfit | None:
    """Judge whether the server continues the WAL from which ``highest`` was received.

    ``history`` belongs to ``identity.timeline``; the history counts only if the server's timeline
    is above the subscription's. None if the server fits.
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
    """Judge whether the slot can send every change after the confirmed position; None if so.

    START_REPLICATION reports a missing slot.
    """
    if slot is None:
        return None
    name, known = sub.subslotname, sub.max_flush_lsn
    if not slot.is_pgoutput_here:
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
    """Raise 55000 if the server or the slot does not fit the subscription's positions."""
    server = judge_server(sub, highest, identity, history)
    error = server.error if server is not None else judge_slot(sub, slot)
    if error is not None:
        raise error


def _misfit(
    sub: Subscription, primary: str, detail: str, *, fork: LSN | None = None
) -> ServerMisfit:
    error = ReplicationGap(primary, detail=detail, hint=after_a_gap(sub.subname))
    return ServerMisfit(error, fork)
