"""A copy's task that writes data files: what it tells of them, and of its errors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workers.lake.files.layouts import known, metadata
from workers.lake.copy_task import CopyTask, CopyTaskError
from workers.lake.files import copy_files
from workers.lake.files.copy_files import WRITTEN, CopyFiles, written_files
from workers.lake.storage.local_store import LocalStore
from workers.lake.table import LakeIdent

IDENT = LakeIdent("s", "t")


def copied(tmp_path: Path, *batches: pa.RecordBatch) -> pa.Table:
    def task(numbered: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        assert [batch.num_rows for batch in numbered] == [1]
        yield from batches

    files = known(metadata(location=str(tmp_path)))
    names = tuple(files.names)
    write = CopyFiles(cast("CopyTask", task), IDENT, files, names, "", "attempt")
    number = pa.RecordBatch.from_pydict({"id": [0]})
    return pa.Table.from_batches(list(write([number])), WRITTEN)


def rows(**columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({name: pa.array(each) for name, each in columns.items()})


def test_the_files_of_a_task_are_described(tmp_path: Path) -> None:
    first, second = rows(c0=[1, 2], c1=["a", "b"]), rows(c0=[3], c1=["c"])
    (file,) = written_files(copied(tmp_path, first, second))
    assert file.rows == 3
    path = Path(file.path.removeprefix("file:"))
    assert (path.stat().st_size, "attempt" in path.name) == (file.size, True)
    assert pq.read_table(path).column(0).to_pylist() == [1, 2, 3]


def test_a_task_without_rows_writes_no_file(tmp_path: Path) -> None:
    assert written_files(copied(tmp_path)) == []


def test_an_error_travels_with_its_sqlstate(tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file where the folder should be")
    with pytest.raises(CopyTaskError) as error:
        copied(tmp_path, rows(c0=[1], c1=["a"]))
    assert error.value.sqlstate.startswith("58")


def test_footers_of_few_files_come_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With them the commit reads no file of a store; many would be a long answer."""
    monkeypatch.setattr(LocalStore, "has_cheap_requests", False)
    (file,) = written_files(copied(tmp_path, rows(c0=[1], c1=["a"])))
    assert pq.read_metadata(pa.BufferReader(file.footer)).num_rows == 1
    monkeypatch.setattr(copy_files, "COPY_FOOTERS_FILES", 0)
    (file,) = written_files(copied(tmp_path, rows(c0=[1], c1=["a"])))
    assert file.footer == b""
