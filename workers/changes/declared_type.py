"""Lake types that the configuration declares (``type:`` of a column), in place of the usual ones.

The type of a lake column decides how values are read (``workers.columnar.text_values``), in copy
and stream, in text and binary form. A value too large or too fine for the type is an error (22003),
or NULL under ``on_unrepresentable: null``; no value is rounded or cut. Left to decide are the types
for a publisher's type::

    string      every type: PostgreSQL's text
    decimal     numeric, smallint, integer, bigint
    timestamp   timestamp; date: the first moment of the day; timestamptz: the moment in UTC
    binary      bytea

No text is read as a number or a time: one row with another text would stop the table.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from catalog.errcodes import CannotCoerce, ReplicationError
from catalog.namespace import qualified_name
from catalog.pg_subscription import TableOptions
from config.declared_type import BINARY, DECIMAL, STRING, TIMESTAMP, DeclaredType, declared_type

if TYPE_CHECKING:
    import pyarrow as pa

    from workers.lake.typemap import PgType
    from workers.publisher.remote_table import RemoteTable

_POSSIBLE: Final = {
    DECIMAL: frozenset({20, 21, 23, 1700}),
    TIMESTAMP: frozenset({1082, 1114, 1184}),
    BINARY: frozenset({17}),
}
"""The oids of the publisher's types, by the kind of the lake type."""


def type_of(name: str, options: TableOptions) -> pa.DataType | None:
    """The declared type of a published column; None if none is declared."""
    text = dict(options.types).get(name)
    return None if text is None else _arrow(declared_type(text))


def type_errors(remote: RemoteTable, options: TableOptions) -> Iterator[ReplicationError]:
    """Published columns whose values cannot have the declared type."""
    types = dict(options.types)
    for column in remote.columns:
        text = types.get(column.name)
        if text is None:
            continue
        declared = declared_type(text)
        if not _can_be(column.type, declared.kind):
            table = qualified_name(remote.nspname, remote.relname)
            yield _cannot_be(table, column.name, declared, column.type)


def _can_be(type: PgType, kind: str) -> bool:
    return kind == STRING or (type.element is None and type.oid in _POSSIBLE[kind])


def _arrow(declared: DeclaredType) -> pa.DataType:
    import pyarrow as pa  # most commands need no arrays

    if declared.kind == DECIMAL:
        return pa.decimal128(declared.precision, declared.scale)
    if declared.kind == TIMESTAMP:
        return pa.timestamp("us")
    return pa.binary() if declared.kind == BINARY else pa.string()


def _cannot_be(table: str, column: str, declared: DeclaredType, type: PgType) -> CannotCoerce:
    possible = [kind for kind in _POSSIBLE if _can_be(type, kind)]
    words = [STRING, *("decimal(p,s)" if kind == DECIMAL else kind for kind in possible)]
    return CannotCoerce(
        f'column "{column}" of table "{table}" cannot be of type {declared} in the lake',
        detail=f"Possible for the publisher's type: {', '.join(words)}.",
        hint="Correct type of the column in the configuration, or take it out.",
    )
