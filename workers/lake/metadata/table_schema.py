"""Lake columns to and from the schema in Iceberg's metadata.

The types are those of ``typemap``, through which Spark reads and creates tables on a server without
a gateway.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from catalog.errcodes import FeatureNotSupported
from workers.lake.metadata.partitioning import with_layout
from workers.lake.table import LakeColumn

_TYPES: Final[Mapping[str, pa.DataType]] = {
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us"),
    "timestamptz": pa.timestamp("us", "UTC"),
    "string": pa.string(),
    "binary": pa.binary(),
}
_DECIMAL: Final = re.compile(r"decimal\((\d+), ?(\d+)\)")
_FIXED: Final = re.compile(r"fixed\[\d+\]")
_NESTED: Final = ("struct", "map")

_NAMES: Final = {
    pa.bool_(): "boolean",
    pa.int8(): "int",
    pa.int16(): "int",
    pa.int32(): "int",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.date32(): "date",
    pa.timestamp("us"): "timestamp",
    pa.timestamp("us", "UTC"): "timestamptz",
    pa.string(): "string",
    pa.large_string(): "string",
    pa.binary(): "binary",
    pa.large_binary(): "binary",
}


def columns_of(metadata: Mapping[str, Any]) -> tuple[LakeColumn, ...] | None:
    """The columns of the current schema; None if Spark may refuse to read a column's type.

    A column to which pgsub publishes no values (struct, map) has the null type, as in ``typemap``.
    """
    columns = columns_of_schema(current_schema(metadata))
    return None if columns is None else with_layout(columns, metadata)


def columns_of_schema(schema: Mapping[str, Any]) -> tuple[LakeColumn, ...] | None:
    """The columns of a schema; None as from ``columns_of``."""
    columns = []
    for field in schema["fields"]:
        type = _arrow_type(field["type"])
        if type is None:
            return None
        nullable, doc = not field["required"], field.get("doc", "")
        columns.append(LakeColumn(field["name"], type, nullable, field["id"], doc=doc))
    return tuple(columns)


def _arrow_type(type: Any) -> pa.DataType | None:
    if isinstance(type, dict):
        if type["type"] in _NESTED:
            return pa.null()
        element = _arrow_type(type["element"])
        return None if element is None else pa.list_(pa.field("element", element))
    if type == "uuid":
        return pa.string()  # as Spark reads the type
    return pa.binary() if _FIXED.fullmatch(type) else plain_type(type)


def current_fields(metadata: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """The fields of the current schema."""
    fields: Sequence[Mapping[str, Any]] = current_schema(metadata)["fields"]
    return fields


def current_schema(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """The current schema of a table."""
    current = metadata["current-schema-id"]
    schemas: Sequence[Mapping[str, Any]] = metadata["schemas"]
    return next(each for each in schemas if each["schema-id"] == current)


def plain_type(name: str) -> pa.DataType | None:
    """The Arrow type of an Iceberg type without parts that a data file of pgsub may hold."""
    if decimal := _DECIMAL.fullmatch(name):
        return pa.decimal128(int(decimal[1]), int(decimal[2]))
    return _TYPES.get(name)


def schema_json(columns: Sequence[LakeColumn]) -> str:
    """A new table's schema as Iceberg reads a schema; 0A000 for a type that the lake lacks."""
    numbers = itertools.count(1)
    numbered = [(next(numbers), column) for column in columns]
    fields = [
        {
            "id": number,
            "name": column.name,
            "required": not column.nullable,
            "type": iceberg_type(column.type, numbers),
            **({"doc": column.doc} if column.doc else {}),
        }
        for number, column in numbered
    ]
    return json.dumps({"type": "struct", "schema-id": 0, "fields": fields})


def iceberg_type(type: Any, numbers: Iterator[int]) -> Any:
    """A lake column's type as Iceberg writes a type; ``numbers`` are ids for the parts."""
    if pa.types.is_list(type) or pa.types.is_large_list(type):
        return {
            "type": "list",
            "element-id": next(numbers),
            "element": iceberg_type(type.value_type, numbers),
            "element-required": False,
        }
    if pa.types.is_decimal128(type):
        return f"decimal({type.precision}, {type.scale})"
    name = _NAMES.get(type)
    if name is None:
        raise FeatureNotSupported(f"a lake column cannot be of type {type}")
    return name
