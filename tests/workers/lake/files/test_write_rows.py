"""Rows that come as batches, written while the next ones are made."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.files.layouts import IDENT, in_folder, known, metadata, staged
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.write_rows import write_staged_rows
from workers.lake.staged_rows import NewFile


def test_while_rows_are_written_the_next_ones_are_made_and_no_more(files: TableLayout) -> None:
    """In a thread that is gone behind the call, whatever became of it."""
    made: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(5):
            assert threading.current_thread() is not threading.main_thread()
            made.append(n)
            yield staged(pa.array([n, None], pa.int64()), pa.array(["x", None]))

    before = threading.active_count()
    told: list[NewFile] = []
    write_staged_rows(files, IDENT, batches(), "ab", told.append)
    assert (sum(file.rows for file in told), made) == (10, [0, 1, 2, 3, 4])
    made.clear()

    def full(*args: Any, **more: Any) -> None:
        next(iter(args[1]))
        raise OSError("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.lake.files.write_rows.write_groups", full)
        patch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 2)
        with pytest.raises(OSError, match="full"):
            write_staged_rows(files, IDENT, batches(), "ab", told.append)
    assert made == [0, 1]
    required = known(metadata("long", "string", location=files.location, required=True))
    with pytest.raises(ReplicationError):
        write_staged_rows(required, IDENT, batches(), "ab", told.append)
    assert threading.active_count() == before
    assert len(in_folder(files)) == 1
