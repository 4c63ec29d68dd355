"""Columns of a message are found in the catalog by name and type."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.workers.changes.test_schema_change import INT8, Table
from workers.changes.announced_columns import announced_in, highest, known_up_to

TABLE = Table(()).add("a").add("b").add("c")


@pytest.mark.parametrize(
    ("later", "found"),
    [
        (TABLE, [1, 2, 3]),
        (TABLE.add("d"), [1, 2, 3]),
        (TABLE.drop(1), None),
        (TABLE.alter(0, name="z"), None),
        (TABLE.alter(0, type=INT8), None),
        (TABLE.alter(0, name="b").alter(1, name="a"), None),
    ],
)
def test_every_column_is_found_or_none_is(later: Table, found: list[int] | None) -> None:
    columns = announced_in(TABLE.message(), later.shape())
    numbers = None if columns is None else [each.attnum for each in columns]
    assert numbers == found


def test_a_table_of_another_oid_has_no_column_of_the_message() -> None:
    assert announced_in(replace(TABLE.message(), relid=1), TABLE.shape()) is None


def test_numbers_below_a_later_column_are_known() -> None:
    shape = TABLE.add("d").add("e").drop(3).shape()
    assert highest(shape.columns) == 5
    assert highest(()) == 0
    assert known_up_to(shape, 2) == 2
    assert known_up_to(shape, 3) == 4
    assert known_up_to(shape, 5) == 5
