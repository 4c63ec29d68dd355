"""Rename the lake tables of tables that have another name on the publisher.

A worker renames nothing while it has tables open. It notes the new names in the catalog and ends
(``workers.tables.rename_watch``). The next apply worker calls ``settle_renames`` before it opens a
table: no batch is in flight, no branch is in use, and the sessions of the dead worker are closed. A
table that is to be copied belongs to its sync worker (``settle_rename_of``).

The order for each noted table::

    noted      lake: old     catalog: old    killed: the successor finds the note
    renamed    lake: new     catalog: old    killed: the successor finds the lake table renamed
    finished   lake: new     catalog: new    the note is gone

A note is carried out forwards only, so a late call of a dead worker finds no table of the old name.
A power cut between the last two lines finds the table's files by the new name: the note has stored
the durable metadata file under both names.

The lake table keeps its name if the new name is taken, if the catalog cannot rename, or if the
configuration says so (``to``, ``on_rename: keep``). Rows, history and position stay in each case.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Collection

from catalog.errcodes import DuplicateTable, FeatureNotSupported, InsufficientPrivilege
from catalog.namespace import qualified_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from catalog.table_renames import TableRename, is_in_step, under_present_names
from workers.lake.destination import Destination
from workers.lake.sources import owner_of
from workers.lake.table import LakeIdent
from workers.process import failpoints

log = logging.getLogger(__name__)


def settle_renames(dest: Destination, store: CatalogStore, sub: Subscription) -> Subscription:
    """Carry out the noted renames; the subscription with its options under the new names.

    Tables that are to be copied are left to their sync workers, which may be running.
    """
    for rename in store.renames(sub.oid):
        rel = store.rel(sub.oid, rename.relid)
        if rel is None or is_in_step(rel):
            _settle(dest, store, sub, rename, rel)
    return store.subscription(sub.oid) or sub


def settle_rename_of(
    dest: Destination, store: CatalogStore, sub: Subscription, relid: int
) -> Subscription:
    """The same for a table that is to be copied, in its sync worker."""
    for rename in store.renames(sub.oid):
        if rename.relid == relid:
            _settle(dest, store, sub, rename, store.rel(sub.oid, relid))
    return store.subscription(sub.oid) or sub


def _settle(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    rename: TableRename,
    rel: SubscriptionRel | None,
) -> None:
    if rel is None or _is_named_so(rename, store.rels(sub.oid)):
        store.forget_rename(rename)
        return
    lake = _rename_in_lake(dest, store, sub, rename, rel)
    failpoints.reach(failpoints.TABLE_RENAMED)
    _finish(store, dataclasses.replace(rename, lake_schema=lake.schema, lake_table=lake.table))
    failpoints.reach(failpoints.RENAME_STORED)


def _is_named_so(rename: TableRename, rels: Collection[SubscriptionRel]) -> bool:
    """Has another table of the subscription the publisher's new name by now?"""
    names = {(rel.nspname, rel.relname) for rel in rels if rel.srrelid != rename.relid}
    return (rename.nspname, rename.relname) in names


def _rename_in_lake(
    dest: Destination,
    store: CatalogStore,
    sub: Subscription,
    rename: TableRename,
    rel: SubscriptionRel,
) -> LakeIdent:
    """The name of the lake table afterwards."""
    old = LakeIdent(rel.lake_schema, rel.lake_table)
    new = LakeIdent(rename.lake_schema, rename.lake_table)
    if old == new:
        return old
    here, there = dest.table(old), dest.table(new)
    taken = store.is_lake_table_taken(rename)
    is_copied = is_in_step(rel) or rel.base_snapshot is not None
    if not is_copied and (here is None or here.owner != owner_of(sub, rel)):
        return new if there is None and not taken else old  # the first copy makes the table
    if here is None and there is not None and there.owner == owner_of(sub, rel) and not taken:
        return new
    failpoints.reach(failpoints.BEFORE_TABLE_RENAME)
    why = f'"{new}" is taken'
    if here is not None and not taken:
        try:
            dest.rename_table(old, new)
        except (DuplicateTable, FeatureNotSupported, InsufficientPrivilege) as reason:
            why = reason.primary
        else:
            return new
    log.warning(
        'action=lake_name_kept subid=%d relid=%d lake table "%s" of table "%s" keeps its name: %s',
        *(rel.srsubid, rel.srrelid, old, qualified_name(rename.nspname, rename.relname), why),
    )
    return old


def _finish(store: CatalogStore, rename: TableRename) -> None:
    """Store the new names, the options of the table under them, and what happened."""
    with store.transaction():
        before = store.rel(rename.subid, rename.relid)
        sub = store.subscription(rename.subid)
        if before is None or sub is None:
            return
        store.finish_rename(rename)
        tables = under_present_names(sub.tables, store.rels(rename.subid))
        if tables != sub.tables:
            store.update_subscription(rename.subid, tables=tables)
        was = qualified_name(before.nspname, before.relname)
        now = qualified_name(rename.nspname, rename.relname)
        sentence = f'table "{was}" renamed to "{now}"'
        store.add_schema_change(rename.subid, rename.relid, rename.noted, rename.lsn, [sentence])
        store.count_for_stats(rename.subid, schema_change_count=1)
    log.info(
        'action=table_renamed subid=%d relid=%d lsn=%s table "%s" is "%s" now; its lake table is '
        '"%s"',
        *(rename.subid, rename.relid, rename.lsn, was, now),
        qualified_name(rename.lake_schema, rename.lake_table),
    )
