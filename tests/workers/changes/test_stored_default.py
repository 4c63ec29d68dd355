"""The stored default of a column, for the relations that have the rows."""

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from workers.changes.stored_default import NotStored, stored_default
from workers.publisher.remote_table import ColumnType
from workers.publisher.table_shape import ShapeColumn

INT4 = ColumnType(23, -1, "pg_catalog", "int4", "b")


def column(stored: str | None, *relations: int) -> ShapeColumn:
    kept = frozenset(relations)
    return ShapeColumn(3, "w", 23, -1, INT4, has_missing=True, stored=stored, stored_in=kept)


def test_relations_without_rows_from_before_need_no_value() -> None:
    for relations in ([], [7], [7, 8]):
        found = stored_default(column("5", 7, 8), relations, pa.int32(), as_null=False)
        assert found == pa.scalar(5, pa.int32())


@pytest.mark.parametrize(
    ("type", "text", "value"),
    [
        (pa.string(), 'a "b", {c}', 'a "b", {c}'),
        (pa.bool_(), "t", True),
        (pa.decimal128(10, 2), "1.50", Decimal("1.50")),
        (
            pa.timestamp("us", "UTC"),
            "2026-01-01 10:00:00.5+00",
            datetime(2026, 1, 1, 10, 0, 0, 500000, UTC),
        ),
        (pa.binary(), r"\x00ff", b"\x00\xff"),
        (pa.list_(pa.field("element", pa.int32())), "{1,NULL,3}", [1, None, 3]),
    ],
)
def test_the_value_is_read_as_a_copy_reads_it(type: pa.DataType, text: str, value: object) -> None:
    found = stored_default(column(text, 7), [7], type, as_null=False)
    assert found is not None
    assert (found.as_py(), found.type) == (value, type)


@pytest.mark.parametrize("found", [column(None, 7, 8), column("5", 7)])
def test_all_relations_with_rows_have_one_value(found: ShapeColumn) -> None:
    with pytest.raises(NotStored):
        stored_default(found, [7, 8], pa.int32(), as_null=False)


def test_a_value_that_the_lake_cannot_hold() -> None:
    infinite = column("infinity", 7)
    assert stored_default(infinite, [7], pa.date32(), as_null=True) is None
    clamped = stored_default(infinite, [7], pa.date32(), as_null=False, clamp=True)
    assert clamped == pa.scalar(date(9999, 12, 31))
    with pytest.raises(NotStored):
        stored_default(infinite, [7], pa.date32(), as_null=False)
