"""Deletes that are files of the table's own: not many of one data file, and of no other branch."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import duckdb
import numpy as np
import pytest

from tests.fix_lake import Lake
from tests.integration.readers import EXTENSIONS
from tests.workers.lake.contract import Make, append, merge, stamp
from tests.workers.lake.watched import Watched, delete, update, with_rows
from workers.lake.effects import Counts, FileSizes
from workers.lake.files import merge_delete_files as deletes
from workers.lake.files import segment_writer
from workers.lake.staged_rows import NewFile
from workers.lake.table import LakeIdent

FEW = 3
"""Instead of ``DELETE_FILES``, which take long to write."""


@pytest.fixture
def sixty(iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch) -> Watched:
    """Rows 0 to 59 in one file."""
    monkeypatch.setattr(deletes, "BATCH_DELETE_FILES", FEW)
    return with_rows(Watched(iceberg(), lake_ident), 60)


def delete_each(table: Watched, branch: str, keys: Sequence[int]) -> None:
    """A batch for each."""
    for n, key in enumerate(keys):
        counts = table.dest.write(
            table.ident, branch, [merge(table.dest, [delete(key)])], stamp(30 + n)
        )
        assert counts == Counts(merged=1)


def delete_files(table: Watched) -> list[int]:
    """How many places each has that a reader of main opens."""
    return sorted(int(rows) for (rows,) in table.query("record_count", "delete_files"))


def keys(table: Watched) -> list[int]:
    return [row[0] for row in table.rows()]


def by_pyiceberg_and_duckdb(lake: Lake, ident: LakeIdent) -> list[list[int]]:
    from pyiceberg.catalog.sql import SqlCatalog

    folder = lake.data_dir / "lake"
    uri = f"sqlite:///{folder / 'catalog.db'}"
    with warnings.catch_warnings(), duckdb.connect() as connection:
        warnings.simplefilter("ignore")  # pyiceberg's and SQLAlchemy's own
        catalog = SqlCatalog("lake", uri=uri, warehouse=f"file://{folder}/warehouse")
        table = catalog.load_table((ident.schema, ident.table))
        one: list[Any] = table.scan().to_arrow()["id"].to_pylist()
        catalog.close()
        for extension in EXTENSIONS:
            connection.execute(f"LOAD '{extension}'")
        scan = "SELECT id FROM iceberg_scan(?)"
        other = connection.execute(scan, [table.metadata_location]).fetchall()
    return [sorted(one), sorted(key for (key,) in other)]


def test_many_files_of_deletes_become_one(sixty: Watched, lake_server: Lake) -> None:
    """Of however many data files; readers see the same rows."""
    sixty.batch([append(sixty.dest, [(n, "x", None) for n in range(60, 80)])], 25)
    branch = sixty.branch()
    delete_each(sixty, branch, (0, 10, 70))
    sixty.dest.publish(sixty.ident, branch, stamp(29 + FEW))
    assert delete_files(sixty) == [1] * FEW
    changes = [update(1), update(61, 90), *map(delete, (5, 79))]
    counts = sixty.dest.write(sixty.ident, branch, [merge(sixty.dest, changes)], stamp(50))
    assert (counts.merged, counts.rows, counts.deleted) == (4, 82, FEW + 4)
    sixty.dest.publish(sixty.ident, branch, stamp(50))
    assert delete_files(sixty) == [FEW + 4]
    delete_each(sixty, branch, [7, 90])
    sixty.dest.publish(sixty.ident, branch, stamp(31))
    assert delete_files(sixty) == [1, 1, FEW + 4]
    expected = sorted({*range(79)} - {0, 5, 7, 10, 61, 70})
    assert keys(sixty) == expected
    assert by_pyiceberg_and_duckdb(lake_server, sixty.ident) == [expected] * 2


@pytest.mark.parametrize("again", [False, True], ids=["another name", "the same name"])
def test_what_a_given_up_branch_deleted_is_there_on_the_next(sixty: Watched, again: bool) -> None:
    given_up = sixty.branch()
    delete_each(sixty, given_up, range(FEW))
    sixty.dest.drop_branches(sixty.ident)
    branch = given_up if again else sixty.branch()
    sixty.dest.create_branch(sixty.ident, branch)
    delete_each(sixty, branch, range(20, 21 + FEW))
    sixty.dest.publish(sixty.ident, branch, stamp(30 + FEW))
    assert keys(sixty) == [*range(20), *range(21 + FEW, 60)]
    assert delete_files(sixty) == [FEW + 1]


def test_deletes_of_a_branch_that_something_failed_on_are_not_counted(sixty: Watched) -> None:
    """What is left of it may be published all the same: the deletes stay, in files of their own."""
    branch = sixty.branch()
    delete_each(sixty, branch, range(FEW))
    sixty.command("ALTER TABLE", "ADD COLUMN w INT")
    assert sixty.refused([merge(sixty.dest, [delete(50)])], branch).code == "40001"
    delete_each(sixty, branch, [50])
    sixty.dest.publish(sixty.ident, branch, stamp(30))
    assert keys(sixty) == [*range(FEW, 50), *range(51, 60)]


def test_deletes_that_a_merge_has_written_again_are_known_as_gone(
    sixty: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes in all that a data file had; those files may expire then."""
    branch = sixty.branch()
    delete_each(sixty, branch, range(FEW))
    monkeypatch.setattr(segment_writer, "LOOK_UP_CHANGES", 1)
    two = merge(sixty.dest, [delete(20), delete(21)])
    effect = sixty.dest.write_branch(sixty.ident, branch, [two], stamp(50))
    assert effect.merges
    assert sixty.dest.count([effect]) == [Counts(merged=2)]
    sixty.dest.publish(sixty.ident, branch, stamp(50))
    assert sixty.dest.expire(sixty.ident, retain=1) > 0
    counts = sixty.dest.write(sixty.ident, branch, [merge(sixty.dest, [delete(30)])], stamp(51))
    assert (counts.merged, counts.rows, counts.deleted) == (1, 60, FEW + 3)
    sixty.dest.publish(sixty.ident, branch, stamp(51))
    assert keys(sixty) == sorted({*range(FEW, 60)} - {20, 21, 30})


# -- upkeep ---------------------------------------------------------------------------------------


@pytest.fixture
def ten_files(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    """Files of ten rows: 0 to 9, 10 to 19, …"""
    table = Watched(iceberg(), lake_ident)
    segments = [
        append(table.dest, [(n, "x", None) for n in range(first, first + 10)])
        for first in range(0, 100, 10)
    ]
    table.batch(segments, 20)
    return table


def test_deletes_are_put_together_file_by_file(ten_files: Watched, lake_server: Lake) -> None:
    """Those of a data file in one file, however they were written; then there is nothing to do."""
    table = ten_files
    table.command("DELETE FROM", "WHERE id IN (20, 29, 93)")
    branch = table.branch()
    for n in range(3):
        changes = [delete(n), delete(90 + n), *([delete(50)] if n == 0 else [])]
        table.dest.write(table.ident, branch, [merge(table.dest, changes)], stamp(30 + n))
    dest: Any = table.dest
    for _ in range(2):
        assert dest._file_tables.merge_deletes(table.session, table.ident, branch)
        assert table.commits(branch)[:2] == [None, "0/20"]
    counts = table.dest.write(
        table.ident, branch, [merge(table.dest, [delete(3), delete(0), delete(99)])], stamp(40)
    )
    assert counts == Counts(merged=2, delete_missing=1)
    table.dest.publish(table.ident, branch, stamp(40))
    assert delete_files(table) == [1, 2, 2, 3, 4]
    expected = sorted({*range(4, 99)} - {20, 29, 50, 90, 91, 92, 93})
    assert keys(table) == expected
    assert by_pyiceberg_and_duckdb(lake_server, table.ident) == [expected] * 2


def test_deletes_in_another_format_are_no_hindrance(ten_files: Watched) -> None:
    """Somebody else's, in a table that was adopted say."""
    table = ten_files
    table.command("ALTER TABLE", "SET TBLPROPERTIES ('write.delete.format.default'='avro')")
    table.command("DELETE FROM", "WHERE id IN (20, 29, 93)")
    table.batch([merge(table.dest, [delete(0), delete(21)])], 30)
    branch = table.branch()
    dest: Any = table.dest
    dest._file_tables.merge_deletes(table.session, table.ident, branch)
    table.dest.write(table.ident, branch, [merge(table.dest, [delete(1)])], stamp(40))
    table.dest.publish(table.ident, branch, stamp(40))
    assert keys(table) == sorted({*range(2, 100)} - {20, 21, 29, 93})


def test_deletes_of_files_that_are_gone_go(ten_files: Watched) -> None:
    table = ten_files
    table.batch([merge(table.dest, [delete(n) for n in range(0, 100, 10)])], 30)
    branch = table.branch()
    assert table.dest.compact(table.ident, branch, FileSizes()) == 10
    dest: Any = table.dest
    assert dest._file_tables.merge_deletes(table.session, table.ident, branch)
    counts = table.dest.write(
        table.ident, branch, [merge(table.dest, [delete(1), update(11), delete(10)])], stamp(40)
    )
    assert counts == Counts(merged=2, delete_missing=1)
    table.dest.publish(table.ident, branch, stamp(40))
    assert delete_files(table) == [2]
    assert keys(table) == [n for n in range(100) if n % 10 and n != 1]


def test_what_this_process_wrote_is_not_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The positions of a few rows are held; of many rows the file is read."""
    read: list[str] = []

    def read_deletes(_store: object, file: NewFile) -> dict[str, Any]:
        read.append(file.path)
        return {"a": np.array([len(read)])}

    monkeypatch.setattr(deletes, "read_deletes", read_deletes)
    monkeypatch.setattr(deletes, "HELD_DELETES_ROWS", 3)
    nowhere: Any = None
    known, files = deletes.DeleteFiles(), [NewFile(f"d{n}", 1, 2) for n in range(3)]
    known.add(files[0], {"a": np.array([4, 7])})
    known.add(files[1], {"a": np.array([9, 10])})
    found = known.read(nowhere, files[:2])
    assert (found["a"].tolist(), read) == ([1, 4, 7], ["d1"])
    known.drop(files[:1])
    known.add(files[2], {"a": np.array([5, 6])})
    assert known.read(nowhere, files[2:])["a"].tolist() == [5, 6], "there is room again"
    known.forget()
    assert known.read(nowhere, files[2:])["a"].tolist() == [2]
