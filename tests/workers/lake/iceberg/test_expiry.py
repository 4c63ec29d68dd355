"""Expiry on the real lake: which snapshots go, and that neither position nor rows do."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.workers.lake.two_columns import (
    COLUMNS,
    append,
    count,
    delete,
    published,
    stamp,
)
from workers.lake.effects import FileSizes
from workers.lake.iceberg.expiry import expire_snapshots
from workers.lake.metadata.snapshots import History
from workers.lake.segment import Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.file_system import FileSystem
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

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
            tables,
            lake_ident,
            retain=retain,
            age=60,
            make_durable=lambda: None,
            clock=lambda: between + 60,
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


def test_an_expiry_begins_once_the_snapshots_it_leaves_are_on_the_disk(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may set the table back to any state that is not on the disk."""
    dest, _ = published(iceberg, lake_ident, batches=3)
    dest.drop_branches(lake_ident)
    before = list(dest.table(lake_ident).snapshots)
    seen: list[object] = []

    def synchronise(_: FileSystem) -> None:
        seen.append(list(dest.table(lake_ident).snapshots))

    monkeypatch.setattr(FileSystem, "synchronise", synchronise)
    assert dest.expire(lake_ident, retain=1) > 0
    assert seen == [before]
