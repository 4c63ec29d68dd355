"""Rows of every snapshot change with the columns of a table in memory."""

from __future__ import annotations

import pyarrow as pa

from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from workers.lake.memory.changed_columns import change_columns
from workers.lake.memory.lake import MemoryLake, MemoryTable
from workers.lake.table import MAIN, LakeColumn


def test_rows_of_branches_and_of_main_change() -> None:
    lake = MemoryLake()
    table = MemoryTable((LakeColumn("a", pa.int32()), LakeColumn("b", pa.int32())))
    lake.commit(table, MAIN, [{"a": 1, "b": 2}])
    lake.commit(table, "branch", [{"a": 3, "b": 4}])
    changes: list[ColumnChange] = [
        RenameColumn(1, "b"),
        RenameColumn(2, "a"),
        WidenColumn(2, pa.int64()),
        AddColumn("c", pa.int32()),
    ]
    change_columns(table, changes)
    change_columns(table, [*changes, DropColumn(9)])
    assert [(c.field_id, c.name, c.type) for c in table.columns] == [
        (1, "b", pa.int32()),
        (2, "a", pa.int64()),
        (3, "c", pa.int32()),
    ]
    found = [each.rows for each in table.snapshots.values()]
    assert found == [({"b": 1, "a": 2, "c": None},), ({"b": 3, "a": 4, "c": None},)]


def test_a_number_is_never_used_again() -> None:
    table = MemoryTable((LakeColumn("a", pa.int32()), LakeColumn("b", pa.int32())))
    change_columns(table, [DropColumn(2)])
    change_columns(table, [AddColumn("b", pa.int32())])
    assert [column.field_id for column in table.columns] == [1, 3]
