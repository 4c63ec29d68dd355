"""The schema of a lake table after changes of its columns. Pure.

All changes are made in one step, so two columns may swap their names. A change of a column that is
not there, or a change that was made already, has no effect.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

from catalog.errcodes import DuplicateColumn
from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DescribeColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from workers.lake.metadata.table_schema import current_schema, iceberg_type


def changed_schema(
    metadata: Mapping[str, Any], changes: Sequence[ColumnChange]
) -> Mapping[str, Any]:
    """The current schema with the changes; the schema as it is if they change nothing.

    New columns get field ids that no column of the table ever had. Raises 42701 if two columns
    would have one name.
    """
    schema = current_schema(metadata)
    fields = {each["id"]: dict(each) for each in schema["fields"]}
    numbers = itertools.count(metadata["last-column-id"] + 1)
    for change in changes:
        match change:
            case RenameColumn(field_id, name) if field_id in fields:
                fields[field_id]["name"] = name
            case WidenColumn(field_id, type) if field_id in fields:
                fields[field_id]["type"] = iceberg_type(type, numbers)
            case DescribeColumn(field_id, text) if field_id in fields:
                fields[field_id].pop("doc", None)
                fields[field_id] |= {"doc": text} if text else {}
            case DropColumn(field_id):
                fields.pop(field_id, None)
            case _:
                pass
    names = [each["name"] for each in fields.values()]
    for change in changes:
        if isinstance(change, AddColumn) and change.name not in names:
            number = next(numbers)
            names.append(change.name)
            fields[number] = {
                "id": number,
                "name": change.name,
                "required": False,
                "type": iceberg_type(change.type, numbers),
            }
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise DuplicateColumn(f'column "{twice[0]}" of a lake table would be there twice')
    return {**schema, "fields": list(fields.values())}
