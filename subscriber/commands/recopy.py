"""``pgsub refresh NAME --recopy``: tables copied again, behind their readers' backs.

A table's row goes back to ``i`` with the word that the next copy replaces the rows. What follows is
the workers' (``workers.sync.worker``): the apply worker drops the table's changes from the end of
the batch in hand, a sync worker copies to an emptied branch and catches up, and ``main``, where
readers see the old rows until then, is fast-forwarded to it. The row is changed first, the workers
acknowledge it afterwards: who starts a sync worker is the apply worker, at a batch boundary and
after reading the row, or its successor, after settling what was in flight. A copy that runs already
is nobody's from the moment the row has another epoch, and is stopped.

When the slot is lost, or the publisher is not the one our positions are of, every table has the
same gap, and all of them are copied again from a new slot. No worker runs meanwhile. The order::

    rows        every table is to be copied again, and has no position any more
    slot        what is left of it is dropped, a new one is made: it begins at P
    positions   server, timeline, origin = P, highest confirmed = P, in one transaction

A command that dies in between is repeated. Until the positions are stored the workers refuse the
publisher as before (the slot is missing, or stands beyond what was ever confirmed, or the server is
another), so that is no way to go on with a gap; and if they were not refused, it would do no harm:
from the first step on no row of any table rests on a position, each is copied under a snapshot
later than the slot.
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalog.errcodes import ObjectInUse, ObjectNotInPrerequisiteState, UndefinedTable
from catalog.namespace import qualified_name, string_to_qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import must_be_ready
from subscriber.commands.leaked_slots import leave_server, tell_of_slots_left
from subscriber.commands.main_slot import renew_slot
from subscriber.commands.refresh import await_workers
from subscriber.messages import notice, warning
from workers.process import failpoints
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.replication_slots import fetch_slot

if TYPE_CHECKING:
    from workers.publisher.interfaces import SystemIdentity

_ONCE_COPIED: Final = (SubRelState.SYNCDONE, SubRelState.READY)


@dataclass(frozen=True, slots=True)
class Gap:
    """Why what was committed after our position cannot be had any more."""

    reason: str
    identity: SystemIdentity


def recopy_tables(name: str, tables: Sequence[str], context: CommandContext) -> None:
    """Have tables of a subscription (none named: all of them) copied again.

    Returns when the workers go by it; the copies are theirs. Raises before anything is changed:
    42P01 for a table that is not of the subscription, 55000 for tables by name where every table
    has a gap, 08006 where the publisher cannot be asked for that.
    """
    sub = must_be_ready(name, context)
    chosen = _chosen(sub, tables, context)
    with closing(context.connect(sub)) as conn:
        gap = find_gap(sub, conn, context)
        if gap is None:
            copying = _mark(sub, chosen, context)
        elif tables:
            raise ObjectNotInPrerequisiteState(
                f'tables of subscription "{name}" cannot be copied again one by one',
                detail=f"What was committed meanwhile is missing in all of them: {gap.reason}.",
                hint=f"Without table names, pgsub refresh {shlex.quote(name)} --recopy makes a "
                "new slot and copies all of them.",
            )
        else:
            with context.workers_stopped(sub.oid):
                _begin_anew(sub, chosen, gap, conn, context)
            copying = []
    for relid in copying:
        # A copy that went on would hold up the one that replaces it.
        context.stop_sync_worker(sub.oid, relid)
    await_workers(must_be_ready(name, context), context)  # it may have been enabled meanwhile
    for rel in chosen:
        context.notify(
            notice(f'table "{qualified_name(rel.nspname, rel.relname)}" will be copied again')
        )


def _chosen(
    sub: Subscription, tables: Sequence[str], context: CommandContext
) -> list[SubscriptionRel]:
    """The rows of the named tables, in the catalog's order."""
    rels = context.store.rels(sub.oid)
    known = {(rel.nspname, rel.relname) for rel in rels}
    wanted = {string_to_qualified_name(table): table for table in tables}
    missing = [table for key, table in wanted.items() if key not in known]
    if missing:
        others = ", ".join(qualified_name(*key) for key in sorted(known)) or "none"
        raise UndefinedTable(
            f'table "{missing[0]}" is not part of subscription "{sub.subname}"',
            detail=f"Its tables are: {others}.",
            hint="pgsub up FILE adds tables that have joined its publications.",
        )
    return [rel for rel in rels if not tables or (rel.nspname, rel.relname) in wanted]


def find_gap(sub: Subscription, conn: ReplicationConn, context: CommandContext) -> Gap | None:
    """Why the subscription cannot go on from its slot, None if it can.

    55006 if the slot's name is somebody else's, who has to be asked first.
    """
    # Only a command that is about to change something need load what a worker starts with.
    from workers.publisher.identify import fetch_history
    from workers.publisher.same_server import highest_lsn, judge_server, judge_slot

    name = sub.subslotname
    if name is None:
        return None
    identity = conn.identify_system()
    slot = fetch_slot(conn, name)
    if slot is not None and not slot.ours:
        raise ObjectInUse(
            f'replication slot "{name}" is not one of pgoutput in the database of the connection',
            hint="Drop it on the publisher if nobody needs it, then try again.",
        )
    # Read after the slot: what a worker confirmed meanwhile was stored before it was sent.
    sub = must_be_ready(sub.subname, context)
    stands = context.store.origin_lsn(origin_name(sub.oid))
    highest = highest_lsn(sub, stands, context.store.rels(sub.oid))
    server = judge_server(sub, highest, identity, fetch_history(conn, sub, identity))
    if server is not None:
        return Gap(server.error.primary, identity)
    if slot is None:
        return Gap(f'replication slot "{name}" does not exist on the publisher', identity)
    unfit = judge_slot(sub, slot)
    return None if unfit is None else Gap(unfit.primary, identity)


def _mark(
    sub: Subscription, chosen: Sequence[SubscriptionRel], context: CommandContext
) -> list[int]:
    """Store that the tables are to be copied again; those whose copy was running.

    A table in ``d`` stays there: its successor takes back what was published of that copy. One in
    ``f`` begins again at ``i``; its origin stays, which says that there is a slot to be dropped.
    """
    store, copying = context.store, []
    with store.transaction():
        for rel in _still_there(sub, chosen, context):
            if rel.srsubstate in (*_ONCE_COPIED, SubRelState.FINISHEDCOPY):
                store.set_rel_state(
                    sub.oid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS
                )
            if rel.srsubstate in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY):
                copying.append(rel.srrelid)
            store.update_rel(
                sub.oid,
                rel.srrelid,
                recopy=True,
                epoch=str(uuid.uuid4()),
                lake_lsn=InvalidXLogRecPtr,
                copied=False,
            )
            store.forget_last_error(sub.oid, rel.srrelid)
            store.forget_upkeep_errors(sub.oid, rel.srrelid)
    failpoints.reach("recopy.marked")
    return copying


def _still_there(
    sub: Subscription, chosen: Sequence[SubscriptionRel], context: CommandContext
) -> Iterator[SubscriptionRel]:
    """The rows as they are in this transaction; a refresh may have removed one."""
    for rel in chosen:
        now = context.store.rel(sub.oid, rel.srrelid)
        if now is not None:
            yield now


def _begin_anew(
    sub: Subscription,
    chosen: Sequence[SubscriptionRel],
    gap: Gap,
    conn: ReplicationConn,
    context: CommandContext,
) -> None:
    """Rows, slot, positions, in this order (see the module)."""
    store = context.store
    context.notify(warning(f'subscription "{sub.subname}" begins anew: {gap.reason}'))
    _mark(sub, chosen, context)
    point = renew_slot(sub, conn, context)
    failpoints.reach("recopy.slot_made")
    with store.transaction():
        now = store.update_subscription(sub.oid, **gap.identity.stored(), max_flush_lsn=point)
        left = leave_server(sub, now, context)
        _set_origin(sub, point, context)
        store.forget_last_error(sub.oid, 0)
    tell_of_slots_left(left, sub, now, context)


def _set_origin(sub: Subscription, point: LSN, context: CommandContext) -> None:
    name = origin_name(sub.oid)
    if context.store.origin_by_name(name) is None:
        context.store.origin_create(name)
    where = f"consistent point of replication slot {sub.subslotname}"
    context.store.origin_advance(name, point, where, go_backward=True)
