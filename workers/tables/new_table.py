"""How a lake table is made: columns, owner, first position."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace

from catalog.errcodes import DuplicateTable
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from workers.changes.column_checks import (
    check_columns,
    check_delimiters,
    check_generated,
    check_names,
)
from workers.changes.column_comments import described
from workers.changes.masked_columns import column_type
from workers.lake.destination import Destination
from workers.lake.new_layout import check_layout, layout_of
from workers.lake.sources import check_source_column, owner_of, source_of, with_source_column
from workers.lake.table import SHARED, SOURCE_COLUMN, LakeColumn, LakeIdent, LakeTable
from workers.publisher.remote_table import RemoteTable
from workers.tables.position import stamp_at


def lake_columns(
    remote: RemoteTable, options: TableOptions, ident: LakeIdent
) -> tuple[LakeColumn, ...]:
    """The columns of a new lake table. All are nullable: the lake repeats no constraint.

    With ``on_unrepresentable: text`` a type with values that no lake column can hold becomes text,
    and the values stay exact.
    """
    names = options.lake_columns([column.name for column in remote.columns], ident)
    key = [names[column.name] for column in remote.columns if column.in_key]
    published = frozenset(names.values())
    names |= {column.name: options.lake_column(column.name) for column in remote.nulled}
    columns = sorted((*remote.columns, *remote.nulled), key=lambda column: column.attnum)
    made = [
        LakeColumn(names[column.name], column_type(column.name, column.type, options))
        for column in columns
    ]
    return described(made, published, options, key)


def new_columns(
    remote: RemoteTable, options: TableOptions, ident: LakeIdent, dest: Destination
) -> tuple[LakeColumn, ...]:
    """The published columns, the generated columns, and in a shared table the source column.

    A generated column may be computed from the source column, too.
    """
    columns = lake_columns(remote, options, ident)
    known = with_source_column(columns) if options.shared else columns
    columns = (*columns, *dest.generated_columns(ident, known, options.generated))
    return with_source_column(columns) if options.shared else columns


def prepare_lake_table(
    sub: Subscription,
    rel: SubscriptionRel,
    remote: RemoteTable,
    options: TableOptions,
    dest: Destination,
    lake: LakeTable | None,
    former_owners: Collection[str],
    remembered: Callable[[Sequence[LakeColumn]], str | None] = lambda _columns: None,
    branch: str = "",
) -> LakeTable:
    """Make the lake table, or adopt ``lake``; 42P07 if ``lake`` has a different owner.

    ``lake`` is the table as the caller has just read it, None if there is no table.
    ``remembered`` returns the text that a table is made with (``LakeTable.publisher_columns``),
    from the columns with the field ids that they will have. ``branch`` is a branch that the caller
    creates next: see ``Destination.create_table``.
    """
    ident = LakeIdent(rel.lake_schema, rel.lake_table)
    stamp = stamp_at(replace(rel, floor=InvalidXLogRecPtr), InvalidXLogRecPtr, source_of(sub, rel))
    owner = owner_of(sub, rel)
    names = options.lake_columns([column.name for column in remote.columns], ident)
    needed = list(names.values())
    if stamp.source:
        check_source_column(f"{rel.nspname}.{rel.relname}", needed)
        needed.append(SOURCE_COLUMN)
    if lake is None or (lake.owner == owner == SHARED and lake.snapshot_id is None):
        check_generated(needed, options.generated, ident)
        columns = new_columns(remote, options, ident, dest)
        check_names(f"{rel.nspname}.{rel.relname}", columns)
        layout = layout_of(options)
        check_layout(layout, columns, ident)
        text = remembered([replace(each, field_id=n) for n, each in enumerate(columns, 1)])
        return dest.create_table(
            ident,
            columns,
            owner=owner,
            relid=rel.srrelid,
            stamp=stamp,
            layout=layout,
            publisher_columns=text or "",
            branch=branch,
        )
    if lake.owner != owner:
        if not options.adopt:
            raise DuplicateTable(
                f'lake table "{ident}" already exists',
                hint="Say adopt: true for the table if its rows belong to it, map it to another "
                "name with to:, or drop the lake table.",
            )
        lake = dest.adopt_table(ident, owner=owner, stamp=stamp, former_owners=former_owners)
    types = {
        names[each.name]: column_type(each.name, each.type, options) for each in remote.columns
    }
    check_columns(needed, lake, options.generated, types)
    check_delimiters(((names[column.name], column.type) for column in remote.columns), lake)
    return lake
