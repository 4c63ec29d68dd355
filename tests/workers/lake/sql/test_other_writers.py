"""Who changed a row last, on tables whose rows have a lineage (Iceberg's format 3)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import IoError
from tests.workers.lake.contract import stage, stamp
from workers.lake.connect.errors import FileMissing
from workers.lake.effects import Counts, FileSizes
from workers.lake.segment import Segment, WholeRowLookup
from workers.lake.sql import other_writers
from workers.lake.sql.other_writers import NO_OTHER_WRITERS, OTHERS
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.sql.table_metadata import read_properties
from workers.lake.table import LakeColumn, LakeIdent

Make = Callable[..., Any]
COLUMNS = (LakeColumn("id", pa.int64()), LakeColumn("v", pa.string()))
UPDATE, DELETE = 0, 1


def ids(*numbers: int) -> pa.Int64Array:
    return pa.array(numbers, pa.int64())


def append(dest: Any, *numbers: int) -> Segment:
    rows = stage(dest, c0=ids(*numbers), c1=["ours"] * len(numbers))
    return Segment(("id", "v"), ("id",), append=rows)


def change(dest: Any, ops: dict[int, int], **more: Any) -> Segment:
    keys = ids(*ops)
    op = pa.array(list(ops.values()), pa.int8())
    rows = stage(dest, op=op, b0=keys, c0=keys, c1=["changed"] * len(ops))
    return Segment(("id", "v"), ("id",), merge=rows, **more)


class Table:
    """A lake table, its writer, and somebody else with a session without snapshot properties."""

    def __init__(self, dest: Any, ident: LakeIdent, other: Any) -> None:
        self.dest, self.ident, self._other = dest, ident, other
        self.lsn = 10

    def sql(self, words: str) -> None:
        self._other._sessions.get().command(words.replace("{t}", self.name), "writing")

    @property
    def name(self) -> str:
        return table_path(self.ident).sql(dialect="spark")

    def rows(self) -> list[tuple[int, str]]:
        sql = sql_text("SELECT id, v FROM", table_path(self.ident), "ORDER BY id")
        found = self.dest._sessions.get().query(sql, "reading").to_pylist()
        return [(row["id"], row["v"]) for row in found]

    def apply(self, *segments: Segment, compact: bool = False) -> Counts:
        """A batch of a worker that has just opened the table."""
        self.lsn += 10
        branch = f"pgsub_1_1_{self.lsn}"
        self.dest.table(self.ident)
        self.dest.create_branch(self.ident, branch)
        if compact:
            assert self.dest.compact(self.ident, branch, FileSizes()) > 0
        counts: Counts = self.dest.write(self.ident, branch, segments, stamp(self.lsn))
        self.dest.publish(self.ident, branch, stamp(self.lsn))
        self.dest.drop_branches(self.ident)
        return counts


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Table:
    dest = iceberg(track_commit_timestamp=True)
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    made = Table(dest, lake_ident, iceberg())
    made.apply(append(dest, 1, 2, 3, 4, 5, 6))
    return made


def differs(counts: Counts) -> tuple[int, int]:
    return counts.update_origin_differs, counts.delete_origin_differs


def test_rows_that_somebody_else_changed_last_are_counted(table: Table) -> None:
    dest = table.dest
    assert differs(table.apply(change(dest, {1: UPDATE, 2: DELETE}))) == (0, 0)
    table.sql("INSERT INTO {t} VALUES (8, 'theirs'), (9, 'theirs')")
    table.sql("UPDATE {t} SET v = 'theirs' WHERE id IN (3, 4)")
    counts = table.apply(change(dest, {3: UPDATE, 5: UPDATE, 8: DELETE, 77: UPDATE}))
    assert counts == Counts(
        merged=3, update_missing=1, update_origin_differs=1, delete_origin_differs=1
    )
    # What is ours again is no conflict any more; what nobody has changed since is one still.
    assert differs(table.apply(change(dest, {3: UPDATE, 4: DELETE, 9: UPDATE}))) == (1, 1)
    assert table.rows() == [
        (1, "changed"), (3, "changed"), (5, "changed"), (6, "ours"), (9, "changed")
    ]  # fmt: skip


def test_a_batch_s_own_rows_are_ours(table: Table) -> None:
    dest = table.dest
    table.sql("UPDATE {t} SET v = 'theirs' WHERE id = 1")
    again = change(dest, {1: UPDATE}), append(dest, 10), change(dest, {1: UPDATE, 10: DELETE})
    assert differs(table.apply(*again)) == (1, 0)


def test_rows_matched_whole(table: Table) -> None:
    dest = table.dest
    table.sql("INSERT INTO {t} VALUES (8, 'theirs')")

    def resolve(found: pa.Table) -> tuple[Any, None]:
        found = found.sort_by("image")
        columns = {"f": found["f"], "p": found["p"], "c0": ids(1, 8), "c1": ["changed"] * 2}
        return stage(dest, op=pa.array([UPDATE, DELETE], pa.int8()), **columns), None

    images = stage(
        dest,
        image=ids(0, 1),
        n=pa.array([1, 1], pa.int32()),
        c0=ids(1, 8),
        c1=["ours", "theirs"],
    )
    full = WholeRowLookup(images, resolve)
    assert differs(table.apply(Segment(("id", "v"), row_lookup=full))) == (0, 1)
    assert table.rows()[0] == (1, "changed")


def test_files_written_together_and_snapshots_gone(table: Table) -> None:
    dest = table.dest
    table.sql("UPDATE {t} SET v = 'theirs' WHERE id IN (3, 4)")
    for number in range(20, 26):
        table.apply(append(dest, number))
    table.apply(append(dest, 40), compact=True)
    assert dest.expire(table.ident, retain=1) > 0
    counts = table.apply(change(dest, {3: UPDATE, 4: DELETE, 5: UPDATE, 20: UPDATE}))
    assert differs(counts) == (1, 1)


def test_another_worker_knows_what_was_remembered(table: Table, iceberg: Make) -> None:
    table.sql("UPDATE {t} SET v = 'theirs' WHERE id IN (3, 4)")
    table.apply(append(table.dest, 20))
    table.apply(append(table.dest, 21))
    assert table.dest.expire(table.ident, retain=1) > 0
    later = Table(iceberg(track_commit_timestamp=True), table.ident, table.dest)
    later.lsn = 100
    assert differs(later.apply(change(later.dest, {3: UPDATE, 4: DELETE}))) == (1, 1)


def test_what_an_adopted_table_holds_is_somebody_else_s(table: Table, iceberg: Make) -> None:
    table.apply(change(table.dest, {1: UPDATE}), append(table.dest, 7))
    iceberg().adopt_table(table.ident, owner="you", stamp=stamp(50), former_owners=["me"])
    heir = Table(iceberg(track_commit_timestamp=True), table.ident, table.dest)
    heir.lsn = 100
    assert differs(heir.apply(change(heir.dest, {1: UPDATE, 7: DELETE}))) == (1, 1)
    assert differs(heir.apply(change(heir.dest, {1: UPDATE, 2: UPDATE}))) == (1, 0)
    assert differs(heir.apply(append(heir.dest, 9), change(heir.dest, {9: DELETE}))) == (0, 0)
    # One who has looked already goes by it too; and whoever comes back to a table finds his own.
    table.lsn = 200
    assert differs(table.apply(change(table.dest, {3: UPDATE}))) == (1, 0)
    heir.dest.adopt_table(table.ident, owner="you", stamp=stamp(300))
    heir.lsn = 300
    assert differs(heir.apply(change(heir.dest, {1: UPDATE, 4: UPDATE}))) == (1, 0)


def test_who_only_deletes_leaves_no_rows(table: Table) -> None:
    table.sql("DELETE FROM {t} WHERE id = 1")
    assert differs(table.apply(change(table.dest, {2: UPDATE}))) == (0, 0)
    assert OTHERS not in read_properties(table.dest._sessions.get(), table.ident)


def test_only_so_many_commits_of_others_are_remembered(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_writers, "OTHER_WRITERS_COMMITS", 2)
    for number in (8, 9, 10):
        table.sql(f"INSERT INTO {{t}} VALUES ({number}, 'theirs')")
    counts = table.apply(change(table.dest, {8: UPDATE, 9: UPDATE, 10: DELETE}))
    assert differs(counts) == (1, 1)
    kept = read_properties(table.dest._sessions.get(), table.ident)[OTHERS]
    assert kept.startswith("..0,")
    assert kept.count(",") == 2


def test_whose_rows_are_those_of_a_lost_manifest(
    table: Table, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(*_: Any) -> Any:
        raise IoError("the lake's storage failed")

    table.sql("UPDATE {t} SET v = 'theirs' WHERE id = 1")
    with monkeypatch.context() as patch, caplog.at_level(logging.WARNING, "workers"):
        patch.setattr(other_writers, "_sequences", lost)
        assert differs(table.apply(change(table.dest, {2: UPDATE}))) == (0, 0)
    assert [each.levelname for each in caplog.records] == ["WARNING"]
    assert differs(table.apply(change(table.dest, {1: UPDATE}))) == (1, 0)


def test_an_expiry_beside_a_look_for_others_hides_nobody(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A manifest that was listed is gone when it is to be read; the next look lists it no more."""
    really, gone = other_writers._sequences, [FileMissing("the lake's storage failed")]

    def once(*given: Any) -> Any:
        if gone:
            raise gone.pop()
        return really(*given)

    table.sql("UPDATE {t} SET v = 'theirs' WHERE id = 1")
    monkeypatch.setattr(other_writers, "_sequences", once)
    assert differs(table.apply(change(table.dest, {1: UPDATE}))) == (1, 0)
    assert gone == []


def test_two_workers_of_one_table_store_their_lists_over_each_other(table: Table) -> None:
    table.sql("UPDATE {t} SET v = 'theirs' WHERE id IN (1, 2)")
    assert differs(table.apply(change(table.dest, {1: UPDATE}))) == (1, 0)
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{OTHERS}' = '..0')")
    assert differs(table.apply(change(table.dest, {2: UPDATE}))) == (1, 0)


@pytest.mark.parametrize("words", ["me", "..0,-1", f"..{2**63}"])
def test_what_is_not_a_list_of_numbers_is_nobody(table: Table, words: str) -> None:
    table.sql(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('{OTHERS}' = '{words}')")
    assert differs(table.apply(change(table.dest, {1: UPDATE}))) == (0, 0)


@pytest.mark.parametrize(
    ("given", "version"),
    [
        ({}, "2"),
        ({"format_version": 3}, "3"),
        ({"track_commit_timestamp": True}, "3"),
        ({"track_commit_timestamp": True, "format_version": 2}, "3"),
    ],
)
def test_the_format_of_a_new_table(
    iceberg: Make, lake_ident: LakeIdent, given: dict[str, Any], version: str
) -> None:
    dest = iceberg(**given)
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    assert read_properties(dest._sessions.get(), lake_ident)["format-version"] == version


def test_a_table_of_an_older_format_is_told_of_once(
    iceberg: Make, lake_ident: LakeIdent, caplog: pytest.LogCaptureFixture
) -> None:
    plain = iceberg()
    plain.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest = iceberg(track_commit_timestamp=True)
    table = Table(dest, lake_ident, iceberg())
    with caplog.at_level(logging.WARNING, "workers"):
        table.apply(append(dest, 1))
        table.sql("UPDATE {t} SET v = 'theirs'")
        assert differs(table.apply(change(dest, {1: UPDATE}))) == (0, 0)
    (told,) = caplog.records
    assert "who wrote a row" in told.getMessage()
    table.sql("ALTER TABLE {t} SET TBLPROPERTIES ('format-version' = '3')")
    table.apply(append(dest, 2, 3))
    table.sql("UPDATE {t} SET v = 'theirs' WHERE id IN (1, 2)")
    counts = table.apply(change(dest, {1: UPDATE, 2: DELETE, 3: UPDATE}))
    assert differs(counts) == (1, 1)
    assert table.rows() == [(1, "changed"), (3, "changed")]


def test_nothing_is_looked_for_while_it_is_off(iceberg: Make, lake_ident: LakeIdent) -> None:
    dest = iceberg()
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    table = Table(dest, lake_ident, iceberg())
    table.apply(append(dest, 1))
    table.sql("UPDATE {t} SET v = 'theirs'")
    assert differs(table.apply(change(dest, {1: UPDATE}))) == (0, 0)
    assert OTHERS not in read_properties(dest._sessions.get(), lake_ident)
    assert dest._others.of(lake_ident) == NO_OTHER_WRITERS
