"""Files written again without their deleted rows, and without Spark: readers notice nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.fix_lake import Lake
from tests.workers.lake.contract import Make, append, merge
from tests.workers.lake.files.layouts import known, metadata
from tests.workers.lake.files.test_join_small_files import rows_from, write
from tests.workers.lake.files.test_merge_delete_files import (
    by_pyiceberg_and_duckdb,
    delete_files,
    keys,
)
from tests.workers.lake.watched import Watched, delete, update
from workers.lake.effects import FileSizes
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.position_deletes import write_deletes
from workers.lake.files.read_rows import Unreadable, iter_rows_at
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.vacuum_files import choose
from workers.lake.staged_rows import LiveFile
from workers.lake.storage.local_store import LocalStore
from workers.lake.table import LakeIdent

GONE = [*range(20), *range(100, 105), *range(200, 250)]
"""Of three files of a hundred rows: 20, 5 and 50 rows."""


def three_files(table: Watched) -> str:
    """The branch of a table of three files with deleted rows."""
    branch = table.branch()
    for n in range(3):
        write(table, branch, [append(table.dest, rows_from(100 * n, 100))], 20 + n)
    write(table, branch, [merge(table.dest, [delete(n) for n in GONE])], 30)
    return branch


def vacuum(table: Watched, branch: str, at_once: int = 1 << 20) -> int:
    sizes = FileSizes(at_once=at_once)
    return table.dest.compact(table.ident, branch, sizes, deleted_share=0.1)


def own_rows(table: Watched) -> set[str]:
    """The files of rows that are not Spark's."""
    return {
        name for name in table.on_disk() if name.startswith("pgsub-") and "-deletes" not in name
    }


@pytest.mark.parametrize("cheap", [True, False])
def test_what_is_deleted_stays_away_and_what_is_changed_later_is_found(
    iceberg: Make,
    lake_ident: LakeIdent,
    lake_server: Lake,
    monkeypatch: pytest.MonkeyPatch,
    cheap: bool,
) -> None:
    table = Watched(iceberg(), lake_ident)
    branch = three_files(table)
    monkeypatch.setattr(LocalStore, "has_cheap_requests", cheap)
    assert vacuum(table, branch) == 2
    assert table.by_spark() == 0
    # Until the next batch is published, readers have what they had.
    assert len(table.query("file_path", "data_files")) == 3
    changes = [update(250, 1250), update(20), delete(110), *map(delete, (3, 100, 249))]
    counts = write(table, branch, [merge(table.dest, changes)], 40)
    assert (counts.merged, counts.delete_missing) == (3, 3)
    expected = sorted({*range(300), 1250} - {*GONE, 250, 110})
    assert keys(table) == expected
    assert by_pyiceberg_and_duckdb(lake_server, lake_ident) == [expected] * 2
    rows = sorted(count for (count,) in table.query("record_count", "data_files"))
    assert rows == [2, 100, 130]


def test_of_a_file_without_a_row_none_is_left(iceberg: Make, lake_ident: LakeIdent) -> None:
    table = Watched(iceberg(), lake_ident)
    branch = three_files(table)
    write(table, branch, [merge(table.dest, [delete(n) for n in range(300)])], 31)
    assert vacuum(table, branch) == 3
    write(table, branch, [append(table.dest, rows_from(5, 1))], 32)
    assert (keys(table), delete_files(table)) == ([5], [])


def test_what_is_larger_than_a_turn_is_left_to_spark(iceberg: Make, lake_ident: LakeIdent) -> None:
    table = Watched(iceberg(), lake_ident)
    branch = three_files(table)
    assert vacuum(table, branch, at_once=1) == 1
    assert table.by_spark() == 1
    write(table, branch, [], 31)
    assert keys(table) == sorted({*range(300)} - {*GONE})


def test_what_cannot_be_read_here_is_left_to_spark(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing stays of what was begun."""
    table = Watched(iceberg(), lake_ident)
    branch = three_files(table)
    before = own_rows(table)
    read: list[object] = []

    def second_fails(*given: object) -> object:
        read.append(given)
        if len(read) == 2:
            raise Unreadable
        return iter_rows_at(*given)  # type: ignore[arg-type]  # the arguments are handed on

    monkeypatch.setattr("workers.lake.files.join_small_files.iter_rows_at", second_fails)
    assert vacuum(table, branch) == 2
    assert (len(read), table.by_spark()) == (2, 1)
    assert own_rows(table) == before
    write(table, branch, [], 31)
    assert keys(table) == sorted({*range(300)} - {*GONE})


@pytest.fixture
def files(tmp_path: Path) -> TableLayout:
    return known(metadata(location=str(tmp_path)))


def chosen(files: TableLayout, deleted: Sequence[int], room: int, share: float = 0.1) -> list[str]:
    """Of files of a hundred rows and ten bytes, named by the number of rows that are deleted."""
    live = [
        LiveFile(f"{n}", 100, (write_deletes(files, {f"{n}": np.arange(n)}),) if n else (), size=10)
        for n in deleted
    ]
    taken = choose(files.store, live, DeletedRowsCache(), room, share)
    return [file.path for file, _ in taken]


def test_the_files_with_the_most_deleted_rows_come_first(files: TableLayout) -> None:
    assert chosen(files, [0, 9, 10, 70, 30, 100], room=25) == ["100", "70"]
    assert chosen(files, [0, 9, 10, 70, 30, 100], room=40) == ["100", "70", "30", "10"]
    assert chosen(files, [0, 9, 10], room=9) == []
    assert chosen(files, [0, 9], room=40) == []
    assert chosen(files, [0, 1], room=40, share=0) == ["1"]


def test_a_shared_file_of_deletes_counts_for_each_of_its_files_alone(files: TableLayout) -> None:
    both = write_deletes(files, {"a": np.arange(5), "b": np.arange(60)})
    live = [LiveFile(name, 100, (both,), size=10) for name in "ab"]
    taken = choose(files.store, live, DeletedRowsCache(), 40, 0.1)
    assert [file.path for file, _ in taken] == ["b"]
