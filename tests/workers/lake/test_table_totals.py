"""Counts of files over all tables of a process."""

from __future__ import annotations

from workers.lake.table import LakeIdent
from workers.lake.table_totals import TableFiles, TableTotals

A, B = LakeIdent("s", "a"), LakeIdent("s", "b")


def test_a_later_commit_of_a_table_replaces_the_earlier_one() -> None:
    totals = TableTotals()
    totals.note(A, TableFiles(10, 2, 70))
    totals.note(B, TableFiles(5, 0, 0))
    totals.note(A, TableFiles(3, 1, 0))
    assert totals.sums() == {
        "data_files": 8,
        "delete_files": 1,
        "deleted_rows": 0,
        "snapshots": 3,
        "metadata_bytes": 0,
        "tables": 2,
    }


def test_snapshots_are_those_of_the_last_look_and_of_the_commits_since() -> None:
    totals = TableTotals()
    totals.note_metadata(A, 7, 900)
    totals.note_metadata(B, 100, 9000)  # opened, and not written to
    assert totals.sums()["snapshots"] == 0
    totals.note(A, TableFiles(1, 0, 0))
    totals.note(A, TableFiles(2, 0, 0))
    assert (totals.sums()["snapshots"], totals.sums()["metadata_bytes"]) == (9, 900)
    totals.note_metadata(A, 4, 500)  # after an expiry
    totals.note(A, TableFiles(3, 0, 0))
    assert (totals.sums()["snapshots"], totals.sums()["metadata_bytes"]) == (5, 500)
    assert totals.sums()["data_files"] == 3


def test_nothing_is_known_before_the_first_commit() -> None:
    assert set(TableTotals().sums().values()) == {0}
