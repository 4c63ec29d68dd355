"""Commits to status tables by Iceberg's API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.fix_lake import Lake
from tests.workers.lake.sql.test_status_tables import content
from workers.lake.api import status_commits
from workers.lake.api.gateway import gateway_of
from workers.lake.api.java_api import JavaApi
from workers.lake.connect.user_query import run_query
from workers.lake.files.status_files import write_status_files
from workers.lake.sql.status_tables import DIGEST
from workers.lake.table import LakeIdent

IDENT = LakeIdent("pg_catalog", "pg_commits")
PATH = "lake.pg_catalog.pg_commits"


@pytest.fixture
def api(lake_server: Lake) -> Iterator[JavaApi]:
    run_query(lake_server.url, f"DROP TABLE IF EXISTS {PATH} PURGE")
    gateway = gateway_of(lake_server.url)
    assert gateway is not None
    with gateway.api("testing") as found:
        yield found
    gateway.close()


def test_what_was_written_last(api: JavaApi, lake_server: Lake) -> None:
    assert status_commits.written(api, IDENT, DIGEST) is None
    no_schema = LakeIdent("no_such_schema", "t")
    assert status_commits.written(api, no_schema, DIGEST) is None
    for number in (1, 2):
        table = content(n=pa.array([number]))
        assert write_status_files(lake_server.url, {IDENT.table: table}) == {}
        assert status_commits.written(api, IDENT, DIGEST) == (table.digest, number)


def test_a_table_is_loaded_once_to_be_looked_at(
    api: JavaApi, lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each load is a request, behind a REST catalog."""
    assert write_status_files(lake_server.url, {IDENT.table: content(n=pa.array([1]))}) == {}
    loads: list[LakeIdent] = []
    load = JavaApi.load

    def counted(self: JavaApi, ident: LakeIdent) -> Any:
        loads.append(ident)
        return load(self, ident)

    monkeypatch.setattr(JavaApi, "load", counted)
    monkeypatch.setattr(JavaApi, "has_table", lambda *_: pytest.fail("asks for the table"))
    assert status_commits.written(api, IDENT, DIGEST) is not None
    assert loads == [IDENT]


def test_refused_files_go_and_a_snapshot_s_files_stay(api: JavaApi, lake_server: Lake) -> None:
    assert write_status_files(lake_server.url, {IDENT.table: content(n=pa.array([1]))}) == {}
    [row] = run_query(lake_server.url, f"SELECT file_path FROM {PATH}.files").to_pylist()
    named = str(row["file_path"])
    kept = Path(named.removeprefix("file:"))
    refused = kept.with_name("refused.parquet")
    refused.write_bytes(b"rows")
    status_commits.remove_refused(api, IDENT, [named, named.replace(kept.name, refused.name)])
    assert kept.exists()
    assert not refused.exists()
