"""What a table is made with, and what one that was there before keeps."""

from __future__ import annotations

import pytest

from workers.lake.new_layout import NewTable
from workers.lake.sql.statements import TABLE_PROPERTIES, new_table_properties


@pytest.mark.parametrize("kind", ["read.", "write.parquet.", "format-version"])
def test_how_a_table_is_read_is_its_owner_s_choice_where_it_was_there_before(kind: str) -> None:
    """``TABLE_PROPERTIES`` are set on an adopted one, whatever it had."""
    assert [key for key in new_table_properties(NewTable("me", 7, 2)) if key.startswith(kind)]
    assert [key for key in TABLE_PROPERTIES if key.startswith(kind)] == []
