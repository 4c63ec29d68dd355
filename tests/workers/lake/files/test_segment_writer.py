"""Batches that are files of the table's own: one commit each, and what a MERGE would have done."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow.parquet as pq
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.contract import (
    COLUMNS,
    PUBLISHED,
    Change,
    Make,
    append,
    full,
    merge,
    rows_to_append,
    stamp,
)
from tests.workers.lake.watched import Adopted, Watched, delete, update, with_rows
from workers.lake.effects import Counts
from workers.lake.files import segment_writer
from workers.lake.files.read_rows import TooLargeToFetch
from workers.lake.segment import Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    return Watched(iceberg(local_relation_rows=10), lake_ident)


@pytest.fixture
def ten(table: Watched) -> Watched:
    """Rows 0 to 9 in one file."""
    return with_rows(table, 10)


# -- one commit -----------------------------------------------------------------------------------


def test_a_batch_is_one_snapshot_and_that_has_the_stamp(ten: Watched) -> None:
    dest, branch, before = ten.dest, ten.branch(), ten.tip()
    changes = merge(dest, [update(1), delete(2), update(70), delete(71)])
    segment = replace(changes, append=rows_to_append(dest, [(2, "again", None), (20, "b", None)]))
    effect = dest.write_branch(ten.ident, branch, [segment], stamp(30))
    assert ten.commits(branch) == ["0/1E", *ten.commits("main")]
    assert effect.merges == (), "nothing is left to be asked"
    (counts,) = dest.count([effect])
    assert counts == Counts(appended=2, merged=2, update_missing=1, delete_missing=1)
    assert (counts.rows, counts.deleted) == (13, 2)
    assert ten.tip() == before
    dest.publish(ten.ident, branch, stamp(30))
    found = {row[0]: row[1] for row in ten.rows()}
    assert found == {n: f"v{n}" for n in range(3, 10)} | {0: "v0", 1: "new", 2: "again", 20: "b"}
    # New rows and updated ones are in one file.
    assert (len(ten.on_disk()), ten.by_spark()) == (3, 0)


def test_segments_are_a_snapshot_each_and_only_the_last_has_the_stamp(ten: Watched) -> None:
    """A TRUNCATE is Spark's; what follows on it is not."""
    branch = ten.branch()
    segments = [
        append(ten.dest, [(1, "a", None), (2, "b", None)], truncate=True),
        merge(ten.dest, [update(1, 3), update(2, 1)]),
        merge(ten.dest, [update(1, v="last"), delete(9)]),
    ]
    counts = ten.dest.write(ten.ident, branch, segments, stamp(30))
    assert counts == Counts(appended=2, merged=3, delete_missing=1)
    assert ten.commits(branch) == ["0/1E", None, None, None, *ten.commits("main")]
    ten.dest.publish(ten.ident, branch, stamp(30))
    assert [row[:2] for row in ten.rows()] == [(1, "last"), (3, "new")]
    assert ten.by_spark() == 0


# -- what is refused ------------------------------------------------------------------------------


NOT_ONE_ROW: dict[str, list[Change]] = {
    "update": [update(1)],
    "delete": [delete(1)],
    "one is missing": [update(1), update(99)],
    "more are missing": [update(1), delete(98), delete(99)],
    "one row is changed twice": [update(2), delete(2)],
}


def test_a_key_that_is_not_one_row_s_is_an_error(table: Watched) -> None:
    """Also where other keys are missing, so that no more rows are found than were looked for."""
    table.batch([append(table.dest, [(1, "a", None), (1, "b", None), (2, "c", None)])], 20)
    before = table.on_disk()
    new = rows_to_append(table.dest, [(5, "new", None)])
    for what, changes in NOT_ONE_ROW.items():
        error = table.refused([replace(merge(table.dest, changes), append=new)])
        assert error.code == "23505", what
        assert f'key (id) is not unique in lake table "{table.ident}"' in error.primary
        assert table.on_disk() == before, what
    assert (len(table.rows()), table.lsn()) == (3, 20)


def test_a_null_in_a_column_that_takes_none_leaves_no_file(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    definition = "(id BIGINT, v STRING NOT NULL, big STRING) USING iceberg TBLPROPERTIES ({})"
    modes = [f"'write.{each}.mode'='merge-on-read'" for each in ("merge", "update", "delete")]
    table = Adopted(
        iceberg(local_relation_rows=10), lake_ident, definition.format(", ".join(modes))
    )
    table.batch([append(table.dest, [(1, "a", None), (2, "b", None)])], 20)
    before = table.on_disk()
    none = rows_to_append(table.dest, [(3, "c", None), (4, None, None)])
    for segment in (
        replace(merge(table.dest, [update(1)]), append=none),
        merge(table.dest, [(0, 1, 1, None, None, False)]),
        Segment(PUBLISHED, append=none),
    ):
        assert table.refused([segment]).code == "23502"
        assert table.on_disk() == before
    with pytest.raises(ReplicationError) as error:
        table.own_rows([*((n, "x", None) for n in range(20)), (20, None, None)])
    assert error.value.code == "23502"
    assert table.on_disk() == before


# -- whole rows -----------------------------------------------------------------------------------


@pytest.fixture
def whole(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    """A table all of whose columns are published: nothing has to be looked up besides the place."""
    table = Watched(iceberg(), lake_ident, COLUMNS[:3])
    rows = [(1, "a", None)] * 3 + [(2, None, None), (3, "c", None)]
    table.batch([append(table.dest, rows)], 20)
    return table


def test_changes_of_whole_rows_are_one_commit(whole: Watched) -> None:
    def resolve(found: list[Any]) -> Any:
        by_image = {image: (f, p) for image, f, p in found}
        assert sorted(image for image, _, _ in found) == [0, 0, 1]
        return [(*by_image[0], 1, None, None), (*by_image[1], 0, 2, "b")], [(9, "new", None)]

    branch = whole.branch()
    images = [(1, "a", 2), (2, None, 1), (7, "nobody", 1)]
    segment = full(whole.dest, images, resolve)
    effect = whole.dest.write_branch(whole.ident, branch, [segment], stamp(30))
    assert whole.commits(branch) == ["0/1E", *whole.commits("main")]
    assert effect.merges == ()
    assert whole.dest.count([effect]) == [Counts(appended=1, merged=2)]
    whole.dest.publish(whole.ident, branch, stamp(30))
    assert [row[:2] for row in whole.rows()] == [(1, "a"), (1, "a"), (2, "b"), (3, "c"), (9, "new")]


@pytest.mark.parametrize("answer", [(None, None), (None, [(9, "new", "b")])], ids=["none", "new"])
def test_whole_rows_that_are_not_there_are_a_commit_all_the_same(
    whole: Watched, answer: tuple[Any, Any]
) -> None:
    """It says how far the table is."""
    segment = full(whole.dest, [(7, "nobody", 1)], lambda found: answer)
    assert whole.batch([segment], 30) == Counts(appended=len(answer[1] or []))
    assert (len(whole.rows()), whole.lsn()) == (5 + len(answer[1] or []), 30)


def test_a_place_that_two_changes_are_for_is_an_error(whole: Watched) -> None:
    def resolve(found: list[Any]) -> Any:
        (_, f, p) = found[0]
        return [(f, p, 1, None, None), (f, p, 0, 1, "b")], None

    before = whole.on_disk()
    error = whole.refused([full(whole.dest, [(1, "a", 1)], resolve)])
    assert (error.code, str(whole.ident) in error.primary) == ("23505", True)
    assert (len(whole.rows()), whole.on_disk()) == (5, before)


def test_a_table_without_a_row_takes_changes(table: Watched) -> None:
    changes = merge(table.dest, [update(1), delete(2)])
    assert table.batch([changes], 20) == Counts(update_missing=1, delete_missing=1)
    assert (table.rows(), table.lsn(), table.on_disk()) == ([], 20, set())


# -- large values, and many -----------------------------------------------------------------------


def test_a_reader_finds_rows_beside_a_long_value(
    table: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a row group with a value of more than 4 kB Arrow writes no bounds; a file's would be those
    of its others. A DELETE would take all of the file for a part of it."""
    monkeypatch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 7)
    long = [(n, f"y{n}" if n else "z" * 5000, None) for n in range(6)]
    blocks = [[(n, f"b{n}", None) for n in range(10, 16)], long]
    segments = [
        Segment(
            PUBLISHED, ("id",), append=table.own_rows([row for block in blocks for row in block])
        )
    ]
    table.batch(segments, 20)
    [[path]] = table.query("file_path", "data_files")
    assert pq.ParquetFile(local_path(path)).num_row_groups == 2
    assert table.query("count(*), count_if(v > 'c'), count_if(v = 'y3')") == [(12, 6, 1)]
    for where, rows in (("v > 'c'", 6), ("v = 'y3'", 1), ("v < 'c'", 6), ("id = 3", 1)):
        sql = sql_text("SELECT count(*) AS n FROM", table_path(table.ident), "WHERE", where)
        assert table.session.query(sql, "looking").to_pylist() == [{"n": rows}], where
    table.command("DELETE FROM", "WHERE v < 'c'")
    assert table.query("count(*)") == [(6,)]


def test_what_an_update_keeps_is_left_to_spark_where_it_is_too_much(
    ten: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*args: Any, **more: Any) -> None:
        raise TooLargeToFetch

    changes = [update(1), delete(2), update(70)]
    with monkeypatch.context() as patch:
        patch.setattr("workers.lake.files.segment_writer.RowLookup.find", too_much)
        counts = ten.batch([merge(ten.dest, changes, unchanged=True)], 30)
    assert counts == Counts(merged=2, update_missing=1)
    by_spark = ten.by_spark()
    assert by_spark > 0
    monkeypatch.setattr(segment_writer, "FETCHING_CHANGES", 1)
    more = [update(3), delete(4)]
    assert ten.batch([merge(ten.dest, more, unchanged=True)], 40) == Counts(merged=2)
    assert ten.by_spark() > by_spark
    gone = [delete(5), delete(6), delete(77)]
    by_spark = ten.by_spark()
    counts = ten.batch([merge(ten.dest, gone, unchanged=True)], 50)
    assert counts == Counts(merged=2, delete_missing=1)
    assert ten.by_spark() == by_spark, "deletes keep nothing"
    assert sorted(row[0] for row in ten.rows()) == [0, 1, 3, 7, 8, 9]


def test_a_commit_of_spark_makes_the_known_state_worthless(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A REST catalog would refuse a commit on the state of before, batch after batch."""
    dest: Any = iceberg()
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    forgotten: list[LakeIdent] = []
    monkeypatch.setattr(dest._file_tables._commits, "forget", forgotten.append)
    emptied = Segment(PUBLISHED, truncate=True)
    dest.write(lake_ident, "pgsub_1_1_1", [emptied, append(dest, [(2, "b", None)])], stamp(20))
    assert forgotten == [lake_ident]
