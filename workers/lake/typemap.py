"""The lake type of a PostgreSQL type.

A PostgreSQL type gets a lake type only if the lake type holds its values exactly. All remaining
types (``time``, ``interval``, unbounded ``numeric``, ranges, composites, …) stay PostgreSQL's text.
The module decides the columns of a new lake table; ``workers.columnar.text_values`` reads the
values.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Protocol

import pyarrow as pa

MAX_PRECISION: Final = 38
_VARHDRSZ: Final = 4
_BYTEA: Final = 17
_NUMERIC: Final = 1700

_EXACT: Final[dict[int, pa.DataType]] = {
    16: pa.bool_(),
    20: pa.int64(),
    21: pa.int32(),  # int2: Iceberg's smallest integer has 32 bits
    23: pa.int32(),
    _BYTEA: pa.binary(),
}
"""Types all of whose values the lake column holds."""

_PARTIAL: Final[dict[int, pa.DataType]] = {
    700: pa.float32(),
    701: pa.float64(),
    1082: pa.date32(),
    1114: pa.timestamp("us"),
    1184: pa.timestamp("us", "UTC"),
}
"""Types with a few values (infinity, years past 9999) that the lake column cannot hold."""

_TEXTS: Final = frozenset({19, 25, 114, 1042, 1043, 2950, 3802})
"""name, text, json, char(n), varchar(n), uuid, jsonb."""


class PgType(Protocol):
    """A publisher's type. The caller resolves domains (``remote_table.ColumnType``)."""

    @property
    def oid(self) -> int:
        """pg_type's oid."""

    @property
    def typmod(self) -> int:
        """atttypmod, -1 for none."""

    @property
    def element(self) -> PgType | None:
        """The element type of an array."""

    @property
    def delimiter(self) -> str:
        """pg_type's typdelim: separates values of the type in the text of an array."""


def lake_type(type: PgType, *, as_text: bool = False) -> pa.DataType:
    """The Arrow type of the lake column for a publisher's column.

    ``as_text`` (``on_unrepresentable: text``) gives text to every type that has values the lake
    type cannot hold: numeric (NaN), dates and timestamps (infinity), and arrays (more dimensions).
    An array whose elements are not separated by commas (``box[]``, PostGIS's ``geometry[]``) is
    always text: the readers of lists know the comma only.
    """
    if type.element is not None:
        inner = pa.string() if as_text else _scalar(type.element, as_text=False)
        if as_text or type.element.element is not None or type.element.delimiter != ",":
            return pa.string()
        return pa.list_(pa.field("element", inner))
    return _scalar(type, as_text=as_text)


@dataclass(frozen=True, slots=True)
class _BuiltIn:
    """A type that is no array."""

    oid: int
    typmod: int
    element: None = None
    delimiter: str = ","


def built_in_type(oid: int, typmod: int, *, as_text: bool) -> pa.DataType | None:
    """The Arrow type of the lake column for a frequent type that is no array and no domain."""
    if oid in _EXACT or oid in _PARTIAL or oid in _TEXTS or oid == _NUMERIC:
        return lake_type(_BuiltIn(oid, typmod), as_text=as_text)
    return None


def _scalar(type: PgType, *, as_text: bool) -> pa.DataType:
    exact = _EXACT.get(type.oid)
    if exact is not None:
        return exact
    if type.oid in (700, 701):
        return _PARTIAL[type.oid]  # the lake has every float value, too
    if as_text:
        return pa.string()
    if type.oid == _NUMERIC:
        return _numeric(type.typmod)
    return _PARTIAL.get(type.oid, pa.string())


def _numeric(typmod: int) -> pa.DataType:
    """numeric(p,s) if a lake decimal holds it; scale is an 11-bit signed field since 15."""
    if typmod < _VARHDRSZ:
        return pa.string()
    packed = typmod - _VARHDRSZ
    precision, scale = (packed >> 16) & 0xFFFF, packed & 0x7FF
    if scale >= 0x400:
        scale -= 0x800
    if precision > MAX_PRECISION or not 0 <= scale <= precision:
        return pa.string()
    return pa.decimal128(precision, scale)
