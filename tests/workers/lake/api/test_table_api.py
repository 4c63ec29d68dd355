"""What only ``GatewayTableApi`` does; the contract of both is in ``interfaces/test_table_api``."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.workers.lake.two_columns import COLUMNS, append, count, stamp
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.errors import LakeFailure
from workers.lake.metadata.snapshots import stamp_properties
from workers.lake.new_layout import NewTable
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.table import MAIN, LakeIdent

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


def test_a_table_is_made_with_the_branch_of_its_copy(
    gateway_tables: GatewayTableApi, iceberg: Any, lake_ident: LakeIdent
) -> None:
    """One commit, one list of manifests; the branch takes rows and is published."""
    new = NewTable("me", 7, 2, branch=BRANCH)
    state = gateway_tables.create_table(lake_ident, COLUMNS, new, stamp_properties(stamp(10)))
    [snapshot_id] = state.history.snapshots
    assert state.history.refs == {MAIN: snapshot_id, BRANCH: snapshot_id}
    metadata = gateway_tables.metadata(lake_ident, WHAT)
    assert metadata["refs"][BRANCH]["max-ref-age-ms"] == 2**63 - 1
    assert metadata["metadata-log"] == []
    gateway_tables.create_branch(lake_ident, BRANCH, snapshot_id)
    assert (
        gateway_tables.metadata(lake_ident, WHAT)["last-updated-ms"]
        == (metadata["last-updated-ms"])
    )
    gateway_tables.check_branch(lake_ident, BRANCH)
    dest = iceberg()
    dest.write(lake_ident, BRANCH, [append(dest, 1, 5)], stamp(20))
    dest.publish(lake_ident, BRANCH, stamp(20))
    assert count(dest, lake_ident) == 5


@pytest.mark.parametrize("error", ["Namespace", "Table"])
def test_a_rest_catalog_says_that_the_schema_is_missing(
    gateway_tables: GatewayTableApi,
    lake_ident: LakeIdent,
    error: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    missing = LakeFailure("the lake failed while creating")
    missing.message = f"org.apache.iceberg.exceptions.NoSuch{error}Exception: s does not exist"
    said, made = [missing], list[LakeIdent]()
    create = GatewayTableApi._create

    def first_refused(self: Any, *of: Any) -> Any:
        if said:
            raise said.pop()
        return create(self, *of)

    monkeypatch.setattr(GatewayTableApi, "_create", first_refused)
    monkeypatch.setattr(gateway_tables._sql, "create_schema", made.append)
    with gateway_tables._gateway.api(WHAT) as api:
        monkeypatch.setattr(api, "answers_with_state", True)
        state = gateway_tables.create_table(
            lake_ident, COLUMNS, NewTable("me", 7, 2), stamp_properties(stamp(10))
        )
    assert (made, len(state.history.snapshots)) == ([lake_ident], 1)
