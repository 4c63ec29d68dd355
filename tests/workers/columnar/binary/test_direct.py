"""Columns read where their binary values lie are what they are by way of their text."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from tests.workers.columnar.binary.sent_values import forms, numeric
from tests.workers.columnar.copy.test_binary_reader import END, HEADER, copied, plain_nodes
from workers.columnar.binary import column, direct
from workers.lake.copy_task import read_copy
from workers.lake.table import LakeColumn

Values = list[bytes | None]


def packed(form: str) -> Callable[[Any], bytes]:
    return lambda number: struct.pack(form, number)


def integers(bits: int) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


MICROS = 2**57
"""Beyond the year 6500, and long before the first."""

CASES: dict[str, tuple[int, pa.DataType, st.SearchStrategy[bytes]]] = {
    "smallint": (21, pa.int16(), integers(16).map(packed(">h"))),
    "smallint, wider": (21, pa.int64(), integers(16).map(packed(">h"))),
    "integer": (23, pa.int32(), integers(32).map(packed(">i"))),
    "integer, narrower": (23, pa.int16(), integers(18).map(packed(">i"))),
    "bigint": (20, pa.int64(), integers(64).map(packed(">q"))),
    "boolean": (16, pa.bool_(), st.sampled_from([b"\0", b"\1", b"\7"])),
    "real": (700, pa.float32(), integers(32).map(packed(">i"))),
    "double precision": (701, pa.float64(), integers(64).map(packed(">q"))),
    "date": (1082, pa.date32(), st.integers(-800_000, 3_000_000).map(packed(">i"))),
    "date, any": (1082, pa.date32(), integers(32).map(packed(">i"))),
    "timestamp": (1114, pa.timestamp("us"), st.integers(-MICROS, MICROS).map(packed(">q"))),
    "timestamptz": (1184, pa.timestamp("us", "UTC"), st.integers(0, MICROS).map(packed(">q"))),
    "timestamptz, any": (1184, pa.timestamp("us", "UTC"), integers(64).map(packed(">q"))),
    "numeric": (
        1700,
        pa.decimal128(12, 3),
        st.decimals(-(10**9), 10**9, places=3).map(numeric),
    ),
    "numeric, any": (
        1700,
        pa.decimal128(38, 6),
        st.decimals(allow_nan=False, allow_infinity=True)
        .filter(lambda n: not n.is_finite() or abs(int(n.as_tuple().exponent)) < 300)
        .map(numeric),
    ),
    "text": (25, pa.string(), st.one_of(st.text().map(str.encode), st.binary(max_size=4))),
    "jsonb": (3802, pa.string(), st.sampled_from([b"\1{}", b'\1"x"', b"\1", b"\2{}"])),
    "bytea": (17, pa.binary(), st.binary()),
    "bytea, large": (17, pa.large_binary(), st.binary()),
    "uuid": (2950, pa.string(), st.binary(min_size=16, max_size=16)),
}


def outcome(
    oid: int, type: pa.DataType, values: Values, null_unrepresentable: bool
) -> list[Any] | tuple[str, str]:
    """The column, a nan as a word; of an error SQLSTATE and words."""
    sent = [HEADER + b"".join(map(copied, values)) + END]
    lake = [LakeColumn("v", type)]
    try:
        batches = list(read_copy(sent, lake, null_unrepresentable, "public.t", plain_nodes(oid)))
    except ReplicationError as error:
        return error.code, error.primary
    found = [value for batch in batches for value in batch.column(0).to_pylist()]
    for batch in batches:
        batch.validate(full=True)
        assert batch.column(0).type == type
        assert batch.column(0).null_count == batch.column(0).to_pylist().count(None)
    return ["nan" if isinstance(v, float) and math.isnan(v) else v for v in found]


@pytest.mark.parametrize("name", CASES)
@settings(deadline=None)  # the first one compiles
@given(data=st.data(), nullable=st.booleans())
def test_014_read_as_it_is_or_by_way_of_its_text(
    name: str, data: st.DataObject, nullable: bool
) -> None:
    oid, type, valid = CASES[name]
    odd = st.one_of(st.none(), st.binary(max_size=9)) if data.draw(st.booleans()) else st.none()
    values = data.draw(st.lists(st.one_of(valid, valid, valid, odd), max_size=20))
    found = outcome(oid, type, values, nullable)
    with patch.object(column, "direct", lambda *_: None):
        assert found == outcome(oid, type, values, nullable)


def directly(oid: int, type: pa.DataType, values: Sequence[bytes | None]) -> Any:
    """What ``direct`` makes of a column, without help."""
    [form] = forms(oid)
    buf = np.frombuffer(b"".join(value or b"" for value in values) or b"\0", np.uint8)
    length = np.array([-1 if value is None else len(value) for value in values], np.int32)
    sizes = np.maximum(length, 0)
    loc = np.cumsum(sizes, dtype=np.int64) - sizes
    array = direct.direct(form.kind, type, buf, loc, length)
    return None if array is None else array.to_pylist()


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("uuid", "jsonb")])
def test_014_common_types_take_no_way_by_text(name: str) -> None:
    """A test of both ways would not notice that there is only one."""
    oid, type, _ = CASES[name]
    assert directly(oid, type, [None, None]) == (
        None if name == "integer, narrower" else [None, None]
    )


@pytest.mark.parametrize(
    ("sent", "found"),
    [
        ("0", 0), ("-0.01", -0.01), ("1234567890123456.78", 1234567890123456.78),
        ("9999999999999999.99", 9999999999999999.99), ("12345678901234567.00", None),
        ("100000000000000000000", None), ("0.001", None), ("1e-30", None), ("NaN", None),
        ("Infinity", None), ("-10000", -10000), ("99990000", 99990000), ("0.1", 0.1),
    ],
)  # fmt: skip
def test_014_a_numeric_of_eighteen_digits(sent: str, found: float | None) -> None:
    wanted = None if found is None else [Decimal(sent).quantize(Decimal("0.01")), None]
    assert directly(1700, pa.decimal128(18, 2), [numeric(Decimal(sent)), None]) == wanted


def test_014_a_numeric_with_more_digits_than_its_column() -> None:
    assert directly(1700, pa.decimal128(4, 2), [numeric(Decimal("99.99"))]) == [Decimal("99.99")]
    assert directly(1700, pa.decimal128(4, 2), [numeric(Decimal("100.00"))]) is None
