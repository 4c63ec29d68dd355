"""Rows that the lake calls equal have one image, in whatever bytes they were sent."""

from __future__ import annotations

import struct
from decimal import Decimal

import pyarrow as pa
import pytest

from tests.workers.columnar.binary.sent_values import (
    DATE,
    FLOAT8,
    INT8,
    NUMERIC,
    TEXT,
    array,
    binary,
    numeric,
    row,
)
from tests.workers.columnar.records import TABLE, layout, rows, segment
from workers.columnar.fold.whole_rows import full_images
from workers.proto.messages import Delete


def digits(*numbers: str) -> list[bytes]:
    return [numeric(Decimal(number)) for number in numbers]


FLOATS = [struct.pack(">d", number) for number in (-0.0, 0.0, float("nan"), float("nan"), 1.0)]
LARGE = [struct.pack(">q", 2**53 + more) for more in (0, 1, 2)]


@pytest.mark.parametrize(
    ("oid", "type", "sent", "counts"),
    [
        (NUMERIC, pa.decimal128(9, 2), digits("1.5", "1.50", "1.500", "0", "0.00"), [3, 2]),
        (NUMERIC, pa.decimal128(9, 2), digits("1.50", "1.51", "1.50"), [2, 1]),
        (NUMERIC, pa.string(), digits("1.5", "1.50", "1.5"), [2, 1]),
        (1007, pa.list_(pa.int32()), [array(0, 1, 2), array(1, 1, 2), array(1, 1, None)], [2, 1]),
        (1007, pa.string(), [array(0, 1, 2), array(1, 1, 2), array(1, 1, None)], [2, 1]),
        (FLOAT8, pa.float64(), FLOATS, [2, 2, 1]),
        (TEXT, pa.int32(), [b"1", b"01", b"2"], [2, 1]),
        (TEXT, pa.decimal128(9, 2), [b"1.5", b"1.50", b"2"], [2, 1]),
        (TEXT, pa.string(), [b"1", b"01", b"1"], [2, 1]),
        (3802, pa.decimal128(9, 2), [b"\1" + b"1.5", b"\1" + b"1.50"], [2]),
        (INT8, pa.float64(), LARGE, [2, 1]),
        (INT8, pa.int64(), LARGE, [1, 1, 1]),
    ],
)
def test_014_what_the_lake_calls_equal_is_one_image(
    oid: int, type: pa.DataType, sent: list[bytes], counts: list[int]
) -> None:
    """Also where the lake's column is of another type than the publisher's."""
    deletes = [Delete(TABLE, "O", row(each, None)) for each in sent]
    changes = binary(segment(*deletes), oid, TEXT)
    full = full_images(changes, layout(type, pa.string(), key=()))
    assert [each["n"] for each in rows(full.image_batches())] == counts


def test_014_values_that_become_null_are_one_image() -> None:
    days = [struct.pack(">i", day) for day in (0x7FFFFFFF, -0x80000000, 0)]
    deletes = [Delete(TABLE, "O", row(day, b"x")) for day in [*days, None]]
    form = layout(pa.date32(), pa.string(), key=(), null_unrepresentable=True)
    full = full_images(binary(segment(*deletes), DATE, TEXT), form)
    assert [each["n"] for each in rows(full.image_batches())] == [3, 1]
