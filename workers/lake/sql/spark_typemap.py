"""Spark types and Arrow types of lake columns."""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa

from catalog.errcodes import FeatureNotSupported


def spark_ddl(type: pa.DataType) -> str:
    """The type in Spark SQL; 0A000 for a type that no lake column has."""
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
    """The Spark type, or VOID for a column of a type without published values."""
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
    """A staged schema as the DDL string of a DataFrame reader; names are c0, b1, op, …"""
    return ", ".join(f"{field.name} {spark_ddl(field.type)}" for field in schema)


def arrow_type(spark: Any) -> pa.DataType:
    """The Arrow type of a column of an existing table.

    A type that no published column can have (struct, map) becomes the null type: an existing table
    may have the column, but pgsub writes no values to the column.
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
