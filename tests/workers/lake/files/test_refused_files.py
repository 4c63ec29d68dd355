"""The files of commits that the lake refused: who removes them, and when."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import IoError, ReplicationError, RequiredProcessGone
from tests.workers.lake.contract import Make, append, merge, stamp
from tests.workers.lake.watched import Watched, update, with_rows
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.connect.errors import LakeFailure
from workers.lake.files.refused_files import RefusedFiles
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.staged_rows import LayoutId, NewFile
from workers.lake.table import LakeIdent

T = LakeIdent("public", "t")
CHANGE = FileChange(
    LayoutId("uuid", 0, 0, 2), added=[NewFile("a", 1, 1)], added_deletes=[NewFile("d", 1, 1)]
)


class Commits:
    """A lake with the same answer to every commit."""

    def __init__(self, answer: ReplicationError | FileTotals) -> None:
        self.answer, self.removed = answer, list[str]()
        self.told: list[tuple[str, ...]] = []

    def commit_files(self, *given: object) -> FileTotals:
        if isinstance(self.answer, ReplicationError):
            raise self.answer
        return self.answer

    def forget(self, ident: LakeIdent) -> None:
        self.told.append(("forget", ident.table))

    def published(self, ident: LakeIdent, branch: str) -> None:
        self.told.append(("published", ident.table, branch))

    def remove_files(self, ident: LakeIdent, files: list[str]) -> int:
        assert ident == T
        self.removed += files
        return len(files)


def unknown() -> LakeFailure:
    error = LakeFailure("failed")
    error.message = "org.apache.iceberg.exceptions.CommitStateUnknownException: 503"
    return error


@pytest.mark.parametrize(
    ("error", "removed", "later"),
    [
        (IoError("full"), ["a", "d"], []),
        (LakeFailure("refused"), ["a", "d"], []),
        (RequiredProcessGone("lost"), [], []),
        (unknown(), [], ["a", "d"]),
    ],
)
def test_only_an_answer_takes_the_files_along(
    error: ReplicationError, removed: list[str], later: list[str]
) -> None:
    """A refusal at once, an unknown outcome behind the branch."""
    lake: Any = Commits(error)
    commits = RefusedFiles(lake)
    with pytest.raises(type(error)):
        commits.commit_files(T, "b", CHANGE, "writing")
    commits.remove_refused(LakeIdent("public", "other"))
    assert lake.removed == []
    commits.remove_refused(T)
    commits.remove_refused(T)
    assert lake.removed == removed
    commits.remove_undecided(T, ["another"])
    assert lake.removed == removed
    for _ in range(2):
        commits.remove_undecided(T, ["b"])
        assert lake.removed == removed + later


MADE = FileTotals(1, 0, 5, 4)
HELD = replace(MADE, held=True)


def committed(answer: FileTotals) -> tuple[Any, RefusedFiles]:
    lake: Any = Commits(answer)
    commits = RefusedFiles(lake)
    assert commits.commit_files(T, "b", CHANGE, "writing") == answer
    return lake, commits


def test_the_files_of_a_held_commit_go_with_the_branch() -> None:
    lake, commits = committed(HELD)
    commits.remove_refused(T)
    commits.remove_undecided(T, ["another"])
    commits.remove_undecided(LakeIdent("public", "other"), ["b"])
    assert lake.removed == []
    for _ in range(2):
        commits.remove_undecided(T, ["another", "b"])
        assert lake.removed == ["a", "d"]


def test_the_files_of_a_published_commit_stay() -> None:
    """A lookup of the names in the table's snapshots would cost as much as a commit."""
    lake, commits = committed(HELD)
    commits.published(T, "b")
    commits.published(T, "b")
    commits.remove_undecided(T, ["b"])
    assert lake.removed == []


def test_another_publication_leaves_the_files_of_a_held_commit() -> None:
    lake, commits = committed(HELD)
    commits.published(T, "another")
    commits.published(LakeIdent("public", "other"), "b")
    commits.remove_undecided(T, ["b"])
    assert lake.removed == ["a", "d"]


def test_the_files_of_a_commit_that_was_made_stay() -> None:
    lake, commits = committed(MADE)
    commits.remove_undecided(T, ["b"])
    assert lake.removed == []


def test_a_held_commit_does_not_hide_an_unknown_outcome() -> None:
    lake, commits = committed(HELD)
    lake.answer = unknown()
    other = replace(CHANGE, added=[NewFile("e", 1, 1)], added_deletes=[])
    with pytest.raises(LakeFailure):
        commits.commit_files(T, "b", other, "writing")
    commits.published(T, "b")
    commits.remove_undecided(T, ["b"])
    assert lake.removed == ["e"]


def test_the_lake_is_told_what_to_forget_and_what_is_published() -> None:
    lake, commits = committed(MADE)
    commits.forget(T)
    commits.published(T, "b")
    assert lake.told == [("forget", "t"), ("published", "t", "b")]


@pytest.mark.spark
@pytest.mark.parametrize("error", [IoError("No space left on device"), unknown()])
def test_attempts_whose_commits_are_refused_leave_no_file(
    iceberg: Make,
    lake_ident: LakeIdent,
    monkeypatch: pytest.MonkeyPatch,
    error: ReplicationError,
) -> None:
    """A full disk would become fuller with every attempt."""
    table = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 20)
    before = table.on_disk()

    def full(*args: Any, **more: Any) -> None:
        raise error

    for _ in range(3):
        staged = table.own_rows([(n, "x", None) for n in range(30, 60)])
        with monkeypatch.context() as patch:
            patch.setattr(GatewayTableApi, "commit_files", full)
            table.refused([merge(table.dest, [update(5)])])
            table.refused([replace(append(table.dest, [(70, "y", None)]), append=staged)])
        table.dest.discard(staged)
        assert len(table.on_disk()) > len(before)
        table.dest.drop_branches(table.ident)
        assert table.on_disk() == before
    assert len(table.rows()) == 20


@pytest.mark.spark
def test_a_commit_that_took_effect_before_its_error_keeps_its_files(
    iceberg: Make, lake_ident: LakeIdent, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 20)
    commit = GatewayTableApi.commit_files

    def late(*args: Any, **more: Any) -> None:
        commit(*args, **more)
        raise LakeFailure("an error behind the commit")

    branch = table.branch()
    with monkeypatch.context() as patch:
        patch.setattr(GatewayTableApi, "commit_files", late)
        with pytest.raises(LakeFailure):
            table.dest.write(
                table.ident, branch, [append(table.dest, [(70, "y", None)])], stamp(30)
            )
    table.dest.drop_branches(table.ident, keep=branch)
    assert table.query("count(*)", f"branch_{branch}") == [(21,)]
