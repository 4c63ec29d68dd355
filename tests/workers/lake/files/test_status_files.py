"""Status tables as files of this process: the same tables as Spark's, and no Spark job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import RequiredProcessGone
from tests.fix_lake import Lake
from tests.workers.lake.sql.test_status_tables import content
from workers.lake.api import status_commits
from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.lake_url import GATEWAY
from workers.lake.connect.user_query import run_query
from workers.lake.files import status_files
from workers.lake.files.status_files import write_status_files
from workers.lake.sql import status_tables
from workers.lake.sql.status_tables import write_status_tables

NAME = "pg_files"
PATH = f"lake.pg_catalog.{NAME}"
COLUMNS = {
    "oid": pa.array([2**32 - 1, None], pa.int64()),
    "names": pa.array([["a", None], []], pa.list_(pa.string())),
    "at": pa.array([1_763_000_000_000_000, None], pa.timestamp("us", "UTC")),
    "ok": pa.array([True, None]),
    "pid": pa.array([7, None], pa.int32()),
}


def read(lake: Lake, what: str = f"SELECT * FROM {PATH}") -> list[dict[str, Any]]:
    return run_query(lake.url, what).to_pylist()


@pytest.fixture
def no_table(lake_server: Lake) -> Lake:
    run_query(lake_server.url, f"DROP TABLE IF EXISTS {PATH} PURGE")
    return lake_server


def test_both_writers_leave_the_same_table(no_table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = no_table
    monkeypatch.setattr(status_files, "STATUS_SNAPSHOTS", 2)
    monkeypatch.setattr(status_tables, "SNAPSHOTS_AT_MOST", 4)
    full = content(**COLUMNS)
    empty = content(**{name: column.slice(2) for name, column in COLUMNS.items()})
    assert write_status_files(lake.url, {NAME: empty}) == {}
    assert read(lake) == []
    assert write_status_files(lake.url, {NAME: full}) == {}
    assert read(lake) == full.rows.to_pylist()
    assert write_status_tables(lake.url, {NAME: full}) == []  # Spark's writer knows the digest
    assert write_status_tables(lake.url, {NAME: empty}) == [NAME]
    assert read(lake) == []
    assert write_status_files(lake.url, {NAME: full}) == {}
    assert read(lake) == full.rows.to_pylist()
    snapshots = f"SELECT count(*) AS n FROM {PATH}.snapshots"
    assert read(lake, snapshots) == [{"n": 2}]
    assert write_status_files(lake.url, {NAME: full}) == {}
    assert read(lake, snapshots) == [{"n": 2}]


def test_other_columns_replace_the_table(no_table: Lake) -> None:
    lake = no_table
    assert write_status_tables(lake.url, {NAME: content(oid=pa.array([1], pa.int64()))}) == [NAME]
    wider = content(oid=pa.array(["b"]), more=pa.array([["x"]], pa.list_(pa.string())))
    assert write_status_files(lake.url, {NAME: wider}) == {}
    assert read(lake) == wider.rows.to_pylist()
    narrow = content(more=pa.array([4]))
    assert write_status_files(lake.url, {NAME: narrow}) == {}
    assert read(lake) == [{"more": 4}]


def test_no_spark_session_and_no_job(no_table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_args: object) -> None:
        raise AssertionError("a Spark session was begun")

    monkeypatch.setattr("workers.lake.connect.sessions.LakeSession", refuse)
    for number in (1, 2):
        table = content(n=pa.array([number]))
        assert write_status_files(no_table.url, {NAME: table}) == {}


def test_a_server_without_a_gateway_is_left_to_spark() -> None:
    table = content(n=pa.array([1]))
    assert write_status_files("sc://nowhere:15002", {NAME: table}) == {NAME: table}


def test_a_server_that_is_gone_is_an_error() -> None:
    with pytest.raises(RequiredProcessGone, match="lost the lake server while writing"):
        write_status_files(f"sc://localhost:1/;{GATEWAY}=1.secret", {NAME: content()})


def test_a_table_that_only_spark_can_write_is_left_to_spark(no_table: Lake) -> None:
    lake, table = no_table, content(n=pa.array([1]))
    assert write_status_files(lake.url, {NAME: table}) == {}
    run_query(lake.url, f"ALTER TABLE {PATH} SET TBLPROPERTIES ('write.format.default' = 'orc')")
    other = content(n=pa.array([2]))
    assert write_status_files(lake.url, {NAME: other}) == {NAME: other}
    assert read(lake) == [{"n": 1}]


def test_a_refused_commit_leaves_no_file(no_table: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, table = no_table, content(n=pa.array([1]))
    assert write_status_files(lake.url, {NAME: table}) == {}
    files = f"SELECT file_path FROM {PATH}.files"
    folder = Path(str(read(lake, files)[0]["file_path"]).removeprefix("file:")).parent
    before = sorted(folder.iterdir())

    def refuse(*_args: object) -> None:
        raise LakeFailure("refused")

    monkeypatch.setattr(status_commits, "_commit", refuse)
    other = content(n=pa.array([2]))
    assert write_status_files(lake.url, {NAME: other}) == {NAME: other}
    assert sorted(folder.iterdir()) == before
