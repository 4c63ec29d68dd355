"""Small data files written together without Spark: whoever reads, or writes on, notices nothing."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.fix_lake import Lake
from tests.workers.lake.contract import Make, Table, append, merge, stamp
from tests.workers.lake.files.test_merge_delete_files import (
    by_pyiceberg_and_duckdb,
    delete_files,
    keys,
)
from tests.workers.lake.scenarios.test_direct_sequences import Part, Writer
from tests.workers.lake.watched import Adopted, Watched, delete, update
from workers.lake.effects import Counts, FileSizes
from workers.lake.files import merge_delete_files as deletes
from workers.lake.files.join_small_files import choose, choose_small
from workers.lake.files.read_rows import Unreadable, iter_rows_at
from workers.lake.interfaces.table_api import FileChange
from workers.lake.segment import Segment
from workers.lake.staged_rows import LiveFile
from workers.lake.storage.local_store import LocalStore
from workers.lake.table import LakeIdent

FEW = 3
"""Instead of eight, which take long to write."""


@pytest.fixture
def never_by_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark would have to do fails."""

    def compact(*_: object) -> int:
        raise AssertionError("Spark was asked")

    monkeypatch.setattr("workers.lake.iceberg.destination.compact", compact)


def write(table: Watched, branch: str, segments: Sequence[Segment], lsn: int) -> Counts:
    counts = table.dest.write(table.ident, branch, segments, stamp(lsn))
    table.dest.publish(table.ident, branch, stamp(lsn))
    return counts


def compact(table: Table, branch: str, sizes: FileSizes | None = None) -> int:
    return table.dest.compact(table.ident, branch, sizes or FileSizes(few=FEW))


def rows_from(first: int, count: int = 10) -> list[tuple[int, str, None]]:
    return [(n, "x", None) for n in range(first, first + count)]


@pytest.mark.usefixtures("never_by_spark")
def test_what_is_deleted_stays_away_and_what_is_changed_later_is_found(
    iceberg: Make, lake_ident: LakeIdent, lake_server: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletes, "BATCH_DELETE_FILES", 2)
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    write(table, branch, [append(table.dest, rows_from(1000, 2000))], 20)
    for n in range(FEW):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 21 + n)
    write(table, branch, [merge(table.dest, [delete(3), delete(1000)])], 30)
    write(table, branch, [merge(table.dest, [delete(25), update(11)])], 31)
    assert compact(table, branch, FileSizes(small=3000, few=FEW)) == FEW + 1
    # Until the next batch is published, readers have what they had.
    assert len(table.query("file_path", "data_files")) == 1 + FEW + 1
    assert table.commits(branch)[:2] == [None, "0/1F"]
    changes = [update(4, 104), delete(11), *map(delete, (3, 25, 1000))]
    counts = write(table, branch, [merge(table.dest, changes)], 32)
    assert (counts.merged, counts.delete_missing) == (2, 3)
    expected = sorted({*range(30), 104, *range(1001, 3000)} - {3, 4, 11, 25})
    assert keys(table) == expected
    assert len(table.query("file_path", "data_files")) == 3
    assert by_pyiceberg_and_duckdb(lake_server, lake_ident) == [expected] * 2
    # The file with 25 and 11 is gone. That with 3 and 1000 is not, and is without 3 when it is
    # written again.
    assert delete_files(table) == [2, 2]
    for n in range(2):
        write(table, branch, [merge(table.dest, [delete(5 + n)])], 40 + n)
    assert delete_files(table) == [1, 4]
    assert keys(table) == [key for key in expected if key not in (5, 6)]


@pytest.mark.usefixtures("never_by_spark")
def test_no_file_of_deletes_is_thought_to_be_there_that_the_lake_has_dropped(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It drops those that are older than every file of rows."""
    monkeypatch.setattr(deletes, "BATCH_DELETE_FILES", 2)
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    for n in range(FEW):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 20 + n)
    write(table, branch, [merge(table.dest, [delete(3), delete(25)])], 30)
    assert compact(table, branch) == FEW
    for n in range(4):
        write(table, branch, [merge(table.dest, [delete(10 + n)])], 40 + n)
    assert delete_files(table) == [1, 3]
    assert keys(table) == sorted({*range(30)} - {3, 25, 10, 11, 12, 13})


@pytest.mark.usefixtures("never_by_spark")
def test_an_empty_batch_at_the_same_position_shows_it(iceberg: Make, lake_ident: LakeIdent) -> None:
    """So it is shown while nothing comes; and the next batch goes on from there."""
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    for n in range(2):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 20 + n)
    assert compact(table, branch, FileSizes(few=2)) == 2
    write(table, branch, [], 21)
    assert len(table.query("file_path", "data_files")) == 1
    assert (table.lsn(), keys(table)) == (21, list(range(20)))
    write(table, branch, [merge(table.dest, [delete(3), update(11)])], 22)
    assert (table.lsn(), keys(table)) == (22, sorted({*range(20)} - {3}))


@pytest.mark.usefixtures("never_by_spark")
def test_of_rows_that_are_all_deleted_no_file_is_left(iceberg: Make, lake_ident: LakeIdent) -> None:
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    for n in range(FEW):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 20 + n)
    write(table, branch, [merge(table.dest, [delete(n) for n in range(30)])], 30)
    assert compact(table, branch) == FEW
    write(table, branch, [append(table.dest, rows_from(5, 1))], 31)
    assert keys(table) == [5]


@pytest.mark.usefixtures("never_by_spark")
def test_columns_are_those_of_the_table_as_it_is(
    iceberg: Make, lake_ident: LakeIdent, lake_server: Lake
) -> None:
    """One was renamed, one widened, one dropped and made again, one came later."""
    definition = "(id INT NOT NULL, v STRING, l ARRAY<INT>, gone INT) USING iceberg TBLPROPERTIES ("
    modes = ", ".join(f"'write.{each}.mode'='merge-on-read'" for each in ("merge", "update"))
    more = "'write.delete.mode'='merge-on-read', 'format-version'='2')"
    table = Adopted(iceberg(), lake_ident, f"{definition}{modes}, {more}")
    for n in range(FEW):
        table.command("INSERT INTO", f"VALUES ({n}, 'v{n}', array(1, NULL), 7)")
    table.command("DELETE FROM", "WHERE id = 1")
    for alter in (
        "RENAME COLUMN v TO w",
        "ALTER COLUMN id TYPE BIGINT",
        "DROP COLUMN gone",
        "ADD COLUMN gone INT",
        "ADD COLUMN later STRING",
    ):
        table.command("ALTER TABLE", alter)
    table.command("INSERT INTO", "VALUES (9, 'v9', NULL, 8, 'there')")
    before = sorted(table.query("id, w, l, gone, later"), key=str)
    assert before[0] == (0, "v0", [1, None], None, None)
    branch = table.branch()
    assert compact(table, branch) == FEW  # the INSERTs but for 1, whose file is gone
    table.dest.write(lake_ident, branch, [], stamp(40))
    table.dest.publish(lake_ident, branch, stamp(40))
    assert sorted(table.query("id, w, l, gone, later"), key=str) == before
    assert len(table.query("file_path", "data_files")) == 1
    assert by_pyiceberg_and_duckdb(lake_server, lake_ident) == [[0, 2, 9]] * 2


def test_what_cannot_be_read_here_is_left_to_spark(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And nothing stays of what was begun."""
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    for n in range(8):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 20 + n)
    before = table.on_disk()
    read: list[Any] = []
    real = iter_rows_at

    def second_fails(*given: Any) -> Any:
        read.append(given)
        if len(read) == 2:
            raise Unreadable
        return real(*given)

    monkeypatch.setattr("workers.lake.files.join_small_files.iter_rows_at", second_fails)
    assert compact(table, branch) == 8
    assert table.by_spark() == 1
    assert len(table.on_disk()) == len(before) + 1
    write(table, branch, [append(table.dest, rows_from(100, 1))], 40)
    assert keys(table) == [*range(80), 100]


def test_a_branch_that_somebody_else_has_written_to_is_not_taken_for_known(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    for n in range(FEW):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 20 + n)
    write(table, branch, [merge(table.dest, [delete(1)])], 30)
    dest: Any = table.dest
    shape = dest._file_tables.files(lake_ident).layout_id
    what = "being somebody else"
    change = FileChange(shape, summary={"operation": "x"})
    dest._tables.commit_files(lake_ident, branch, change, what)
    with pytest.raises(ReplicationError) as error:
        compact(table, branch)
    assert error.value.code == "40001"
    assert keys(table) == sorted({*range(30)} - {1})


def test_small_files_of_an_object_store_are_read_together(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are those that a local disk gives, and no file is asked for its size."""
    table = Watched(iceberg(), lake_ident)
    branch = table.branch()
    for n in range(FEW):
        write(table, branch, [append(table.dest, rows_from(10 * n))], 20 + n)
    write(table, branch, [merge(table.dest, [delete(1), delete(25)])], 30)
    monkeypatch.setattr(LocalStore, "has_cheap_requests", False)
    monkeypatch.setattr(LocalStore, "size", None)
    assert compact(table, branch) == FEW
    write(table, branch, [append(table.dest, rows_from(100))], 40)
    assert keys(table) == sorted({*range(10 * FEW), *range(100, 110)} - {1, 25})


def test_as_many_as_one_file_should_hold_are_taken(tmp_path: Any) -> None:
    def file(name: str, size: int) -> LiveFile:
        path = tmp_path / name
        path.write_bytes(b"x" * size)
        return LiveFile(str(path), 1)

    files = [file(name, size) for name, size in (("a", 10), ("b", 40), ("c", 20), ("d", 20))]
    sizes = FileSizes(small=30, whole=45, few=2)
    assert [(each.path[-1], size) for each, size in choose_small(LocalStore(), files, sizes)] == [
        ("a", 10),
        ("c", 20),
    ]
    assert choose_small(LocalStore(), files, replace(sizes, few=3)) == []
    assert choose_small(LocalStore(), files, replace(sizes, whole=12)) == []  # 10 is not small then


@pytest.mark.parametrize(
    ("found", "whole", "chosen"),
    [
        ([], 6400, []),
        ([1, 2, 3, 4, 10, 10, 10], 6400, []),
        ([1, 2, 3, 4, 5, 10, 10, 10], 6400, [1, 2, 3, 4, 5]),
        ([8, 31, 10, 11], 128, [8, 10, 11, 31]),
        ([8, 31, 10, 11], 127, []),  # they would be more than is whole
        ([7, 32, 10, 10, 10], 6400, []),
        ([1, 8, 31, 10, 11, 32], 6400, [1, 8, 10, 11, 31]),
        ([32, 127, 100, 40], 6400, [32, 40, 100, 127]),
        ([10, 11, 32, 127, 100, 40, 128], 6400, [10, 11, 32, 40, 100, 127]),
        ([10, 11, 12, 13, 32, 127, 100], 6400, [10, 11, 12, 13]),
        ([31, 31, 31, 31, 31], 128, [31, 31, 31, 31]),
        ([0, 0, 0, 0], 0, []),
    ],
)
def test_which_are_small(found: list[int], whole: int, chosen: list[int]) -> None:
    files = [(LiveFile(str(n), 1), size) for n, size in enumerate(found)]
    taken = choose(files, FileSizes(small=8, whole=whole, few=5))
    assert sorted(size for _, size in taken) == chosen


@pytest.mark.parametrize(
    ("rows", "chosen"),
    [
        ([250_000] * 4, [250_000] * 4),
        ([250_000] * 5, [250_000] * 4),
        ([250_001] * 9, []),  # of a copy, say: one at a time would be written again for ever
        ([600_000] * 9 + [9] * 3, []),
        ([600_000] * 9 + [9] * 5, [9] * 5),
        ([600_000] * 9 + [250_000] * 4 + [9], [9] + [250_000] * 4),
    ],
)
def test_files_of_many_rows_are_left_alone(rows: list[int], chosen: list[int]) -> None:
    files = [(LiveFile(str(n), count), 20 if count > 9 else 1) for n, count in enumerate(rows)]
    taken = choose(files, FileSizes(small=8, whole=6400, few=5))
    assert sorted(file.rows for file, _ in taken) == chosen


def test_joining_again_and_again_comes_to_an_end() -> None:
    """And leaves no more than three of each size, whatever there was."""
    chance = random.Random(7)
    sizes = FileSizes(small=8, whole=6400, few=5)
    files = [
        (LiveFile(str(n), chance.randrange(1, 10**6)), chance.randrange(1, 1700))
        for n in range(300)
    ]
    for _ in range(300):
        taken = choose(files, sizes)
        if not taken:
            break
        left = [each for each in files if each not in taken]
        size = sum(size for _, size in taken)
        files = [*left, (LiveFile("new", sum(file.rows for file, _ in taken)), size)]
    assert choose(files, sizes) == []
    light = [size for file, size in files if file.rows <= 250_000]
    assert all(sum(bar // 4 <= size < bar for size in light) < 4 for bar in (32, 128, 512))
    assert sum(size < 8 for size in light) < 5


@pytest.mark.usefixtures("never_by_spark")
@pytest.mark.parametrize("seed", [3, 11])
def test_batches_at_random_with_upkeep_between_them(
    iceberg: Make,
    memory_lake: Make,
    lake_ident: LakeIdent,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    """On one branch, as an apply worker has it: the rows of the twin in memory."""
    monkeypatch.setattr(deletes, "BATCH_DELETE_FILES", 2)
    chance = random.Random(seed)
    writer = Writer(chance)
    twin = Table(memory_lake(), lake_ident)
    table = Watched(iceberg(local_relation_rows=10), lake_ident)
    first = [Part(False, [], False, [(writer.fresh(), writer.text(), "big") for _ in range(30)])]
    writer.live = list(range(1, 31))
    branch, joined = table.branch(), 0
    for n, parts in enumerate([first, *(writer.batch() for _ in range(8))]):
        expected = twin.batch([part.segment(twin.dest, lake_ident) for part in parts], 20 + n)
        segments = [part.segment(table.dest, lake_ident) for part in parts]
        counts = write(table, branch, segments, 20 + n)
        assert counts == expected
        if chance.random() < 0.6:
            joined += compact(table, branch)
        assert table.rows() == twin.rows()
    assert joined
