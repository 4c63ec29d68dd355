"""REFRESH PUBLICATION: which tables a subscription has, compared with what is published now.

The publisher is asked first, over the whole publication list, and the lake; nothing is stored
before both have answered. New tables join in ``i`` (or ``r`` without copy_data), ones that are not
published any more leave: row, origin, sync worker, sync slot; their lake tables stay. What else the
command changes of the subscription (SET PUBLICATION with its refresh) is stored in the same
transaction, so that a refresh that fails has changed nothing.

A table that leaves and comes back. Workers read the catalog between batches only, and a command
returns when they have; what a batch in hand still writes to the table comes before everything that
its return brings. With copy_data its rows are copied *on top* of those that are there, as
PostgreSQL does it. Without, its changes begin where the subscription stands, and that must be no
earlier than what its lake table holds. Where a worker died after it had published this table and
before all tables of the batch were, the table is ahead of the subscription::

    batch 400..500    published to the table, stamp 500; the worker dies; origin 400
    the table leaves, and comes back without copy: it would begin at 400
    the successor     asks for everything after 400, and applies 400..500 a second time

so this is refused until the subscription has caught up.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from catalog.errcodes import ObjectInUse, ObjectNotInPrerequisiteState
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import (
    make_lake_table,
    must_be_ready,
    must_have,
    new_rel,
    published_tables,
    raise_first,
    wait_for_workers,
)
from subscriber.commands.leaked_slots import (
    drop_sync_slots,
    leave_sync_slots,
    retry_leaked_slots,
    sync_slots_left,
)
from subscriber.commands.table_mapping import (
    MappedTable,
    lake_findings,
    other_origins_warning,
    privilege_findings,
)
from subscriber.messages import Notice, notice, warning
from workers.lake.sources import delete_rows, source_of
from workers.publisher.interfaces import ReplicationConn

_WORKERS_COLUMNS: Final = (
    "generation",
    "sysid",
    "timeline",
    "datoid",
    "max_flush_lsn",
    "subskiplsn",
)
"""What workers store in a subscription's row while it is worked on."""


def refresh_publication(
    sub: Subscription,
    conn: ReplicationConn,
    context: CommandContext,
    *,
    copy_data: bool,
    columns: Mapping[str, Any] | None = None,
    validate: Sequence[str] = (),
) -> Subscription:
    """ALTER SUBSCRIPTION … REFRESH PUBLICATION; the row as it is then.

    ``columns`` of the row are stored along with it; publications among ``validate`` that are
    missing are warned of. Returns when the workers go by the new list.
    """
    refreshed, changed = refresh_tables(
        sub, conn, context, copy_data=copy_data, columns=columns or {}, validate=validate
    )
    if changed:
        await_workers(refreshed, context)
    return refreshed


def await_workers(sub: Subscription, context: CommandContext) -> None:
    """Until the workers go by the catalog as it is now, or have ended; 55006 if that is late.

    A batch in flight would otherwise be written to a lake table that has left the subscription,
    and that somebody may have dropped and made again by then.
    """
    if sub.subenabled:
        context.wait_until_workers_reload(sub.oid)
    else:
        wait_for_workers(sub, context)


@contextmanager
def altering(sub: Subscription, context: CommandContext) -> Iterator[Subscription]:
    """A catalog transaction on the row as it is in it.

    55006 if another command has changed it since ``sub`` was read; what workers store in it
    meanwhile is no such change.
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

    With other publications, or another origin, less may arrive for a while: a DELETE that does not
    leaves a row whose key is inserted again later, when the list is what it was and nothing shows
    what it has been. So every table's inserted keys are looked for from now on, unless what is
    published of each table is ``compared`` with what it was copied by. The fingerprint goes too:
    a copy that is running would otherwise find the one it began with.
    """
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
    """What a refresh has found, and stored."""

    sub: Subscription
    added: list[SubscriptionRel]
    removed: list[SubscriptionRel]
    sync_slots: list[str]
    distrusted: int


def refresh_tables(
    before: Subscription,
    conn: ReplicationConn,
    context: CommandContext,
    *,
    copy_data: bool,
    columns: Mapping[str, Any],
    validate: Sequence[str],
) -> tuple[Subscription, bool]:
    """Store ``columns`` and which tables are published now; the row, and is anything new?"""
    sub = replace(before, **columns)
    mapped = published_tables(conn, sub, context, validate=validate)
    known = {(rel.nspname, rel.relname) for rel in context.store.rels(sub.oid)}
    new = [table for table in mapped if (table.remote.nspname, table.remote.relname) not in known]
    if copy_data and new:
        for message in other_origins_warning(conn, sub, known):
            context.notify(message)
    if new:
        raise_first(list(lake_findings(new, context.lake_tables, context.store, sub)))
    if new and not copy_data:
        # With a worker that goes on meanwhile, which of its transactions came before a table
        # joined would be one thing now and another after a crash.
        with context.workers_stopped(sub.oid):
            floor = _stand(sub, context)
            rels = [_with_lake_table(sub, table, floor, context) for table in new]
            found = _store(before, columns, mapped, rels, context)
    else:
        for error in privilege_findings(conn, new):
            # Not refused: the tables that can be read must not wait for the one that cannot.
            context.notify(warning(error.primary, detail=error.detail, hint=error.hint))
        rels = [new_rel(sub.oid, table, copy_data=True) for table in new]
        found = _store(before, columns, mapped, rels, context)
    _clean_up(found, conn, context)
    return found.sub, bool(columns or found.added or found.removed or found.distrusted)


def _store(
    before: Subscription,
    columns: Mapping[str, Any],
    mapped: Sequence[MappedTable],
    rels: Sequence[SubscriptionRel],
    context: CommandContext,
) -> _Difference:
    """All of it in one transaction, by the rows as they are in it."""
    store, subid = context.store, before.oid
    published = {(table.remote.nspname, table.remote.relname): table for table in mapped}
    with altering(before, context) as now:
        known = {(rel.nspname, rel.relname): rel for rel in store.rels(subid)}
        changed = store_columns(now, columns, context, compared=True) if columns else now
        added = [store.insert_rel(rel) for rel in rels if (rel.nspname, rel.relname) not in known]
        removed = [rel for name, rel in known.items() if name not in published]
        sync_slots = sync_slots_left(now, removed, store)
        for rel in removed:
            store.delete_rel(subid, rel.srrelid)
            store.origin_drop(origin_name(subid, rel.srrelid))
        # Nothing but the origins knew of them: a command that ends before it has dropped them
        # leaves them to the next.
        leave_sync_slots(now, sync_slots, context)
        distrusted = 0
        for name, rel in known.items():
            fingerprint = published[name].remote.fingerprint if name in published else None
            if fingerprint is None or fingerprint == rel.fingerprint or rel.key_unsure:
                continue
            # What the copy was trusted by has changed: inserted keys may be there already.
            store.update_rel(subid, rel.srrelid, copied=False, fingerprint=fingerprint)
            distrusted += 1
    return _Difference(changed, added, removed, sync_slots, distrusted)


def _clean_up(found: _Difference, conn: ReplicationConn, context: CommandContext) -> None:
    """What tables that left have outside the catalog; and what the command has to say."""
    sub = found.sub
    for rel in found.added:
        name = qualified_name(rel.nspname, rel.relname)
        context.notify(notice(f'table "{name}" added to subscription "{sub.subname}"'))
    for rel in found.removed:
        # A copy that went on would be published beside the one that starts if the table returns.
        context.stop_sync_worker(sub.oid, rel.srrelid)
        context.notify(_removed(sub, rel))
    drop_sync_slots(sub, found.sync_slots, conn, context)
    retry_leaked_slots(sub, conn, context)


def _removed(sub: Subscription, rel: SubscriptionRel) -> Notice:
    """That a table left; of a shared lake table also that its rows did not, and what deletes them.

    It may be there under another name: then readers would see them twice.
    """
    said = f'table "{qualified_name(rel.nspname, rel.relname)}" removed from "{sub.subname}"'
    if not source_of(sub, rel):
        return notice(said)
    lake = qualified_name(rel.lake_schema, rel.lake_table)
    return notice(
        said,
        detail=f'Its rows stay in shared lake table "{lake}".',
        hint="If it was renamed, or its rows are not wanted any more, delete them: "
        f"{delete_rows(sub, rel)}",
    )


def _with_lake_table(
    sub: Subscription, table: MappedTable, floor: LSN, context: CommandContext
) -> SubscriptionRel:
    """Lake table first, then the row, whole: a row without its lake table stops the worker.

    A command that dies between the two leaves a lake table of ours, which the next one takes.
    """
    rel = new_rel(sub.oid, table, copy_data=False)
    with context.store.transaction():
        # For its oid only, which the lake table's location has in it and the row gets again.
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
        existing = lake.fence(table.ident)  # of a dead worker nothing lands after this
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


def _stand(sub: Subscription, context: CommandContext) -> LSN:
    """The end of the last transaction that will not be applied again."""
    now = must_have(sub.subname, context)
    return LSN(max(now.max_flush_lsn, context.store.origin_lsn(origin_name(sub.oid))))
