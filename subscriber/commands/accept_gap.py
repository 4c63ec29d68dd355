"""``pgsub accept-gap``: go on where positions do not fit any more, without what lies between.

The workers stop with 55000 where the publisher, the slot or a lake table is not what this
subscription left (rule 8 of docs/reliability.md). Who cannot or will not copy the tables again
accepts the gap by this command. No worker runs meanwhile. The same checks say what does not fit;
everything that does stays as it is:

===================================  ===============================================================
what does not fit                    how it goes on
===================================  ===============================================================
the slot was moved on                at the slot's position; tables keep position and epoch
the slot is gone or invalidated      a new one is made, then the same
a lake table's position              a new epoch, at the highest position the subscription knows
another server, database, or behind  every table: a new epoch, where the stream begins
===================================  ===============================================================

A server that left our timeline at a known *fork* shares its WAL up to there, so a table goes on at
its own position or the fork, whichever comes first: what the slot sends again up to the fork is
skipped where the lake has it. Where the fork is not known but the system identifier is ours (a
backup that was brought back in place, the old primary) the slot may stand before it and would send
again what the lake has; a new slot is made instead, so that nothing comes twice.

In this order, so that a command that dies leaves an error and never silence::

    the slot             dies after: it stands beyond what was confirmed, 55000
    the catalog          one transaction: server, positions, new epochs. Dies after: the tables
                         in the lake have other epochs, 55000 at their first change
    the lake's tables    a stamp each; those that were not reached stay 55000

and the next run finds what is left and goes on from there. A table is fenced before its position is
read, and stamped by a fast-forward like any batch, so no commit that is under way, of a dead worker
or of a command that died, can land afterwards.
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
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from config.limits import ACCEPT_GAP_AT_ONCE_TABLES
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import must_have
from subscriber.commands.leaked_slots import leave_server, tell_of_slots_left
from subscriber.commands.main_slot import create_main_slot
from subscriber.messages import notice, warning
from workers.lake.destination import Destination
from workers.lake.sources import source_of
from workers.lake.table import LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.publisher.identify import fetch_history
from workers.publisher.interfaces import ReplicationConn, SystemIdentity
from workers.publisher.replication_slots import RemoteSlot, fetch_slot
from workers.publisher.same_server import (
    SYNCED,
    ServerMisfit,
    highest_lsn,
    judge_server,
    judge_slot,
)
from workers.tables.position import check_position, recopy_command

T = TypeVar("T")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Found:
    """What is there and what of it does not fit; nothing was changed for it."""

    sub: Subscription
    stand: LSN  # how far the subscription knows to be
    identity: SystemIdentity
    server: ServerMisfit | None
    slot: RemoteSlot | None
    slot_error: ReplicationError | None
    rels: tuple[SubscriptionRel, ...]  # synchronised, and there in the lake
    gone: tuple[SubscriptionRel, ...]  # synchronised, but not there
    table_errors: dict[int, ReplicationError]

    @property
    def fits(self) -> bool:
        """Is everything as it was left?"""
        sound = self.slot is not None and self.slot_error is None
        return self.server is None and sound and not self.table_errors

    @property
    def needs_new_slot(self) -> bool:
        """Nothing, or something worse, would come from the one that is there."""
        if self.slot is None or self.slot.invalidation is not None:
            return True
        # It may send again what came before the fork, which nobody could tell from the rest. One of
        # another server or database has sent nothing yet.
        same_system = self.sub.sysid == self.identity.systemid
        same = same_system and self.sub.datoid in (None, self.identity.datoid)
        return self.server is not None and self.server.fork is None and same


@dataclass(frozen=True, slots=True)
class Anchor:
    """A table goes on at ``lsn``; the lake holds it up to ``held``, None where that is unknown."""

    rel: SubscriptionRel
    held: LSN | None
    lsn: LSN

    @property
    def name(self) -> str:
        """For people."""
        return qualified_name(self.rel.nspname, self.rel.relname)


def accept_gap(name: str, context: CommandContext) -> None:
    """Re-anchor a subscription at what its publisher, slot and lake tables are now.

    Every gap is told as a WARNING. 55000 if there is none.
    """
    sub = must_have(name, context)
    if sub.subcreate is not SubCreate.READY or sub.subslotname is None:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" has no replication slot to go on from',
            hint=f"See pgsub status, or drop it with pgsub drop {shlex.quote(name)}.",
        )
    with context.workers_stopped(sub.oid), closing(context.connect(sub)) as conn:
        found = _look(must_have(name, context), conn, context)
        if found.fits:
            raise ObjectNotInPrerequisiteState(
                "there is no gap to accept",
                detail=f'Publisher, slot and lake tables of subscription "{name}" are as they '
                "were left.",
            )
        begin = _settle_slot(found, conn, context)
        failpoints.reach("accept_gap.slot_settled")
        anchors = _anchors(found, begin, context)
        _tell(found, begin, anchors, context)
        stamped = _store(found, begin, anchors, context)
        failpoints.reach("accept_gap.stored")
        _each(lambda rel: _stamp(rel, context.lake()), stamped)
        context.notify(notice(f'subscription "{name}" goes on at {begin}'))


def anchor(
    rel: SubscriptionRel,
    stamp: Stamp | None,
    server: ServerMisfit | None,
    begin: LSN,
    stand: LSN,
) -> Anchor:
    """Where a table goes on. Pure; see the module for why.

    ``begin`` is where the stream will begin, ``stand`` how far the subscription knew to be.
    """
    synced_at = rel.srsublsn if rel.srsubstate is SubRelState.SYNCDONE else None
    known = LSN(max(rel.lake_lsn, rel.floor, synced_at or InvalidXLogRecPtr, stand))
    held = stamp.lsn if stamp is not None and stamp.epoch == rel.epoch else None
    if server is None:
        # What it holds counts too: a dead worker's commit may have landed just before the fence.
        lsn = LSN(max(known, begin, held or InvalidXLogRecPtr))
    elif server.fork is None:
        lsn = begin
    else:
        lsn = LSN(max(begin, min(known if held is None else held, server.fork)))
    return Anchor(rel, held, lsn)


# Looking


def _look(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> Found:
    at = context.store.origin_lsn(origin_name(sub.oid))
    rels = context.store.rels(sub.oid)
    identity = conn.identify_system()
    server = judge_server(
        sub, highest_lsn(sub, at, rels), identity, fetch_history(conn, sub, identity)
    )
    slot = fetch_slot(conn, sub.subslotname or "")
    slot_error = judge_slot(sub, slot)
    if slot is not None and not slot.ours and slot_error is not None:
        raise slot_error  # somebody else's: not ours to drop, and nothing to go on from
    there, gone, errors = _look_at_tables(
        sub, [rel for rel in rels if rel.srsubstate in SYNCED], context
    )
    return Found(
        sub=sub,
        stand=LSN(max(at, sub.max_flush_lsn)),
        identity=identity,
        server=server,
        slot=slot,
        slot_error=slot_error,
        rels=tuple(there),
        gone=tuple(gone),
        table_errors=errors,
    )


def _look_at_tables(
    sub: Subscription, rels: Sequence[SubscriptionRel], context: CommandContext
) -> tuple[list[SubscriptionRel], list[SubscriptionRel], dict[int, ReplicationError]]:
    """The tables that are there, those that are not, and what is wrong with which position."""
    there: list[SubscriptionRel] = []
    gone: list[SubscriptionRel] = []
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
            gone.append(rel)
            continue
        _check_owner(sub, rel, lake)
        there.append(rel)
        try:
            check_position(rel, lake, sub.subname)
        except ObjectNotInPrerequisiteState as error:
            errors[rel.srrelid] = error
    return there, gone, errors


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


def _settle_slot(found: Found, conn: ReplicationConn, context: CommandContext) -> LSN:
    """Where the stream will begin: the position of the slot, or of one that is made now."""
    sub, name = found.sub, found.sub.subslotname or ""
    if not found.needs_new_slot:
        at = found.slot.confirmed_flush_lsn if found.slot else None
        return at or InvalidXLogRecPtr
    if found.slot is not None:
        conn.drop_slot(name, wait=False, missing_ok=True)
    failpoints.reach("accept_gap.slot_dropped")
    return create_main_slot(name, sub, conn, context)


def _anchors(found: Found, begin: LSN, context: CommandContext) -> list[Anchor]:
    """The tables whose position must change, each fenced before it is read."""
    concerned = [
        rel for rel in found.rels if found.server is not None or rel.srrelid in found.table_errors
    ]

    def fenced(rel: SubscriptionRel) -> Anchor:
        lake = context.lake().fence(_ident(rel))
        return anchor(rel, lake.stamp, found.server, begin, found.stand)

    anchors = _each(fenced, concerned)
    if found.server is not None:  # where they stood means nothing any more either
        anchors += [anchor(rel, None, found.server, begin, found.stand) for rel in found.gone]
    return anchors


def _store(
    found: Found, begin: LSN, anchors: Sequence[Anchor], context: CommandContext
) -> list[SubscriptionRel]:
    """All that the catalog says of it, at once; the rows of the tables to be stamped."""
    sub, store = found.sub, context.store
    server, identity = found.server, found.identity
    moved = server is not None or found.slot_error is not None or found.slot is None
    # Else workers may have confirmed more: those of a launcher that came after this one's death.
    flush = {"max_flush_lsn": begin} if moved else {}
    with store.transaction():
        now = store.update_subscription(sub.oid, **identity.stored(), **flush)
        left = leave_server(sub, now, context)
        if server is not None:
            where = f"gap accepted by {sub.subname}"
            store.origin_advance(origin_name(sub.oid), begin, where, go_backward=True)
            store.forget_sync_progress(sub.oid)  # a backup has the system identifier it had
        stored = []
        for each in anchors:
            subid, relid = each.rel.srsubid, each.rel.srrelid
            if server is not None and each.rel.srsubstate is SubRelState.SYNCDONE:
                # Its s_lsn is the other server's. From here on the table's own position says what
                # it skips, which is what r means; no worker runs that could think otherwise.
                store.set_rel_state(subid, relid, SubRelState.READY, begin, Setter.APPLY)
            stored.append(
                store.update_rel(
                    subid,
                    relid,
                    epoch=str(uuid.uuid4()),
                    lake_lsn=each.lsn,
                    floor=each.lsn,
                    copied=False,  # a row that is inserted may be there, or one was not deleted
                )
            )
        if moved:
            # What is missing may be the DELETE of a row whose key comes again.
            for rel in (*found.rels, *found.gone):
                store.update_rel(sub.oid, rel.srrelid, copied=False)
        store.clear_in_flight(sub.oid, [each.rel.srrelid for each in anchors])
        store.forget_last_error(sub.oid, 0)
    tell_of_slots_left(left, sub, now, context)
    gone = {rel.srrelid for rel in found.gone}
    return [rel for rel in stored if rel.srrelid not in gone]


def _stamp(rel: SubscriptionRel, lake: Destination) -> None:
    """An empty snapshot with the row's epoch and position, published like a batch."""
    ident = _ident(rel)
    branch = f"pgsub_{rel.srsubid}_gap_{secrets.token_hex(8)}"
    stamp = Stamp(origin_name(rel.srsubid), rel.lake_lsn, rel.epoch or "", rel.floor)
    lake.drop_branches(ident)
    lake.create_branch(ident, branch)
    lake.write(ident, branch, [], stamp)
    lake.publish(ident, branch, stamp)
    failpoints.reach("accept_gap.one_table_stamped")


# Telling


def _tell(found: Found, begin: LSN, anchors: Sequence[Anchor], context: CommandContext) -> None:
    """Which changes are given up, from where to where, and of which tables."""
    sub, server = found.sub, found.server
    if server is not None:
        context.notify(
            warning(server.error.primary, detail=f"{server.error.detail} {_missing(server, begin)}")
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
        gap = f"from {each.held}" if each.held is not None else "of an unknown past"
        context.notify(
            warning(
                f'table "{each.name}": changes {gap} to {each.lsn} are not in the lake',
                detail=f"{error.primary}. {error.detail}",
            )
        )


def _missing(server: ServerMisfit, begin: LSN) -> str:
    if server.fork is not None and begin <= server.fork:
        return f"What it committed from {server.fork} on is received without a gap."
    since = f"from {server.fork}" if server.fork is not None else "from where they parted"
    return f"What it committed {since} to {begin} is not received."


def _each(act: Callable[[T], R], things: Sequence[T]) -> list[R]:
    """Several at a time; the first error when all have ended."""
    with ThreadPoolExecutor(ACCEPT_GAP_AT_ONCE_TABLES, thread_name_prefix="lake") as pool:
        return list(pool.map(act, things))


def _ident(rel: SubscriptionRel) -> LakeIdent:
    return LakeIdent(rel.lake_schema, rel.lake_table)
