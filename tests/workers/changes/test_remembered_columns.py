"""What is remembered of columns: as a text, in the lake table and in the catalog."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa

from tests.workers.transactions import relation
from workers.changes.remembered_columns import (
    RememberedColumn,
    RememberedColumns,
    from_text,
    remembered_in,
)
from workers.lake.table import LakeColumn, LakeIdent, LakeTable

COLUMNS = RememberedColumns(
    "epoch",
    1,
    4,
    {1: 50},
    (RememberedColumn(1, "id", 23, -1, 23, 1), RememberedColumn(4, 'v"', 23, -1, 23, 7)),
    {2: 3},
    "9/1*",
)
LAKE = LakeTable(
    LakeIdent("public", "a"),
    (LakeColumn("id", pa.int32(), field_id=1), LakeColumn("w", pa.int32(), field_id=7)),
    "u",
    1,
    None,
    publisher_columns=COLUMNS.as_text(),
)


def test_a_text_says_everything() -> None:
    assert from_text(COLUMNS.as_text()) == COLUMNS


def test_a_message_is_described_by_names_types_and_relation() -> None:
    assert COLUMNS.describes(relation(1, "a", "id", 'v"'))
    assert not COLUMNS.describes(relation(2, "a", "id", 'v"'))
    assert not COLUMNS.describes(relation(1, "a", 'v"', "id"))
    assert not COLUMNS.describes(relation(1, "a", "id"))


def test_the_lake_table_counts_before_the_catalog() -> None:
    older = replace(COLUMNS, natts=3).as_text()
    assert remembered_in(LAKE, older, "epoch") == COLUMNS
    without = replace(LAKE, publisher_columns="")
    assert remembered_in(without, older, "epoch") == replace(COLUMNS, natts=3)
    assert remembered_in(without, None, "epoch") is None


def test_a_text_of_another_copy_or_of_columns_that_are_gone_says_nothing() -> None:
    assert remembered_in(LAKE, None, "another") is None
    assert remembered_in(replace(LAKE, columns=LAKE.columns[:1]), None, "epoch") is None


def test_excluded_columns_are_part_of_the_description() -> None:
    guarded = replace(COLUMNS, guarded=(RememberedColumn(2, "ssn", 23, -1, 23, 0),))
    assert from_text(guarded.as_text()) == guarded
    assert guarded.describes(relation(1, "a", "id", "ssn", 'v"'))
    assert not guarded.describes(relation(1, "a", "id", 'v"', "ssn"))
    assert not guarded.describes(relation(1, "a", "id", 'v"'))
    dropped = replace(guarded, guarded=(RememberedColumn(2, "ssn", 0, -1, 23, 0),))
    assert dropped.describes(relation(1, "a", "id", 'v"'))
    assert "guarded" not in COLUMNS.as_text()
