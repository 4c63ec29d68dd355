"""Staged rows in a folder and in an object store: written, read back, removed."""

from __future__ import annotations

import stat
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.object_store import ObjectStore
from tests.workers.lake.storage.conftest import SECRET, Place
from workers.lake.storage.staging import Staging, staged_batches, staged_columns, staged_schema

ROWS = pa.table({"c0": pa.array(range(50), pa.int64()), "c1": [f"row {n}" for n in range(50)]})


def test_what_is_staged_is_read_back_and_removed(place: Place) -> None:
    staging = Staging(f"{place.location}/1_0_1", local_rows=10)
    staged = staging.stage(ROWS.to_batches(20), ROWS.schema)
    assert staged.rows == 50
    assert place.files() == list(staged.paths)
    assert staged_schema(staged) == ROWS.schema
    assert staged_columns(staged, ["c1"]) == ROWS.select(["c1"])
    assert pa.Table.from_batches(staged_batches(staged)) == ROWS
    staging.discard(staged)
    assert place.files() == []
    staging.discard(staged)


def test_nothing_stays_of_what_could_not_be_staged(place: Place) -> None:
    def torn() -> Iterator[pa.RecordBatch]:
        yield from ROWS.to_batches()
        raise RuntimeError("torn")

    with pytest.raises(RuntimeError):
        Staging(f"{place.location}/1_0_1", local_rows=10).stage(torn(), ROWS.schema)
    assert place.files() == []


def test_files_of_a_folder_are_private(tmp_path: Path) -> None:
    [name] = Staging(f"{tmp_path}/own/1_0_1", 10).stage(ROWS.to_batches(), ROWS.schema).paths
    assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    assert stat.S_IMODE((tmp_path / "own").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "own" / "1_0_1").stat().st_mode) == 0o700


@pytest.mark.usefixtures("reachable_store")
def test_a_store_s_refusal_is_told_in_aws_s_word() -> None:
    with pytest.raises(ReplicationError) as error:
        Staging("s3://nosuch/p/1_0_1", 10).stage(ROWS.to_batches(), ROWS.schema)
    assert error.value.code == "58030"
    assert error.value.detail == "AWS Error NO_SUCH_BUCKET during CreateMultipartUpload operation."
    assert "nosuch" not in error.value.report()
    assert SECRET not in error.value.report()


def test_a_staged_file_that_is_lost(reachable_store: ObjectStore) -> None:
    staging = Staging(f"s3://{reachable_store.bucket}/lost/1_0_1", 10)
    staged = staging.stage(ROWS.to_batches(), ROWS.schema)
    staging.discard(staged)
    with pytest.raises(ReplicationError) as error:
        staged_columns(staged, ["c1"])
    assert (error.value.code, error.value.detail) == ("58030", "No such file or directory.")
    assert '"spark.staging"' in (error.value.hint or "")
