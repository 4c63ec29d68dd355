"""Numbers of keys, and which rows have one of them."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from workers.columnar.key_search import (
    KeyNumbers,
    Numbers,
    is_own_number,
    is_searchable,
    numbers_of,
)

DAY = datetime.date(2026, 1, 2)
NOON = datetime.datetime(2026, 1, 2, 12, tzinfo=datetime.UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "int": (pa.int32(), [0, 1, -1, 2**31 - 1, -(2**31)]),
    "long": (pa.int64(), [0, 1, -1, 2**63 - 1, -(2**63)]),
    "bool": (pa.bool_(), [False, True]),
    "date": (pa.date32(), [DAY, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "timestamp": (pa.timestamp("us"), [NOON.replace(tzinfo=None), datetime.datetime(1, 1, 1)]),
    "timestamptz": (pa.timestamp("us", "UTC"), [NOON, NOON.replace(year=1)]),
    "decimal": (pa.decimal128(38, 2), [Decimal("0.10"), Decimal(-1), Decimal(10) ** 35]),
    "string": (pa.string(), ["", "a", "\0", "a\0", "sieben.", "achtacht", "neunneunn", "é" * 40]),
    "binary": (pa.binary(), [b"", b"\0", b"\0\0", b"\xff" * 8, b"\xff" * 9]),
}
OWN = {"int", "long", "bool", "date", "timestamp", "timestamptz"}


def numbers(values: list[int]) -> Numbers:
    return numbers_of([pa.array(values, pa.int64())])


@pytest.mark.parametrize("name", VALUES)
def test_one_value_has_one_number_wherever_it_stands(name: str) -> None:
    type, values = VALUES[name]
    assert is_searchable(type)
    assert is_own_number([type]) == (name in OWN)
    whole = pa.array([values[-1], None, *values, *values], type)
    found = numbers_of([whole])
    assert len(found) == len(whole)
    assert len(set(found[2:].tolist())) == len(values)
    assert found[2 : 2 + len(values)].tolist() == found[2 + len(values) :].tolist()
    assert found[0] == found[-1]
    assert numbers_of([whole.slice(3)]).tolist() == found[3:].tolist()
    assert numbers_of([whole[:0]]).tolist() == []


def test_what_is_not_equal_by_its_bytes_is_not_searched() -> None:
    for type in (pa.float32(), pa.float64(), pa.list_(pa.int64()), pa.decimal256(50, 2)):
        assert not is_searchable(type)


def test_keys_of_several_columns_have_the_order_of_these() -> None:
    one, two = pa.array([1, 2, 1], pa.int64()), pa.array([2, 1, 1], pa.int64())
    assert not is_own_number([pa.int64(), pa.int64()])
    assert len(set(numbers_of([one, two]).tolist())) == 3
    texts = [pa.array(["ab", "a"]), pa.array(["c", "bc"])]
    assert len(set(numbers_of(texts).tolist())) == 2


@given(
    st.lists(st.integers(-40, 40), max_size=60, unique=True),
    st.lists(st.integers(-50, 50), max_size=200),
)
def test_every_row_with_a_key_is_found_and_no_other(keys: list[int], values: list[int]) -> None:
    known = KeyNumbers(numbers(keys))
    assert known.distinct
    rows, at = known.search(numbers(values))
    expected = [(row, keys.index(value)) for row, value in enumerate(values) if value in keys]
    assert list(zip(rows.tolist(), at.tolist(), strict=True)) == expected


@pytest.mark.parametrize("count", [1, 15, 16, 17, 64, 70_000])
def test_as_many_keys_as_there_are(count: int) -> None:
    """Sequences, and such as differ in their highest bits alone."""
    for step in (1, 1 << 40):
        keys = np.arange(count, dtype=np.int64) * step
        rows, at = KeyNumbers(keys).search(np.concatenate([keys[::-1], keys + 3]))
        expected = count + (max(0, count - 3) if step == 1 else 0)
        assert len(rows) == expected
        assert at[:count].tolist() == list(range(count))[::-1]


def test_a_key_that_is_there_twice_is_told() -> None:
    known = KeyNumbers(numbers([7, 8, 7]))
    assert not known.distinct
    rows, at = known.search(numbers([8, 7]))
    assert (rows.tolist(), at.tolist()) == ([0, 1], [1, 0])
    assert KeyNumbers(numbers([])).search(numbers([1]))[0].tolist() == []
