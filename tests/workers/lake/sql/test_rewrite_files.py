"""Expiry and compaction on the real lake: what goes, and that neither position nor rows do."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.two_columns import BIGINT, COLUMNS, append, count, delete, stamp, update
from workers.lake.effects import FileSizes
from workers.lake.iceberg.expiry import expire_snapshots
from workers.lake.metadata.snapshots import History
from workers.lake.segment import Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.local_store import local_path
from workers.lake.table import LakeColumn, LakeIdent

Make = Callable[..., Any]


def test_expiry_keeps_the_position(dest: Any, lake_ident: LakeIdent) -> None:
    dest.create_branch(lake_ident, "pgsub_1_1_1")
    for n in range(3):
        dest.write(lake_ident, "pgsub_1_1_1", [append(dest, n, 1)], stamp(20 + n))
        dest.publish(lake_ident, "pgsub_1_1_1", stamp(20 + n))
    session = dest._sessions.get()
    session.command(  # somebody else's commit, which carries nothing
        sql_text("DELETE FROM", table_path(lake_ident), "WHERE id = 0"), "deleting"
    )
    dest.drop_branches(lake_ident)
    before = len(dest.table(lake_ident).snapshots)
    gone = dest.expire(lake_ident, retain=1)
    table = dest.table(lake_ident)
    assert table.stamp == stamp(22)
    assert 0 < gone == before - len(table.snapshots)
    assert count(dest, lake_ident) == 2
    assert dest.expire(lake_ident, retain=1) == 0


def test_young_snapshots_stay(iceberg: Make, lake_ident: LakeIdent) -> None:
    """Those that are older go, but for the last, which stay however old they are."""
    dest, _ = published(iceberg, lake_ident, batches=6)
    dest.drop_branches(lake_ident)
    times = list(dest.table(lake_ident).snapshots)
    assert times == sorted(times)
    assert abs(times[-1] - time.time()) < 3600  # the lake's clock is this machine's
    assert dest.expire(lake_ident, retain=1, age=3600) == 0
    assert list(dest.table(lake_ident).snapshots) == times
    between = (times[-4] + times[-3]) / 2
    tables = SqlTableApi(dest._sessions)

    def expire(retain: int) -> int:
        return expire_snapshots(
            tables, lake_ident, retain=retain, age=60, clock=lambda: between + 60
        )

    assert expire(5) == len(times) - 5
    assert list(dest.table(lake_ident).snapshots) == times[-5:]
    assert expire(1) == 2
    table = dest.table(lake_ident)
    assert (list(table.snapshots), table.stamp) == (times[-3:], stamp(25))
    assert count(dest, lake_ident) == 6


@pytest.mark.parametrize("here", [True, False], ids=["by the API", "by Spark"])
def test_what_no_snapshot_needs_goes_with_the_last_that_did(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """Lists, manifests, files of rows and of deletes; those of a branch and of main stay."""
    dest, branch = published(iceberg, lake_ident, batches=4)
    dest.write(lake_ident, branch, [delete(dest, 0, 1)], stamp(30))
    dest.publish(lake_ident, branch, stamp(30))
    dest.compact(lake_ident, branch, FileSizes(1 << 20, 1 << 26, 1 << 26, few=2))
    dest.write(lake_ident, branch, [append(dest, 10, 1)], stamp(31))
    if not here:
        monkeypatch.setattr(dest, "_tables", SqlTableApi(dest._sessions))
    gone = dest.expire(lake_ident, retain=1)
    assert gone > 4
    session = dest._sessions.get()

    def named(table: str, column: str) -> set[str]:
        of = table_path(lake_ident, table)
        found = session.query(sql_text(f"SELECT DISTINCT {column} FROM", of), "listing")
        return {str(each) for each in found.column(0).to_pylist()}

    def names(table: str, column: str) -> set[str]:
        return {Path(each).name for each in named(table, column)}

    [place] = {local_path(each).parent.parent for each in named("all_data_files", "file_path")}
    there = {each.name for each in place.rglob("*.parquet")}
    assert there == names("all_files", "file_path")
    avro = {each.name for each in place.rglob("*.avro")}
    assert avro == names("all_manifests", "path") | names("snapshots", "manifest_list")
    assert count(dest, lake_ident) == 2
    dest.publish(lake_ident, branch, stamp(31))
    assert count(dest, lake_ident) == 3


@pytest.mark.parametrize("here", [True, False], ids=["by the API", "by Spark"])
def test_a_branch_of_ours_stays_however_old_the_table_lets_one_be(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, here: bool
) -> None:
    """A copy of hours, say, beside an expiry of another source of its table, or of the user's."""
    dest = iceberg()
    if not here:
        monkeypatch.setattr(dest, "_tables", SqlTableApi(dest._sessions))
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    session = dest._sessions.get()
    age = "SET TBLPROPERTIES ('history.expire.max-ref-age-ms' = '1')"
    session.command(sql_text("ALTER TABLE", table_path(lake_ident), age), "preparing a test")
    session.command(
        sql_text("ALTER TABLE", table_path(lake_ident), "CREATE BRANCH theirs"), "preparing a test"
    )
    branches = ("pgsub_1_1_1", "pgsub_1_1_2")
    for at, branch in enumerate(branches):
        dest.create_branch(lake_ident, branch)
        dest.write(lake_ident, branch, [append(dest, at, 1)], stamp(20 + at))
    dest.publish(lake_ident, branches[0], stamp(20))
    dest.expire(lake_ident, retain=1)
    refs = session.query(sql_text("SELECT name FROM", table_path(lake_ident, "refs")), "listing")
    assert {*refs.column(0).to_pylist()} == {"main", *branches}


@pytest.mark.parametrize("here", [True, False], ids=["by the API", "by Spark"])
@pytest.mark.parametrize("ours", [True, False], ids=["our vectors", "Spark's vectors"])
def test_a_file_of_vectors_stays_while_one_of_them_is_needed(
    iceberg: Make,
    lake_ident: LakeIdent,
    monkeypatch: pytest.MonkeyPatch,
    here: bool,
    ours: bool,
) -> None:
    """It holds those of two files of rows; one of them is another's by now, and who said so went.

    The branch is what main is: nobody keeps anything back.
    """
    dest, branch = iceberg(format_version=3, direct=ours), "pgsub_1_1_1"
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, branch)

    def batch(segment: Segment, lsn: int) -> None:
        dest.write(lake_ident, branch, [segment], stamp(lsn))
        dest.publish(lake_ident, branch, stamp(lsn))

    batch(append(dest, 0, 100), 20)
    batch(append(dest, 100, 100), 21)
    batch(delete(dest, 1, 101), 22)
    for n in range(2, 5):
        batch(delete(dest, n), 21 + n)
    vectors = sql_text("SELECT DISTINCT file_path FROM", table_path(lake_ident, "delete_files"))
    assert dest._sessions.get().query(vectors, "listing").num_rows == 2
    other = iceberg(format_version=3)
    if not here:
        monkeypatch.setattr(other, "_tables", SqlTableApi(other._sessions))
    assert other.expire(lake_ident, retain=1) > 3
    assert count(dest, lake_ident) == 200 - 5
    batch(delete(dest, 102), 30)
    assert count(dest, lake_ident) == 200 - 6


def test_what_comes_while_an_expiry_begins_does_not_cost_the_position(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last snapshots are counted anew by the lake: fences are the last then."""
    dest, _ = published(iceberg, lake_ident, batches=3)

    read_history = dest._tables.history

    def read_then_fence(ident: LakeIdent) -> History:
        history: History = read_history(ident)
        if not fences:
            fences.extend(dest.fence(ident) for _ in range(3))
        return history

    fences: list[object] = []
    monkeypatch.setattr(dest._tables, "history", read_then_fence)
    dest.expire(lake_ident, retain=1)
    assert len(fences) == 3
    table = dest.table(lake_ident)
    assert table.stamp == stamp(22)
    assert len(table.snapshots) == 4, "all before that has gone"


def test_a_branch_keeps_the_commits_that_main_does_not_have_yet(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    dest, branch = published(iceberg, lake_ident, batches=3)
    for n in range(3):
        dest.write(lake_ident, branch, [append(dest, 10 + n, 1)], stamp(30 + n))
    assert dest.expire(lake_ident, retain=1) > 0
    dest.publish(lake_ident, branch, stamp(32))
    assert dest.table(lake_ident).stamp == stamp(32)
    assert count(dest, lake_ident) == 6


def published(iceberg: Make, ident: LakeIdent, *, batches: int) -> tuple[Any, str]:
    """A table of so many batches, the last with stamp 19 + ``batches``, and its standing branch."""
    dest, branch = iceberg(), "pgsub_1_1_1"
    dest.create_table(ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(ident, branch)
    for n in range(batches):
        dest.write(ident, branch, [append(dest, n, 1)], stamp(20 + n))
        dest.publish(ident, branch, stamp(20 + n))
    return dest, branch


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
        assert dest.compact(lake_ident, branch, FileSizes()) > 0
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
    assert (counts.rows, counts.dead) == (300, 75)
    one = FileSizes(at_once=1)
    assert [dest.compact(lake_ident, branch, one, dead_share=0.1) for _ in range(3)] == [1, 1, 0]
    assert dest.table(lake_ident).stamp == stamp(30)
    counts = dest.write(lake_ident, branch, [delete(dest, 50)], stamp(40))
    dest.publish(lake_ident, branch, stamp(40))
    assert counts.rows == 80 + 100 + 50
    assert counts.dead == 6 if version == 3 else counts.dead >= 6
    assert count(dest, lake_ident) == 300 - 75 - 1
