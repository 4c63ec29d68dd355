"""Compaction on the real lake: which files go, and that neither position nor rows do."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.two_columns import (
    BIGINT,
    COLUMNS,
    append,
    count,
    delete,
    published,
    stamp,
    update,
)
from workers.lake.effects import FileSizes
from workers.lake.segment import Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.table import LakeColumn, LakeIdent

Make = Callable[..., Any]


@pytest.mark.parametrize("version", [2, 3])
def test_small_files_are_written_together_between_batches(
    iceberg: Make, lake_ident: LakeIdent, version: int
) -> None:
    """Readers and the position notice nothing; what was deleted stays away."""
    dest, branch = iceberg(format_version=version), "pgsub_1_1_1"
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)
    for n in range(10):
        segments = [append(dest, n * 10, 10), delete(dest, n * 10)]
        dest.write(lake_ident, branch, segments, stamp(20 + n))
        dest.publish(lake_ident, branch, stamp(20 + n))
    assert dest.compact(lake_ident, branch, FileSizes()) == 10
    assert dest.table(lake_ident).stamp == stamp(29)
    dest.write(lake_ident, branch, [append(dest, 100, 1), delete(dest, 1)], stamp(50))
    dest.publish(lake_ident, branch, stamp(50))
    assert count(dest, lake_ident) == 10 * 9 + 1 - 1
    files = dest._sessions.get().query(
        sql_text("SELECT count(*) FROM", table_path(lake_ident, "data_files")), "counting"
    )
    assert files.column(0)[0].as_py() == 2
    assert dest.table(lake_ident).files == 2
    assert dest.compact(lake_ident, branch, FileSizes()) == 0  # too few to be worth it


def test_what_was_written_together_is_so_again_when_there_is_enough_of_it(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    dest, branch = iceberg(), "pgsub_1_1_1"
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)
    for n in range(4):
        dest.write(lake_ident, branch, [append(dest, n * 10, 10)], stamp(20 + n))
        dest.publish(lake_ident, branch, stamp(20 + n))
    sizes = sql_text("SELECT min(file_size_in_bytes) FROM", table_path(lake_ident, "data_files"))
    least = dest._sessions.get().query(sizes, "looking").column(0)[0].as_py()
    small = least // 2  # none of the four
    assert dest.compact(lake_ident, branch, FileSizes(small=small, whole=4 * 4 * small - 1)) == 0
    assert dest.compact(lake_ident, branch, FileSizes(small=small, whole=4 * 4 * small)) == 4
    dest.write(lake_ident, branch, [append(dest, 100, 1)], stamp(50))
    dest.publish(lake_ident, branch, stamp(50))
    assert dest.table(lake_ident).files == 2
    assert count(dest, lake_ident) == 41


@pytest.mark.parametrize("vectors", [False, True], ids=["deletes", "vectors"])
def test_a_small_batch_leaves_one_file_of_rows(
    iceberg: Make, lake_ident: LakeIdent, vectors: bool
) -> None:
    """However many small files it meets; its deletes are a file for each, its vectors are one."""
    dest, branch = iceberg(format_version=3 if vectors else 2), "pgsub_1_1_1"
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)
    dest.write(lake_ident, branch, [append(dest, 0, 1000)], stamp(20))
    dest.publish(lake_ident, branch, stamp(20))
    chance = random.Random(1)
    for n in range(1, 10):
        changed = update(dest, chance.sample(range(1000), 200), BIGINT)
        dest.write(lake_ident, branch, [changed], stamp(20 + n))
        dest.publish(lake_ident, branch, stamp(20 + n))
        assert dest.table(lake_ident).files == 1 + n
    written = dest._sessions.get().query(
        sql_text("SELECT count(DISTINCT file_path) FROM", table_path(lake_ident, "all_files")),
        "counting",
    )
    files = written.column(0)[0].as_py()
    assert files == 1 + 2 * 9 if vectors else files <= 1 + 9 + sum(range(1, 10))
    assert count(dest, lake_ident) == 1000


@pytest.mark.parametrize(
    ("first", "key", "partitions", "version"),
    [
        ("id", pa.int32(), "", 2),
        ("id", BIGINT, "", 2),
        ("v", BIGINT, "", 2),
        ("id", pa.int32(), "truncate(id, 1000)", 2),
        ("id", BIGINT, "truncate(id, 1000)", 2),
        ("id", BIGINT, "", 3),
        ("id", BIGINT, "truncate(id, 1000)", 3),
    ],
    ids=["int", "bigint", "text", "truncated int", "truncated bigint", "v3", "truncated v3"],
)
def test_deletes_of_files_that_are_gone_go_too(
    iceberg: Make,
    lake_ident: LakeIdent,
    first: str,
    key: pa.DataType,
    partitions: str,
    version: int,
) -> None:
    """Small updates leave one file of deletes, or one vector, for each data file they meet.

    Vectors go by themselves, files of deletes because a DELETE has Iceberg look at all.
    """
    dest, branch = iceberg(format_version=version), "pgsub_1_1_1"
    columns = [LakeColumn("id", key), LakeColumn("v", pa.string())]
    columns.sort(key=lambda column: column.name != first)
    dest.create_table(lake_ident, columns, owner="me", relid=7, stamp=stamp(10))
    if partitions:  # somebody's ALTER TABLE
        sql = sql_text("ALTER TABLE", table_path(lake_ident), "ADD PARTITION FIELD", partitions)
        dest._sessions.get().command(sql, "partitioning")
    dest.create_branch(lake_ident, branch)
    chance = random.Random(1)
    kept, lsn = [], 20

    def batch(*segments: Segment) -> None:
        nonlocal lsn
        lsn += 1
        dest.write(lake_ident, branch, segments, stamp(lsn))
        dest.publish(lake_ident, branch, stamp(lsn))

    batch(append(dest, 0, 100, key))
    for _ in range(2):
        for _ in range(8):
            batch(update(dest, chance.sample(range(100), 20), key))
        joined = dest.compact(lake_ident, branch, FileSizes())
        if not partitions or version == 3:  # else each batch takes the last small file in
            assert joined > 0
        batch(update(dest, [1], key))
        found = dest._sessions.get().query(
            sql_text("SELECT count(*) FROM", table_path(lake_ident, "delete_files")), "counting"
        )
        kept.append(found.column(0)[0].as_py())
    assert count(dest, lake_ident) == 100
    assert dest.table(lake_ident).stamp == stamp(lsn)
    if not partitions:  # there a row counts more than a file
        assert kept[1] < kept[0] + 5, kept


def test_a_small_file_is_smaller_than_what_a_rewrite_leaves(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """Whatever the settings say: Iceberg refuses anything else, and what it left would be small."""
    dest, branch = published(iceberg, lake_ident, batches=9)
    sizes = FileSizes(small=64 << 20, whole=1 << 20)
    assert dest.compact(lake_ident, branch, sizes) == 9
    assert dest.compact(lake_ident, branch, sizes) == 0


@pytest.mark.parametrize("version", [2, 3])
def test_files_with_deleted_rows_are_rewritten_some_at_a_time(
    iceberg: Make, lake_ident: LakeIdent, version: int
) -> None:
    """Those of a share, however large they are, and no others; rows and position stay."""
    dest, branch = iceberg(format_version=version), "pgsub_1_1_1"
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)
    for n in range(3):
        dest.write(lake_ident, branch, [append(dest, n * 100, 100)], stamp(20 + n))
        dest.publish(lake_ident, branch, stamp(20 + n))
    gone = [*range(20), *range(100, 105), *range(200, 250)]
    counts = dest.write(lake_ident, branch, [delete(dest, *gone)], stamp(30))
    dest.publish(lake_ident, branch, stamp(30))
    assert (counts.rows, counts.deleted) == (300, 75)
    one = FileSizes(at_once=1)
    assert [dest.compact(lake_ident, branch, one, deleted_share=0.1) for _ in range(3)] == [1, 1, 0]
    assert dest.table(lake_ident).stamp == stamp(30)
    counts = dest.write(lake_ident, branch, [delete(dest, 50)], stamp(40))
    dest.publish(lake_ident, branch, stamp(40))
    assert counts.rows == 80 + 100 + 50
    assert counts.deleted == 6 if version == 3 else counts.deleted >= 6
    assert count(dest, lake_ident) == 300 - 75 - 1
