"""Metadata that Spark SQL reads."""

from __future__ import annotations

import pytest

from catalog.errcodes import InternalError
from tests.workers.lake.two_columns import COLUMNS
from workers.lake.connect.sessions import Sessions
from workers.lake.new_layout import NewTable
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.sql.table_metadata import read_properties, read_tip
from workers.lake.table import MAIN, LakeIdent

IDENT = LakeIdent("s", "t")


def test_the_properties_name_the_newest_snapshot(
    sql_tables: SqlTableApi, sessions: Sessions, lake_ident: LakeIdent
) -> None:
    made = sql_tables.create_table(lake_ident, COLUMNS, NewTable("me", 7, 2), {})
    properties = read_properties(sessions.get(), lake_ident)
    assert properties["format-version"] == "2"
    assert read_tip(lake_ident, properties) == made.history.refs[MAIN]


@pytest.mark.parametrize("properties", [{}, {"current-snapshot-id": "none"}])
def test_a_table_without_a_snapshot_has_no_newest_one(properties: dict[str, str]) -> None:
    with pytest.raises(InternalError, match="does not say which snapshot"):
        read_tip(IDENT, properties)
