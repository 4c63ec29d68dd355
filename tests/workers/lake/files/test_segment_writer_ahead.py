"""Changes with new rows in files of before the commit: commits and files.

What all lakes refuse is in ``test_changes_ahead_contract``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.contract import COLUMNS, PUBLISHED, Make, append, stage, stamp
from tests.workers.lake.watched import Watched
from workers.lake.api import file_commits
from workers.lake.effects import Counts
from workers.lake.files import segment_writer
from workers.lake.files.find_rows import RowLookup
from workers.lake.files.read_rows import Unreadable
from workers.lake.refusals import FilesRefused
from workers.lake.segment import DELETE_LINE, INSERT_LINE, UPDATE_LINE, ChangesAhead, Segment
from workers.lake.table import LakeIdent

Line = tuple[int, int]
MANY = 20


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    """Rows 0 to 39 in one file; all columns are published."""
    table = Watched(iceberg(local_relation_rows=10), lake_ident, COLUMNS[:3])
    table.batch([append(table.dest, [(n, f"v{n}", None) for n in range(2 * MANY)])], 20)
    return table


def ahead(table: Watched, lines: Sequence[Line], v: str) -> ChangesAhead:
    ops, keys = zip(*lines, strict=True)
    staged = stage(table.dest, op=pa.array(ops, pa.int8()), b0=pa.array(keys, pa.int64()))
    new = [(key, f"{v}{key}", None) for op, key in lines if op != DELETE_LINE]
    return ChangesAhead(staged, table.own_rows(new))


def segment(*each: ChangesAhead) -> Segment:
    return Segment(PUBLISHED, ("id",), ahead=each)


def updates(*keys: int) -> list[Line]:
    return [(UPDATE_LINE, key) for key in keys]


def _forget(table: Watched) -> None:
    """Read the table again: a test has changed it."""
    dest: Any = table.dest
    dest._forget(table.ident)


def values(table: Watched) -> dict[Any, Any]:
    rows = table.rows()
    assert len({row[0] for row in rows}) == len(rows)
    return {row[0]: row[1] for row in rows}


def test_parts_are_one_commit_and_the_last_part_wins(table: Watched) -> None:
    first = ahead(table, [*updates(*range(MANY)), (UPDATE_LINE, 99), (DELETE_LINE, 30)], "a")
    second = ahead(
        table,
        [*updates(*range(5, 5 + MANY)), (UPDATE_LINE, 30), (DELETE_LINE, 31), (INSERT_LINE, 50)],
        "b",
    )
    branch, before = table.branch(), table.on_disk()
    assert len(before) == 3
    effect = table.dest.write_branch(table.ident, branch, [segment(first, second)], stamp(30))
    (counts,) = table.dest.count([effect])
    assert counts == Counts(appended=1, merged=2 * MANY + 2, update_missing=2)
    assert table.commits(branch) == ["0/1E", *table.commits("main")]
    table.dest.publish(table.ident, branch, stamp(30))
    left = {n: f"v{n}" for n in range(2 * MANY)} | {n: f"a{n}" for n in range(5)}
    left |= {n: f"b{n}" for n in (*range(5, 5 + MANY), 50)}
    assert values(table) == {key: v for key, v in left.items() if key not in (30, 31)}
    assert len(table.on_disk() - before) == 1, "one file of deletes"
    assert table.by_spark() == 0
    table.batch([segment(ahead(table, updates(*range(MANY), 50), "c"))], 40)
    assert [values(table)[key] for key in (0, 19, 20, 50)] == ["c0", "c19", "b20", "c50"]


def test_groups_of_parts_are_looked_up_one_after_the_other(
    table: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segment_writer, "LOOK_UP_AHEAD_CHANGES", MANY)
    parts = [ahead(table, updates(*range(n, n + MANY)), f"{n}-") for n in range(3)]
    branch = table.branch()
    effect = table.dest.write_branch(table.ident, branch, [segment(*parts)], stamp(30))
    assert table.dest.count([effect]) == [Counts(merged=3 * MANY)]
    assert table.commits(branch) == ["0/1E", None, None, *table.commits("main")]
    table.dest.publish(table.ident, branch, stamp(30))
    assert [values(table)[key] for key in (0, 1, 2, 21, 22)] == ["0-0", "1-1", "2-2", "2-21", "v22"]


def test_parts_of_deletes_alone_add_no_data_file(table: Watched) -> None:
    before, branch = table.on_disk(), table.branch()
    gone = ahead(table, [(DELETE_LINE, key) for key in (*range(MANY), 77)], "")
    assert (gone.rows.rows, table.on_disk()) == (0, before)
    new = ahead(table, [(INSERT_LINE, key) for key in range(MANY)], "n")
    again = ahead(table, [(DELETE_LINE, key) for key in range(5)], "")
    effect = table.dest.write_branch(table.ident, branch, [segment(gone, new, again)], stamp(30))
    (counts,) = table.dest.count([effect])
    assert counts == Counts(appended=MANY, merged=MANY + 5, delete_missing=1)
    table.dest.publish(table.ident, branch, stamp(30))
    left = {n: f"n{n}" for n in range(5, MANY)} | {n: f"v{n}" for n in range(MANY, 2 * MANY)}
    assert values(table) == left
    table.batch([segment(ahead(table, [(DELETE_LINE, 6), (DELETE_LINE, 30)], ""))], 40)
    assert values(table).keys() == left.keys() - {6, 30}
    assert table.by_spark() == 0


def test_files_of_another_layout_are_refused(table: Watched) -> None:
    part = ahead(table, updates(*range(MANY)), "a")
    table.command("ALTER TABLE", "ADD COLUMN more INT")
    _forget(table)
    assert table.refused([segment(part)]).code == "40001"


def test_a_table_without_searchable_files_is_refused_for_longer(
    table: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``FilesRefused``: the next transaction would fare no better. One more file is too many."""
    part = ahead(table, updates(*range(MANY)), "a")
    with monkeypatch.context() as patched:
        patched.setattr(file_commits, "LISTED_FILES", 0)
        assert isinstance(table.refused([segment(part)]), FilesRefused)
        assert isinstance(table.refused([segment(part)]), FilesRefused)
    _forget(table)
    with monkeypatch.context() as patched:
        patched.setattr(RowLookup, "find", _unreadable)
        assert isinstance(table.refused([segment(part)]), FilesRefused)
    _forget(table)
    table.batch([segment(part)], 30)
    assert values(table)[0] == "a0"


def _unreadable(*_given: object) -> None:
    raise Unreadable


@pytest.mark.parametrize("made", ["format 3", "sorted", "partitioned"])
def test_files_that_take_no_deletes(iceberg: Make, lake_ident: LakeIdent, made: str) -> None:
    more = {"format_version": 3} if made == "format 3" else {}
    table = Watched(iceberg(local_relation_rows=10, **more), lake_ident, COLUMNS[:3])
    if made == "sorted":
        table.command("ALTER TABLE", "WRITE ORDERED BY id")
    if made == "partitioned":
        table.command("ALTER TABLE", "ADD PARTITION FIELD bucket(4, id)")
    _forget(table)
    rows = table.own_rows([(n, "x", None) for n in range(MANY)])
    assert rows.own is not None
    assert not rows.own.takes_deletes
    keys = stage(table.dest, op=pa.array([0] * MANY, pa.int8()), b0=pa.array(range(MANY)))
    assert table.refused([segment(ChangesAhead(keys, rows))]).code == "40001"


def test_spark_takes_no_files_of_before_the_commit(table: Watched) -> None:
    part = ahead(table, updates(*range(MANY)), "a")
    table.dest.choose_writer(table.ident, "spark")
    assert table.refused([segment(part)]).code == "40001"
    table.batch([append(table.dest, [(70, "by Spark", None)])], 30)
    assert values(table)[70] == "by Spark"
