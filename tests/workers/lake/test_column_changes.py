"""Which types hold every value of another."""

from __future__ import annotations

import pyarrow as pa
import pytest

from workers.lake.column_changes import is_wider


@pytest.mark.parametrize(
    ("than", "type"),
    [
        (pa.int32(), pa.int64()),
        (pa.float32(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(12, 2)),
    ],
)
def test_a_wider_type(than: pa.DataType, type: pa.DataType) -> None:
    assert is_wider(type, than)
    assert not is_wider(than, type)
    assert not is_wider(type, type)


def test_no_other_type_is_wider() -> None:
    for type, than in (
        (pa.decimal128(12, 3), pa.decimal128(10, 2)),
        (pa.string(), pa.int32()),
        (pa.float64(), pa.int32()),
        (pa.timestamp("us", "UTC"), pa.timestamp("us")),
    ):
        assert not is_wider(type, than)
