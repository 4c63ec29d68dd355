"""Values side by side become strings, without a look at what they say."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from workers.columnar.text_array import text_array
from workers.columnar.tuples import readonly

BUF = readonly(np.frombuffer("..eins..zwöi....".encode(), np.uint8))


def lengths(*values: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(values, np.int32)


@pytest.mark.parametrize("null", [-1, -2])
def test_values_are_found_at_their_places_and_a_negative_length_is_null(null: int) -> None:
    array = text_array(BUF, np.array([8, -1, 2, 0]), lengths(5, null, 4, 0))
    array.validate(full=True)
    assert array.to_pylist() == ["zwöi", None, "eins", ""]
    assert array.null_count == 1


def test_strings_without_nulls_have_no_validity_bits() -> None:
    array = text_array(BUF, np.array([2, 2]), lengths(4, 2))
    array.validate(full=True)
    assert array.to_pylist() == ["eins", "ei"]
    assert array.buffers()[0] is None


def test_more_than_eight_rows_have_more_than_a_byte_of_validity() -> None:
    length = lengths(*[-1 if row % 3 == 0 else 4 for row in range(19)])
    array = text_array(BUF, np.full(19, 2), length)
    array.validate(full=True)
    assert array.to_pylist() == [None if row % 3 == 0 else "eins" for row in range(19)]


def test_no_rows_are_an_empty_array() -> None:
    array = text_array(BUF, np.empty(0, np.int64), lengths())
    assert (len(array), array.null_count) == (0, 0)


def test_bytes_that_are_not_utf8_are_put_side_by_side_too() -> None:
    array = text_array(BUF, np.array([2, 10]), lengths(2, 1))
    assert array.cast(pa.binary()).to_pylist() == [b"ei", b"\xc3"]
