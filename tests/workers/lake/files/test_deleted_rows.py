"""Bits of deleted rows: what is remembered, and for how long; no server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from catalog.errcodes import IoError, ReplicationError
from tests.workers.lake.files.layouts import deleting, known, metadata, places
from workers.lake.files import deleted_rows
from workers.lake.files.branch_files import Deletes, after_commit
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.position_deletes import RowPositions, read_deletes, write_deletes
from workers.lake.files.read_rows import Unreadable
from workers.lake.files.table_layout import TableLayout
from workers.lake.interfaces.table_api import FileTotals
from workers.lake.staged_rows import FileList, LiveFile, NewFile
from workers.lake.storage.local_path import local_path
from workers.lake.storage.local_store import LocalStore
from workers.lake.storage.store import TableStore


@pytest.fixture
def table(tmp_path: Path) -> TableLayout:
    return known(metadata(location=str(tmp_path)))


def living(dead: DeletedRowsCache, file: LiveFile) -> list[int]:
    found = dead.live_mask(LocalStore(), file, np.arange(file.rows))
    return np.flatnonzero(found).tolist()


@pytest.mark.parametrize("rows", [1, 7, 8, 9, 20])
def test_a_row_is_dead_that_one_of_the_files_names(table: TableLayout, rows: int) -> None:
    file = LiveFile("a", rows, deleting(table, "a", [0], [rows - 1, rows // 2]))
    assert living(DeletedRowsCache(), file) == sorted(set(range(rows)) - {0, rows - 1, rows // 2})
    assert living(DeletedRowsCache(), replace(file, deletes=())) == list(range(rows))
    assert living(DeletedRowsCache(), replace(file, path="b")) == list(range(rows))


def test_no_file_is_read_twice_as_long_as_there_is_room(table: TableLayout) -> None:
    files = [LiveFile(each, 80, (write_deletes(table, {each: places(3)}),)) for each in "abc"]
    dead = DeletedRowsCache(max_bytes=20)
    for file in files:
        assert 3 not in living(dead, file)
        assert dead._bytes <= 20
    for file in files:
        local_path(file.deletes[0].path).unlink()
    assert [3 in living(dead, file) for file in files[1:]] == [False, False]
    with pytest.raises(ReplicationError):
        living(dead, files[0])
    alone = DeletedRowsCache(max_bytes=0)
    alone._put(files[0], np.zeros(10, np.uint8))
    assert len(alone._entries) == 1


def test_deletes_of_several_data_files_are_read_once(table: TableLayout) -> None:
    shared = write_deletes(table, {each: places(n) for n, each in enumerate("abc")})
    dead = DeletedRowsCache()
    assert living(dead, LiveFile("a", 3, (shared,))) == [1, 2]
    local_path(shared.path).unlink()
    assert living(dead, LiveFile("b", 3, (shared,))) == [0, 2]
    assert living(dead, LiveFile("c", 3, (shared,))) == [0, 1]


def test_deletes_of_several_data_files_are_read_once_by_many_threads(
    table: TableLayout, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two delete files are read at the same time, each once, however many ask for them."""
    shared = [write_deletes(table, {f"{name}{n}": places(n) for n in range(4)}) for name in "ab"]
    both = threading.Barrier(2, timeout=30)
    read: list[str] = []

    def slow(store: TableStore, file: NewFile) -> RowPositions:
        both.wait()
        read.append(file.path)
        return read_deletes(store, file)

    monkeypatch.setattr(deleted_rows, "read_deletes", slow)
    dead = DeletedRowsCache()
    files = [
        LiveFile(f"{name}{n}", 5, (of,))
        for name, of in zip("ab", shared, strict=True)
        for n in range(4)
    ]
    with ThreadPoolExecutor(len(files)) as pool:
        found = list(pool.map(lambda file: living(dead, file), files))
    assert found == [[row for row in range(5) if row != n % 4] for n in range(8)]
    assert sorted(read) == sorted(each.path for each in shared)


def test_deletes_that_could_not_be_read_are_read_again(table: TableLayout) -> None:
    shared = write_deletes(table, {each: places(1) for each in "ab"})
    content = local_path(shared.path).read_bytes()
    dead = DeletedRowsCache()
    local_path(shared.path).unlink()
    with pytest.raises(IoError):
        living(dead, LiveFile("a", 3, (shared,)))
    local_path(shared.path).write_bytes(content)
    assert living(dead, LiveFile("a", 3, (shared,))) == [0, 2]


def test_other_deletes_are_read_anew(table: TableLayout) -> None:
    """Somebody else's: nothing is taken from what is known of the same data file."""
    one, two = deleting(table, "a", [1], [2])
    dead = DeletedRowsCache()
    assert living(dead, LiveFile("a", 4, (one,))) == [0, 2, 3]
    assert living(dead, LiveFile("a", 4, (two,))) == [0, 1, 3]
    assert living(dead, LiveFile("a", 4, (one, two))) == [0, 3]
    assert living(dead, LiveFile("a", 4, (two, one))) == [0, 3]


def test_a_commit_of_ours_is_known_without_reading(table: TableLayout) -> None:
    """Files before and behind it, those that it replaces, and a data file that it leaves alone."""
    (old,) = deleting(table, "a", [1])
    first = LiveFile("a", 9, (old,))
    before = FileList(7, (first, LiveFile("b", 9), LiveFile("c", 9)))
    dead = DeletedRowsCache()
    assert living(dead, first) == [0, 2, 3, 4, 5, 6, 7, 8]
    new, rows = NewFile("gone/new", 1, 3), NewFile("d", 1, 5)
    deletes = Deletes({"a": places(2), "b": places(0, 8)}, [(new, {"a", "b"})], [old])
    after = after_commit(before, FileTotals(0, 0, tip=8, parent=7), [rows], deletes, dead)
    assert after is not None
    assert after.files is not None
    assert (after.tip, [file.path for file in after.files]) == (8, ["a", "b", "c", "d"])
    assert [file.deletes for file in after.files] == [(new,), (new,), (), ()]
    found = [living(dead, file) for file in after.files]
    every = list(range(9))
    assert found == [[0, 3, 4, 5, 6, 7, 8], every[1:8], every, [0, 1, 2, 3, 4]]


@pytest.mark.parametrize("beyond", [8, 40])
def test_of_a_file_with_more_rows_than_the_table_was_told_nothing_is_kept(
    table: TableLayout, beyond: int
) -> None:
    """The deletes are committed by then: nothing may fail for their sake."""
    before, dead = LiveFile("a", 8, deleting(table, "a", [0])), DeletedRowsCache()
    assert living(dead, before) == [1, 2, 3, 4, 5, 6, 7]
    after = replace(before, deletes=(*before.deletes, *deleting(table, "a", [3, beyond])))
    dead.add_deleted(before, after, places(3, beyond))
    assert dead._bytes == 0
    with pytest.raises(Unreadable):
        living(dead, after)
