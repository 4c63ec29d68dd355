"""``pgsub refresh NAME --recopy`` and ``pgsub resume``: copy tables again.

Readers see the old rows meanwhile.

A table's row goes back to ``i``, marked so that the next copy replaces the rows. The workers do the
rest (``workers.sync.worker``). From the end of the present batch on the apply worker leaves out the
table's changes. A sync worker copies to an emptied branch and catches up, and then ``main``, with
the old rows until then, is fast-forwarded to the branch. The row is changed first, and the workers
acknowledge afterwards: only the apply worker starts a sync worker, at a batch boundary after
reading the row, or the apply worker's successor, after fencing the commits in flight. A running
copy is invalid from the moment of the row's new copy id, and is stopped.

If the slot is lost, or the publisher is not the server of the stored positions, every table has the
same gap, and all tables are copied again from a new slot. No worker runs meanwhile. The order::

    rows        every table is to be copied again, and has no position any more
    slot        the old slot is dropped, a new slot is created: the slot begins at P
    positions   server, timeline, origin = P, highest confirmed = P, in one transaction

A command that dies in between is repeated. Until the positions are stored the workers refuse the
publisher as before: the slot is missing, or beyond the confirmed position, or the server is
another. Nobody can go on with a gap. And a worker that went on would do no harm: after the first
step no row has a position, and every table is copied under a snapshot later than the slot.

``pgsub resume NAME TABLE`` is the same copy for a suspended table (``on_error: suspend``). The
table stays suspended until the copy takes over: the sync worker stores ``s`` and the end of the
suspension in one transaction. A copy that fails suspends the table again. A table that was never
in ``s`` since its copy failed is only tried again: state, copy id and kind of the copy stay.

The table of logical messages has nothing to copy. It keeps its rows and goes on at a new position:
that of a new slot, or, for the table by name, the applied position. A lake table that is missing is
made anew.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from catalog.errcodes import ObjectInUse, ObjectNotInPrerequisiteState, UndefinedTable
from catalog.namespace import qualified_name, string_to_qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.recopy import mark_for_recopy, mark_to_try_again
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import make_lake_table, store_new_rel
from subscriber.commands.leaked_slots import leave_server, warn_of_slots_left
from subscriber.commands.main_slot import renew_slot
from subscriber.commands.refresh import applied_lsn, await_workers
from subscriber.commands.subscription_row import must_be_ready
from subscriber.commands.table_mapping import messages_table
from subscriber.commands.unseen_differences import row_security_warnings
from subscriber.messages import notice, warning
from workers.lake.sources import source_of
from workers.process import failpoints
from workers.publisher.interfaces import ReplicationConn
from workers.publisher.replication_slots import fetch_slot

if TYPE_CHECKING:
    from workers.publisher.interfaces import SystemIdentity


@dataclass(frozen=True, slots=True)
class Gap:
    """The reason why changes after the stored position are lost."""

    reason: str
    identity: SystemIdentity


def recopy_tables(name: str, tables: Sequence[str], context: CommandContext) -> None:
    """Have tables of a subscription copied again; without names all tables.

    Returns after the workers have reloaded; the workers make the copies. Raises before any change:
    42P01 for a table outside the subscription, 55000 for tables by name if every table has a gap,
    08006 if the publisher cannot be asked.
    """
    sub = must_be_ready(name, context)
    chosen = choose_rows(sub, tables, context)
    messages = [rel for rel in chosen if rel.holds_messages]
    chosen = [rel for rel in chosen if not rel.holds_messages]
    with closing(context.connect(sub)) as conn:
        gap = find_gap(sub, conn, context)
        if gap is not None and tables:
            raise ObjectNotInPrerequisiteState(
                f'tables of subscription "{name}" cannot be copied again one by one',
                detail=f"What was committed meanwhile is missing in all of them: {gap.reason}.",
                hint=f"Without table names, pgsub refresh {shlex.quote(name)} --recopy makes a "
                "new slot and copies all of them.",
            )
        for message in row_security_warnings(conn, [(rel.nspname, rel.relname) for rel in chosen]):
            context.notify(message)
        if gap is None:
            copying = _mark(sub, chosen, context)
            if messages and tables:
                with context.workers_stopped(sub.oid):
                    _go_on_with_messages(sub, messages, None, context)
        else:
            with context.workers_stopped(sub.oid):
                _begin_anew(sub, chosen, messages, gap, conn, context)
            copying = []
    for relid in copying:
        # An unstopped copy would delay the new copy.
        context.stop_sync_worker(sub.oid, relid)
    await_workers(
        must_be_ready(name, context), context
    )  # the subscription may have been enabled meanwhile
    for rel in chosen:
        context.notify(
            notice(f'table "{qualified_name(rel.nspname, rel.relname)}" will be copied again')
        )


def choose_rows(
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
    """The reason why the subscription cannot go on from its slot, None if possible.

    55006 if the slot belongs to another subscriber, whose owner must be asked first.
    """
    # Only a command that changes something loads these modules of the workers.
    from workers.publisher.identify import fetch_history
    from workers.publisher.same_server import highest_lsn, judge_server, judge_slot

    name = sub.subslotname
    if name is None:
        return None
    identity = conn.identify_system()
    slot = fetch_slot(conn, name)
    if slot is not None and not slot.is_pgoutput_here:
        raise ObjectInUse(
            f'replication slot "{name}" is not one of pgoutput in the database of the connection',
            hint="Drop it on the publisher if nobody needs it, then try again.",
        )
    # Read after the slot: a worker stores a confirmation before sending it.
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
    sub: Subscription,
    chosen: Sequence[SubscriptionRel],
    context: CommandContext,
    *,
    anew: bool = False,
) -> list[int]:
    copying = mark_for_recopy(sub, chosen, context.store, anew=anew)
    failpoints.reach("recopy.marked")
    return copying


def _begin_anew(
    sub: Subscription,
    chosen: Sequence[SubscriptionRel],
    messages: Sequence[SubscriptionRel],
    gap: Gap,
    conn: ReplicationConn,
    context: CommandContext,
) -> None:
    """Change rows, slot, positions, in this order (see the module)."""
    store = context.store
    context.notify(warning(f'subscription "{sub.subname}" begins anew: {gap.reason}'))
    _mark(sub, chosen, context, anew=True)
    point = renew_slot(sub, conn, context)
    failpoints.reach("recopy.slot_made")
    _go_on_with_messages(sub, messages, point, context)
    with store.transaction():
        now = store.update_subscription(sub.oid, **gap.identity.stored(), max_flush_lsn=point)
        left = leave_server(sub, now, context)
        _set_origin(sub, point, context)
        store.forget_last_error(sub.oid, 0)
    warn_of_slots_left(left, sub, now, context)


def _go_on_with_messages(
    sub: Subscription,
    messages: Sequence[SubscriptionRel],
    point: LSN | None,
    context: CommandContext,
) -> None:
    """Let the table of logical messages go on at ``point``, or behind all that it has."""
    for rel in messages:
        table = messages_table(sub.tables)
        at = point
        if at is None:
            lake = context.lake().table(table.ident)
            stamp = None if lake is None else lake.position(source_of(sub, rel))
            at = LSN(max(applied_lsn(sub, context), rel.lake_lsn, stamp.lsn if stamp else 0))
        store_new_rel(make_lake_table(sub, rel, table, at, context), context)
        name = qualified_name(rel.nspname, rel.relname)
        context.notify(notice(f'table "{name}" has nothing to copy and goes on at {at}'))


def _set_origin(sub: Subscription, point: LSN, context: CommandContext) -> None:
    name = origin_name(sub.oid)
    if context.store.origin_by_name(name) is None:
        context.store.origin_create(name)
    where = f"consistent point of replication slot {sub.subslotname}"
    context.store.origin_advance(name, point, where, go_backward=True)


# Suspended tables


def resume_tables(name: str, tables: Sequence[str], context: CommandContext) -> None:
    """Have suspended tables copied again; without names all suspended tables.

    A table that is being copied again already is left alone, with a NOTICE. Raises before any
    change: 42704 for an unknown subscription, 42P01 for a table outside the subscription, 55000 for
    a table that is not suspended.
    """
    sub = must_be_ready(name, context)
    chosen = choose_rows(sub, tables, context)
    if tables:
        _check_suspended(sub, chosen)
    suspended = [rel for rel in chosen if rel.suspended]
    if not suspended:
        context.notify(notice(f'no table of subscription "{name}" is suspended'))
    for rel in suspended:
        context.notify(notice(_explanation(rel)))
    waiting = [rel for rel in suspended if rel.awaits_resume]
    if failed := [rel for rel in waiting if rel.srsubstate not in SYNCED]:
        mark_to_try_again(sub, failed, context.store)
        await_workers(must_be_ready(name, context), context)
        for rel in failed:
            context.notify(notice(f'the copy of table "{_name_of(rel)}" will be tried again'))
    if followed := [_name_of(rel) for rel in waiting if rel.srsubstate in SYNCED]:
        recopy_tables(name, followed, context)


def _check_suspended(sub: Subscription, chosen: Sequence[SubscriptionRel]) -> None:
    for rel in chosen:
        if not rel.suspended:
            subname, table = shlex.quote(sub.subname), shlex.quote(_name_of(rel))
            raise ObjectNotInPrerequisiteState(
                f'table "{_name_of(rel)}" of subscription "{sub.subname}" is not suspended',
                hint=f"pgsub refresh {subname} --recopy {table} copies any table again; pgsub "
                "status pg_subscription_rel shows the suspended tables.",
            )


def _explanation(rel: SubscriptionRel) -> str:
    if rel.resuming:
        return f'table "{_name_of(rel)}" is being copied again already'
    if rel.srsubstate not in SYNCED:
        return f'table "{_name_of(rel)}" was suspended in its copy ({rel.suspend_sqlstate})'
    where = f" from {rel.suspend_lsn} on" if rel.suspend_lsn else ""
    return (
        f'table "{_name_of(rel)}" was suspended{where} ({rel.suspend_sqlstate}); readers see its '
        "last good state until the new copy is complete"
    )


def _name_of(rel: SubscriptionRel) -> str:
    return qualified_name(rel.nspname, rel.relname)
