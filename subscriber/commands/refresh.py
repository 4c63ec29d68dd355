"""REFRESH PUBLICATION: compare a subscription's tables with the tables published now.

The publisher is asked first, over the whole publication list, and then the lake; nothing is stored
before all answers. New tables join in ``i`` (or ``r`` without copy_data). Tables no longer
published leave: row, origin, sync worker, sync slot; the lake tables stay. Other changes of the
command (SET PUBLICATION with refresh) are stored in the same transaction: a refresh that fails
changes nothing.

A table that leaves and comes back. Workers read the catalog between batches only, and a command
returns after they have. A batch in progress finishes its writes to the table before any change that
a return brings. With copy_data the rows are copied *on top* of the existing rows, as in PostgreSQL.
Without copy_data the table's changes begin at the subscription's position, and the position must
not be earlier than the lake table's. A worker may have died after publishing the table and before
publishing all tables of the batch. The table is then ahead of the subscription::

    batch 400..500    published to the table, position 500; the worker dies; origin 400
    the table leaves, and comes back without copy: changes would begin at 400
    the successor     asks for everything after 400, and applies 400..500 a second time

Therefore the command refuses the return until the subscription has caught up.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Final

from catalog.errcodes import ObjectInUse, ObjectNotInPrerequisiteState
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.recopy import mark_for_recopy
from catalog.table_renames import under_present_names
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import make_lake_table, new_rel, published_tables, raise_first
from subscriber.commands.lake_branches import drop_lake_branches, list_lake_branches
from subscriber.commands.leaked_slots import (
    drop_sync_slots,
    leave_sync_slots,
    retry_leaked_slots,
    sync_slots_left,
)
from subscriber.commands.published.renamed import check_not_renamed, under_subscribed_names
from subscriber.commands.published.returning import replacing_copies
from subscriber.commands.schema.column_rules import copy_again_under_rules, notify_reruled
from subscriber.commands.schema.file_writer import writer_findings
from subscriber.commands.subscription_row import (
    must_be_ready,
    must_have,
    wait_for_workers,
)
from subscriber.commands.table_mapping import (
    MappedTable,
    lake_findings,
    other_origins_warning,
    privilege_findings,
    published_names,
)
from subscriber.commands.unseen_differences import row_security_warnings
from subscriber.messages import Notice, notice, warning
from workers.lake.sources import delete_rows, source_of
from workers.process import failpoints
from workers.publisher.fingerprint import TableName, published_as
from workers.publisher.interfaces import ReplicationConn

_WORKERS_COLUMNS: Final = (
    "generation",
    "sysid",
    "timeline",
    "datoid",
    "max_flush_lsn",
    "subskiplsn",
)
"""Columns of a subscription's row that workers store while running."""


def refresh_publication(
    sub: Subscription,
    conn: ReplicationConn,
    context: CommandContext,
    *,
    copy_data: bool,
    columns: Mapping[str, Any] | None = None,
    validate: Sequence[str] = (),
    replaces: bool = False,
) -> Subscription:
    """ALTER SUBSCRIPTION … REFRESH PUBLICATION; the new row.

    With ``replaces`` the copy of a table that returns replaces the rows from before. ``columns`` of
    the row are stored in the same transaction. Missing publications among
    ``validate`` are a warning. Returns after the workers have reloaded.
    """
    refreshed, changed, removed = refresh_tables(
        sub,
        conn,
        context,
        copy_data=copy_data,
        columns=columns or {},
        validate=validate,
        replaces=replaces,
    )
    if changed:
        await_workers(refreshed, context)
        failpoints.reach("refresh.reloaded")
    if removed:
        drop_lake_branches(refreshed, removed, context)  # no worker writes the tables any more
    return refreshed


def await_workers(sub: Subscription, context: CommandContext) -> None:
    """Wait until the workers have reloaded the catalog or have ended; 55006 if too late.

    Else a batch in flight could be written to a lake table that has left the subscription and
    that a user may have dropped and created again.
    """
    if sub.subenabled:
        context.wait_until_workers_reload(sub.oid)
    else:
        wait_for_workers(sub, context)


@contextmanager
def altering(sub: Subscription, context: CommandContext) -> Iterator[Subscription]:
    """A catalog transaction, with the row as of the transaction.

    55006 if another command has changed the row since ``sub`` was read; columns stored by workers
    do not count.
    """
    with context.store.transaction():
        now = must_be_ready(sub.subname, context)
        if replace(now, **{name: getattr(sub, name) for name in _WORKERS_COLUMNS}) != sub:
            raise ObjectInUse(
                f'subscription "{sub.subname}" was changed meanwhile', hint="Try again."
            )
        yield now


def store_columns(
    now: Subscription,
    columns: Mapping[str, Any],
    context: CommandContext,
    *,
    compared: bool = False,
) -> Subscription:
    """Change the row, inside ``altering``; the new row.

    With other publications, or another origin, fewer changes may arrive for a while. A missed
    DELETE leaves a row, and the key may be inserted again later, when the list is restored and no
    trace of the change is left. Therefore inserted keys of every table are looked up from now on,
    unless the caller has ``compared`` the published part of every table with the part that was
    copied. The fingerprint is removed too: else a running copy would find the fingerprint of its
    start. Options of a table that a worker has renamed since they were read go to its new name.
    """
    if "tables" in columns:
        tables = under_present_names(columns["tables"], context.store.rels(now.oid))
        columns = {**columns, "tables": tables}
    changed = context.store.update_subscription(now.oid, **columns)
    others = changed.subpublications != now.subpublications and not compared
    if others or changed.suborigin != now.suborigin:
        for rel in context.store.rels(now.oid):
            fingerprint = rel.fingerprint if rel.key_unsure else None
            context.store.update_rel(
                rel.srsubid, rel.srrelid, copied=False, fingerprint=fingerprint
            )
    return changed


@dataclass(frozen=True, slots=True)
class _Difference:
    """The stored result of a refresh."""

    sub: Subscription
    added: list[SubscriptionRel]
    removed: list[SubscriptionRel]
    sync_slots: list[str]
    distrusted: int
    replaced: list[SubscriptionRel]
    reruled: list[SubscriptionRel]
    """Tables that are copied again because other columns are hidden."""
    copying: list[int]
    """The oids of such tables with a running copy."""


def refresh_tables(
    before: Subscription,
    conn: ReplicationConn,
    context: CommandContext,
    *,
    copy_data: bool,
    columns: Mapping[str, Any],
    validate: Sequence[str],
    replaces: bool = False,
) -> tuple[Subscription, bool, list[SubscriptionRel]]:
    """Store ``columns`` and the tables published now.

    Returns the row, whether anything changed, and the removed tables. The caller waits for the
    workers and then drops the branches of the removed tables.
    """
    sub = replace(before, **columns)
    present = context.store.rels(sub.oid)  # a rename from here on is noticed by ``_store``
    mapped = published_tables(conn, sub, context, validate=validate)
    known = {(rel.nspname, rel.relname) for rel in present}
    mapped = under_subscribed_names(sub, mapped, present, context)
    # A name that a worker is about to give to a renamed table is not given away meanwhile:
    # the lake table may have the name already. The other table joins at the next refresh.
    taken = known | {(each.nspname, each.relname) for each in context.store.renames(sub.oid)}
    new = [table for table in mapped if (table.remote.nspname, table.remote.relname) not in taken]
    if copy_data and new:
        for message in other_origins_warning(conn, sub, known):
            context.notify(message)
    if new:
        raise_first(list(lake_findings(new, context.lake_tables, context.store, sub)))
        raise_first(list(writer_findings(new, None, context)))
    copied = [table for table in new if copy_data and not table.holds_messages]
    joining = [table for table in new if table not in copied]
    for error in privilege_findings(conn, copied):
        # Only a warning: readable tables must not wait for an unreadable table.
        context.notify(warning(error.primary, detail=error.detail, hint=error.hint))
    for message in row_security_warnings(conn, published_names(copied)):
        context.notify(message)
    rels = [new_rel(sub.oid, table, copy_data=True) for table in copied]
    if replaces:
        rels = replacing_copies(sub, copied, rels, context)
    # A running worker could not tell reliably which transactions came before a table without a
    # copy joined: the answer after a crash could differ.
    with context.workers_stopped(sub.oid) if joining else nullcontext():
        floor = applied_lsn(sub, context)
        rels += [_create_lake_table(sub, table, floor, context) for table in joining]
        failpoints.reach("refresh.found")
        found = _store(before, columns, mapped, (present, rels), context, copy_data=copy_data)
    failpoints.reach("refresh.stored")
    _clean_up(found, conn, context)
    failpoints.reach("refresh.cleaned")
    changed = found.added or found.removed or found.distrusted or found.replaced
    return found.sub, bool(columns or changed), found.removed


def _store(
    before: Subscription,
    columns: Mapping[str, Any],
    mapped: Sequence[MappedTable],
    rows: tuple[Sequence[SubscriptionRel], Sequence[SubscriptionRel]],
    context: CommandContext,
    *,
    copy_data: bool,
) -> _Difference:
    """Store the result in a single transaction, by the rows as of the transaction.

    ``rows`` are the subscription's before the publisher was asked, and the new ones.
    """
    store, subid, (present, new) = context.store, before.oid, rows
    published = {(table.remote.nspname, table.remote.relname): table for table in mapped}
    with altering(before, context) as now:
        known = {(rel.nspname, rel.relname): rel for rel in store.rels(subid)}
        check_not_renamed(present, known.values(), store.renames(subid), new)
        changed = store_columns(now, columns, context, compared=True) if columns else now
        added = [store.insert_rel(rel) for rel in new if (rel.nspname, rel.relname) not in known]
        removed = [rel for name, rel in known.items() if name not in published]
        sync_slots = sync_slots_left(now, removed, store)
        for rel in removed:
            store.delete_rel(subid, rel.srrelid)
            store.origin_drop(origin_name(subid, rel.srrelid))
        # Only the rows recorded the slots and the lake tables: if the command ends before dropping
        # slots and branches, the lists of leaked ones leave the work to the next command.
        leave_sync_slots(now, sync_slots, context)
        list_lake_branches(now, removed, context)
        distrusted = 0
        for name, rel in known.items():
            fingerprint = published[name].remote.fingerprint if name in published else None
            if fingerprint in (None, published_as(rel.fingerprint)) or rel.key_unsure:
                continue
            # The published part differs from the copy: inserted keys may exist already.
            store.update_rel(subid, rel.srrelid, copied=False, fingerprint=fingerprint)
            distrusted += 1
        replaced = _store_replaced(changed, known, published, context, copy_data=copy_data)
        columns_of = {
            name: [column.name for column in table.whole.columns]
            for name, table in published.items()
        }
        reruled, copying = copy_again_under_rules(now, changed, known, columns_of, context)
    whole = (changed, added, removed, sync_slots, distrusted, replaced)
    return _Difference(*whole, reruled, copying)


def _store_replaced(
    sub: Subscription,
    known: Mapping[TableName, SubscriptionRel],
    published: Mapping[TableName, MappedTable],
    context: CommandContext,
    *,
    copy_data: bool,
) -> list[SubscriptionRel]:
    """Have tables copied again whose name another table has on the publisher; return their rows.

    PostgreSQL knows a table by its oid: there the other table is a new table of the publication.
    Without ``copy_data`` the rows stay, and the other table is the subscribed table from now on.
    """
    replaced = [
        (rel, published[name].remote.relid)
        for name, rel in known.items()
        if name in published
        and rel.srsubstate in SYNCED
        and rel.remote_relid is not None
        and (rel.other_relid is not None or published[name].remote.relid != rel.remote_relid)
    ]
    if copy_data:
        mark_for_recopy(sub, [rel for rel, _ in replaced], context.store)
    for rel, relid in replaced:
        context.store.update_rel(
            sub.oid, rel.srrelid, remote_relid=relid, other_relid=None, copied=False
        )
    return [rel for rel, _ in replaced] if copy_data else []


def _clean_up(found: _Difference, conn: ReplicationConn, context: CommandContext) -> None:
    """Remove what removed tables have outside the catalog; notify of added and removed tables."""
    sub = found.sub
    for rel in found.added:
        name = qualified_name(rel.nspname, rel.relname)
        context.notify(notice(f'table "{name}" added to subscription "{sub.subname}"'))
    for rel in found.removed:
        # An unstopped copy would be published beside a new copy if the table returns.
        context.stop_sync_worker(sub.oid, rel.srrelid)
        context.notify(_removal_notice(sub, rel))
    for rel in found.replaced:
        context.notify(
            notice(
                f'table "{qualified_name(rel.nspname, rel.relname)}" is another one on the '
                "publisher and will be copied again"
            )
        )
    notify_reruled(found.reruled, found.copying, context)
    drop_sync_slots(sub, found.sync_slots, conn, context)
    retry_leaked_slots(sub, conn, context)


def _removal_notice(sub: Subscription, rel: SubscriptionRel) -> Notice:
    """A NOTICE of a removed table; for a shared lake table also the statement to delete its rows.

    The table may be published under another name: then readers would see the rows twice.
    """
    text = f'table "{qualified_name(rel.nspname, rel.relname)}" removed from "{sub.subname}"'
    if not source_of(sub, rel):
        return notice(text)
    lake = qualified_name(rel.lake_schema, rel.lake_table)
    return notice(
        text,
        detail=f'Its rows stay in shared lake table "{lake}".',
        hint="If it was renamed, or its rows are not wanted any more, delete them: "
        f"{delete_rows(sub, rel)}",
    )


def _create_lake_table(
    sub: Subscription, table: MappedTable, floor: LSN, context: CommandContext
) -> SubscriptionRel:
    """Create the lake table before the row: a row without a lake table stops the worker.

    A command that dies in between leaves an owned lake table, which the next command takes.
    """
    rel = new_rel(sub.oid, table, copy_data=False)
    with context.store.transaction():
        # For the oid only: the lake table's location has the oid, and the row gets the same oid.
        relid = context.store.insert_rel(rel).srrelid
        context.store.delete_rel(sub.oid, relid)
    rel = replace(rel, srrelid=relid)
    _check_not_ahead(sub, rel, table, floor, context)
    return make_lake_table(sub, rel, table, floor, context)


def _check_not_ahead(
    sub: Subscription, rel: SubscriptionRel, table: MappedTable, floor: LSN, context: CommandContext
) -> None:
    """55000 if the table has changes already that the subscription will receive again."""
    lake, source = context.lake(), source_of(sub, rel)
    existing = lake.table(table.ident)
    if existing is None or (existing.owner != sub.subuuid and not source):
        return
    if existing.snapshot_id is not None:
        existing = lake.fence(table.ident)  # no commit of a dead worker lands after the fence
    stamp = existing.position(source)
    if stamp is not None and stamp.lsn > floor:
        name = shlex.quote(sub.subname)
        raise ObjectNotInPrerequisiteState(
            f'table "{table.name}" cannot join subscription "{sub.subname}" without a copy',
            detail=f'Lake table "{table.ident}" holds changes up to {stamp.lsn} from when it was '
            f"subscribed before, and the subscription stands at {floor}: it would receive some "
            "of them again.",
            hint=f"Wait with pgsub wait {name} --lsn {stamp.lsn} and try again; or drop the lake "
            "table, or have the table copied.",
        )


def applied_lsn(sub: Subscription, context: CommandContext) -> LSN:
    """The end of the last transaction that will not be applied again."""
    now = must_have(sub.subname, context)
    return LSN(max(now.max_flush_lsn, context.store.origin_lsn(origin_name(sub.oid))))
