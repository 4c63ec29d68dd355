"""Numbers in binary form as PostgreSQL prints them."""

from __future__ import annotations

import math
import struct
from decimal import Decimal
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.workers.columnar.binary.sent_values import (
    FLOAT8,
    INT4,
    INT8,
    NUMERIC,
    binary,
    check_damaged,
    numeric,
    read,
    row,
    texts,
)
from tests.workers.columnar.records import TABLE, segment
from workers.columnar.column_reader import UnrepresentableValue
from workers.proto.messages import Insert

DAMAGED: list[tuple[int, bytes, str]] = [
    (INT4, b"\0\0\0", "08P01"),
    (INT4, b"\0\0\0\0\0", "22P03"),
    (INT4, b"", "08P01"),
    (INT8, b"\0" * 4, "08P01"),
    (FLOAT8, b"\0" * 4, "08P01"),
    (NUMERIC, b"\0\1\0\0\0\0\0\0", "08P01"),
    (NUMERIC, b"\0\1\0\0\0\0\0\0\x27\x10", "22P03"),
    (NUMERIC, b"\0\0\0\0\x80\0\0\0", "22P03"),
    (NUMERIC, b"\0\0\0\0\0\0\xff\xff", "22P03"),
]


@pytest.mark.parametrize(("oid", "sent", "sqlstate"), DAMAGED)
def test_014_a_damaged_value_has_postgresql_s_error(oid: int, sent: bytes, sqlstate: str) -> None:
    check_damaged(oid, sent, sqlstate)


@pytest.mark.parametrize(
    ("oid", "form", "number", "text"),
    [
        (21, ">h", -32768, "-32768"),
        (INT4, ">i", 2147483647, "2147483647"),
        (INT4, ">i", -2147483648, "-2147483648"),
        (INT8, ">q", -(2**63), "-9223372036854775808"),
        (INT8, ">q", 10_000_000_000, "10000000000"),
        (INT8, ">q", 0, "0"),
        (700, ">f", 123456.0, "123456"),
        (700, ">f", 1e6, "1e+06"),
        (700, ">f", 0.1, "0.1"),
        (700, ">f", float("-inf"), "-Infinity"),
        (FLOAT8, ">d", 0.1, "0.1"),
        (FLOAT8, ">d", -0.0, "-0"),
        (FLOAT8, ">d", 5e-324, "5e-324"),
        (FLOAT8, ">d", 1.7976931348623157e308, "1.7976931348623157e+308"),
        (FLOAT8, ">d", 1e15, "1e+15"),
        (FLOAT8, ">d", 123456789012345.0, "123456789012345"),
        (FLOAT8, ">d", 0.0001, "0.0001"),
        (FLOAT8, ">d", 0.00001, "1e-05"),
        (FLOAT8, ">d", float("nan"), "NaN"),
    ],
)
def test_a_number_is_printed_as_postgresql_prints_it(
    oid: int, form: str, number: float, text: str
) -> None:
    assert texts(oid, struct.pack(form, number), None) == [text, None]


def digits(text: str) -> int:
    return len(Decimal(text).normalize().as_tuple().digits)


def is_inside(text: str, number: float) -> bool:
    """True if the text is not merely on the bound of the interval that rounds to the number."""
    off = Fraction(text) - Fraction(number)
    neighbour = math.nextafter(number, math.inf if off > 0 else -math.inf)
    return 2 * abs(off) < abs(Fraction(neighbour) - Fraction(number))


@settings(deadline=None)
@example([6.46477163684081e16, 9007199254740992.0, 5e-324])
@given(st.lists(st.floats(-1e308, 1e308), min_size=1))
def test_a_float_s_text_is_the_shortest_that_reads_back(numbers: list[float]) -> None:
    """As Python's, except that a text on the bound of the interval does not count."""
    found = texts(FLOAT8, *(struct.pack(">d", number) for number in numbers))
    for text, number in zip(found, numbers, strict=True):
        assert repr(float(text)) == repr(number)
        assert is_inside(text, number)
        assert digits(text) == digits(repr(number)) or not is_inside(repr(number), number)


@settings(deadline=None)  # the first one compiles
@given(st.lists(st.decimals(allow_nan=True, allow_infinity=True, places=None), min_size=1))
def test_014_any_numeric_is_the_text_of_the_same_numeric(numbers: list[Decimal]) -> None:
    quiet = [Decimal("NaN") if number.is_nan() else number for number in numbers]
    near = [n for n in quiet if not n.is_finite() or -600 < int(n.as_tuple().exponent) < 600]
    if not near:
        return
    changes = segment(*(Insert(TABLE, row(numeric(number))) for number in near))
    (texts,) = read(binary(changes, NUMERIC), pa.string())
    for text, number in zip(texts, near, strict=True):
        if number.is_nan():
            assert text == "NaN"
        else:
            assert Decimal(text) == number
            assert not number.is_finite() or text in (f"{number:f}", f"{abs(number):f}")


@pytest.mark.parametrize("sent", ["NaN", "123456.785", "1234567890.5", "-Infinity"])
def test_014_a_numeric_that_does_not_fit_fails_as_its_text_does(sent: str) -> None:
    errors = []
    for changes in (
        binary(segment(Insert(TABLE, row(numeric(Decimal(sent))))), NUMERIC),
        segment(Insert(TABLE, row(sent))),
    ):
        with pytest.raises(UnrepresentableValue) as caught:
            read(changes, pa.decimal128(9, 2))
        errors.append((caught.value.code, caught.value.primary, caught.value.change))
        assert read(changes, pa.decimal128(9, 2), null_unrepresentable=True) == [[None]]
    assert errors[0] == errors[1]
