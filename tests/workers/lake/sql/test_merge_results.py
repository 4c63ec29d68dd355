from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import Policy, ReplicationError, policy
from workers.lake.effects import Counts, Effect, Merge
from workers.lake.sql.merge_results import count
from workers.lake.table import LakeIdent

A, B = LakeIdent("s", "a"), LakeIdent("s", "b")


class Summaries:
    """In a session's place: the snapshots of all tables, and what was asked of them."""

    def __init__(self, *rows: tuple[str | None, ...]) -> None:
        self.rows = rows
        self.asked: list[str] = []

    def query(self, sql: str, what: str) -> pa.Table:
        assert what.startswith("reading the outcome")
        self.asked.append(sql)
        columns = [pa.array([row[n] for row in self.rows], pa.string()) for n in range(8)]
        return pa.table(columns, [f"c{n}" for n in range(8)])


def counted(lake: Summaries, *effects: Effect) -> list[Counts]:
    session: Any = lake
    return count(lambda: session, effects)


def test_several_tables_are_one_question() -> None:
    lake = Summaries(
        ("b-1", "2", "0", None, "10", "2", None, None),
        ("a-2", "7", "4", "3", "30", "9", None, None),
        ("a-1", "1", None, "1", "29", "6", None, None),
    )
    of_a = Effect(A, "x", Counts(appended=5), (Merge(2, 2, ("id",), "a-1"), Merge(4, 3, (), "a-2")))
    of_b = Effect(B, "x", Counts(update_origin_differs=1), (Merge(2, 0, ("id",), "b-1"),))
    first, second = counted(lake, of_a, of_b)
    assert first == Counts(appended=5, merged=4, update_missing=1, delete_missing=1)
    assert (first.rows, first.deleted) == (30, 9)
    assert second == Counts(merged=2, update_origin_differs=1)
    (sql,) = lake.asked
    assert sql.count("UNION ALL") == 1
    assert all(name in sql for name in ("'a-1', 'a-2'", "'b-1'"))


def test_nothing_is_asked_where_nothing_was_merged() -> None:
    def session() -> Any:
        raise AssertionError("a session was asked for")

    assert count(session, [Effect(A, "x", Counts(appended=5))]) == [Counts(appended=5)]


@pytest.mark.parametrize(
    ("added", "removed", "updated", "deleted", "matched"),
    [
        ("5", None, None, None, 5),  # as Spark before 4.1 tells it
        ("9", "4", "3", "2", 5),
        ("13", "4", "3", "2", 5),  # two tasks, each rewrote the old deletes
        ("9", "4", "6", "4", 5),  # a task was run again
        (None, None, None, None, 0),
    ],
)
def test_the_smaller_figure_counts(
    added: str | None, removed: str | None, updated: str | None, deleted: str | None, matched: int
) -> None:
    lake = Summaries(("a-1", added, removed, None, "10", "0", updated, deleted))
    (found,) = counted(lake, Effect(A, "x", Counts(), (Merge(6, 0, ("id",), "a-1"),)))
    assert found == Counts(merged=matched, delete_missing=6 - matched)


def test_a_key_that_is_there_twice_is_said_of_its_table() -> None:
    lake = Summaries(
        ("a-1", "1", None, None, "10", "1", None, None),
        ("b-1", "2", None, None, "10", "2", None, None),
    )
    effects = [
        Effect(each, "x", Counts(), (Merge(1, 0, ("id",), f"{each.table}-1"),)) for each in (A, B)
    ]
    with pytest.raises(ReplicationError) as error:
        counted(lake, *effects)
    assert error.value.primary == 'key (id) is not unique in lake table "s.b"'
    assert error.value.detail == "1 keys matched 2 rows."


def test_where_a_commit_is_gone_the_batch_is_tried_again() -> None:
    lake = Summaries()
    with pytest.raises(ReplicationError, match="cannot be found again") as error:
        counted(lake, Effect(A, "x", Counts(), (Merge(1, 0, ("id",), "a-1"),)))
    assert policy(error.value.code) is Policy.RETRY
