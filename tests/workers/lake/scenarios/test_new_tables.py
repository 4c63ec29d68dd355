"""The requests of a copy's first steps: table, layout, branch, first commit; no server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError

from tests.workers.lake.api.one_table import (
    BATCH,
    BEFORE,
    BRANCH,
    FENCE,
    UNKNOWN,
    Answer,
    OneTable,
    T,
    at_first,
)
from workers.lake.api import loaded_tables
from workers.lake.api.java_api import BRANCH_AGE_MS
from workers.lake.api.loaded_tables import LoadedTables
from workers.lake.api.manifest_lists import ManifestLists
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.staged_rows import LayoutId
from workers.lake.table import MAIN

COPY = "pgsub_2_1_1"
TOTALS = FileTotals(0, 0, 1, None)
CHANGE = FileChange(LayoutId("uuid", 0, 0, 2))


@pytest.fixture
def lake() -> Any:
    return OneTable()


def created(lake: Any) -> LoadedTables:
    """Behind the creation of the table; ``asked`` is what is asked from now on."""
    tables = LoadedTables()
    tables.created(lake, T, "the transaction")
    lake.asked.clear()
    return tables


def test_a_rest_catalog_brings_the_new_table_and_others_are_asked(lake: Any) -> None:
    tables = LoadedTables()
    tables.created(lake, T, "the transaction")
    assert lake.asked == []
    lake.answers_with_state = False
    tables.created(lake, T, "the transaction")
    assert lake.asked == ["load"]


def test_a_new_table_is_read_by_nobody_for_layout_and_branch(lake: Any) -> None:
    tables = created(lake)
    with tables.lent(lake, T) as table:
        assert table.current() == lake.state
    tables.create_branch(lake, T, COPY, BEFORE)
    assert lake.asked == ["commit"]
    assert lake.state.refs == {MAIN: BEFORE, BRANCH: BEFORE, COPY: BEFORE}
    assert COPY in lake.state.ours


def test_a_branch_that_came_with_the_table_costs_nothing(lake: Any) -> None:
    tables = created(lake)
    tables.create_branch(lake, T, BRANCH, BEFORE)
    assert lake.asked == []


def test_a_branch_elsewhere_is_replaced(lake: Any) -> None:
    lake.add_to_main()
    tables = created(lake)
    tables.create_branch(lake, T, BRANCH, FENCE)
    assert (lake.state.refs[BRANCH], lake.asked) == (FENCE, ["commit"])


def test_a_branch_of_another_client_is_made_ours(lake: Any) -> None:
    """At the same snapshot, but without the age that marks a branch of pgsub."""
    lake.state = replace(lake.state, ours=frozenset())
    tables = created(lake)
    tables.create_branch(lake, T, BRANCH, BEFORE)
    assert (lake.state.ours, lake.asked) == ({BRANCH}, ["commit"])


@pytest.mark.parametrize(
    ("at", "expected", "asked"),
    [
        (FENCE, FENCE, ["load", "commit"]),
        (BEFORE, BEFORE, ["commit", "load", "commit"]),
        (None, FENCE, ["load", "commit"]),
    ],
    ids=["the known state lacks the snapshot", "the catalog refuses the state", "newest of main"],
)
def test_what_somebody_has_committed_since_is_read(
    lake: Any, at: int | None, expected: int, asked: list[str]
) -> None:
    tables = created(lake)
    lake.add_to_main()
    tables.create_branch(lake, T, COPY, at)
    assert (lake.state.refs[COPY], lake.asked) == (expected, asked)


def test_a_lost_answer_is_followed_by_a_look(lake: Any) -> None:
    tables = created(lake)
    lake.answers = [Answer(UNKNOWN, effect="at once")]
    tables.create_branch(lake, T, COPY, BEFORE)
    assert (lake.state.refs[COPY], lake.asked) == (BEFORE, ["commit", "load"])


def test_the_first_commit_needs_no_look_and_says_that_the_state_is_a_known_one(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    known: list[bool] = []

    def commit(*of: Any) -> FileTotals:
        known.append(of[-1])
        return TOTALS

    monkeypatch.setattr(loaded_tables, "commit_files", commit)
    tables = created(lake)
    tables.create_branch(lake, T, COPY, BEFORE)
    lake.asked.clear()
    tables.commit_files(lake, T, COPY, CHANGE)
    assert (known, lake.asked) == ([True], [])
    tables.forget(T)
    tables.commit_files(lake, T, COPY, CHANGE)
    assert (known, lake.asked) == ([True, False], ["load"])


def test_an_object_whose_reading_failed_is_not_used_again(lake: Any) -> None:
    tables = created(lake)
    with pytest.raises(Py4JJavaError), tables.lent(lake, T):
        raise Py4JJavaError("failed", SimpleNamespace(_target_id="o1"))
    with tables.lent(lake, T):
        assert lake.asked == ["load"]


def test_the_list_of_the_first_snapshot_is_read_while_rows_arrive(
    lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once: behind the creation of the branch, and only if the answer brought the state."""
    read: list[str] = []
    monkeypatch.setattr(
        ManifestLists,
        "read",
        lambda _self, snapshot, _io: read.append(snapshot.manifestListLocation()),
    )
    created(lake).create_branch(lake, T, BRANCH, BEFORE)
    assert read == ["list 0"]
    lake.answers_with_state = False
    created(lake).create_branch(lake, T, COPY, BEFORE)
    assert read == ["list 0"]


def test_a_table_without_a_snapshot_gets_a_branch_all_the_same(lake: Any) -> None:
    """Made by Spark for a user who has the table adopted."""
    made: list[tuple[Any, ...]] = []

    def aged(*of: Any) -> Any:
        return SimpleNamespace(commit=lambda: made.append(of))

    new = SimpleNamespace(setMaxRefAgeMs=aged)
    empty = SimpleNamespace(
        currentSnapshot=lambda: None,
        manageSnapshots=lambda: SimpleNamespace(createBranch=lambda _name: new),
    )
    lake.load = lambda _ident: empty
    LoadedTables().create_branch(lake, T, COPY, None)
    assert made == [(COPY, BRANCH_AGE_MS)]


def test_the_state_at_first_has_the_branch() -> None:
    """The tests above rely on it."""
    assert at_first().refs == {MAIN: BEFORE, BRANCH: BEFORE}
    assert replace(at_first(), refs={}).ref(BRANCH) is None
    assert BATCH not in at_first().snapshots
