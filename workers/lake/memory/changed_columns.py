"""Change the columns of a table in memory: in every snapshot, because the columns are a table's.

The rows have no field ids, so the rows of all snapshots change with the columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DescribeColumn,
    DropColumn,
    Remember,
    RenameColumn,
    WidenColumn,
)
from workers.lake.memory.lake import MemoryTable
from workers.lake.memory.rows import Row
from workers.lake.table import LakeColumn


def change_columns(
    table: MemoryTable, changes: Sequence[ColumnChange], remember: Remember | None = None
) -> None:
    """Make the changes in one step, and keep the text of ``remember``.

    A change that was made already has no effect.
    """
    before = {column.field_id: column for column in table.columns}
    after = dict(before)
    for change in changes:
        match change:
            case RenameColumn(field_id, name) if field_id in after:
                after[field_id] = replace(after[field_id], name=name)
            case WidenColumn(field_id, type) if field_id in after:
                after[field_id] = replace(after[field_id], type=type)
            case DescribeColumn(field_id, text) if field_id in after:
                after[field_id] = replace(after[field_id], doc=text)
            case DropColumn(field_id):
                after.pop(field_id, None)
            case _:
                pass
    for change in changes:
        names = {column.name for column in after.values()}
        if isinstance(change, AddColumn) and change.name not in names:
            table.last_id += 1
            number = table.last_id
            after[number] = LakeColumn(change.name, change.type, field_id=number)
    names_before = {number: column.name for number, column in before.items()}

    def changed(row: Row) -> Row:
        return {
            column.name: row.get(names_before[number]) if number in names_before else None
            for number, column in after.items()
        }

    table.columns = tuple(after.values())
    table.snapshots = {
        key: replace(each, rows=tuple(map(changed, each.rows)))
        for key, each in table.snapshots.items()
    }
    if remember is not None:
        table.publisher_columns = remember(table.columns)
