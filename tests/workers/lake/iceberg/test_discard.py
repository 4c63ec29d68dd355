"""What a failed attempt leaves in a real lake table: nothing."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import IoError
from tests.workers.lake.two_columns import append, count, published, stamp
from workers.lake.segment import RowsOf, Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

Make = Callable[..., Any]
pytestmark = pytest.mark.parametrize("here", [True, False], ids=["by the API", "by Spark"])


@pytest.fixture
def dest(iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch, here: bool) -> Any:
    """A table of three published batches."""
    made, _ = published(iceberg, lake_ident, batches=3)
    if not here:
        monkeypatch.setattr(made, "_tables", SqlTableApi(made._sessions))
    return made


def files(dest: Any, ident: LakeIdent) -> set[Path]:
    """The table's files of rows, their manifests and the lists of manifests."""
    of = table_path(ident, "all_data_files")
    found = dest._sessions.get().query(sql_text("SELECT file_path FROM", of), "listing")
    place = local_path(str(found.column(0)[0].as_py())).parent.parent
    return {*place.rglob("*.parquet"), *place.rglob("*.avro")}


def snapshots(dest: Any, ident: LakeIdent) -> set[int]:
    return set(dest._tables.history(ident).snapshots)


def fail(dest: Any, ident: LakeIdent, name: str) -> None:
    """An attempt that comes to no end: two commits on a branch."""
    dest.create_branch(ident, name)
    for n in range(2):
        dest.write(ident, name, [append(dest, 100 * n, 50)], stamp(90 + n))


def test_failed_attempts_leave_neither_snapshots_nor_files(
    dest: Any, lake_ident: LakeIdent
) -> None:
    dest.drop_branches(lake_ident)
    before = snapshots(dest, lake_ident), files(dest, lake_ident)
    for n in range(3):
        fail(dest, lake_ident, f"pgsub_1_{n}_1")
        assert len(files(dest, lake_ident)) > len(before[1])
        dest.drop_branches(lake_ident)
        assert (snapshots(dest, lake_ident), files(dest, lake_ident)) == before
    assert count(dest, lake_ident) == 3
    table = dest.table(lake_ident)
    assert table.stamp == stamp(22)


def test_what_an_expiry_could_not_remove_goes_with_the_next_branch(
    dest: Any, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker was killed before, or the storage refused: nobody has to wait for it."""
    dest.drop_branches(lake_ident)
    before = snapshots(dest, lake_ident), files(dest, lake_ident)

    def refuse(*_: Any) -> None:
        raise IoError("the storage refused")

    fail(dest, lake_ident, "pgsub_1_1_1")
    with monkeypatch.context() as failing:
        failing.setattr(type(dest._tables), "expire_named", refuse)
        dest.drop_branches(lake_ident)
    assert len(snapshots(dest, lake_ident)) == len(before[0]) + 2
    dest.create_branch(lake_ident, "pgsub_1_2_1")
    dest.drop_branches(lake_ident)
    assert (snapshots(dest, lake_ident), files(dest, lake_ident)) == before


def test_what_a_user_set_back_and_what_a_tag_names_stays(dest: Any, lake_ident: LakeIdent) -> None:
    fail(dest, lake_ident, "pgsub_1_2_1")
    session = dest._sessions.get()
    history = dest._tables.history(lake_ident)
    middle = history.snapshots[history.refs["pgsub_1_2_1"]].parent_id
    tag = f"CREATE TAG kept AS OF VERSION {middle}"
    session.command(sql_text("ALTER TABLE", table_path(lake_ident), tag), "preparing a test")
    newest = history.refs["main"]
    oldest = [each.snapshot_id for each in history.ancestors("main")][-1]
    dest.rollback(lake_ident, oldest)
    dest.drop_branches(lake_ident)
    left = snapshots(dest, lake_ident)
    assert {newest, middle, oldest} <= left
    dest.rollback(lake_ident, newest)
    assert count(dest, lake_ident) == 3


def publish_copy(dest: Any, ident: LakeIdent, segment: Segment) -> None:
    """Write a copy of a table on a branch and set ``main`` to the copy."""
    copied = stamp(50, "the copy")
    dest.create_branch(ident, "pgsub_1_1_1")
    dest.write(ident, "pgsub_1_1_1", [segment], copied)
    dest.publish(ident, "pgsub_1_1_1", copied)


def test_a_copy_that_was_published_and_taken_back_leaves_nothing(
    dest: Any, lake_ident: LakeIdent
) -> None:
    dest.drop_branches(lake_ident)
    base = dest.table(lake_ident).snapshot_id
    before = snapshots(dest, lake_ident), files(dest, lake_ident)
    publish_copy(dest, lake_ident, append(dest, 100, 50))
    dest.fence(lake_ident)
    dest.drop_branches(lake_ident)
    uncommitted = next(iter(before[1])).parent.parent / "data" / "pgsub-copy-the copy-1.parquet"
    uncommitted.write_bytes(b"a task wrote it, and was killed")
    dest.discard_copy(lake_ident, "the copy")
    assert uncommitted.exists(), "main holds the copy: nothing is removed by name"
    dest.rollback(lake_ident, base)
    dest.discard_copy(lake_ident, "the copy")
    assert (snapshots(dest, lake_ident), files(dest, lake_ident)) == before
    assert count(dest, lake_ident) == 3


def test_what_a_user_committed_on_top_of_a_copy_keeps_its_files(
    dest: Any, lake_ident: LakeIdent
) -> None:
    """The copy was taken back; the user may still set ``main`` to the own commit."""
    dest.drop_branches(lake_ident)
    base = dest.table(lake_ident).snapshot_id
    rows = 50_000
    of_copy = RowsOf(lake_ident, ("id", "v"), copy_id="the copy")
    table = pa.table({"c0": pa.array(range(rows), pa.int64()), "c1": ["x"] * rows})
    staged = dest.stage(table.to_batches(), table.schema, of_copy)
    publish_copy(dest, lake_ident, Segment(("id", "v"), ("id",), append=staged))
    assert any("pgsub-copy-the copy-" in path.name for path in files(dest, lake_ident))
    session = dest._sessions.get()
    values = sql_text("INSERT INTO", table_path(lake_ident), "VALUES (99999, 'the user')")
    session.command(values, "preparing a test")
    of_user = dest.table(lake_ident).snapshot_id
    dest.drop_branches(lake_ident)
    dest.rollback(lake_ident, base)
    dest.discard_copy(lake_ident, "the copy")
    dest.discard_copy(lake_ident, "the copy")
    assert count(dest, lake_ident) == 3
    dest.rollback(lake_ident, of_user)
    read = sql_text("SELECT sum(id) FROM", table_path(lake_ident))
    assert session.query(read, "reading").column(0)[0].as_py() is not None
    assert count(dest, lake_ident) == 3 + rows + 1


def test_readers_of_a_copy_that_was_taken_back_keep_its_files_for_the_grace(
    dest: Any, lake_ident: LakeIdent, here: bool
) -> None:
    """``main`` was at the copy for hours; only Spark knows no expiry that leaves the files."""
    dest.drop_branches(lake_ident)
    base = dest.table(lake_ident).snapshot_id
    before = snapshots(dest, lake_ident), files(dest, lake_ident)
    publish_copy(dest, lake_ident, append(dest, 100, 50))
    dest.drop_branches(lake_ident)
    with_copy = files(dest, lake_ident)
    of_copy = next(iter(before[1])).parent.parent / "data" / "pgsub-copy-the copy-1.parquet"
    of_copy.write_bytes(b"a query reads it")
    dest.rollback(lake_ident, base)
    lists: list[tuple[str, list[str]]] = []
    for _ in range(2):  # the worker was killed behind the expiry
        dest.discard_copy(lake_ident, "the copy", lambda *given: lists.append(given))
    assert snapshots(dest, lake_ident) == before[0]
    assert of_copy.exists()
    of_copy.unlink()
    assert files(dest, lake_ident) == (with_copy if here else before[1])
    for table_uuid, listed in lists:
        dest.remove_files(lake_ident, table_uuid, listed)
    assert (len(lists), files(dest, lake_ident)) == (int(here), before[1])
