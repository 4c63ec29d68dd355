"""Copied rows whose key is there: what both lakes find, and what overwriting makes of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.contract import PUBLISHED, Make, Table, append, merge, read_rows, stamp
from workers.lake.destination import Destination
from workers.lake.effects import ExistingKeys
from workers.lake.segment import Segment
from workers.lake.table import LakeColumn, LakeIdent


def with_note(dest: Destination, rows: Sequence[tuple[int, str | None, str | None]]) -> Segment:
    """Rows whose column of the lake's own is filled (by the twin with the expression's text)."""
    return replace(append(dest, rows), defaults=(("local note", "'ours'"),))


def copy(table: Table, rows: Sequence[tuple[int, str | None, str | None]]) -> str:
    """As a copy does it: one append to a fresh branch, stamped."""
    branch = table.branch()
    table.dest.write(table.ident, branch, [append(table.dest, rows)], stamp(30))
    return branch


def show(table: Table, branch: str) -> list[tuple[Any, ...]]:
    """What readers see once the branch is stamped and published."""
    table.dest.write(table.ident, branch, [], stamp(40))
    table.dest.publish(table.ident, branch, stamp(40))
    return [(*row[:3], (row[3] or "").strip("'") or None) for row in table.rows()]


def test_only_rows_of_the_copy_and_of_the_table_before_it_meet(table: Table) -> None:
    table.batch([append(table.dest, [(n, "old", None) for n in (1, 2, 3)])], 20)
    table.batch([merge(table.dest, [(1, 3, None, None, None, False)])], 25)
    branch = copy(table, [(2, "new", None), (3, "back", None), (4, "new", None)])
    assert table.dest.existing_keys(table.ident, branch, ["id"]) == ExistingKeys(1, 1)
    assert table.dest.existing_keys(table.ident, branch, ["id", "v"]) == ExistingKeys(0, 0)


def test_a_key_that_the_table_has_twice_is_told_apart(table: Table) -> None:
    table.batch([append(table.dest, [(1, "old", None), (1, "twin", None), (2, "old", None)])], 20)
    branch = copy(table, [(1, "new", None), (2, "new", None)])
    assert table.dest.existing_keys(table.ident, branch, ["id"]) == ExistingKeys(2, 3)


def test_a_key_with_a_null_in_it_equals_none(table: Table) -> None:
    table.batch([append(table.dest, [(1, None, "a"), (2, "b", "b")])], 20)
    branch = copy(table, [(1, None, "a"), (2, "b", "b")])
    assert table.dest.existing_keys(table.ident, branch, ["id", "v"]) == ExistingKeys(1, 1)


def test_the_copied_row_takes_the_place_of_the_one_with_its_key(table: Table) -> None:
    table.batch([with_note(table.dest, [(1, "old", "x"), (2, "old", "y"), (3, "old", "z")])], 20)
    branch = copy(table, [(2, "new", None), (3, None, "w"), (4, "new", None)])
    table.dest.overwrite_existing(table.ident, branch, PUBLISHED, ["id"])
    assert table.rows()[1][:2] == (2, "old")
    assert show(table, branch) == [
        (1, "old", "x", "ours"),
        (2, "new", None, "ours"),
        (3, None, "w", "ours"),
        (4, "new", None, None),
    ]
    assert table.lsn() == 40


def test_a_key_of_two_columns_is_overwritten_by_both(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", "old"), (1, "b", "old")])], 20)
    branch = copy(table, [(1, "b", "new"), (2, "a", "new")])
    table.dest.overwrite_existing(table.ident, branch, PUBLISHED, ["id", "v"])
    assert [row[:3] for row in show(table, branch)] == [
        (1, "a", "old"),
        (1, "b", "new"),
        (2, "a", "new"),
    ]


KEYS: list[tuple[pa.DataType, list[Any], list[Any], int]] = [
    # the type, what the table has, what is copied, how many meet
    (pa.string(), ["a", "A", "ä", ""], ["a", "a ", "a\u0308", ""], 2),
    (pa.decimal128(10, 2), [Decimal("1.00"), Decimal("-0.00")], [Decimal("1.00"), Decimal(0)], 2),
    (
        pa.timestamp("us", "UTC"),
        [datetime(2024, 1, 1, 12, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
        [datetime(2024, 1, 1, 12, 0, 0, 1, tzinfo=UTC), datetime(1, 1, 1, tzinfo=UTC)],
        1,
    ),
    (pa.float64(), [0.0, float("nan"), 1.5], [-0.0, 2.5], 1),
]


@pytest.mark.parametrize(("kind", "held", "copied", "met"), KEYS)
def test_keys_are_compared_by_value(
    make: Make, lake_ident: LakeIdent, kind: pa.DataType, held: Any, copied: Any, met: int
) -> None:
    dest, name = make(), "a `key`.of\nours"
    columns = (LakeColumn(name, kind), LakeColumn("b0", pa.int64()))
    dest.create_table(lake_ident, columns, owner="me", relid=7, stamp=stamp(10))
    for at, values in enumerate((held, copied)):
        dest.create_branch(lake_ident, "pgsub_1_1_1")
        rows = pa.table({"c0": pa.array(values, kind), "c1": pa.array(range(len(values)))})
        staged = dest.stage(rows.to_batches(), rows.schema)
        segment = Segment((name, "b0"), (name,), append=staged)
        dest.write(lake_ident, "pgsub_1_1_1", [segment], stamp(20 + at))
        if not at:
            dest.publish(lake_ident, "pgsub_1_1_1", stamp(20))
    assert dest.existing_keys(lake_ident, "pgsub_1_1_1", [name]) == ExistingKeys(met, met)


def test_a_table_says_whether_it_may_hold_rows(table: Table) -> None:
    def records() -> int | None:
        found = table.dest.table(table.ident)
        assert found is not None
        return found.records

    assert records() == 0
    table.batch([append(table.dest, [(1, "a", None), (2, "b", None)])], 20)
    assert records() == 2
    table.dest.fence(table.ident)
    assert records() == 2
    table.batch([Segment((), truncate=True)], 30)
    assert records() == 0
    assert read_rows(table.dest, table.ident) == []


def test_values_of_a_key_that_more_than_one_row_of_the_branch_has(table: Table) -> None:
    table.batch([append(table.dest, [(1, "a", "x"), (2, "b", None)])], 20)
    branch = copy(table, [(3, "a", "y"), (4, "c", None), (5, "c", None)])
    keys = (["id"], ["v"], ["v", "big"], ["big"])
    assert [table.dest.repeated_keys(table.ident, branch, key) for key in keys] == [0, 2, 0, 0]
