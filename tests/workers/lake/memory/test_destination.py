"""What the lake in memory has of its own: failpoints, stagings, a source of copies, refs at once.

The contract tests compare everything else with Iceberg.
"""

from __future__ import annotations

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError, UndefinedTable
from tests.workers.lake.two_columns import COLUMNS, append, delete, stamp
from workers.lake.copy_plan import CopyPlan
from workers.lake.memory.destination import MemoryDestination
from workers.lake.memory.lake import MemoryLake
from workers.lake.table import MAIN, LakeIdent

IDENT = LakeIdent("s", "t")
BRANCH = "pgsub_1"


def opened(lake: MemoryLake | None = None) -> MemoryDestination:
    """With the table, and a branch of it."""
    dest = MemoryDestination(lake)
    dest.create_table(IDENT, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(IDENT, BRANCH)
    return dest


def test_readers_see_a_branch_once_it_is_published() -> None:
    dest = opened()
    effect = dest.write_branch(IDENT, BRANCH, [append(dest, 1, 2)], stamp(20))
    assert effect.counts.appended == 2
    assert dest.lake.rows(IDENT) == []
    dest.publish(IDENT, BRANCH, stamp(20))
    assert dest.lake.rows(IDENT) == [{"id": 1, "v": "x"}, {"id": 2, "v": "x"}]
    table = dest.table(IDENT)
    assert table is not None
    assert (table.stamp, table.records) == (stamp(20), 2)
    dest.write_branch(IDENT, BRANCH, [delete(dest, 1)], stamp(30))
    with pytest.raises(ReplicationError):
        dest.publish(IDENT, BRANCH, stamp(20))
    dest.publish(IDENT, BRANCH, stamp(30))
    assert dest.lake.rows(IDENT) == [{"id": 2, "v": "x"}]


def test_a_commit_on_main_refuses_the_branch() -> None:
    dest = opened()
    dest.write_branch(IDENT, BRANCH, [append(dest, 1, 1)], stamp(20))
    dest.fence(IDENT)
    with pytest.raises(ReplicationError) as caught:
        dest.publish(IDENT, BRANCH, stamp(20))
    assert caught.value.detail == "Another commit is on main."
    assert dest.lake.rows(IDENT) == []


def test_an_operation_calls_the_failpoint_before_it_has_an_effect() -> None:
    dest = opened()
    called: list[str] = []

    def fail(name: str) -> None:
        called.append(name)
        raise ConnectionFailure("the test's")

    dest.failpoint = fail
    with pytest.raises(ConnectionFailure, match="the test's"):
        dest.drop_table(IDENT)
    assert called == ["drop_table"]
    assert IDENT in dest.lake.tables


def test_a_closed_session_fails_and_another_of_the_same_lake_goes_on() -> None:
    sessions: list[tuple[str, str]] = []
    lake = MemoryLake()
    first = MemoryDestination(
        lake,
        remember_session=lambda *session: sessions.append(session),
    )
    second = opened(lake)
    second.release_sessions(sessions)
    with pytest.raises(ConnectionFailure, match="lost the lake server"):
        first.table(IDENT)
    assert second.table(IDENT) is not None
    second.close()
    with pytest.raises(ConnectionFailure):
        second.fence(IDENT)


def test_a_staging_counts_until_it_is_discarded() -> None:
    dest = opened()
    segment = append(dest, 1, 3)
    assert (dest.staged, segment.append and segment.append.rows) == (1, 3)
    assert segment.append is not None
    dest.discard(segment.append)
    assert dest.staged == 0


def test_a_copy_reads_every_statement_from_the_source() -> None:
    dest = opened()
    answers = {"first": [b"1,a\n"], "second": [b"2,b\n", b"3,\n"]}
    plan = CopyPlan("", None, "", tuple(answers), COLUMNS, relation="s.t", stamp=stamp(20))
    with pytest.raises(ReplicationError, match="no source to copy from"):
        dest.copy(IDENT, BRANCH, plan, lambda done, of: None)
    dest.copy_source = answers.__getitem__
    progress: list[tuple[int, int]] = []
    assert dest.copy(IDENT, BRANCH, plan, lambda *done: progress.append(done)) == 3
    assert [(row["id"], row["v"]) for row in dest.lake.rows(IDENT, BRANCH)] == [
        (1, "a"),
        (2, "b"),
        (3, None),
    ]
    assert progress[:2] == [(0, 2), (1, 2)]
    assert dest.lake.rows(IDENT) == []


def test_a_branch_may_begin_at_an_older_snapshot_and_main_may_go_back_to_it() -> None:
    dest = opened()
    before = dest.lake.tables[IDENT].refs[MAIN]
    dest.write_branch(IDENT, BRANCH, [append(dest, 1, 1)], stamp(20))
    dest.publish(IDENT, BRANCH, stamp(20))
    dest.create_branch(IDENT, "pgsub_2", before)
    assert dest.lake.rows(IDENT, "pgsub_2") == []
    dest.drop_branches(IDENT, keep="pgsub_2")
    assert set(dest.lake.tables[IDENT].refs) == {MAIN, "pgsub_2"}
    dest.rollback(IDENT, before)
    assert dest.lake.rows(IDENT) == []
    with pytest.raises(ReplicationError, match="has no snapshot"):
        dest.rollback(IDENT, 10**9)


def test_a_table_or_branch_that_is_not_there_is_an_error_with_its_name() -> None:
    dest = opened()
    with pytest.raises(UndefinedTable, match=r"s\.u"):
        dest.fence(LakeIdent("s", "u"))
    with pytest.raises(ReplicationError, match='branch "no" of lake table'):
        dest.write_branch(IDENT, "no", [append(dest, 1, 1)], stamp(20))
