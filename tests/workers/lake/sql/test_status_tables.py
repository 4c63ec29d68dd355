from __future__ import annotations

import zlib
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.connect.plan import LogicalPlan

from tests.fix_lake import Lake
from workers.lake.connect.user_query import run_query
from workers.lake.sql import status_tables
from workers.lake.sql.status_tables import StatusTable, write_status_tables

NAME = "pg_seen"
PATH = f"lake.pg_catalog.{NAME}"


def content(**columns: pa.Array[Any] | pa.ChunkedArray[Any]) -> StatusTable:
    table = pa.table(columns)
    schema = zlib.crc32(repr(table.schema).encode())
    return StatusTable(table, str(schema), repr(table.to_pylist()))


def test_made_replaced_left_alone_and_cut_back(
    lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status_tables, "STATUS_SNAPSHOTS", 2)
    monkeypatch.setattr(status_tables, "SNAPSHOTS_AT_MOST", 4)

    def write(table: StatusTable) -> list[str]:
        return write_status_tables(lake_server.url, {NAME: table})

    def read(what: str = f"SELECT * FROM {PATH}") -> list[dict[str, object]]:
        return run_query(lake_server.url, what).to_pylist()

    empty = content(oid=pa.array([], pa.int64()), names=pa.array([], pa.list_(pa.string())))
    assert write(empty) == [NAME]
    assert read() == []
    full = content(
        oid=pa.array([2**32 - 1, None], pa.int64()),
        names=pa.array([["a", None], []], pa.list_(pa.string())),
    )
    assert write(full) == [NAME]
    assert write(full) == []
    assert read() == full.rows.to_pylist()
    wider = content(oid=pa.array([1], pa.int64()), ok=pa.array([True]), at=pa.array(["0/1"]))
    assert write(wider) == [NAME]
    assert read() == [{"oid": 1, "ok": True, "at": "0/1"}]
    snapshots = f"SELECT count(*) AS n FROM {PATH}.snapshots"
    assert read(snapshots) == [{"n": 3}]
    none = content(**{name: wider.rows[name].slice(1) for name in wider.rows.column_names})
    assert write(none) == [NAME]
    assert read() == []
    assert read(snapshots) == [{"n": 2}]
    assert write(none) == []
    run_query(lake_server.url, f"DROP TABLE {PATH} PURGE")
    assert write(empty) == [NAME]
    assert read() == []


def test_the_next_write_takes_the_session_that_the_last_write_left(
    lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    left: list[tuple[str, str]] = []

    def write(number: int, session: tuple[str, str] | None) -> list[str]:
        table = content(n=pa.array([number]))
        return write_status_tables(
            lake_server.url,
            {"pg_left": table},
            session=session,
            leave=lambda *ids: left.append(ids),
        )

    monkeypatch.setattr(LogicalPlan, "_nextPlanId", 0)
    assert write(1, None) == ["pg_left"]
    # A write in a new process numbers its plans anew, and its plans equal those of the last write.
    # The table was missing at the session's first look, and is found at the second look.
    monkeypatch.setattr(LogicalPlan, "_nextPlanId", 0)
    assert write(1, left[0]) == []
    assert write(2, left[0]) == ["pg_left"]
    assert left[2] == left[1] == left[0]
    dest = lake_server.destination()
    dest.release_sessions(left)
    assert write(3, left[0]) == ["pg_left"]
    assert left[3] != left[0]
    dest.release_sessions(left)
    dest.close()
