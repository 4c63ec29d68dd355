"""Small batches of a partitioned table, without a server: which rows and files go where."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workers.lake.files.layouts import IDENT, known, metadata, rows
from tests.workers.lake.files.test_partitioned_files import FIELD, ORDER
from workers.lake.files import small_batch
from workers.lake.files.branch_commit import BranchCommits, CommitParts
from workers.lake.files.branch_files import BranchFiles
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.find_rows import entry_of
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.small_batch import drop_keys, gather, write_small
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import FileList, LiveFile, NewFile, Place
from workers.lake.storage.local_path import local_path

TIP = 7
TENS, TWENTIES = Place(0, '{"1000":10}'), Place(0, '{"1000":20}')


def layout(folder: Path, **changes: Any) -> TableLayout:
    """Partitioned by ten numbers."""
    made = {"location": str(folder), "partition_specs": [{"spec-id": 0, "fields": [FIELD]}]}
    return known(metadata(**(made | changes)))


@pytest.fixture
def target(tmp_path: Path) -> BranchCommits:
    """A branch with file ``h`` of the tens, whose rows 10, 11 and 12 are held; ``m`` is large."""
    files, branch = layout(tmp_path), BranchFiles()
    held = NewFile("h", 5, 3, place=TENS)
    branch.rows.hold(held, pa.Table.from_batches([rows(files, 10, 11, 12)]))
    branch.listed = FileList(TIP, tuple(LiveFile(each, 3, place=TENS, size=5) for each in "hm"))
    nobody: Any = None
    return BranchCommits(nobody, IDENT, "b", files, branch, DeletedRowsCache())


def batch(target: BranchCommits, *numbers: int, **deleted: list[int]) -> CommitParts:
    parts = CommitParts(batches=[iter([rows(target.files, *numbers)])])
    if deleted:
        parts.deleted = [{path: np.array(each) for path, each in deleted.items()}]
    return parts


def placed(parts: CommitParts) -> dict[Place, list[int | None]]:
    return {place: each["a"].to_pylist() for place, each in parts.placed.items()}


def paths(parts: CommitParts) -> list[str]:
    return [each.path for each in parts.removed]


def test_rows_take_in_the_living_rows_of_the_partition_s_file(target: BranchCommits) -> None:
    listed = target.known.listed
    assert listed is not None
    assert listed.files is not None
    before = listed.files[0]
    deletes = NewFile("d", 1, 1, place=TENS)
    after = LiveFile("h", 3, (deletes,), place=TENS, size=5)
    target.dead.add_deleted(before, after, np.array([0]))
    target.known.listed = FileList(TIP, (after, *listed.files[1:]))
    parts = batch(target, 19, 25, h=[2], m=[1])
    gather(target, parts, TIP)
    assert placed(parts) == {TENS: [11, 19], TWENTIES: [25]}
    assert (paths(parts), parts.batches) == (["h"], [])


def test_deletes_of_a_partition_without_new_rows_leave_the_file(target: BranchCommits) -> None:
    parts = batch(target, 25, h=[2])
    gather(target, parts, TIP)
    assert (placed(parts), paths(parts)) == ({TWENTIES: [25]}, [])


@pytest.mark.parametrize("why", ["only new rows", "another tip", "joined", "other columns"])
def test_the_file_stays_if_it_is_not_surely_the_branch_s(target: BranchCommits, why: str) -> None:
    listed = target.known.listed
    assert listed is not None
    assert listed.files is not None
    if why == "joined":
        target.known.listed = FileList(TIP, listed.files[1:])
    elif why == "other columns":
        target.files = layout(local_path(target.files.location), format_version=2)
        other = pa.table({"a": pa.array([10, 11, 12], pa.int64())})
        target.known.rows.hold(NewFile("h", 5, 3, place=TENS), other)
    parts = batch(target, 19)
    tip = {"only new rows": None, "another tip": TIP + 1}.get(why, TIP)
    gather(target, parts, tip)
    assert (placed(parts), paths(parts)) == ({TENS: [19]}, [])


def test_a_large_batch_stays_as_it_is(
    target: BranchCommits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(small_batch, "SMALL_BATCH_ROWS", 3)
    parts = CommitParts(batches=[iter([rows(target.files, n, n + 10)]) for n in (13, 14, 15)])
    gather(target, parts, TIP)
    assert (parts.placed, parts.removed) == ({}, [])
    found = [batch["a"].to_pylist() for each in parts.batches for batch in each]
    assert found == [[13, 23], [14, 24], [15, 25]]


def test_rows_of_format_3_are_not_gathered(target: BranchCommits, tmp_path: Path) -> None:
    target.files = layout(tmp_path, format_version=3)
    parts = batch(target, 19)
    gather(target, parts, TIP)
    assert (parts.placed, len(parts.batches)) == ({}, 1)


def test_files_are_in_order_and_their_keys_remembered(
    target: BranchCommits, tmp_path: Path
) -> None:
    by_a = [{"order-id": 1, "fields": [ORDER]}]
    files = target.files = layout(tmp_path, default_sort_order_id=1, sort_orders=by_a)
    parts, cache = batch(target, 13, 19, 25, h=[0]), KeyCache()
    parts.keys.add(("a",))
    gather(target, parts, TIP)
    write_small(files, parts, cache)
    assert {file.place for file in parts.files} == {TENS, TWENTIES}
    for file in parts.files:
        numbers = pq.read_table(local_path(file.path))["a"].to_pylist()
        assert numbers == ([25] if file.place == TWENTIES else [19, 13, 12, 11])
        remembered = cache.get(entry_of(file.path, file.rows, [files.schema.field("a")]))
        assert remembered is not None
        assert sum(getattr(each, "rows", 0) for each in remembered) == file.rows


def test_a_replaced_file_takes_no_room_among_the_keys(target: BranchCommits) -> None:
    files, cache = target.files, KeyCache()
    of = entry_of("h", 3, [files.schema.field("a")])
    cache.put(of, ())
    taken = cache._bytes
    parts = batch(target, 19)
    parts.keys |= {("a",), ("unknown",)}
    gather(target, parts, TIP)
    assert paths(parts) == ["h"]
    assert cache.get(of) is not None
    drop_keys(files, parts, cache)
    assert (cache.get(of), cache._bytes, taken > 0) == (None, 0, True)
