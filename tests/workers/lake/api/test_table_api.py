"""What only ``GatewayTableApi`` does; the contract of both is in ``interfaces/test_table_api``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.errors import LakeFailure
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.table import LakeIdent

BRANCH = "pgsub_1_1_1"
WHAT = "testing"


def test_a_table_that_is_not_there_is_an_answer(
    gateway_tables: GatewayTableApi, lake_ident: LakeIdent
) -> None:
    for ask in (
        gateway_tables.metadata,
        lambda ident, what: gateway_tables.tip(ident, BRANCH, what),
    ):
        with pytest.raises(LakeFailure) as error:
            ask(lake_ident, "reading")
        assert error.value.primary == "the lake failed while reading"
        assert str(lake_ident) in (error.value.detail or "")
        assert "\n" not in (error.value.detail or "")


def test_metadata_is_the_newest_and_any_thread_may_ask(
    gateway_tables: GatewayTableApi, dest: Any, lake_ident: LakeIdent
) -> None:
    before = gateway_tables.metadata(lake_ident, WHAT)
    assert [field["name"] for field in before["schemas"][0]["fields"]] == ["id", "v"]
    alter = sql_text("ALTER TABLE", table_path(lake_ident), "ADD COLUMN w INT")
    dest._sessions.get().command(alter, "altering")
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(gateway_tables.metadata, lake_ident, WHAT) for _ in range(12)]
    assert {each.result()["current-schema-id"] for each in asked} == {1}
    assert before["current-schema-id"] == 0
