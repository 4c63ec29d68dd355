"""Files by partition: groups of rows, open files, errors; no server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.files.layouts import in_folder, known, metadata
from workers.lake.files import partitioned_files
from workers.lake.files.partitioned_files import write_partitions
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import NewFile
from workers.lake.storage.local_path import local_path

FIELD = {"name": "a_trunc", "transform": "truncate[10]", "source-id": 11, "field-id": 1000}
ORDER = {"transform": "identity", "source-id": 11, "direction": "desc", "null-order": "nulls-last"}


@pytest.fixture
def files(tmp_path: Path) -> TableLayout:
    """Partitioned by ten numbers, each file with the greatest number first."""
    return known(
        metadata(
            location=str(tmp_path),
            partition_specs=[{"spec-id": 0, "fields": [FIELD]}],
            default_sort_order_id=1,
            sort_orders=[{"order-id": 1, "fields": [ORDER]}],
        )
    )


def batch(files: TableLayout, *numbers: int | None) -> pa.RecordBatch:
    columns: list[Any] = [pa.array(numbers, pa.int64()), pa.array(["x"] * len(numbers))]
    return pa.RecordBatch.from_arrays(columns, schema=files.schema)


def values(file: NewFile) -> list[list[int | None]]:
    """The numbers of a file's row groups."""
    parquet = pq.ParquetFile(local_path(file.path))
    return [parquet.read_row_group(n)["a"].to_pylist() for n in range(parquet.num_row_groups)]


def write(files: TableLayout, *batches: pa.RecordBatch) -> dict[str, list[list[int | None]]]:
    told: list[NewFile] = []
    write_partitions(files, batches, told.append)
    assert in_folder(files) == {file.path for file in told}
    found: dict[str, list[list[int | None]]] = {}
    for file in told:
        assert file.place is not None
        assert (file.place.spec_id, file.rows) == (0, sum(map(len, values(file))))
        found.setdefault(file.place.values, []).extend(values(file))
    return found


def test_a_file_has_the_rows_of_one_partition_in_the_table_s_order(files: TableLayout) -> None:
    found = write(files, batch(files, 1, 12, None, 3), batch(files), batch(files, 2, -1, None))
    assert found == {
        '{"1000":0}': [[3, 2, 1]],
        '{"1000":10}': [[12]],
        '{"1000":-10}': [[-1]],
        "{}": [[None, None]],
    }
    known_before = in_folder(files)
    write_partitions(files, [], lambda file: pytest.fail(file.path))
    assert in_folder(files) == known_before


def test_row_groups_fill_up_and_the_rest_comes_last(
    files: TableLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitioned_files, "ROW_GROUP_ROWS", 3)
    found = write(files, *(batch(files, n, 10 + n) for n in range(8)))
    assert found == {
        '{"1000":0}': [[2, 1, 0], [5, 4, 3], [7, 6]],
        '{"1000":10}': [[12, 11, 10], [15, 14, 13], [17, 16]],
    }


def test_few_files_are_open_and_little_memory_waits(
    files: TableLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The partition with the most rows is written first; the file written longest ago ends."""
    monkeypatch.setattr(partitioned_files, "PARTITIONED_BYTES", 60)
    monkeypatch.setattr(partitioned_files, "OPEN_PARTITIONS", 2)
    opened: list[int] = []
    known_write = partitioned_files._OpenFiles.write

    def watched(self: Any, *args: Any) -> None:
        known_write(self, *args)
        opened.append(len(self._open))

    monkeypatch.setattr(partitioned_files._OpenFiles, "write", watched)
    numbers = [10 * (n % 5) + n for n in range(5)] * 8
    found = write(files, *(batch(files, n, n + 1, n + 2) for n in numbers))
    assert max(opened) == 2
    rows = sorted(
        n for groups in found.values() for group in groups for n in group if n is not None
    )
    assert rows == sorted(n + more for n in numbers for more in range(3))
    assert len(found) < len(in_folder(files)), "a partition may get several files"


@pytest.mark.parametrize("cause", [RuntimeError("lost"), OSError(28, "full"), KeyboardInterrupt()])
def test_an_error_removes_the_open_files(
    files: TableLayout, monkeypatch: pytest.MonkeyPatch, cause: BaseException
) -> None:
    monkeypatch.setattr(partitioned_files, "ROW_GROUP_ROWS", 1)
    monkeypatch.setattr(partitioned_files, "OPEN_PARTITIONS", 2)

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch(files, 1, 11, 21, 31)
        raise cause

    told: list[NewFile] = []
    with pytest.raises((RuntimeError, ReplicationError, KeyboardInterrupt)):
        write_partitions(files, batches(), told.append)
    assert in_folder(files) == {file.path for file in told}
    assert len(told) == 2, "complete before the error"


def test_an_error_at_the_end_leaves_complete_files_only(
    files: TableLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last files are written by several threads."""
    written = partitioned_files._Waiting.take_group

    def failing(self: Any) -> pa.Table:
        table = written(self)
        if table["a"][0].as_py() == 21:
            raise OSError(28, "full")
        return table

    monkeypatch.setattr(partitioned_files._Waiting, "take_group", failing)
    told: list[NewFile] = []
    with pytest.raises(ReplicationError) as error:
        write_partitions(files, [batch(files, 1, 11, 21, 31)], told.append)
    assert error.value.code == "53100"
    assert in_folder(files) == {file.path for file in told}
