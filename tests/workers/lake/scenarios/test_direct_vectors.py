"""Tables of format 3: deletes are vectors, and a row keeps its number."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import IoError
from tests.fix_lake import Lake
from tests.workers.lake.contract import Make, append, merge, rows_to_append, stamp
from tests.workers.lake.files.test_merge_delete_files import by_pyiceberg_and_duckdb
from tests.workers.lake.watched import Watched, delete, update
from workers.lake.connect.errors import LakeFailure
from workers.lake.effects import Counts, FileSizes
from workers.lake.files.read_rows import Unreadable
from workers.lake.staged_rows import FileList
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    return Watched(iceberg(format_version=3, local_relation_rows=10), lake_ident)


@pytest.fixture
def two_files(table: Watched) -> Watched:
    """Rows 0 to 9 and 10 to 19."""
    for first in (0, 10):
        rows = [(n, f"v{n}", f"big{n}") for n in range(first, first + 10)]
        table.batch([append(table.dest, rows)], 20 + first)
    return table


def numbers(table: Watched) -> dict[int, tuple[int, int]]:
    """Of each row by its key: its number, and the commit that wrote it last."""
    found = table.query("id, _row_id, _last_updated_sequence_number")
    return {key: (number, at) for key, number, at in found}


def vectors(table: Watched) -> list[int]:
    """How many rows are deleted in each data file that has a vector."""
    found = table.query("file_format, record_count, referenced_data_file", "delete_files")
    assert {each for each, _, _ in found} <= {"PUFFIN"}
    assert len({of for _, _, of in found}) == len(found), "one for each data file"
    return sorted(rows for _, rows, _ in found)


def test_a_batch_is_one_snapshot_of_our_files_and_vectors(two_files: Watched) -> None:
    table = two_files
    changes = [update(1), delete(2), update(12, 50), delete(70), update(71)]
    new = rows_to_append(table.dest, [(2, "again", None), (20, "b", None)])
    segment = replace(merge(table.dest, changes), append=new)
    branch, before = table.branch(), table.tip()
    effect = table.dest.write_branch(table.ident, branch, [segment], stamp(40))
    assert (effect.merges, table.tip()) == ((), before)
    assert table.commits(branch) == ["0/28", *table.commits("main")]
    (counts,) = table.dest.count([effect])
    assert counts == Counts(appended=2, merged=3, update_missing=1, delete_missing=1)
    assert (counts.rows, counts.deleted) == (24, 3)
    table.dest.publish(table.ident, branch, stamp(40))
    assert (table.by_spark(), vectors(table)) == (0, [1, 2])
    expected = {n: f"v{n}" for n in range(20) if n not in (1, 2, 12)}
    assert {row[0]: row[1] for row in table.rows()} == expected | {
        1: "new", 50: "new", 2: "again", 20: "b",
    }  # fmt: skip


def test_a_vector_holds_what_the_one_before_held(two_files: Watched, iceberg: Make) -> None:
    """Ours or Spark's, whoever goes on; the branch is known, or read anew."""
    table = two_files
    gone: set[int] = set()

    def batch(keys: set[int], lsn: int) -> None:
        gone.update(keys)
        table.batch([merge(table.dest, list(map(delete, sorted(keys))))], lsn)
        assert {row[0] for row in table.rows()} == set(range(20)) - gone

    batch({1, 2, 11}, 40)
    batch({3}, 41)
    assert vectors(table) == [1, 3]
    table.command("DELETE FROM", "WHERE id IN (4, 12)")
    gone |= {4, 12}
    batch({5}, 42)
    table.dest = iceberg(format_version=3, local_relation_rows=10)
    batch({6, 13, 19}, 43)
    assert (vectors(table), table.by_spark()) == ([4, 6], 0)
    table.batch([merge(table.dest, [delete(1), delete(6), delete(99)])], 44)
    assert vectors(table) == [4, 6]


def test_a_row_keeps_its_number(two_files: Watched) -> None:
    """Through our updates and MERGEs, in whatever order, also where its key changes."""
    table, before = two_files, numbers(two_files)
    assert sorted(number for number, _ in before.values()) == list(range(20))
    table.batch([merge(table.dest, [update(1), update(12, 50), update(13)])], 40)
    table.command("UPDATE", "SET v = 'spark' WHERE id IN (2, 13)")
    table.batch([merge(table.dest, [update(1), update(2), update(50, 60)])], 41)
    after = numbers(table)
    moved = {60 if key == 12 else key: number for key, (number, _) in before.items()}
    assert {key: number for key, (number, _) in after.items()} == moved
    changed = {key for key in after if after[key][1] > max(at for _, at in before.values())}
    assert changed == {1, 2, 13, 60}
    table.batch([append(table.dest, [(70, "new", None)])], 42)
    assert numbers(table)[70][0] not in moved.values()


def test_a_row_keeps_its_number_when_files_are_written_together(two_files: Watched) -> None:
    table = two_files
    table.batch([merge(table.dest, [update(n) for n in range(0, 20, 2)])], 40)
    for n in range(6):
        table.batch([append(table.dest, [(30 + n, "x", None)])], 50 + n)
    before, branch = numbers(table), table.branch()
    assert table.dest.compact(table.ident, branch, FileSizes()) > 0
    segments = [merge(table.dest, [update(1), update(2, 90)])]
    table.dest.write(table.ident, branch, segments, stamp(60))
    table.dest.publish(table.ident, branch, stamp(60))
    found = numbers(table)
    before[90] = before.pop(2)
    assert {key: number for key, (number, _) in found.items()} == {
        key: number for key, (number, _) in before.items()
    }


def test_values_that_were_not_sent_stay(two_files: Watched) -> None:
    table = two_files
    changes = [(0, 3, 3, "new", None, True), (0, 14, 40, "new", "sent", False)]
    counts = table.batch([merge(table.dest, changes, unchanged=True)], 40)
    assert counts == Counts(merged=2)
    found = {row[0]: row[1:3] for row in table.rows()}
    assert (found[3], found[40]) == (("new", "big3"), ("new", "sent"))
    assert numbers(table)[40][0] == 14


def test_deletes_from_before_the_upgrade_go_into_the_vector(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    table = Watched(iceberg(local_relation_rows=10), lake_ident)
    for first in (0, 10):
        rows = [(n, f"v{n}", None) for n in range(first, first + 10)]
        table.batch([append(table.dest, rows)], 20 + first)
    table.batch([merge(table.dest, [delete(0), delete(10)])], 31)
    table.batch([merge(table.dest, [delete(11)])], 32)
    table.command("ALTER TABLE", "SET TBLPROPERTIES ('format-version'='3')")
    dest: Any = table.dest
    dest._forget(table.ident)
    table.batch([merge(table.dest, [delete(1), update(12), delete(0)])], 40)
    assert {row[0] for row in table.rows()} == set(range(20)) - {0, 1, 10, 11}
    table.batch([merge(table.dest, [delete(13), update(12), delete(10)])], 41)
    assert {row[0] for row in table.rows()} == set(range(20)) - {0, 1, 10, 11, 13}
    assert [row[1] for row in table.rows() if row[0] == 12] == ["new"]


def test_a_row_from_before_the_upgrade_keeps_the_number_it_is_given(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """By the first commit behind it, whatever that does."""
    table = Watched(iceberg(local_relation_rows=10), lake_ident)
    table.batch([append(table.dest, [(n, f"v{n}", None) for n in range(9)])], 20)
    table.command("ALTER TABLE", "SET TBLPROPERTIES ('format-version'='3')")
    dest: Any = table.dest
    dest._forget(table.ident)
    branch = table.branch()
    for lsn, change in ((30, delete(1)), (31, update(5)), (32, update(5, 50))):
        table.dest.write(table.ident, branch, [merge(table.dest, [change])], stamp(lsn))
        table.dest.publish(table.ident, branch, stamp(lsn))
        if lsn == 30:
            before = numbers(table)
    after = numbers(table)
    assert None not in {number for number, _ in before.values()}
    assert after[50][0] == before[5][0]
    assert {key: after[key][0] for key in after if key != 50} == {
        key: number for key, (number, _) in before.items() if key != 5
    }


def test_a_vector_that_is_damaged_meanwhile_leaves_no_file_behind(two_files: Watched) -> None:
    """What was in it is known from before; the next time it is read, by Spark, who tells of it."""
    table, branch = two_files, two_files.branch()
    for n in range(2):
        segment = merge(table.dest, [delete(n)])
        table.dest.write(table.ident, branch, [segment], stamp(40 + n))
    folder = local_path(table.metadata["location"]) / "data"
    for place in folder.glob("*.puffin"):
        place.write_bytes(bytes(place.stat().st_size))
    before = table.on_disk()
    change = merge(table.dest, [update(3)])
    assert table.refused([change], branch).code == "40001"
    assert table.on_disk() == before
    assert isinstance(table.refused([change], branch), LakeFailure | IoError)
    assert table.tip("main") is not None


def test_what_is_not_looked_up_here_is_merged_by_spark(
    two_files: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A damaged vector, files without numbers, too many of them; and rows without a key."""
    table = two_files
    table.batch([merge(table.dest, [delete(1)])], 40)

    def unreadable(*args: Any) -> Any:
        raise Unreadable

    with monkeypatch.context() as patch:
        patch.setattr("workers.lake.files.segment_writer.RowLookup", unreadable)
        assert table.batch([merge(table.dest, [delete(2), update(3)])], 41).merged == 2
    with monkeypatch.context() as patch:
        patch.setattr("workers.lake.api.file_commits.LISTED_FILES", 1)
        assert table.batch([merge(table.dest, [delete(4), update(5)])], 42).merged == 2
    assert table.by_spark() == 2
    assert table.batch([merge(table.dest, [delete(6), update(7)])], 43).merged == 2
    assert table.by_spark() == 2
    assert {row[0] for row in table.rows()} == set(range(20)) - {1, 2, 4, 6}
    assert {number for number, _ in numbers(table).values()} == set(range(20)) - {1, 2, 4, 6}


def test_a_vector_that_came_meanwhile_is_not_replaced(
    two_files: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    table, branch = two_files, two_files.branch()
    table.dest.write_branch(table.ident, branch, [merge(table.dest, [delete(1)])], stamp(40))
    dest: Any = table.dest
    _, known = dest._file_tables._known[table.ident]
    stale = known.listed
    table.dest.write_branch(table.ident, branch, [merge(table.dest, [delete(2)])], stamp(41))
    known.listed = FileList(stale.tip, stale.files)
    error = table.refused([merge(table.dest, [delete(3)])], branch)
    assert error.code == "40001"
    assert table.dest.write(table.ident, branch, [merge(table.dest, [delete(3)])], stamp(42))
    table.dest.publish(table.ident, branch, stamp(42))
    assert {row[0] for row in table.rows()} == set(range(20)) - {1, 2, 3}


def test_other_readers_see_the_same(two_files: Watched, lake_server: Lake) -> None:
    table = two_files
    table.batch([merge(table.dest, [delete(1), update(12), delete(13)])], 40)
    table.batch([merge(table.dest, [delete(3), update(12, 99)])], 41)
    expected = sorted({*range(20), 99} - {1, 3, 12, 13})
    assert [row[0] for row in table.rows()] == expected
    assert [sorted(each) for each in by_pyiceberg_and_duckdb(lake_server, table.ident)] == [
        expected
    ] * 2
