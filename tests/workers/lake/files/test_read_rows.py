"""Files that are not what the table says: whoever reads or joins them leaves them to Spark."""

from __future__ import annotations

import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from catalog.errcodes import IoError
from tests.workers.lake.files.layouts import (
    IDENT,
    in_folder,
    known,
    metadata,
    rows,
    written,
)
from workers.lake.effects import FileSizes
from workers.lake.files import read_rows
from workers.lake.files.branch_commit import BranchCommits
from workers.lake.files.branch_files import BranchFiles
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.join_small_files import join_small
from workers.lake.files.position_deletes import write_deletes
from workers.lake.files.read_rows import Unreadable, read_together, rows_at
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.write_rows import write_rows
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.staged_rows import FileList, LiveFile
from workers.lake.storage.local_path import local_path

FEW = 3


@pytest.fixture
def files(tmp_path: Path) -> TableLayout:
    return known(metadata(location=str(tmp_path)))


def living(files: TableLayout, *batches: pa.RecordBatch) -> list[LiveFile]:
    """A file for each batch."""
    return [LiveFile(file.path, file.rows) for file in written(files, *batches, size=1)]


class Gateway:
    """Says yes to every commit, of which there is to be none but where ``before`` is told."""

    def __init__(self, before: int | None = None) -> None:
        self.before = before
        self.committed = 0

    def commit_files(self, _ident: object, _branch: str, change: FileChange, _: str) -> FileTotals:
        assert self.before is not None, "nothing was to be committed"
        self.committed = sum(file.rows for file in change.added)
        return FileTotals(0, 0, tip=9, parent=self.before)


def joined(
    files: TableLayout, live: Sequence[LiveFile], before: int | None = None
) -> tuple[object, BranchFiles, int]:
    files_known = BranchFiles(listed=FileList(7, tuple(live)))
    gateway: Any = Gateway(before)
    target = BranchCommits(gateway, IDENT, "b", files, files_known, DeletedRowsCache())
    done = join_small(target, FileSizes(few=FEW))
    return done, files_known, gateway.committed


@pytest.mark.parametrize("told", [2, 4])
def test_a_file_of_another_number_of_rows_than_the_table_was_told_is_not_read(
    files: TableLayout, told: int
) -> None:
    (file,) = living(files, rows(files, 1, 2, 3))
    assert [
        part.num_rows for part in rows_at(files.store, file, np.arange(2), list(files.schema))
    ] == [2]
    with pytest.raises(Unreadable):
        rows_at(files.store, replace(file, rows=told), np.arange(2), list(files.schema))


def damaged(files: TableLayout, live: list[LiveFile]) -> LiveFile:
    deletes = write_deletes(files, {live[0].path: np.array([1])})
    local_path(deletes.path).write_bytes(b"PAR1 no such file PAR1")
    return replace(live[0], deletes=(deletes,))


def beyond(files: TableLayout, live: list[LiveFile]) -> LiveFile:
    return replace(live[0], deletes=(write_deletes(files, {live[0].path: np.array([40])}),))


def of_fewer_rows(_: TableLayout, live: list[LiveFile]) -> LiveFile:
    return replace(live[0], rows=1)


@pytest.mark.parametrize("change", [damaged, beyond, of_fewer_rows])
def test_what_is_wrong_with_a_file_is_for_spark_to_tell(files: TableLayout, change: Any) -> None:
    live = living(files, *(rows(files, n, 100 + n) for n in range(FEW)))
    live[0] = change(files, live)
    before = in_folder(files)
    assert joined(files, live)[0] is None
    assert in_folder(files) == before


def test_a_column_that_became_one_that_must_have_values_is_spark_s(files: TableLayout) -> None:
    live = living(files, *(rows(files, n) for n in range(FEW)))
    later = metadata("long", "string", "int", required=True, location=files.location)
    before = in_folder(files)
    assert joined(known(later), live)[0] is None
    assert in_folder(files) == before


def test_what_is_known_is_what_was_listed_and_no_more(files: TableLayout) -> None:
    """A commit that came between is another snapshot's business."""
    live = living(files, *(rows(files, n, 100 + n) for n in range(FEW)))
    live[0] = replace(live[0], deletes=(write_deletes(files, {live[0].path: np.array([1])}),))
    done, after, committed = joined(files, live, before=7)
    assert (done, committed) == ((FEW, 0), 2 * FEW - 1)
    assert after.listed is not None
    assert after.listed.tip == 9
    done, after, _ = joined(files, live, before=8)
    assert done == (FEW, 0)
    assert after.listed is None


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """As on a disk that is full then: Python ignores the signal, and the write fails."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.parametrize("size", [1_000, 400_000, 1 << 20, 1_500_000])
def test_a_disk_that_is_full_says_so(files: TableLayout, size: int) -> None:
    ids = np.random.default_rng(1).integers(0, 1 << 60, 200_000)
    batches = [rows(files, *part.tolist()) for part in np.split(ids, 100)]
    with largest_file(size), pytest.raises(IoError):
        write_rows(files, batches, lambda _: None)
    assert in_folder(files) == set()


def test_files_are_read_together_up_to_a_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_rows, "READ_TOGETHER_BYTES", 10)
    monkeypatch.setattr(read_rows, "READ_TOGETHER_ROWS", 100)
    found = [(4, 1), (4, 1), (4, 1), (20, 1), (1, 60), (1, 60), (1, 40), (1, 1)]
    sized = [(LiveFile(f"{n}", rows), size) for n, (size, rows) in enumerate(found)]
    groups = [[int(file.path) for file in of] for of in read_together(sized)]
    assert groups == [[0, 1], [2], [3], [4], [5, 6], [7]]
