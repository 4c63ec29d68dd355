"""Staged rows as Spark reads them: calendars, names with patterns, files damaged or missing."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from workers.lake.connect.session import LakeSession
from workers.lake.sql.staged_frame import frame
from workers.lake.storage.staging import Staging

ROWS = pa.table({"c0": pa.array(range(50), pa.int64()), "c1": [f"row {n}" for n in range(50)]})


@pytest.mark.parametrize(
    "said",
    [
        {"spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"},
        {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
        {"spark.sql.session.timeZone": "Asia/Kolkata"},
    ],
    ids=lambda said: next(iter(said)).rpartition(".")[2],
)
def test_old_dates_are_what_they_were(
    lake_server: Lake, tmp_path: Path, said: dict[str, str]
) -> None:
    """Whatever the server, or ``spark.conf``, thinks of calendars and time zones."""
    moment = datetime(1500, 1, 1, 12, tzinfo=UTC)
    rows = pa.table(
        {
            "c0": pa.array([date(1500, 1, 1)]),
            "c1": pa.array([moment], pa.timestamp("us", "UTC")),
            "c2": pa.array([moment.replace(tzinfo=None)], pa.timestamp("us")),
        }
    )
    staged = Staging(f"{tmp_path}/own/1_0_1", local_rows=0).stage(rows.to_batches(), rows.schema)
    session = LakeSession(lake_server.url, "staging", str(uuid.uuid4()), said)
    try:
        session.configure()
        assert session.query("SELECT * FROM s", "reading", s=frame(session, staged)) == rows
    finally:
        session.close()


@pytest.fixture
def lenient(lake_server: Lake) -> Iterator[LakeSession]:
    """A session of a server that leaves out what it cannot read."""
    said = {
        "spark.sql.files.ignoreMissingFiles": "true",
        "spark.sql.files.ignoreCorruptFiles": "true",
    }
    session = LakeSession(lake_server.url, "staging", str(uuid.uuid4()), said)
    session.configure()
    yield session
    session.close()


def test_a_folder_s_name_is_no_pattern(lenient: LakeSession, tmp_path: Path) -> None:
    """Whoever names the place, or the data directory, may be fond of brackets."""
    place = tmp_path / "a[b]{c,d}*?\\e %20é"
    place.mkdir()
    staged = Staging(f"{place}/1_0_1", local_rows=0).stage(ROWS.to_batches(), ROWS.schema)
    assert lenient.query("SELECT * FROM s", "reading", s=frame(lenient, staged)) == ROWS


def test_a_damaged_file_is_an_error(lenient: LakeSession, tmp_path: Path) -> None:
    staged = Staging(f"{tmp_path}/1_0_1", local_rows=0).stage(ROWS.to_batches(), ROWS.schema)
    rows = frame(lenient, staged)
    Path(staged.paths[0]).write_bytes(b"PAR1 and no more")
    with pytest.raises(ReplicationError):
        lenient.query("SELECT * FROM s", "reading", s=rows)


def test_a_file_that_spark_does_not_see(lenient: LakeSession, tmp_path: Path) -> None:
    """When it is looked for, and when its turn comes."""
    staging = Staging(f"{tmp_path}/1_0_1", local_rows=0)
    staged = staging.stage(ROWS.to_batches(), ROWS.schema)
    rows = frame(lenient, staged)
    rows.createOrReplaceTempView("listed")
    assert lenient.query("SELECT * FROM listed", "reading") == ROWS
    staging.discard(staged)
    for sql, views in (("SELECT * FROM s", {"s": rows}), ("SELECT * FROM listed", {})):
        with pytest.raises(ReplicationError) as error:
            lenient.query(sql, "writing", **views)
        assert error.value.code == "58030"
        assert error.value.primary == "the lake could not read staged rows while writing"
        assert '"spark.staging"' in (error.value.hint or "")
