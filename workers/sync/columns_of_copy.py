"""Prepare the columns of a lake table for a copy that replaces all rows.

``workers.changes.columns_of_copy`` plans. The first step is made here, before the copy, and the
second one in the commit that publishes the copy. A first copy may add rows to a table of somebody
else, and a shared table has rows of others: their columns are left as they are.

An attempt of a first copy may have made the lake table, and the publisher's columns may have
changed since. No row was ever in such a table, so no column of the attempt before is kept in it.

A column that the configuration excludes by now leaves the lake table with the copy. A column that
was excluded under another name is not copied (``workers.changes.column_rules``).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from catalog.namespace import qualified_name
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.column_rules import check_guarded, guarded_columns
from workers.changes.columns_of_copy import ColumnsOfCopy, PublishedColumn, plan_columns
from workers.changes.masked_columns import column_type
from workers.changes.remembered_columns import from_text
from workers.changes.rules_of_rows import check_same_rules
from workers.lake.column_changes import AddColumn
from workers.lake.destination import Destination
from workers.lake.sources import owner_of
from workers.lake.table import LakeTable
from workers.publisher.remote_table import RemoteTable
from workers.publisher.table_shape import TableShape


def prepare_columns(
    sub: Subscription,
    rel: SubscriptionRel,
    remote: RemoteTable,
    shape: TableShape | None,
    dest: Destination,
    lake: LakeTable | None,
    *,
    drops: bool,
) -> tuple[ColumnsOfCopy, LakeTable | None]:
    """Plan the columns of a copy to the table ``lake``, if there is one, and make the first step.

    Returns the plan, and the table behind the first step.
    """
    options = sub.table_options(rel.nspname, rel.relname)
    if options.shared or not dest.changes_columns:
        return ColumnsOfCopy(), lake
    if lake is None or lake.owner != owner_of(sub, rel):
        return ColumnsOfCopy(), lake
    before = from_text(lake.publisher_columns) if lake.publisher_columns else None
    name, names = qualified_name(rel.nspname, rel.relname), list(options.guarded)
    check_guarded(name, names, options, before=before, shape=shape)
    if not rel.recopy and (options.adopt or not is_new(lake)):
        if before is not None and lake.records:
            check_same_rules(name, [each.name for each in remote.columns], before, options)
        return ColumnsOfCopy(), lake
    gone: Collection[int] = shape.dropped if drops and shape is not None else ()
    if shape is not None and options.excluded:
        left_out = guarded_columns(shape, options)
        gone = {*gone, *(each.attnum for each in left_out if each.name in options.excluded)}
    if not rel.recopy and before is not None:
        gone = {number for each in before.columns for number in (each.attnum, -each.field_id)}
    plan = plan_columns(
        [
            PublishedColumn(
                each.attnum,
                each.name,
                each.atttypid,
                each.atttypmod,
                column_type(each.name, each.type, options),
                each.name in {**options.hashed, **dict(options.types)},
            )
            for each in remote.columns
        ],
        remote.relid,
        lake.columns,
        before,
        options,
        dropped=gone,
        key=[each.name for each in remote.columns if each.in_key],
    )
    plan = _with_nulled(plan, remote, lake, options)
    if plan.now:
        text = lake.publisher_columns
        lake = dest.change_columns(lake.ident, plan.now, lambda _columns: text)
    return plan, lake


def _with_nulled(
    plan: ColumnsOfCopy, remote: RemoteTable, lake: LakeTable, options: TableOptions
) -> ColumnsOfCopy:
    """The plan, with the columns that the lake lacks and that stay NULL."""
    names = {column.name for column in lake.columns} | set((plan.renamed or {}).values())
    missing = [each for each in remote.nulled if options.lake_column(each.name) not in names]
    added = (
        AddColumn(options.lake_column(each.name), column_type(each.name, each.type, options))
        for each in missing
    )
    return replace(plan, now=(*plan.now, *added))


def is_new(lake: LakeTable) -> bool:
    """Was no copy of the lake table ever published?"""
    return lake.records == 0 and lake.stamp is not None and lake.stamp.lsn == InvalidXLogRecPtr


def with_options(sub: Subscription, rel: SubscriptionRel, options: TableOptions) -> Subscription:
    """The subscription with another configuration of a table."""
    return replace(sub, tables={**sub.tables, qualified_name(rel.nspname, rel.relname): options})
