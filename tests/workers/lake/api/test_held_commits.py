"""The last commit of a batch that waits for the publication: made once, or given up; no server."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JJavaError

from catalog.errcodes import ReplicationError, SerializationFailure
from tests.workers.lake.api.one_table import (
    BATCH,
    BEFORE,
    BRANCH,
    FENCE,
    INVALID,
    REFUSED,
    UNKNOWN,
    Answer,
    OneTable,
    State,
    T,
    at_first,
    hold,
    java_error,
    new_snapshot,
)
from workers.lake.api import snapshot_commits
from workers.lake.api.held_commits import HeldCommit, check_main, main_below, unpublished
from workers.lake.table import MAIN

BOTH = {MAIN: BATCH, BRANCH: BATCH}


@pytest.fixture(autouse=True)
def _pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(snapshot_commits, "time", SimpleNamespace(sleep=lambda _seconds: None))


@pytest.fixture
def lake() -> OneTable:
    return OneTable()


@pytest.fixture
def held(lake: OneTable) -> HeldCommit:
    """A held commit; ``asked`` is what is asked from now on."""
    commit = hold(lake, lake.load(T))
    lake.asked.clear()
    return commit


def state(main: int | None, branch: int | None, *, ours: bool = True) -> State:
    at = {MAIN: main, BRANCH: branch}
    refs = {name: each for name, each in at.items() if each is not None}
    return replace(at_first(), refs=refs, ours=frozenset({BRANCH} if ours else ()))


# -- which commits are held -----------------------------------------------------------------------


def above(base: State, *made: tuple[int, int, str]) -> State:
    """More snapshots of the branch: each one's id, parent and operation."""
    for snapshot_id, parent, operation in made:
        snapshot = new_snapshot(snapshot_id, parent, "a list", operation)
        base = base.with_snapshot(snapshot, BRANCH)
    return base


@pytest.mark.parametrize(
    ("base", "expected"),
    [
        (state(BEFORE, BEFORE), BEFORE),
        (state(BEFORE, BATCH), None),
        (above(state(BEFORE, BEFORE), (7, BEFORE, "overwrite")), None),
        (above(state(BEFORE, BEFORE), (7, BEFORE, "replace")), BEFORE),
        (above(state(BEFORE, BEFORE), (7, BEFORE, "replace"), (8, 7, "replace")), BEFORE),
        (above(state(BEFORE, BEFORE), (7, BEFORE, "append"), (8, 7, "replace")), None),
        (above(state(FENCE, BEFORE), (7, BEFORE, "replace")), None),
        (above(state(BEFORE, BEFORE, ours=False), (7, BEFORE, "replace")), None),
        (state(FENCE, BEFORE), None),
        (state(BEFORE, BEFORE, ours=False), None),
        (state(BEFORE, None), None),
        (state(None, BEFORE), None),
    ],
    ids=[
        "main is at it",
        "a commit that is not known",
        "commits before",
        "compaction",
        "compaction twice",
        "commits before and compaction",
        "compaction, and a fence",
        "compaction, and made anew",
        "a fence",
        "made anew",
        "no branch",
        "no main",
    ],
)
def test_a_commit_is_held_where_main_has_the_rows_of_the_branch(
    base: State, expected: int | None
) -> None:
    assert main_below(base, BRANCH) == expected


def test_main_that_is_where_it_was_is_set() -> None:
    check_main(T, state(BEFORE, BEFORE), BRANCH, BEFORE)


@pytest.mark.parametrize(
    ("base", "words"),
    [
        (state(FENCE, BEFORE), "main was moved"),
        (state(None, BEFORE), "main was moved"),
        (state(BEFORE, BEFORE, ours=False), "changed meanwhile"),
        (state(BEFORE, None), "changed meanwhile"),
    ],
    ids=["a fence", "no main", "made anew", "no branch"],
)
def test_main_or_a_branch_that_is_not_as_it_was_is_refused(base: State, words: str) -> None:
    with pytest.raises(ReplicationError, match=words) as refused:
        check_main(T, base, BRANCH, BEFORE)
    assert refused.value.code == "40001"


def test_a_batch_that_nobody_published_is_an_internal_error() -> None:
    assert unpublished(T).code == "XX000"
    assert str(T) in unpublished(T).primary


# -- publishing one table -------------------------------------------------------------------------


def test_the_publication_is_one_request(lake: OneTable, held: HeldCommit) -> None:
    assert lake.state.refs == {MAIN: BEFORE, BRANCH: BEFORE}, "a held commit is in no catalog"
    assert held.publish() == BATCH
    assert (lake.state.refs, lake.asked, lake.lists) == (BOTH, ["commit"], {"list 1"})
    assert lake.state.snapshots[BATCH].parentId() == BEFORE


def test_an_old_state_is_read_and_the_batch_written_again(lake: OneTable, held: HeldCommit) -> None:
    lake.add_branch()
    assert held.publish() == BATCH
    assert lake.state.refs == {**BOTH, "another": BEFORE}
    assert lake.asked == ["commit", "read", "read", "commit"]
    assert lake.lists == {lake.named_list()}


def test_behind_a_fence_nothing_is_published(lake: OneTable, held: HeldCommit) -> None:
    lake.add_to_main()
    with pytest.raises(ReplicationError, match="main was moved") as refused:
        held.publish()
    assert refused.value.code == "40001"
    assert lake.state.refs == {MAIN: FENCE, BRANCH: BEFORE}


@pytest.mark.parametrize("error", [UNKNOWN, REFUSED, INVALID])
def test_a_publication_that_took_effect_is_found(
    lake: OneTable, held: HeldCommit, error: str
) -> None:
    """The answer was lost, or was that to the second one of two equal requests."""
    lake.answers = [Answer(error, "at once")]
    if error == UNKNOWN:
        with pytest.raises(Py4JJavaError):
            held.publish()
    assert held.publish() == BATCH
    assert (lake.state.refs, lake.named_list()) == (BOTH, "list 1")
    assert lake.asked == ["commit", "read"]
    assert lake.lists == {"list 1"}


def test_a_catalog_that_moved_the_branch_alone_has_not_published(
    lake: OneTable, held: HeldCommit
) -> None:
    """The snapshot is in the table, and main is not there."""
    lake.answers = [Answer(UNKNOWN, "at once")]
    with pytest.raises(Py4JJavaError):
        held.publish()
    lake.state = replace(lake.state, refs={MAIN: BEFORE, BRANCH: BATCH})
    with pytest.raises(SerializationFailure, match="main was moved"):
        held.publish()


def test_a_state_that_the_check_refuses_is_never_committed_on(
    lake: OneTable, held: HeldCommit
) -> None:
    """Else a second call would set main from the fence to a snapshot that is no child of it."""
    lake.answers = [Answer(REFUSED)]
    lake.add_to_main()
    for _ in range(2):
        with pytest.raises(SerializationFailure):
            held.publish()
    assert lake.state.refs[MAIN] == FENCE


def test_a_publication_without_effect_is_made_again(lake: OneTable, held: HeldCommit) -> None:
    lake.answers = [Answer(UNKNOWN)]
    with pytest.raises(Py4JJavaError):
        held.publish()
    assert held.publish() == BATCH
    assert lake.state.refs == BOTH
    assert lake.lists == {lake.named_list()}


def test_the_list_of_a_late_publication_stays(lake: OneTable, held: HeldCommit) -> None:
    """The first request takes effect behind the second reading, and refuses the second request."""
    lake.answers = [Answer(UNKNOWN, "late")]
    with pytest.raises(Py4JJavaError):
        held.publish()
    assert held.publish() == BATCH
    assert (lake.state.refs, lake.named_list()) == (BOTH, "list 1")
    assert lake.lists == {"list 1"}


# -- the change of a call for several tables ------------------------------------------------------


def test_the_first_change_asks_nobody(lake: OneTable, held: HeldCommit) -> None:
    change = held.change()
    assert lake.asked == []
    assert change is not None
    change()
    assert lake.state.refs == BOTH


def test_behind_a_call_the_batch_is_written_again(lake: OneTable, held: HeldCommit) -> None:
    held.change()
    lake.add_branch()
    change = held.change()
    assert lake.asked == ["read", "read"]
    assert change is not None
    change()
    assert lake.state.refs == {**BOTH, "another": BEFORE}
    assert lake.named_list() == "list 2"


def test_behind_a_call_that_took_effect_there_is_no_change(
    lake: OneTable, held: HeldCommit
) -> None:
    change = held.change()
    assert change is not None
    change()
    assert held.change() is None
    held.snapshot.remove_useless()
    assert lake.lists == {lake.named_list()} == {"list 1"}


def test_behind_a_call_and_a_fence_there_is_no_change(lake: OneTable, held: HeldCommit) -> None:
    held.change()
    lake.add_to_main()
    with pytest.raises(ReplicationError, match="main was moved"):
        held.change()


# -- giving up ------------------------------------------------------------------------------------


def test_what_is_given_up_leaves_no_manifest(lake: OneTable, held: HeldCommit) -> None:
    assert not held.is_in(lake.state)
    held.discard()
    assert (lake.asked, lake.lists) == (["read"], set())


def test_manifests_that_the_table_names_stay(lake: OneTable, held: HeldCommit) -> None:
    """The answer to the publication was lost, and the worker gave the batch up."""
    lake.answers = [Answer(UNKNOWN, "at once")]
    with pytest.raises(Py4JJavaError):
        held.publish()
    assert held.is_in(lake.state)
    held.discard()
    assert lake.lists == {lake.named_list()}


def test_manifests_stay_where_the_table_cannot_be_read(
    lake: OneTable, held: HeldCommit, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refresh() -> None:
        raise java_error("java.io.IOException")

    monkeypatch.setattr(held.snapshot.table, "refresh", refresh)
    held.discard()
    assert lake.lists == {"list 1"}
