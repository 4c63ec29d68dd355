"""Batches that are files of the table's own: one commit each, and what a MERGE would have done."""

from __future__ import annotations

import datetime
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errcodes import ReplicationError, RequiredProcessGone
from tests.workers.lake.contract import (
    COLUMNS,
    PUBLISHED,
    Change,
    Make,
    append,
    full,
    merge,
    rows_to_append,
    stage,
    stamp,
)
from tests.workers.lake.watched import Adopted, Watched, delete, update, with_rows
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.effects import Counts
from workers.lake.files import segment_writer
from workers.lake.files.read_rows import TooLargeToFetch
from workers.lake.segment import Segment
from workers.lake.sql.staged_frame import frame
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.staged_rows import Staged
from workers.lake.storage import staging
from workers.lake.storage.local_store import local_path
from workers.lake.storage.staging import staged_columns, staged_schema
from workers.lake.table import LakeColumn, LakeIdent


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
    assert (counts.rows, counts.dead) == (13, 2)
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


# -- what an update leaves ------------------------------------------------------------------------

_MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "text": (pa.string(), "é 🦆", ""),
    "bytes": (pa.binary(), b"\x00\xff", b""),
    "flag": (pa.bool_(), True, False),
    "small": (pa.int32(), -(2**31), 7),
    "real": (pa.float32(), 0.5, float("inf")),
    "double": (pa.float64(), -0.1, 1e300),
    "day": (pa.date32(), datetime.date(1500, 2, 28), datetime.date(9999, 12, 31)),
    "at": (pa.timestamp("us"), _MOMENT, datetime.datetime(1, 1, 1)),
    "zoned": (
        pa.timestamp("us", "UTC"),
        _MOMENT.replace(tzinfo=datetime.UTC),
        datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC),
    ),
    "price": (pa.decimal128(9, 2), Decimal("-1234567.89"), Decimal("0.00")),
    "long": (pa.decimal128(18, 0), Decimal(10**18 - 1), Decimal(0)),
    "longer": (pa.decimal128(38, 10), Decimal("1.0123456789"), Decimal("-1.0000000000")),
    "list": (pa.list_(pa.field("element", pa.string())), ["a", None, ""], []),
    "days": (pa.list_(pa.field("element", pa.date32())), [datetime.date(2026, 1, 1)], [None]),
}


def bounds(dest: Any, ident: LakeIdent) -> list[tuple[Any, Any]]:
    """Least and greatest value of each column but lists: what readers leave out files by."""
    sql = sql_text("SELECT readable_metrics.* FROM", table_path(ident, "data_files"))
    (row,) = dest._sessions.get().query(sql, "looking").to_pylist()
    found = [row[name] for name, (type, _, _) in VALUES.items() if not pa.types.is_list(type)]
    return [(each["lower_bound"], each["upper_bound"]) for each in found]


@pytest.mark.parametrize("staged_rows", [10, 0], ids=["in memory", "in files"])
def test_what_was_not_sent_stays_as_the_table_has_it(
    iceberg: Make, lake_ident: LakeIdent, staged_rows: int
) -> None:
    """Of every type there is; also where the key changes, and where the table had NULL."""
    dest: Any = iceberg(local_relation_rows=staged_rows)
    names = ("id", *VALUES)
    columns = [LakeColumn("id", pa.int64())]
    columns += [LakeColumn(name, type) for name, (type, _, _) in VALUES.items()]
    note = LakeColumn("note", pa.list_(pa.field("element", pa.int32())))
    dest.create_table(lake_ident, [*columns, note], owner="me", relid=7, stamp=stamp(10))

    def values(ids: list[int | None], at: int) -> dict[str, Any]:
        found: dict[str, Any] = {"c0": pa.array(ids, pa.int64())}
        for n, (type, *given) in enumerate(VALUES.values(), 1):
            found[f"c{n}"] = pa.array([given[at]] * len(ids), type)
        return found

    def batch(segment: Segment, lsn: int) -> Any:
        branch = f"pgsub_1_1_{lsn}"
        dest.create_branch(lake_ident, branch)
        counts = dest.write(lake_ident, branch, [segment], stamp(lsn))
        dest.publish(lake_ident, branch, stamp(lsn))
        return counts

    batch(Segment(names, ("id",), append=stage(dest, **values([1, 2, 3], 0))), 20)
    scalars = [
        None if pa.types.is_floating(type) else old  # a NaN is in no bounds
        for type, old, _ in VALUES.values()
        if not pa.types.is_list(type)
    ]
    assert bounds(dest, lake_ident) == [(each, each) for each in scalars]
    empty = {name: pa.nulls(1, array.type) for name, array in values([4], 0).items()}
    empty["c0"] = pa.array([4], pa.int64())
    batch(Segment(names, ("id",), append=stage(dest, **empty)), 21)
    path = table_path(lake_ident)
    dest._sessions.get().command(sql_text("UPDATE", path, "SET note = array(id, NULL)"), "noting")
    masks = {f"m{n}": pa.array([True, False, True, True]) for n in range(1, len(names))}
    keys = {"op": pa.array([0] * 4, pa.int8()), "b0": pa.array([1, 2, 4, 9], pa.int64())}
    changes = stage(dest, **keys, **values([10, 2, 4, 9], 1), **masks)
    counts = batch(Segment(names, ("id",), merge=changes, unchanged=tuple(VALUES)), 30)
    assert counts == Counts(merged=3, update_missing=1)
    found = dest._sessions.get().query(sql_text("SELECT * FROM", path, "ORDER BY id"), "reading")
    old, new = ([given[at] for given in VALUES.values()] for at in (1, 2))
    assert [list(row.values()) for row in found.to_pylist()] == [
        [2, *new, [2, None]],
        [3, *old, [3, None]],
        [4, *[None] * len(VALUES), [4, None]],
        [10, *old, [1, None]],
    ]


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


# -- files that rows lie in before a commit -------------------------------------------------------

MANY = [(n, "x", None) for n in range(20)]


def test_files_that_no_commit_was_given_are_removed(table: Watched) -> None:
    before = table.on_disk()
    staged = table.own_rows(MANY)
    assert len(table.on_disk()) == len(before) + 1
    table.dest.discard(staged)
    table.dest.discard(staged)
    assert table.on_disk() == before
    # Nor is one that failed before there was anything to commit.
    table.batch([append(table.dest, [(50, "a", None)] * 2)], 20)
    before = table.on_disk()
    staged = table.own_rows(MANY)
    table.refused([replace(merge(table.dest, [update(50)]), append=staged)])
    table.dest.discard(staged)
    assert table.on_disk() == before


def test_files_that_a_commit_was_given_stay_and_may_be_given_again(
    table: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of the first commit is not known, or its branch is not published."""

    def lost(*args: Any, **more: Any) -> None:
        raise RequiredProcessGone("lost")

    staged = table.own_rows(MANY)
    segments = [Segment(PUBLISHED, ("id",), append=staged)]
    with monkeypatch.context() as patch:
        patch.setattr(GatewayTableApi, "commit_files", lost)
        table.refused(segments)
    table.dest.discard(staged)
    assert table.dest.write(table.ident, table.branch(), segments, stamp(20)).appended == 20
    table.dest.drop_branches(table.ident)
    assert table.batch(segments, 30) == Counts(appended=20)
    table.dest.discard(staged)
    table.dest.discard(staged)
    assert [row[:3] for row in table.rows()] == MANY
    # Under another name each time: the branch that it was given first may be expired.
    assert len(table.on_disk()) == 3
    [(shown,)] = table.query("file_path", "data_files")
    table.dest.drop_branches(table.ident)
    for path in table.on_disk() - {local_path(shown).name}:
        (local_path(shown).parent / path).unlink()
    assert len(table.rows()) == 20


# -- what goes through Spark ----------------------------------------------------------------------


def test_a_partitioned_table_is_written_by_spark(iceberg: Make, lake_ident: LakeIdent) -> None:
    definition = "(id BIGINT, v STRING, big STRING, n INT) USING iceberg PARTITIONED BY (v)"
    table = Adopted(iceberg(local_relation_rows=10), lake_ident, definition)
    rows = [(n, "ab"[n % 2], None) for n in range(20)]
    table.batch([append(table.dest, rows)], 20)
    changes = [update(1, v="b"), update(2, 50, v="c"), delete(3), delete(99)]
    counts = table.batch([merge(table.dest, changes)], 30)
    assert counts == Counts(merged=3, delete_missing=1)
    expected = {n: "ab"[n % 2] for n in range(20) if n not in (2, 3)} | {1: "b", 50: "c"}
    assert {row[0]: row[1] for row in table.rows()} == expected
    assert table.by_spark() == len(table.on_disk())
    assert table.query("count(*)", "partitions") == [(3,)]
    staged = changes_of(table, merge(table.dest, [update(n) for n in range(20)])).merge
    assert staged is not None
    assert len(staged.paths) == 1, "Spark reads them, and better from a file"
    table.dest.discard(staged)


def staged_table(staged: Staged) -> pa.Table:
    return staged_columns(staged, staged_schema(staged).names)


def changes_of(table: Watched, segment: Segment) -> Segment:
    """The segment with its changes staged as those of the table."""
    assert segment.merge is not None
    rows = staged_table(segment.merge)
    table.dest.discard(segment.merge)
    staged = table.dest.stage(rows.to_batches(max_chunksize=7), rows.schema, changes_of=table.ident)
    return replace(segment, merge=staged)


@pytest.mark.parametrize("left_to_spark", [False, True])
def test_changes_stay_in_memory_where_they_are_made_here(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, left_to_spark: bool
) -> None:
    """Spark, which has to make them after all, reads them from a file: a plan should be small."""
    table = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 300)
    changes = [update(n) if n % 2 else delete(n) for n in range(40, 340)]
    segment = changes_of(table, merge(table.dest, changes))
    assert segment.merge is not None
    assert (segment.merge.paths, staged_table(segment.merge).num_rows) == ((), 300)
    read: list[bool] = []

    def framed(session: Any, staged: Staged) -> Any:
        read.append(bool(staged.paths))
        return frame(session, staged)

    if left_to_spark:
        monkeypatch.setattr(segment_writer.FileSegmentWriter, "accepts", lambda *_: False)
        monkeypatch.setattr("workers.lake.sql.segment_writer.frame", framed)
    counts = table.batch([segment], 30)
    assert counts == Counts(merged=260, update_missing=20, delete_missing=20)
    assert read == [True] * left_to_spark
    assert bool(table.by_spark()) == left_to_spark
    found = {row[0]: row[1] for row in table.rows()}
    assert found == {n: f"v{n}" if n < 40 else "new" for n in range(300) if n < 40 or n % 2}


def test_more_changes_than_there_is_room_for_go_to_a_file(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Room for one segment of them: the next one has it when that is discarded."""
    monkeypatch.setattr(staging, "STAGED_MEMORY_BYTES", 2_000)
    ten = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 10)

    def staged(key: int, changes: int) -> Segment:
        return changes_of(ten, merge(ten.dest, [update(n) for n in range(key, key + changes)]))

    one, other = staged(0, 40), staged(1, 40)
    assert [bool(each.merge and each.merge.paths) for each in (one, other)] == [False, True]
    assert ten.batch([one, other], 30) == Counts(merged=19, update_missing=61)
    for each in (one, other):
        assert each.merge is not None
        ten.dest.discard(each.merge)
    for changes in (1_000, 40):
        rows = staged(0, changes).merge
        assert rows is not None
        assert len(rows.paths) == (changes == 1_000)
        ten.dest.discard(rows)


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


def test_updates_of_many_rows_take_what_was_staged_part_by_part(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    table = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 300)
    changes: list[Change] = [(0, n, n, f"n{n}", f"b{n}", n % 3 == 0) for n in range(299, 40, -1)]
    counts = table.batch([merge(table.dest, changes, unchanged=True)], 30)
    assert counts == Counts(merged=259)
    found = {row[0]: row[1:3] for row in table.rows()}
    assert found == {
        n: (f"n{n}" if n > 40 else f"v{n}", f"b{n}" if n > 40 and n % 3 else f"big{n}")
        for n in range(300)
    }
