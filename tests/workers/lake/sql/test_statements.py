"""What a table is made with, what one that was there before keeps, and how a branch is read."""

from __future__ import annotations

from dataclasses import replace

import pytest

from workers.lake.new_layout import NewLayout, NewTable
from workers.lake.sql.statements import (
    TABLE_PROPERTIES,
    new_table_properties,
    select_filled,
)
from workers.lake.table import LakeIdent


@pytest.mark.parametrize("kind", ["read.", "write.parquet.", "format-version"])
def test_how_a_table_is_read_is_its_owner_s_choice_where_it_was_there_before(kind: str) -> None:
    """``TABLE_PROPERTIES`` are set on an adopted one, whatever it had."""
    new = new_table_properties(NewTable("me", 7, 2), "/lake/t")
    assert [key for key in new if key.startswith(kind)]
    assert [key for key in TABLE_PROPERTIES if key.startswith(kind)] == []


@pytest.mark.parametrize(
    ("location", "is_merged", "few_tasks"),
    [
        ("/lake/t", False, True),
        ("file:/lake/t", True, True),
        ("s3://lake/t", False, False),
        (None, False, False),
        ("s3://lake/t", True, True),
        (None, True, True),
    ],
)
def test_a_reader_of_a_store_opens_many_files_at_a_time(
    location: str | None, is_merged: bool, few_tasks: bool
) -> None:
    """And a MERGE writes a file in every task that reads."""
    new = NewTable("me", 7, 2, is_merged=is_merged)
    assert ("read.split.open-file-cost" in new_table_properties(new, location)) is few_tasks
    cost = (("read.split.open-file-cost", "1"),)
    asked = replace(new, layout=NewLayout(properties=cost))
    assert new_table_properties(asked, location)["read.split.open-file-cost"] == "1"


def test_a_branch_is_read_with_values_from_a_single_row() -> None:
    sql = select_filled(LakeIdent("s", "t"), "pgsub_1", ["id", "it's `n`"], {"it's `n`": "c0"})
    assert sql == (
        "SELECT `t`.`id` AS `id`, `s`.`c0` AS `it's ``n``` FROM `lake`.`s`.`t`.`branch_pgsub_1`"
        " AS t CROSS JOIN s"
    )
