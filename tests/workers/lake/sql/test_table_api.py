"""What only ``SqlTableApi`` does; the contract of both is in ``interfaces/test_table_api``."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.two_columns import COLUMNS
from workers.lake.connect.errors import LakeFailure
from workers.lake.new_layout import NewTable
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.table import MAIN, LakeIdent

IDENT = LakeIdent("s", "t")
NEW = NewTable("me", 7, 2)


class Session:
    """Notes every statement; each of ``errors`` fails one, in order."""

    def __init__(self, *errors: Exception | None) -> None:
        self.statements: list[str] = []
        self._errors = list(errors)

    def command(self, sql: str, what: str) -> None:
        self.statements.append(f"{sql} -- {what}")
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error

    def set_properties(self, properties: dict[str, str]) -> None:
        assert properties == {}, "no position of an earlier statement comes along"
        self.statements.append("no properties")


def tables_on(session: Session) -> SqlTableApi:
    sessions: Any = SimpleNamespace(get=lambda: session)
    return SqlTableApi(sessions)


def test_a_table_without_a_snapshot_is_left_by_a_worker_that_dies_between_two_commits(
    sql_tables: SqlTableApi, lake_ident: LakeIdent
) -> None:
    sql_tables.create_without_snapshot(lake_ident, COLUMNS, NEW)
    found = sql_tables.describe(lake_ident)
    assert found is not None
    assert (found.columns, found.history.refs) == (COLUMNS, {})
    with pytest.raises(ReplicationError) as error:
        sql_tables.create_table(lake_ident, COLUMNS, NEW, {})
    assert error.value.code == "42P07"
    sql_tables.commit_empty(lake_ident, MAIN, {"a": "b"})
    assert sql_tables.history(lake_ident).tip() is not None


def test_a_schema_that_another_session_creates_at_once_is_no_error() -> None:
    session = Session(LakeFailure("it exists"))
    tables_on(session).create_schema(IDENT)
    assert (
        session.statements
        == ['CREATE NAMESPACE IF NOT EXISTS `lake`.`s` -- creating schema "s"'] * 2
    )
    with pytest.raises(LakeFailure, match="again"):
        tables_on(Session(LakeFailure("first"), LakeFailure("again"))).create_schema(IDENT)


def test_an_expiry_names_its_time_to_the_microsecond() -> None:
    session = Session()
    tables_on(session).expire_snapshots(IDENT, older_than=1_763_000_000.25, retain_last=3)
    [properties, statement] = session.statements
    assert properties == "no properties"
    assert "older_than => TIMESTAMP '2025-11-13 02:13:20.250000+00:00'" in statement
    assert "retain_last => 3" in statement
