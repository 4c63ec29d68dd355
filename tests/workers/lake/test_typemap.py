"""PostgreSQL's types in the lake."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa
import pytest

from workers.lake.typemap import built_in_type, lake_type


@dataclass(frozen=True, slots=True)
class Type:
    oid: int
    typmod: int = -1
    element: Type | None = None
    delimiter: str = ","


def numeric(precision: int, scale: int) -> int:
    """numerictypmodin's packing."""
    return ((precision << 16) | (scale & 0x7FF)) + 4


def array(of: Type) -> Type:
    return Type(1007, -1, of)


@pytest.mark.parametrize(
    ("type", "expected"),
    [
        (Type(16), pa.bool_()),
        (Type(21), pa.int32()),
        (Type(23), pa.int32()),
        (Type(20), pa.int64()),
        (Type(700), pa.float32()),
        (Type(701), pa.float64()),
        (Type(1700, numeric(10, 2)), pa.decimal128(10, 2)),
        (Type(1700, numeric(38, 38)), pa.decimal128(38, 38)),
        (Type(1700, numeric(39, 0)), pa.string()),
        (Type(1700, numeric(5, -2)), pa.string()),
        (Type(1700, numeric(3, 5)), pa.string()),
        (Type(1700), pa.string()),
        (Type(25), pa.string()),
        (Type(1043, 14), pa.string()),
        (Type(2950), pa.string()),
        (Type(3802), pa.string()),
        (Type(17), pa.binary()),
        (Type(1082), pa.date32()),
        (Type(1114), pa.timestamp("us")),
        (Type(1184), pa.timestamp("us", "UTC")),
        (Type(1083), pa.string()),
        (Type(1266), pa.string()),
        (Type(1186), pa.string()),
        (Type(99999), pa.string()),
        (array(Type(23)), pa.list_(pa.field("element", pa.int32()))),
        (array(Type(1186)), pa.list_(pa.field("element", pa.string()))),
        (array(array(Type(23))), pa.string()),
        (array(Type(603, delimiter=";")), pa.string()),
        (array(Type(99999, delimiter=":")), pa.string()),
        (array(Type(99999)), pa.list_(pa.field("element", pa.string()))),
    ],
)
def test_types(type: Type, expected: pa.DataType) -> None:
    assert lake_type(type) == expected


@pytest.mark.parametrize("oid", [1700, 1082, 1114, 1184])
def test_as_text_is_for_types_with_values_the_lake_cannot_hold(oid: int) -> None:
    assert lake_type(Type(oid, numeric(10, 2)), as_text=True) == pa.string()
    assert lake_type(array(Type(oid)), as_text=True) == pa.string()


@pytest.mark.parametrize("oid", [16, 20, 23, 700, 701, 17])
def test_as_text_leaves_the_others(oid: int) -> None:
    assert lake_type(Type(oid), as_text=True) == lake_type(Type(oid))


@pytest.mark.parametrize("as_text", [False, True])
def test_frequent_types_are_known_by_their_oid(as_text: bool) -> None:
    known = [Type(16), Type(23), Type(17), Type(701), Type(1184), Type(1700, numeric(10, 2))]
    for type in (*known, Type(25), Type(2950)):
        found = built_in_type(type.oid, type.typmod, as_text=as_text)
        assert found == lake_type(type, as_text=as_text)
    assert built_in_type(1007, -1, as_text=as_text) is None  # an array: of which type?
    assert built_in_type(16400, -1, as_text=as_text) is None  # perhaps a domain
