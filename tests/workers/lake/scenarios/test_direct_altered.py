"""Tables and branches that are not as they were when a batch for them began."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.contract import (
    COLUMNS,
    PUBLISHED,
    Make,
    append,
    merge,
    rows_to_append,
    stamp,
)
from tests.workers.lake.watched import Watched, delete, update, with_rows
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.effects import Counts
from workers.lake.segment import Segment
from workers.lake.sql.statements import branch_path, sql_text
from workers.lake.staged_rows import FileList
from workers.lake.table import LakeIdent


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    return Watched(iceberg(local_relation_rows=10), lake_ident)


@pytest.fixture
def ten(table: Watched) -> Watched:
    """Rows 0 to 9 in one file."""
    return with_rows(table, 10)


def test_a_table_altered_since_rows_were_written_is_written_again(ten: Watched) -> None:
    staged = ten.own_rows([(n, "x", None) for n in range(20, 35)])
    branch = ten.branch()
    ten.command("ALTER TABLE", "ADD COLUMN w INT")
    segments = [replace(merge(ten.dest, [update(1)]), append=staged)]
    assert ten.refused(segments, branch).code == "40001"
    staged = ten.own_rows([(n, "x", None) for n in range(20, 35)])
    segments = [replace(merge(ten.dest, [update(1)]), append=staged)]
    fresh = ten.own_rows([(n, "y", None) for n in range(40, 55)])
    both = [*segments, append(ten.dest, [(60, "z", None)], defaults=(("w", "7"),))]
    counts = ten.batch([*both, Segment(PUBLISHED, ("id",), append=fresh)], 30)
    assert counts == Counts(appended=31, merged=1)
    found = {row[0]: (row[1], row[4]) for row in ten.rows()}
    assert len(found) == 41
    shown = [found[n] for n in (1, 20, 40, 60)]
    assert shown == [("new", None), ("x", None), ("y", None), ("z", 7)]


def test_a_column_that_was_renamed_since_is_not_left_out(ten: Watched) -> None:
    """What was sent for it would be nowhere, and the table's own value stay."""
    ten.command("ALTER TABLE", "RENAME COLUMN v TO w")
    for segment in (append(ten.dest, [(20, "lost", None)]), merge(ten.dest, [update(1)])):
        assert ten.refused([segment]).code == "40001"
    with pytest.raises(ReplicationError) as error:
        ten.own_rows([(n, "lost", None) for n in range(20, 35)])
    assert error.value.code == "40001"


def test_rows_for_a_table_that_was_made_anew_since_are_not_its(
    ten: Watched, lake_ident: LakeIdent
) -> None:
    """Columns have other numbers there, and the file lies in the folder of the one before."""
    staged = ten.own_rows([(n, "x", None) for n in range(20, 35)])
    ten.dest.drop_table(lake_ident)
    other = [COLUMNS[0], COLUMNS[2], COLUMNS[1], COLUMNS[3]]
    ten.dest.create_table(lake_ident, other, owner="me", relid=7, stamp=stamp(10))
    assert ten.refused([Segment(PUBLISHED, ("id",), append=staged)]).code == "40001"


@pytest.mark.parametrize(
    "altered",
    ["ADD PARTITION FIELD bucket(4, id)", "SET TBLPROPERTIES ('format-version'='3')"],
    ids=["partitioned", "another format"],
)
def test_a_table_that_is_written_otherwise_now_is_written_again(ten: Watched, altered: str) -> None:
    """Its schema is as it was. A file that says it is in no partition would hide its rows."""
    new = rows_to_append(ten.dest, [(n, "x", None) for n in range(20, 25)])
    segments = [replace(merge(ten.dest, [update(1)]), append=new)]
    branch = ten.branch()
    ten.dest.write(ten.ident, branch, [merge(ten.dest, [delete(9)])], stamp(25))
    ten.dest.publish(ten.ident, branch, stamp(25))
    ten.command("ALTER TABLE", altered)
    assert ten.refused(segments, branch).code == "40001"
    assert ten.batch(segments, 30) == Counts(appended=5, merged=1)
    changes = [update(1, v="last"), delete(9), *map(delete, range(20, 25))]
    assert ten.batch([merge(ten.dest, changes)], 40) == Counts(merged=6, delete_missing=1)
    assert ten.query("count(*), count_if(id = 1)") == [(9, 1)]


@pytest.mark.parametrize("own", [False, True])
def test_a_branch_that_moved_or_went_is_not_written_to(
    ten: Watched, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    """Deletes are of what was looked up; what is appended needs no more than its branch.

    Each attempt stages its rows, as a worker does: files of a refused commit go with the branch.
    """

    def changes() -> Segment:
        staged = ten.own_rows([(n, "x", None) for n in range(20, 35)]) if own else None
        return replace(merge(ten.dest, [update(1), delete(2)]), append=staged)

    with monkeypatch.context() as patch:
        really = GatewayTableApi.list_files

        def list_files(*args: Any) -> FileList:
            return replace(really(*args), tip=1)

        patch.setattr(GatewayTableApi, "list_files", list_files)
        assert ten.refused([changes()]).code == "40001"
    new = append(ten.dest, [(50, "a", None)])
    for segments in ([changes()], [new], []):
        branch = ten.branch()
        ten.dest.drop_branches(ten.ident)
        assert ten.refused(segments, branch).code == "40001"
        assert ten.tip(branch) is None
    assert (len(ten.rows()), ten.lsn()) == (10, 20)
    assert ten.batch([changes()], 30).merged == 2


def test_two_branches_of_a_table_are_written_to_at_once(table: Watched, iceberg: Make) -> None:
    """A shared table's are: a commit is made again behind the other's."""
    dests = [table.dest, iceberg()]
    branches = [table.branch(), table.branch()]

    def write(at: int) -> None:
        for n in range(6):
            segment = append(dests[at], [(n, f"of {at}", None)])
            if n % 2:
                segment = replace(segment, merge=merge(dests[at], [delete(n - 1)]).merge)
            counts = dests[at].write(table.ident, branches[at], [segment], stamp(30 + n))
            assert counts == Counts(appended=1, merged=n % 2)

    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(write, at) for at in (0, 1)]:
            done.result()
    for at, branch in enumerate(branches):
        assert len(table.commits(branch)) == 7
        sql = sql_text("SELECT id, v FROM", branch_path(table.ident, branch), "ORDER BY id")
        found = table.session.query(sql, "looking").to_pylist()
        assert [tuple(row.values()) for row in found] == [(n, f"of {at}") for n in (1, 3, 5)]
