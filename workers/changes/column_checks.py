"""Check whether a table's published columns can go to a lake table, by names, before any row.

The commands check a configuration with the same functions, so this module needs no kernel.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from catalog.errcodes import FeatureNotSupported, ObjectNotInPrerequisiteState, UndefinedColumn
from catalog.pg_subscription import TableOptions
from workers.changes.cannot_follow import CannotFollow
from workers.lake.column_changes import AddColumn, ColumnChange, RenameColumn
from workers.lake.refusals import element_names, missing_columns, reserved_names
from workers.lake.segment import Generated
from workers.lake.table import SOURCE_COLUMN, LakeColumn, LakeIdent, LakeTable
from workers.lake.typemap import PgType
from workers.publisher.replica_identity import REPLICA_IDENTITY_FULL


def check_keys(
    options: TableOptions, replident: str, published: Collection[str], ident: LakeIdent
) -> None:
    """Check that declared keys have published columns (42703), and a key finds rows (0A000)."""
    if not options.keys:
        return
    if replident == REPLICA_IDENTITY_FULL:
        raise FeatureNotSupported(
            f'keys of lake table "{ident}" cannot be checked under REPLICA IDENTITY FULL',
            hint="Give the table another replica identity on the publisher, or leave keys out.",
        )
    for name in (name for key in options.keys for name in key):
        if name not in published:
            raise UndefinedColumn(
                f'column "{name}" of a key of lake table "{ident}" is not published',
                hint="Correct keys of the table in the configuration.",
            )


def check_names(table: str, columns: Sequence[LakeColumn]) -> None:
    """Raise 42939 if a new lake table of the publisher's table cannot have a column's name.

    CREATE and ``check`` look first. A column may have joined the table since.
    """
    names = [column.name for column in columns]
    lists = [column.name for column in columns if pa.types.is_list(column.type)]
    for error in (
        *reserved_names(table, names, _another_name),
        *element_names(table, names, lists, _another_name),
    ):
        raise error


def check_new_names(
    table: str, lake: Sequence[LakeColumn], changes: Sequence[ColumnChange]
) -> None:
    """Raise 42939 if the lake table cannot have a new column, or a new name of a column."""
    columns = {column.field_id: column for column in lake}
    for change in changes:
        if isinstance(change, RenameColumn):
            columns[change.field_id] = replace(columns[change.field_id], name=change.name)
    added = [
        LakeColumn(change.name, change.type) for change in changes if isinstance(change, AddColumn)
    ]
    check_names(table, [*columns.values(), *added])


def check_commutes(changes: Sequence[ColumnChange], *, fills: bool, sliced: bool) -> None:
    """Changes in the middle of a transaction: only new columns can be there before its first row.

    The rows from before the change are in the same part, and are written with the new columns, or
    are on the branch already (``sliced``). ``fills``: some new columns have values in older rows.
    """
    if (sliced and fills) or not all(isinstance(change, AddColumn) for change in changes):
        raise CannotFollow("The transaction has changed rows of the table before and after it.")


def _another_name(column: str) -> str:
    return (
        f'Map column "{column}" to another name with columns: {{COLUMN: {{to: NAME}}}} of the '
        "table in the configuration, rename the column on the publisher, or leave it out with a "
        "column list. Then the copy begins again by itself."
    )


def check_columns(
    published: Sequence[str],
    table: LakeTable,
    generated: Generated = (),
    types: Mapping[str, pa.DataType] | None = None,
) -> None:
    """Raise 55000 with all published columns that the lake table lacks, or generates.

    Generated columns must be in the lake table, too. ``types`` has the lake types of published
    columns, as far as they are known.
    """
    known = {column.name for column in table.columns}
    missing = [name for name in published if name not in known]
    if missing:
        renamed = _renamed(missing, published, table, generated, types or {})
        raise missing_columns(table.ident, missing, renamed)
    check_generated(published, generated, table.ident)
    absent = [name for name, _ in generated if name not in known]
    if absent:
        columns = _listed(absent)
        raise ObjectNotInPrerequisiteState(
            f'lake table "{table.ident}" is missing generated {columns}',
            hint="Add to it what is missing with ALTER TABLE ... ADD COLUMN in pgsub sql; pgsub "
            "refresh NAME --recopy TABLE computes it for rows that are there.",
        )


def _renamed(
    missing: Sequence[str],
    published: Sequence[str],
    table: LakeTable,
    generated: Generated,
    types: Mapping[str, pa.DataType],
) -> tuple[str, str] | None:
    """The old and the new name of a column that the publisher may have renamed.

    That is so if one column is missing, and nothing fills one lake column of the type.
    """
    if len(missing) != 1:
        return None
    filled = {*published, *(name for name, _ in generated), SOURCE_COLUMN}
    wanted = types.get(missing[0])
    left = [
        column.name
        for column in table.columns
        if column.name not in filled and wanted in (None, column.type)
    ]
    return (left[0], missing[0]) if len(left) == 1 else None


def check_delimiters(columns: Iterable[tuple[str, PgType]], table: LakeTable) -> None:
    """Raise 0A000 if a list of an existing lake table would be read from an array without commas.

    ``columns`` are lake columns, with the publisher's types.

    A new lake table has text there (``typemap``). A list column is of an earlier version, was made
    by someone else, or belonged to another type on the publisher.
    """
    lists = list_columns(table)
    for name, type in columns:
        if name in lists and type.element is not None and type.element.delimiter != ",":
            raise no_list(name, type.element.delimiter, table.ident)


def list_columns(table: LakeTable) -> frozenset[str]:
    """The names of a lake table's list columns."""
    return frozenset(
        column.name
        for column in table.columns
        if pa.types.is_list(column.type) or pa.types.is_large_list(column.type)
    )


def no_list(column: str, delimiter: str, ident: LakeIdent) -> FeatureNotSupported:
    """The error for a list column and an array whose elements ``delimiter`` separates."""
    return FeatureNotSupported(
        f'column "{column}" of lake table "{ident}" cannot be a list',
        detail="The publisher separates the elements of the column's arrays by "
        f'"{delimiter}", not by a comma; only text holds the arrays exactly.',
        hint="Drop the lake table and copy the table again, which makes the column text, or leave "
        "the column out with a column list in the publication.",
    )


def check_generated(published: Sequence[str], generated: Generated, ident: LakeIdent) -> None:
    """Raise 55000 with all published columns that are declared as generated."""
    names = {name for name, _ in generated}
    both = [name for name in published if name in names]
    if both:
        columns = _listed(both)
        raise ObjectNotInPrerequisiteState(
            f'logical replication target relation "{ident}" has incompatible generated {columns}',
            hint="Leave them out of generated of the table in the configuration, or out of the "
            "publication.",
        )


def _listed(names: Sequence[str]) -> str:
    return f"{'column' if len(names) == 1 else 'columns'}: " + ", ".join(f'"{n}"' for n in names)
