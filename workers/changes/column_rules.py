"""The rules of the configuration for columns: what the lake has in place of the values. Pure.

A rule has the publisher's name of the column. A column that is *left out* (``exclude``, ``mask:
null``) is in neither the COPY nor the layout of a Relation message, so no value of the column is
ever decoded. All further steps work as if a column list of the publication left the column out. A
*hashed* column (``mask: sha256``, ``keyed-hash``) is text in the lake, and each value is hashed
where the value is decoded (``workers.columnar.masks``).

A name may come to mean another column. Then the hidden values would reach the lake under the new
name. So a hidden column is *guarded*:

* A message, or a table to be copied, must have every guarded column by name.
* The lake table remembers the number of every guarded column. A number under another name without
  a rule is an error, also if another column has the old name by now.
* A dropped number does no harm: PostgreSQL never uses the number again. But a message with a new
  column of the same type may come from before the drop: the new name may have been the dropped
  column's.

No error of this module is answered by a new copy: the copy would bring the values to the lake.

Under REPLICA IDENTITY FULL rows are found by the values in the lake. Two rows with a difference in
a left-out column alone are equal in the lake, and either of the two may be changed.

A trace. ``ssn`` is excluded, and remembered as column 2::

    message id, ssn, note         2 is ssn      id and note are taken
    message id, social, note                    error: there is no column ssn
    message id, note, ssn         2 is note     error: column 2 was ssn
    message id, note              2 is dropped  id and note are taken
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterator
from dataclasses import replace

from catalog.errcodes import (
    ColumnsChanged,
    FeatureNotSupported,
    InvalidParameterValue,
    ReplicationError,
    UndefinedColumn,
)
from catalog.namespace import qualified_name
from catalog.pg_subscription import TableOptions
from workers.changes.declared_type import type_errors
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.proto.messages import Relation
from workers.publisher.remote_table import RemoteTable
from workers.publisher.table_shape import TableShape


class GuardedColumn(ColumnsChanged):
    """A guarded column may have another name: no copy helps."""

    copies = False


def taken_columns(remote: RemoteTable, options: TableOptions) -> RemoteTable:
    """A published table, without left-out columns; masked ones among these are ``nulled``."""
    out = options.left_out
    if not out:
        return remote
    columns = tuple(each for each in remote.columns if each.name not in out)
    nulled = [each for each in remote.columns if each.name in out]
    return replace(
        remote,
        columns=columns,
        nulled=tuple(each for each in nulled if each.name not in options.excluded),
    )


def taken_of(relation: Relation, options: TableOptions) -> Relation:
    """A Relation message, without left-out columns.

    The tuples of the message still have the values of all columns.
    """
    out = options.left_out
    if not out:
        return relation
    columns = tuple(each for each in relation.columns if each.name not in out)
    return replace(relation, columns=columns)


def checked_columns(remote: RemoteTable, options: TableOptions) -> RemoteTable:
    """``taken_columns`` for a copy; raises 42703, 22023 or 42846 for a rule."""
    names = [each.name for each in remote.columns]
    for name in options.guarded:
        if name not in names:
            raise unnamed_column(qualified_name(remote.nspname, remote.relname), name, names)
    for error in (*key_errors(remote, options), *type_errors(remote, options)):
        raise error
    return taken_columns(remote, options)


def key_errors(remote: RemoteTable, options: TableOptions) -> Iterator[ReplicationError]:
    """Hidden columns that find changed rows; a table of which no column is left."""
    table = qualified_name(remote.nspname, remote.relname)
    for column in remote.columns:
        in_key = column.in_key or column.name in remote.key_under_full
        if in_key and is_no_key(column.name, options):
            yield hidden_key(table, column.name, options)
    if remote.columns and not taken_columns(remote, options).columns:
        yield FeatureNotSupported(
            f'all columns of table "{table}" are left out',
            detail="The lake would have no value of a row.",
            hint="Take the table out of the publication, or a column out of the rules.",
        )


def unnamed_column(table: str, name: str, names: Collection[str]) -> UndefinedColumn:
    """The error for a rule without a published column, with the nearest name."""
    nearest = nearest_name(name, names)
    perhaps = "" if nearest is None else f'Perhaps you meant column "{nearest}". '
    return UndefinedColumn(
        f'column "{name}" of the configuration of table "{table}" is not published',
        hint=f"{perhaps}Name a column as the publisher does, or take the rule out.",
    )


def nearest_name(name: str, names: Collection[str]) -> str | None:
    """The most similar name."""
    folded = {each.lower(): each for each in names}
    found = difflib.get_close_matches(name.lower(), folded, n=1)
    return folded[found[0]] if found else None


def is_no_key(name: str, options: TableOptions) -> bool:
    """Does a column find no row? Only a hash under a key may replace a value of a key.

    Values of keys are often few, or in sequence: a hash without a key would be found by trying.
    """
    return name in options.left_out or options.hashed.get(name) == ""


def hidden_key(table: str, column: str, options: TableOptions) -> InvalidParameterValue:
    """The error for a column of the replica identity that is excluded or masked."""
    detail = (
        "Changed rows are found by the column: by the replica identity, or by the primary key "
        "under REPLICA IDENTITY FULL."
    )
    if column in options.excluded:
        return InvalidParameterValue(
            f'column "{column}" of table "{table}" cannot be excluded',
            detail=detail,
            hint="Mask it with keyed-hash, take the rule out, or give the table another replica "
            "identity on the publisher.",
        )
    return InvalidParameterValue(
        f'column "{column}" of table "{table}" cannot be masked so',
        detail=detail,
        hint="Mask it with keyed-hash, or give the table another replica identity on the "
        "publisher.",
    )


def check_guarded(
    table: str,
    names: Collection[str],
    options: TableOptions,
    *,
    before: RememberedColumns | None = None,
    shape: TableShape | None = None,
) -> None:
    """Raise 55000 if a guarded column may have another name.

    ``names`` are the columns of a message, or of a table to be copied. ``before`` is remembered;
    the publisher's ``shape`` has the present names of the numbers.
    """
    if not options.guarded:
        return
    same = before is not None and shape is not None and before.relid == shape.relid
    guarded = _guarded_before(before, options) if before is not None and same else ()
    dropped = shape.dropped if shape is not None else frozenset()
    gone = {each.name for each in guarded if each.attnum in dropped}
    for name in options.guarded:
        if name not in names and name not in gone:
            raise _may_be_renamed(table, name, None, options)
    if before is not None and shape is not None:
        known = {each.attnum for each in before.columns}
        new = [each for each in shape.columns if each.attnum not in known and each.name in names]
        types = {each.typid for each in new if each.name not in options.guarded}
        for was in guarded:
            if was.attnum in dropped and was.typid in types:
                raise _may_be_renamed(table, was.name, None, options)
    numbered = {} if shape is None else {each.attnum: each.name for each in shape.columns}
    for was in guarded:
        now = numbered.get(was.attnum, was.name)
        if now != was.name and now not in options.guarded:
            raise _may_be_renamed(table, was.name, now, options)


def _guarded_before(
    before: RememberedColumns, options: TableOptions
) -> tuple[RememberedColumn, ...]:
    """What was remembered of columns that are left out, and of hashed columns."""
    hashed = (each for each in before.columns if each.name in options.hashed)
    return (*before.guarded, *hashed)


def guarded_columns(
    shape: TableShape, options: TableOptions, before: RememberedColumns | None = None
) -> tuple[RememberedColumn, ...]:
    """The columns to remember beside those in the lake: left out, and dropped ones without a type.

    A hashed column is in the lake, and remembered as such until it is dropped.
    """
    present = tuple(
        RememberedColumn(each.attnum, each.name, each.typid, each.typmod, each.type.oid, 0)
        for each in shape.columns
        if each.name in options.left_out
    )
    names = {each.name for each in present}
    dropped = tuple(
        replace(each, typid=0, field_id=0)
        for each in (() if before is None else _guarded_before(before, options))
        if each.attnum in shape.dropped and each.name not in names
    )
    return (*present, *dropped)


def _may_be_renamed(table: str, name: str, now: str | None, options: TableOptions) -> GuardedColumn:
    rule = "excluded" if name in options.excluded else "masked"
    primary = (
        f'{rule} column "{name}" of table "{table}" is not there any more'
        if now is None
        else f'{rule} column "{name}" of table "{table}" is column "{now}" now'
    )
    return GuardedColumn(
        primary,
        detail="Its values would go to the lake under another name.",
        hint="Name the column in the configuration as the publisher names it now; if it was "
        "dropped, take the rule out. Then pgsub up FILE copies the table again.",
    )
