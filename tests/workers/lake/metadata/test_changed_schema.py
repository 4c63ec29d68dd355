"""The schema after changes: by field id, in one step, and once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import DuplicateColumn
from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DescribeColumn,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from workers.lake.metadata.changed_schema import changed_schema
from workers.lake.metadata.table_schema import columns_of_schema, schema_json
from workers.lake.table import LakeColumn

LISTS = pa.list_(pa.field("element", pa.int32()))


def metadata() -> dict[str, Any]:
    columns = [LakeColumn("a", pa.int32()), LakeColumn("b", pa.string()), LakeColumn("l", LISTS)]
    schema = json.loads(schema_json(columns))
    return {"current-schema-id": 0, "schemas": [schema], "last-column-id": 9}


def fields(*changes: ColumnChange) -> list[tuple[int, str, Any]]:
    schema = changed_schema(metadata(), changes)
    return [(each["id"], each["name"], each["type"]) for each in schema["fields"]]


BEFORE = fields()


def test_columns_that_swap_their_names() -> None:
    swapped = fields(RenameColumn(1, "b"), RenameColumn(2, "a"))
    assert [each[:2] for each in swapped] == [(1, "b"), (2, "a"), (3, "l")]


def test_a_comment_comes_and_goes() -> None:
    made = changed_schema(metadata(), [DescribeColumn(2, "text"), DescribeColumn(77, "nowhere")])
    assert [each.get("doc") for each in made["fields"]] == [None, "text", None]
    assert [each.doc for each in columns_of_schema(made) or ()] == ["", "text", ""]
    again = changed_schema({**metadata(), "schemas": [made]}, [DescribeColumn(2, "")])
    assert again == changed_schema(metadata(), [])


def test_new_columns_get_new_numbers_also_for_their_parts() -> None:
    added = fields(AddColumn("n", pa.int64()), AddColumn("m", LISTS), AddColumn("a", pa.int64()))
    assert added[:3] == BEFORE
    assert added[3] == (10, "n", "long")
    number, name, type = added[4]
    assert (number, name, type["element-id"]) == (11, "m", 12)
    assert len(added) == 5, "a column of the name is there"


def test_a_dropped_name_can_be_added_at_once() -> None:
    assert [each[:2] for each in fields(DropColumn(2), AddColumn("b", pa.int32()))] == [
        (1, "a"),
        (3, "l"),
        (10, "b"),
    ]


@pytest.mark.parametrize(
    "changes",
    [
        [DropColumn(8), RenameColumn(8, "x"), WidenColumn(8, pa.int64())],
        [RenameColumn(1, "a"), WidenColumn(1, pa.int32()), AddColumn("b", pa.int32())],
    ],
)
def test_what_is_not_there_or_done_already_changes_nothing(
    changes: Sequence[ColumnChange],
) -> None:
    assert fields(*changes) == BEFORE


def test_a_wider_type() -> None:
    assert fields(WidenColumn(1, pa.int64()))[0] == (1, "a", "long")


def test_no_two_columns_have_one_name() -> None:
    with pytest.raises(DuplicateColumn, match='"b" of a lake table'):
        fields(RenameColumn(1, "b"))
