"""Files of a commit: who removes data files written before, and whose the noted deletes are."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from catalog.errcodes import DISK_FULL, IoError, RequiredProcessGone
from config.monitor_limits import CONFIRMED_FILE_SECONDS
from tests.workers.lake.contract import (
    PUBLISHED,
    Make,
    append,
    merge,
    stamp,
)
from tests.workers.lake.files.layouts import IDENT
from tests.workers.lake.files.test_small_batch import TENS, TIP, TWENTIES, layout
from tests.workers.lake.watched import Watched, delete, update
from workers.lake.api.table_api import GatewayTableApi
from workers.lake.effects import Counts
from workers.lake.files import branch_commit, segment_writer
from workers.lake.files.branch_commit import BranchCommits, CommitParts
from workers.lake.files.branch_files import BranchFiles
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.position_deletes import read_deletes
from workers.lake.interfaces.table_api import FileChange, FileTotals
from workers.lake.segment import Segment
from workers.lake.staged_rows import (
    FileList,
    LayoutId,
    LiveFile,
    NewFile,
    OwnFiles,
    Staged,
    joined_files,
)
from workers.lake.storage.local_path import local_path
from workers.lake.storage.local_store import LocalStore
from workers.lake.table import LakeIdent


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    return Watched(iceberg(local_relation_rows=10), lake_ident)


MANY = [(n, "x", None) for n in range(20)]


def test_files_that_no_commit_was_given_are_removed(table: Watched) -> None:
    before = table.on_disk()
    staged = table.own_rows(MANY)
    assert len(table.on_disk()) == len(before) + 1
    table.dest.discard(staged)
    table.dest.discard(staged)
    assert table.on_disk() == before
    # Nor is one that failed before there was anything to commit.
    table.batch([append(table.dest, [(50, "a", None)] * 2)], 20)
    before = table.on_disk()
    staged = table.own_rows(MANY)
    table.refused([replace(merge(table.dest, [update(50)]), append=staged)])
    table.dest.discard(staged)
    assert table.on_disk() == before


def test_files_that_a_commit_was_given_stay_and_may_be_given_again(
    table: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What became of the first commit is not known, or its branch is not published."""

    def lost(*args: Any, **more: Any) -> None:
        raise RequiredProcessGone("lost")

    staged = table.own_rows(MANY)
    segments = [Segment(PUBLISHED, ("id",), append=staged)]
    with monkeypatch.context() as patch:
        patch.setattr(GatewayTableApi, "commit_files", lost)
        table.refused(segments)
    table.dest.discard(staged)
    assert table.dest.write(table.ident, table.branch(), segments, stamp(20)).appended == 20
    table.dest.drop_branches(table.ident)
    assert table.batch(segments, 30) == Counts(appended=20)
    table.dest.discard(staged)
    table.dest.discard(staged)
    assert [row[:3] for row in table.rows()] == MANY
    # Under another name each time. The dropped branch took its file along.
    assert len(table.on_disk()) == 2
    [(shown,)] = table.query("file_path", "data_files")
    table.dest.drop_branches(table.ident)
    for path in table.on_disk() - {local_path(shown).name}:
        (local_path(shown).parent / path).unlink()
    assert len(table.rows()) == 20


@pytest.mark.parametrize("cheap", [True, False], ids=["local disk", "object store"])
def test_deletes_written_beside_rows_that_fail_are_removed(
    table: Watched, monkeypatch: pytest.MonkeyPatch, *, cheap: bool
) -> None:
    table.batch([append(table.dest, [(50, "a", None), (51, "b", None)])], 20)
    monkeypatch.setattr(LocalStore, "has_cheap_requests", cheap)
    before = table.on_disk()

    def full(*_: object) -> None:
        raise IoError("no room", sqlstate=DISK_FULL)

    with monkeypatch.context() as patch:
        patch.setattr(segment_writer, "write_ahead", full)
        assert table.refused([merge(table.dest, [update(50), delete(51)])]).code == DISK_FULL
    assert table.on_disk() == before
    table.batch([merge(table.dest, [update(50), delete(51)])], 30)
    assert [row[0] for row in table.rows()] == [50]


@pytest.fixture
def one_waits_for_the_other() -> Iterator[None]:
    """The thread of the tens stops before it notes its positions, until the other has ended."""
    source = Path(branch_commit.__file__).read_text().splitlines()
    done, appended = threading.Event(), threading.Event()

    def local(frame: Any, event: str, arg: Any) -> Any:
        mine = frame.f_locals.get("place")
        line = source[frame.f_lineno - 1].strip()
        if event == "line" and mine == TENS and line.startswith("contents["):
            appended.set()
            done.wait(10)
        if event == "line" and mine == TWENTIES and line.startswith("written.append"):
            appended.wait(10)
        if event == "return" and mine == TWENTIES:
            done.set()
        return local

    def trace(frame: Any, event: str, arg: Any) -> Any:
        code = frame.f_code
        ours = code.co_name == "write" and code.co_filename == branch_commit.__file__
        return local if ours else None

    threading.settrace(trace)
    yield
    threading.settrace(None)


@pytest.mark.usefixtures("one_waits_for_the_other")
def test_the_positions_of_a_delete_file_are_noted_as_its_own(tmp_path: Path) -> None:
    """Under another file's name they would take its place, and its deleted rows come back."""
    files, branch = layout(tmp_path), BranchFiles()
    live = (LiveFile("m", 3, place=TENS, size=5), LiveFile("t", 3, place=TWENTIES, size=5))
    branch.listed = FileList(TIP, live)
    nobody: Any = None
    target = BranchCommits(nobody, IDENT, "b", files, branch, DeletedRowsCache())
    parts = CommitParts(deleted=[{"m": np.array([1]), "t": np.array([0])}])
    deletes = target.write_deletes(parts, TIP)
    for file, _ in deletes.files:
        written = {path: each.tolist() for path, each in read_deletes(files.store, file).items()}
        held = {path: each.tolist() for path, each in deletes.contents[file.path].items()}
        assert held == written


def test_a_commit_asks_an_object_store_for_old_staged_files_alone(tmp_path: Path) -> None:
    """Nobody else removes a file of a moment ago; a file of hours ago may have been removed."""
    asked: list[set[str]] = []
    layout_id = LayoutId("uuid", 0, 0, 2)

    def commit(ident: LakeIdent, name: str, change: FileChange, what: str) -> FileTotals:
        del ident, name, what
        asked.append({file.path for file in change.added} - set(change.stored))
        return FileTotals(1, 0, TIP, None)

    def staged(path: str, age: float) -> Staged:
        own = OwnFiles(
            (NewFile(path, 1, 1),), layout_id, lambda _: None, since=time.monotonic() - age
        )
        return Staged(1, own=own)

    bucket: Any = SimpleNamespace(has_cheap_requests=False)
    files = replace(layout(tmp_path), store=bucket)
    commits: Any = SimpleNamespace(commit_files=commit)
    target = BranchCommits(commits, IDENT, "b", files, BranchFiles(), DeletedRowsCache())
    young, old = staged("young", 1), staged("old", CONFIRMED_FILE_SECONDS + 1)
    both = joined_files(staged("young", 1), staged("old", CONFIRMED_FILE_SECONDS + 1))
    assert both is not None
    for each in (young, old, both):
        assert each.own is not None
        target.commit(CommitParts(files=list(each.own.files), staged=[each.own]), {})
    assert asked == [set(), {"old"}, {"young", "old"}]
