from __future__ import annotations

import json
import sqlite3
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from catalog.pg_lsn import LSN
from tests.bench.local_lake import SCHEMA, current_snapshot, lake_metadata
from tests.bench.sides import LAKE_SERVER, SPARK_PYTHON, Ours, role_of
from tests.harness import Pgsub

FORKING = ["python", "-c", "from multiprocessing.forkserver import main; main(11, 13)"]
MILLISECONDS = 1_700_000_000_000


def snapshot(number: int, lsn: str | None, **summary: str) -> dict[str, Any]:
    stamp = {"pgsub.lsn": lsn} if lsn else {}
    return {
        "snapshot-id": number,
        "parent-snapshot-id": number - 1,
        "summary": {**stamp, **summary},
    }


@pytest.fixture
def ours(tmp_path: Path) -> Ours:
    """A side without processes, on a lake of one table: two batches and then a compaction."""
    side = Ours.__new__(Ours)
    side.pgsub = Pgsub(tmp_path / "data")
    totals = {"total-data-files": "3", "total-delete-files": "2", "total-files-size": "1048576"}
    metadata = {
        "current-snapshot-id": 3,
        "snapshots": [snapshot(1, "0/10"), snapshot(2, "0/20"), snapshot(3, None, **totals)],
        "snapshot-log": [
            {"snapshot-id": number, "timestamp-ms": MILLISECONDS + number} for number in (1, 2, 3)
        ],
    }
    file = tmp_path / "metadata.json"
    file.write_text(json.dumps(metadata))
    side.pgsub.lake_dir.mkdir()
    with sqlite3.connect(side.pgsub.lake_catalog_file()) as connection:
        connection.execute(
            "CREATE TABLE iceberg_tables (table_namespace, table_name, metadata_location)"
        )
        connection.execute(
            "INSERT INTO iceberg_tables VALUES (?, 't', ?)", (SCHEMA, f"file:{file}")
        )
    connection.close()
    return side


def test_the_position_is_that_of_the_newest_stamp(ours: Ours) -> None:
    ours.wait_visible("t", LSN(0x20))
    assert ours._position("t") == LSN(0x20)
    assert ours._position("no table") is None


def test_a_compaction_shows_nothing_new(ours: Ours) -> None:
    moments = [datetime.fromtimestamp((MILLISECONDS + number) / 1000, UTC) for number in (1, 2)]
    assert ours.publications_of("t") == [(moments[0], LSN(0x10)), (moments[1], LSN(0x20))]


def test_what_a_table_consists_of(ours: Ours) -> None:
    assert ours.files("t") == {"files": 3, "delete_files": 2, "snapshots": 3, "table_mb": 1.0}


def test_a_lake_that_is_not_there_yet(tmp_path: Path) -> None:
    assert lake_metadata(Pgsub(tmp_path / "data"), "t") == {}
    assert current_snapshot({}) == {}
    assert current_snapshot({"current-snapshot-id": -1, "snapshots": []}) == {}


@pytest.mark.parametrize(
    ("exe", "name", "cmdline", "role"),
    [
        ("/usr/bin/python3.11", "pgsub tablesync", FORKING, "sync worker"),
        ("/usr/bin/python3.11", "pgsub", ["pgsub", "up"], "launcher"),
        ("/usr/bin/python3.11", "python", FORKING, "fork server"),
        ("/usr/bin/python3.11", "pgsub apply", FORKING, "apply worker"),
        ("/jvm/bin/java", "java", ["java", "-cp", "jars"], LAKE_SERVER),
        ("/jvm/bin/java", "Executor task l", ["java", "-cp", "jars"], LAKE_SERVER),
        ("/usr/bin/python3.11", "python", ["python", "-m", "python_daemon"], SPARK_PYTHON),
        ("/usr/bin/python3.11", "pgsub python", FORKING, SPARK_PYTHON),
    ],
)
def test_a_process_is_told_by_what_it_runs(
    exe: str, name: str, cmdline: list[str], role: str
) -> None:
    assert role_of(exe, name, cmdline) == role
