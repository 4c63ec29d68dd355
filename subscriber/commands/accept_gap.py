"""``pgsub accept-gap``: go on although positions do not fit, without the changes in between.

The workers stop with 55000 if publisher, slot or a lake table differ from the subscription's record
(rule 8 of docs/reliability.md). A user who cannot or will not copy the tables again accepts the gap
with the command. No worker runs meanwhile. The workers' checks find the misfits, and everything
that fits stays unchanged:

===================================  ===============================================================
misfit                               how the subscription goes on
===================================  ===============================================================
the slot has moved on                at the slot's position; tables keep position and copy id
the slot is gone or invalidated      a new slot is created, then as above
a lake table's position              a new copy id, at the highest position the subscription knows
another server, database, or behind  every table: a new copy id, at the beginning of the stream
===================================  ===============================================================

A server may have left our timeline at a known *fork*. Up to the fork the WAL is the same: a table
goes on at its position or at the fork, whichever comes first. The slot sends changes up to the fork
again, and the table skips the changes that the lake has. Sometimes the fork is unknown but the
system identifier is unchanged (a backup restored in place, the old primary). The slot may then
stand before the fork and would send changes again that the lake has: a new slot is created, and no
change comes twice.

The order of the steps, so that a command that dies leaves an error, never silence::

    the slot             dies after: slot beyond the confirmed position, 55000
    the catalog          one transaction: server, positions, new copy ids. Dies after: the tables
                         in the lake have other copy ids, 55000 at the first change
    the lake's tables    a snapshot each with the position; unreached tables stay 55000

The next run finds the remaining misfits and goes on from there. A table is fenced before its
position is read, and the new position is published by a fast-forward like any batch. No commit in
flight, of a dead worker or of a command that died, can land afterwards.
"""

from __future__ import annotations

import secrets
import shlex
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import TypeVar

from catalog.errcodes import (
    FeatureNotSupported,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SYNCED, Setter, SubRelState, SubscriptionRel
from config.limits import ACCEPT_GAP_AT_ONCE_TABLES
from subscriber.commands.context import CommandContext
from subscriber.commands.leaked_slots import leave_server, warn_of_slots_left
from subscriber.commands.main_slot import create_main_slot
from subscriber.commands.subscription_row import must_have
from subscriber.messages import notice, warning
from workers.lake.destination import Destination
from workers.lake.sources import source_of
from workers.lake.table import LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.publisher.identify import fetch_history
from workers.publisher.interfaces import ReplicationConn, SystemIdentity
from workers.publisher.replication_slots import RemoteSlot, fetch_slot
from workers.publisher.same_server import ServerMisfit, highest_lsn, judge_server, judge_slot
from workers.stream.prepared_xacts import PreparedXacts
from workers.tables.position import check_position, recopy_command

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class State:
    """The present state, and the misfits; read without changes."""

    sub: Subscription
    known_lsn: LSN  # the subscription's highest known position
    identity: SystemIdentity
    server: ServerMisfit | None
    slot: RemoteSlot | None
    slot_error: ReplicationError | None
    rels: tuple[SubscriptionRel, ...]  # synchronised, in the lake
    missing: tuple[SubscriptionRel, ...]  # synchronised, not in the lake
    table_errors: dict[int, ReplicationError]

    @property
    def has_no_gap(self) -> bool:
        """Does everything fit the subscription's record?"""
        sound = self.slot is not None and self.slot_error is None
        return self.server is None and sound and not self.table_errors

    @property
    def needs_new_slot(self) -> bool:
        """Would the existing slot send nothing, or changes that the lake has?"""
        if self.slot is None or self.slot.invalidation is not None:
            return True
        # The slot may send changes from before the fork again, and the lake could not tell those
        # apart. A slot of another server or database has sent nothing yet.
        same_system = self.sub.sysid == self.identity.systemid
        same = same_system and self.sub.datoid in (None, self.identity.datoid)
        return self.server is not None and self.server.fork is None and same


@dataclass(frozen=True, slots=True)
class Anchor:
    """A table goes on at ``lsn``; the lake has changes up to ``lake_lsn`` (None: unknown)."""

    rel: SubscriptionRel
    lake_lsn: LSN | None
    lsn: LSN

    @property
    def name(self) -> str:
        """The publisher's table as ``schema.table``."""
        return qualified_name(self.rel.nspname, self.rel.relname)


def accept_gap(name: str, context: CommandContext) -> None:
    """Move a subscription to the present positions of publisher, slot and lake tables.

    Every gap is a WARNING. 55000 without a gap.
    """
    sub = must_have(name, context)
    if sub.subcreate is not SubCreate.READY or sub.subslotname is None:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" has no replication slot to go on from',
            hint=f"See pgsub status, or drop it with pgsub drop {shlex.quote(name)}.",
        )
    with context.workers_stopped(sub.oid), closing(context.connect(sub)) as conn:
        found = _inspect(must_have(name, context), conn, context)
        if found.has_no_gap:
            raise ObjectNotInPrerequisiteState(
                "there is no gap to accept",
                detail=f'Publisher, slot and lake tables of subscription "{name}" are as they '
                "were left.",
            )
        begin = _choose_slot(found, conn, context)
        failpoints.reach("accept_gap.slot_settled")
        anchors = _anchors(found, begin, context)
        if found.server is not None:
            # Prepared on a server that is lost; numbers and names may come again.
            fork = found.server.fork or InvalidXLogRecPtr
            lake_lsn = LSN(max((each.lake_lsn or 0 for each in anchors), default=0))
            xacts = PreparedXacts(context.data_dir, sub.subuuid, sub.oid)
            xacts.forget_behind(fork, lake_lsn)
        _notify_gaps(found, begin, anchors, context)
        stamped = _store(found, begin, anchors, context)
        failpoints.reach("accept_gap.stored")
        _in_parallel(lambda rel: _stamp(rel, context.lake()), stamped)
        if stamped:
            context.lake().make_durable([_ident(rel) for rel in stamped])
        context.notify(notice(f'subscription "{name}" goes on at {begin}'))


def anchor(
    rel: SubscriptionRel,
    stamp: Stamp | None,
    server: ServerMisfit | None,
    begin: LSN,
    known_lsn: LSN,
) -> Anchor:
    """The position at which a table goes on. Pure; the module has the reasons.

    ``begin`` is the beginning of the stream, ``known_lsn`` the subscription's highest known
    position.
    """
    synced_at = rel.srsublsn if rel.srsubstate is SubRelState.SYNCDONE else None
    known = LSN(max(rel.lake_lsn, rel.floor, synced_at or InvalidXLogRecPtr, known_lsn))
    lake_lsn = stamp.lsn if stamp is not None and stamp.epoch == rel.epoch else None
    if server is None:
        # The lake's position counts too: a dead worker's commit may have landed before the fence.
        lsn = LSN(max(known, begin, lake_lsn or InvalidXLogRecPtr))
    elif server.fork is None:
        lsn = begin
    else:
        lsn = LSN(max(begin, min(known if lake_lsn is None else lake_lsn, server.fork)))
    return Anchor(rel, lake_lsn, lsn)


# Reading the state


def _inspect(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> State:
    at = context.store.origin_lsn(origin_name(sub.oid))
    rels = context.store.rels(sub.oid)
    identity = conn.identify_system()
    server = judge_server(
        sub, highest_lsn(sub, at, rels), identity, fetch_history(conn, sub, identity)
    )
    slot = fetch_slot(conn, sub.subslotname or "")
    slot_error = judge_slot(sub, slot)
    if slot is not None and not slot.is_pgoutput_here and slot_error is not None:
        raise slot_error  # another subscriber's slot: not to be dropped, and of no use
    present, missing, errors = _inspect_tables(
        sub, [rel for rel in rels if rel.srsubstate in SYNCED and not rel.suspended], context
    )
    return State(
        sub=sub,
        known_lsn=LSN(max(at, sub.max_flush_lsn)),
        identity=identity,
        server=server,
        slot=slot,
        slot_error=slot_error,
        rels=tuple(present),
        missing=tuple(missing),
        table_errors=errors,
    )


def _inspect_tables(
    sub: Subscription, rels: Sequence[SubscriptionRel], context: CommandContext
) -> tuple[list[SubscriptionRel], list[SubscriptionRel], dict[int, ReplicationError]]:
    """The existing tables, the missing tables, and the errors about positions by table."""
    present: list[SubscriptionRel] = []
    missing: list[SubscriptionRel] = []
    errors: dict[int, ReplicationError] = {}
    lakes = context.lake_tables([_ident(rel) for rel in rels])
    for rel, lake in zip(rels, lakes, strict=True):
        if lake is None:
            context.notify(
                warning(
                    f'lake table "{_ident(rel)}" does not exist',
                    detail="The subscription stops at its next change.",
                    hint="Take the table out of its publication, or copy it again.",
                )
            )
            missing.append(rel)
            continue
        _check_owner(sub, rel, lake)
        present.append(rel)
        try:
            check_position(rel, lake, sub.subname)
        except ObjectNotInPrerequisiteState as error:
            errors[rel.srrelid] = error
    return present, missing, errors


def _check_owner(sub: Subscription, rel: SubscriptionRel, lake: LakeTable) -> None:
    if source_of(sub, rel):
        name = qualified_name(rel.nspname, rel.relname)
        raise FeatureNotSupported(
            f'table "{name}" shares its lake table, where no gap can be accepted',
            hint=f"Copy it again with {recopy_command(sub.subname, rel)}.",
        )
    if lake.owner != sub.subuuid:
        raise ObjectInUse(
            f'lake table "{lake.ident}" does not belong to subscription "{sub.subname}"',
            detail="It was made anew by somebody else; no gap could be told of it.",
            hint="Drop it with pgsub sql and copy the table again.",
        )


# Changing


def _choose_slot(found: State, conn: ReplicationConn, context: CommandContext) -> LSN:
    """The beginning of the stream: the position of the slot, or of a newly created slot."""
    sub, name = found.sub, found.sub.subslotname or ""
    if not found.needs_new_slot:
        at = found.slot.confirmed_flush_lsn if found.slot else None
        return at or InvalidXLogRecPtr
    if found.slot is not None:
        conn.drop_slot(name, wait=False, missing_ok=True)
    PreparedXacts(context.data_dir, sub.subuuid, sub.oid).forget()
    failpoints.reach("accept_gap.slot_dropped")
    return create_main_slot(name, sub, conn, context)


def _anchors(found: State, begin: LSN, context: CommandContext) -> list[Anchor]:
    """The tables with a new position; every table is fenced before its position is read."""
    concerned = [
        rel for rel in found.rels if found.server is not None or rel.srrelid in found.table_errors
    ]

    def fenced(rel: SubscriptionRel) -> Anchor:
        lake = context.lake().fence(_ident(rel))
        return anchor(rel, lake.stamp, found.server, begin, found.known_lsn)

    anchors = _in_parallel(fenced, concerned)
    if concerned:
        context.lake().make_durable([_ident(rel) for rel in concerned])
    if found.server is not None:  # old positions are invalid for missing tables too
        anchors += [
            anchor(rel, None, found.server, begin, found.known_lsn) for rel in found.missing
        ]
    return anchors


def _store(
    found: State, begin: LSN, anchors: Sequence[Anchor], context: CommandContext
) -> list[SubscriptionRel]:
    """Change the catalog in a single transaction; the rows of tables to publish."""
    sub, store = found.sub, context.store
    server, identity = found.server, found.identity
    moved = server is not None or found.slot_error is not None or found.slot is None
    # Else the stored position counts: after an earlier run that died, a launcher may have started,
    # and its workers may have confirmed more.
    flush = {"max_flush_lsn": begin} if moved else {}
    with store.transaction():
        now = store.update_subscription(sub.oid, **identity.stored(), **flush)
        left = leave_server(sub, now, context)
        if server is not None:
            where = f"gap accepted by {sub.subname}"
            store.origin_advance(origin_name(sub.oid), begin, where, go_backward=True)
            store.forget_sync_progress(sub.oid)  # a restored backup keeps the system identifier
        stored = []
        for each in anchors:
            subid, relid = each.rel.srsubid, each.rel.srrelid
            if server is not None and each.rel.srsubstate is SubRelState.SYNCDONE:
                # Its s_lsn is the old server's. From here on the table skips by its own position:
                # the meaning of state r. No worker runs that could have read state s.
                store.set_rel_state(subid, relid, SubRelState.READY, begin, Setter.APPLY)
            stored.append(
                store.update_rel(
                    subid,
                    relid,
                    epoch=str(uuid.uuid4()),
                    lake_lsn=each.lsn,
                    floor=each.lsn,
                    copied=False,  # an inserted row may exist already, or a DELETE was lost
                )
            )
        if moved:
            # A DELETE may be lost, and the row's key may be inserted again.
            for rel in (*found.rels, *found.missing):
                store.update_rel(sub.oid, rel.srrelid, copied=False)
        store.clear_in_flight(sub.oid, [each.rel.srrelid for each in anchors])
        store.forget_last_error(sub.oid, 0)
    warn_of_slots_left(left, sub, now, context)
    missing = {rel.srrelid for rel in found.missing}
    return [rel for rel in stored if rel.srrelid not in missing]


def _stamp(rel: SubscriptionRel, lake: Destination) -> None:
    """Publish an empty snapshot with the row's copy id and position, like a batch."""
    ident = _ident(rel)
    branch = f"pgsub_{rel.srsubid}_gap_{secrets.token_hex(8)}"
    stamp = Stamp(origin_name(rel.srsubid), rel.lake_lsn, rel.epoch or "", rel.floor)
    lake.drop_branches(ident)
    lake.create_branch(ident, branch)
    lake.write(ident, branch, [], stamp)
    lake.publish(ident, branch, stamp)
    failpoints.reach("accept_gap.one_table_stamped")


# Warnings


def _notify_gaps(
    found: State, begin: LSN, anchors: Sequence[Anchor], context: CommandContext
) -> None:
    """Warn of the changes given up: positions and tables."""
    sub, server = found.sub, found.server
    if server is not None:
        context.notify(
            warning(
                server.error.primary,
                detail=f"{server.error.detail} {_missing_changes(server, begin)}",
            )
        )
    elif begin > sub.max_flush_lsn:
        tables = ", ".join(f'"{qualified_name(rel.nspname, rel.relname)}"' for rel in found.rels)
        context.notify(
            warning(
                f"changes from {sub.max_flush_lsn} to {begin} are not received",
                detail=f'What replication slot "{sub.subslotname}" could have sent of them is '
                f"gone. They may concern: {tables or 'no table yet'}.",
            )
        )
    for each in anchors:
        error = found.table_errors.get(each.rel.srrelid)
        if error is None:
            context.notify(notice(f'table "{each.name}" goes on at {each.lsn}'))
            continue
        gap = f"from {each.lake_lsn}" if each.lake_lsn is not None else "of an unknown past"
        context.notify(
            warning(
                f'table "{each.name}": changes {gap} to {each.lsn} are not in the lake',
                detail=f"{error.primary}. {error.detail}",
            )
        )


def _missing_changes(server: ServerMisfit, begin: LSN) -> str:
    if server.fork is not None and begin <= server.fork:
        return f"What it committed from {server.fork} on is received without a gap."
    since = f"from {server.fork}" if server.fork is not None else "from where they parted"
    return f"What it committed {since} to {begin} is not received."


def _in_parallel(act: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """Call ``act`` for several at a time; the first error is raised after the last call."""
    with ThreadPoolExecutor(ACCEPT_GAP_AT_ONCE_TABLES, thread_name_prefix="lake") as pool:
        return list(pool.map(act, things))


def _ident(rel: SubscriptionRel) -> LakeIdent:
    return LakeIdent(rel.lake_schema, rel.lake_table)
