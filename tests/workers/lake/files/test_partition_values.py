"""Transforms of whole columns beside pyiceberg's of single values, and rows by partition."""

from __future__ import annotations

import json
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import types
from pyiceberg.transforms import (
    BucketTransform,
    DayTransform,
    HourTransform,
    MonthTransform,
    TruncateTransform,
    YearTransform,
)
from pyiceberg.utils import datetime as as_number

from tests.workers.lake.files.layouts import FIELD_ID
from workers.lake.files.partition_values import in_order, split, transformed
from workers.lake.metadata.partitioning import (
    PartitionField,
    PartitionSpec,
    SortField,
    Transform,
)
from workers.lake.new_layout import can_transform

EPOCH = datetime(1970, 1, 1)
CHANCE = random.Random(5)
WORDS = ["", "a", "ab", "abc", "abcd", "iceberg", "ü", "鍵", "x" * 61, "🎈" * 9, "9" * 4096]
WHOLE = [
    0,
    1,
    -1,
    34,
    2**31 - 1,
    -(2**31),
    17,
    *(CHANCE.randrange(-(2**31), 2**31) for _ in "x" * 9),
]
LONG = [*WHOLE, 2**63 - 1, -(2**63), *(CHANCE.randrange(-(2**63), 2**63) for _ in range(9))]
MOMENTS = [
    EPOCH,
    EPOCH - timedelta(microseconds=1),
    datetime(2017, 11, 16, 22, 31, 8),
    datetime(1, 1, 1),
    datetime(9999, 12, 31, 23, 59, 59, 999999),
    *(EPOCH + timedelta(microseconds=CHANCE.randrange(-(10**16), 10**17)) for _ in range(9)),
]
SMALL = [Decimal(f"{n}e-2") for n in (1420, 0, 1, -1, 127, 128, -128, -129, 255, 256, 10**9)]
LARGE = [Decimal(f"{n}e-2") for n in (*WHOLE, 10**37, -(10**37), 2**64, -(2**64), 2**63)]
COLUMNS: dict[str, tuple[list[Any], pa.DataType, Any]] = {
    "int": (WHOLE, pa.int32(), types.IntegerType()),
    "long": (LONG, pa.int64(), types.LongType()),
    "string": (WORDS, pa.string(), types.StringType()),
    "binary": ([each.encode() for each in WORDS], pa.binary(), types.BinaryType()),
    "date": ([each.date() for each in MOMENTS], pa.date32(), types.DateType()),
    "timestamp": (MOMENTS, pa.timestamp("us"), types.TimestampType()),
    "timestamptz": (
        [each.replace(tzinfo=UTC) for each in MOMENTS],
        pa.timestamp("us", "UTC"),
        types.TimestamptzType(),
    ),
    "decimal": (SMALL, pa.decimal128(11, 2), types.DecimalType(11, 2)),
    "large decimal": (LARGE, pa.decimal128(38, 2), types.DecimalType(38, 2)),
}
THEIRS: dict[str, tuple[Transform, Any]] = {
    "bucket": (Transform("bucket", 16), BucketTransform(16)),
    "buckets": (Transform("bucket", 2**31 - 1), BucketTransform(2**31 - 1)),
    "truncate": (Transform("truncate", 10), TruncateTransform(10)),
    "year": (Transform("year"), YearTransform()),
    "month": (Transform("month"), MonthTransform()),
    "day": (Transform("day"), DayTransform()),
    "hour": (Transform("hour"), HourTransform()),
}


def cases() -> list[tuple[str, str]]:
    return [
        (column, name)
        for column, (_, type, _) in COLUMNS.items()
        for name, (transform, _) in THEIRS.items()
        if can_transform(transform.kind, type)
    ]


def plain(value: Any) -> Any:
    """A value as pyiceberg's transforms take it."""
    if isinstance(value, datetime):
        return as_number.datetime_to_micros(value)
    return as_number.date_to_days(value) if isinstance(value, date) else value


def wrapped(value: Any, type: pa.DataType) -> Any:
    """Java's numbers go round behind the least one."""
    if isinstance(value, int) and pa.types.is_integer(type):
        half = 2 ** (type.bit_width - 1)
        return (value + half) % (2 * half) - half
    return value


@pytest.mark.parametrize(("column", "name"), cases())
def test_transforms_are_those_of_the_specification(column: str, name: str) -> None:
    values, type, iceberg_type = COLUMNS[column]
    transform, theirs = THEIRS[name]
    function = theirs.transform(iceberg_type)
    expected = [wrapped(function(plain(each)), type) for each in values]
    given = pa.array([None, *values, None, *values], type)
    found = transformed(given[1:], transform).to_pylist()
    found = [plain(each) for each in found]
    assert found == [*expected, None, *expected]


def test_a_column_without_values_has_partitions_of_null() -> None:
    for values, type, _ in COLUMNS.values():
        del values
        for transform, _ in THEIRS.values():
            if can_transform(transform.kind, type):
                assert transformed(pa.array([None] * 3, type), transform).to_pylist() == [None] * 3
                assert transformed(pa.array([], type), transform).to_pylist() == []


def a_schema(**columns: pa.DataType) -> pa.Schema:
    return pa.schema(
        [pa.field(name, type, True, {FIELD_ID: str(n + 1).encode()})
         for n, (name, type) in enumerate(columns.items())]
    )  # fmt: skip


def test_rows_go_to_their_partitions_in_order() -> None:
    schema = a_schema(n=pa.int64(), at=pa.timestamp("us", "UTC"), word=pa.string())
    day = datetime(2024, 5, 1, 3, tzinfo=UTC)
    at = [day, day + timedelta(days=1), None, day, day + timedelta(days=1)]
    words = ["a", "b", "a", "a", 'x"\n']
    batch = pa.RecordBatch.from_arrays(
        [pa.array(range(5), pa.int64()), pa.array(at, schema.field("at").type), pa.array(words)],
        schema=schema,
    )
    fields = (
        PartitionField(1000, 2, Transform("day")),
        PartitionField(1001, 3, Transform("identity")),
    )
    found = {
        place.values: rows.column("n").to_pylist()
        for place, rows in split(PartitionSpec(4, fields), schema, batch)
        if place.spec_id == 4
    }
    assert found == {
        '{"1000":"2024-05-01","1001":"a"}': [0, 3],
        '{"1000":"2024-05-02","1001":"b"}': [1],
        '{"1001":"a"}': [2],
        '{"1000":"2024-05-02","1001":"x\\"\\n"}': [4],
    }
    assert [place.values for place, _ in split(PartitionSpec(0, ()), schema, batch)] == ["{}"]


def test_partition_values_are_written_as_iceberg_reads_them() -> None:
    kinds: dict[str, tuple[Any, Any, Any]] = {
        "d": (pa.date32(), date(1969, 12, 31), "1969-12-31"),
        "t": (pa.timestamp("us"), datetime(1, 2, 3), "0001-02-03T00:00:00.000000"),
        "z": (
            pa.timestamp("us", "UTC"),
            datetime(2024, 1, 1, tzinfo=UTC),
            "2024-01-01T00:00:00.000000+00:00",
        ),
        "m": (pa.decimal128(9, 2), Decimal("-0.10"), "-0.10"),
        "b": (pa.binary(), b"\xab\x01", "AB01"),
        "o": (pa.bool_(), True, True),
        "i": (pa.int32(), -7, -7),
    }
    schema = a_schema(**{name: type for name, (type, _, _) in kinds.items()})
    arrays = [pa.array([value], type) for type, value, _ in kinds.values()]
    batch = pa.RecordBatch.from_arrays(arrays, schema=schema)
    fields = tuple(PartitionField(n, n, Transform("identity")) for n in range(1, 8))
    ((place, _),) = split(PartitionSpec(1, fields), schema, batch)

    assert list(json.loads(place.values).values()) == [text for _, _, text in kinds.values()]
    late = pa.RecordBatch.from_arrays(
        [pa.array([2932897], pa.int32()).cast(pa.date32())], schema=a_schema(d=pa.date32())
    )
    ((place, _),) = split(PartitionSpec(1, fields[:1]), late.schema, late)
    assert place.values == '{"1":"+10000-01-01"}'


@pytest.mark.parametrize(
    ("descending", "nulls_first", "expected"),
    [
        (False, True, [None, None, 1, 2, 3]),
        (False, False, [1, 2, 3, None, None]),
        (True, True, [None, None, 3, 2, 1]),
        (True, False, [3, 2, 1, None, None]),
    ],
)
def test_rows_are_sorted_with_nulls_where_the_order_wants_them(
    descending: bool, nulls_first: bool, expected: list[int | None]
) -> None:
    schema = a_schema(a=pa.int64(), b=pa.int64())
    rows = pa.table({"a": [2, None, 3, None, 1], "b": [0, 9, 0, 1, 0]}, schema=schema)
    fields = [
        SortField(1, Transform("identity"), descending, nulls_first),
        SortField(2, Transform("identity"), False, True),
    ]
    found = in_order(fields, schema, rows)
    assert found["a"].to_pylist() == expected
    assert [b for b in found["b"].to_pylist() if b] == [1, 9]
    assert in_order((), schema, rows) is rows
