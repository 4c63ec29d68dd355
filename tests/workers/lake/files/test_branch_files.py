"""The files of a branch behind a commit, as far as they are known."""

from __future__ import annotations

from dataclasses import replace

from tests.workers.lake.files.layouts import places
from workers.lake.files.branch_files import Deletes, after_commit
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.interfaces.table_api import FileTotals
from workers.lake.staged_rows import FileList, LiveFile


def test_behind_another_commit_nothing_is_known() -> None:
    live, dead = FileList(7, (LiveFile("a", 1),)), DeletedRowsCache()
    assert after_commit(live, FileTotals(0, 0, 9, 8), [], Deletes(), dead) is None
    assert after_commit(None, FileTotals(0, 0, 9, 7), [], Deletes(), dead) is None
    assert after_commit(FileList(7, None), FileTotals(0, 0, 9, 7), [], Deletes(), dead) is None
    assert after_commit(live, FileTotals(0, 0, 9, 7), [], Deletes(), dead) == replace(live, tip=9)


def test_what_was_deleted_in_a_file_by_another_name_is_not_known() -> None:
    live, deletes = FileList(7, (LiveFile("file:/a", 1),)), Deletes({"/a": places(0)})
    assert after_commit(live, FileTotals(0, 0, 9, 7), [], deletes, DeletedRowsCache()) is None
