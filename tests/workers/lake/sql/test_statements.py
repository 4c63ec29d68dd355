"""What a table is made with, what one that was there before keeps, and how a branch is read."""

from __future__ import annotations

import pytest

from workers.lake.new_layout import NewTable
from workers.lake.sql.statements import (
    TABLE_PROPERTIES,
    new_table_properties,
    select_filled,
)
from workers.lake.table import LakeIdent


@pytest.mark.parametrize("kind", ["read.", "write.parquet.", "format-version"])
def test_how_a_table_is_read_is_its_owner_s_choice_where_it_was_there_before(kind: str) -> None:
    """``TABLE_PROPERTIES`` are set on an adopted one, whatever it had."""
    assert [key for key in new_table_properties(NewTable("me", 7, 2)) if key.startswith(kind)]
    assert [key for key in TABLE_PROPERTIES if key.startswith(kind)] == []


def test_a_branch_is_read_with_values_from_a_single_row() -> None:
    sql = select_filled(LakeIdent("s", "t"), "pgsub_1", ["id", "it's `n`"], {"it's `n`": "c0"})
    assert sql == (
        "SELECT `t`.`id` AS `id`, `s`.`c0` AS `it's ``n``` FROM `lake`.`s`.`t`.`branch_pgsub_1`"
        " AS t CROSS JOIN s"
    )
