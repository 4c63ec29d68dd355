"""Which lake type a PostgreSQL type becomes, and how Arrow, Spark and Iceberg name it.

Only what the lake type holds exactly gets a type of its own; everything else (``time``,
``interval``, unbounded ``numeric``, ranges, composites, …) is kept as PostgreSQL's own text. Used
where a table is created and where one is read; the values themselves are read by
``workers.columnar.values``.
"""

from __future__ import annotations

from typing import Any, Final, Protocol

import pyarrow as pa

from catalog.errcodes import FeatureNotSupported

MAX_PRECISION: Final = 38
_VARHDRSZ: Final = 4
_BYTEA: Final = 17
_NUMERIC: Final = 1700
_BOX: Final = 603  # the one type whose arrays are not separated by commas

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


class PgType(Protocol):
    """A publisher's type; domains are resolved by whoever asks (``publication.ColumnType``)."""

    @property
    def oid(self) -> int:
        """pg_type's oid."""

    @property
    def typmod(self) -> int:
        """atttypmod, -1 for none."""

    @property
    def element(self) -> PgType | None:
        """The element type of an array."""


def lake_type(type: PgType, *, as_text: bool = False) -> pa.DataType:
    """The Arrow type of the lake column for a publisher's column.

    ``as_text`` (``on_unrepresentable: text``) gives text to every type that has values the lake
    type cannot hold: numeric (NaN), dates and timestamps (infinity), and arrays (more dimensions).
    """
    if type.element is not None:
        inner = pa.string() if as_text else _scalar(type.element, as_text=False)
        if as_text or type.element.element is not None or type.element.oid == _BOX:
            return pa.string()
        return pa.list_(pa.field("element", inner))
    return _scalar(type, as_text=as_text)


def _scalar(type: PgType, *, as_text: bool) -> pa.DataType:
    exact = _EXACT.get(type.oid)
    if exact is not None:
        return exact
    if type.oid in (700, 701):
        return _PARTIAL[type.oid]  # every float value is one in the lake, too
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


def spark_ddl(type: pa.DataType) -> str:
    """The type in Spark's SQL; raises 0A000 for one the lake has no use for."""
    for test, name in _SPARK_NAMES:
        if test(type):
            return name
    if pa.types.is_decimal128(type):
        return f"DECIMAL({type.precision},{type.scale})"
    if pa.types.is_timestamp(type):
        return "TIMESTAMP_NTZ" if type.tz is None else "TIMESTAMP"
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return f"ARRAY<{spark_ddl(type.value_type)}>"
    raise FeatureNotSupported(f"a lake column cannot be of type {type}")


def spark_ddl_or_void(type: pa.DataType) -> str:
    """The same; a type nothing is published to takes an untyped NULL."""
    return "VOID" if pa.types.is_null(type) else spark_ddl(type)


_SPARK_NAMES: Final[tuple[tuple[Any, str], ...]] = (
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_int8, "TINYINT"),
    (pa.types.is_int16, "SMALLINT"),
    (pa.types.is_int32, "INT"),
    (pa.types.is_int64, "BIGINT"),
    (pa.types.is_float32, "FLOAT"),
    (pa.types.is_float64, "DOUBLE"),
    (pa.types.is_string, "STRING"),
    (pa.types.is_large_string, "STRING"),
    (pa.types.is_binary, "BINARY"),
    (pa.types.is_large_binary, "BINARY"),
    (pa.types.is_date32, "DATE"),
)


def schema_ddl(schema: pa.Schema) -> str:
    """A staged schema as the DDL string of a DataFrame reader; its names are c0, b1, op, …"""
    return ", ".join(f"{field.name} {spark_ddl(field.type)}" for field in schema)


def arrow_type(spark: Any) -> pa.DataType:
    """The Arrow type of a Spark type as it is read from a table that exists.

    A type no published column can have (struct, map) reads as null type: such a column may be
    there, but nothing is written to it.
    """
    name = spark.typeName()
    if name == "decimal":
        return pa.decimal128(spark.precision, spark.scale)
    if name == "array":
        return pa.list_(pa.field("element", arrow_type(spark.elementType)))
    return _ARROW_TYPES.get(name, pa.null())


_ARROW_TYPES: Final[dict[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "byte": pa.int8(),
    "short": pa.int16(),
    "integer": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "string": pa.string(),
    "binary": pa.binary(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
}
