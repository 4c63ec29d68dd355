"""Files stand in for the runs that they hold, in order, and for no others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from unittest.mock import create_autospec

import numpy as np
import pyarrow as pa
import pytest

from catalog.errcodes import SerializationFailure
from catalog.pg_subscription import TableOptions
from config.limits import LOOK_UP_AHEAD_CHANGES
from workers.apply.parallel.ready_files import ReadyFiles, TableFiles, no_files
from workers.changes.by_table import Run
from workers.changes.table_work import TableWork
from workers.columnar.column_reader import Changes
from workers.columnar.frame_slices import StandIn
from workers.columnar.tuples import DELETE, INSERT
from workers.lake.destination import Destination
from workers.lake.segment import ChangesAhead, Segment
from workers.lake.staged_rows import LayoutId, NewFile, OwnFiles, Staged
from workers.lake.table import LakeIdent, LakeTable
from workers.proto.messages import Relation, RelationColumn
from workers.publisher.replica_identity import Coverage
from workers.stream.batch import Batch
from workers.tables.write_batch import Slice

A, B, C = 11, 12, 13
LAYOUT = LayoutId("uuid", 0, 0, 2)
NOTHING = np.empty(0, np.uint8)


class Lake:
    """Tables with files: what is removed is remembered."""

    def __init__(self) -> None:
        self.removed: list[str] = []
        self.dest = create_autospec(Destination, instance=True)
        self.dest.discard.side_effect = self._discard

    def _discard(self, staged: Staged) -> None:
        if staged.own is not None and not staged.own.committed:
            self.removed += [file.path for file in staged.own.files]

    def changes(self, path: str, keys: int) -> TableFiles:
        """Updates of so many keys; the new row of one of them is in the file."""
        files = self.files(path, 1)
        (segment,) = files.work.segments
        assert segment.append is not None
        ahead = (ChangesAhead(Staged(keys), segment.append),)
        files.work.segments[:] = [Segment(("a",), ("a",), ahead=ahead)]
        return files

    def files(self, path: str, rows: int, layout: LayoutId = LAYOUT) -> TableFiles:
        table = LakeTable(LakeIdent("s", "t"), (), None, None, None)
        work = TableWork(table, TableOptions(), self.dest)
        own = OwnFiles((NewFile(path, 1, rows),), layout, self.removed.extend)
        self.dest.stage.return_value = Staged(rows, own=own)
        staged = work.stage([], pa.schema([]))
        work.segments.append(Segment(("a",), ("a",), append=staged))
        return TableFiles(work, relation(), (rows, 0, 0))


def relation(column: str = "a") -> Relation:
    return Relation(5, "s", "t", "d", (RelationColumn(True, column, 23, -1),))


def run(
    rows: int, kind: np.uint8 = INSERT, column: str = "a", coverage: Coverage = Coverage.WHOLE
) -> Run:
    kinds, zeros = np.full(rows, kind, np.uint8), np.zeros(rows, np.int64)
    txn, unsent = zeros.astype(np.int32), zeros.astype(np.uint16)
    changes = Changes(NOTHING, kinds, kinds, zeros, zeros, txn, unsent)
    return Run(relation(column), changes, coverage=coverage)


def put_in(files: ReadyFiles, *slices: tuple[int, Slice]) -> list[Slice]:
    return list(files.put_in(slices))


def paths(each: Slice) -> dict[int, list[Sequence[str]]]:
    """The files of a slice: by table, by commit."""
    return {
        relid: [
            [file.path for file in segment.append.own.files]
            for segment in work.segments
            if segment.append is not None and segment.append.own is not None
        ]
        for relid, work in each.ready.items()
    }


def ready(lake: Lake, *pieces: dict[int, TableFiles]) -> ReadyFiles:
    """Pieces that end at 10, 20, ..."""
    made = {10 * n: piece for n, piece in enumerate(pieces, start=1)}
    return ReadyFiles([0, *made], dict(made), lambda _relid, _work: True)


def test_slices_in_a_row_become_one_commit() -> None:
    lake = Lake()
    files = ready(lake, {A: lake.files("1", 3), B: lake.files("2", 4)}, {A: lake.files("3", 5)})
    slices = put_in(
        files, (10, Slice({A: [run(3)], B: [run(4)]})), (20, Slice({A: [run(5)]})), (25, Slice({}))
    )
    assert [(each.work, paths(each)) for each in slices] == [({}, {A: [["1", "3"]], B: [["2"]]})]
    append = slices[0].ready[A].segments[0].append
    assert append is not None
    assert append.rows == 8
    assert files.used == 12
    files.discard()
    assert lake.removed == []
    slices[0].ready[A].discard()
    assert lake.removed == ["1", "3"]


def test_a_later_change_of_the_table_comes_behind_the_files() -> None:
    lake = Lake()
    files = ready(lake, {A: lake.files("1", 3), B: lake.files("2", 4)})
    change = Slice({A: [run(1, DELETE)]}, unsure={A})
    slices = put_in(files, (10, Slice({A: [run(3)], B: [run(4)]})), (15, change))
    assert [paths(each) for each in slices] == [{A: [["1"]]}, {}, {B: [["2"]]}]
    assert slices[1] == change


def test_a_change_in_the_slice_is_of_another_table() -> None:
    lake = Lake()
    other = [run(1, DELETE)]
    slices = put_in(ready(lake, {A: lake.files("1", 3)}), (10, Slice({A: [run(3)], B: other})))
    assert [(dict(each.work), paths(each)) for each in slices] == [
        ({B: other}, {}),
        ({}, {A: [["1"]]}),
    ]


def unused(each: Slice, files: ReadyFiles | None = None, lake: Lake | None = None) -> None:
    lake = lake or Lake()
    files = files or ready(lake, {A: lake.files("1", 3)})
    assert put_in(files, (10, each)) == ([each] if each.work else [])
    assert (lake.removed, files.used) == (["1"], 0)


def test_other_runs_are_written() -> None:
    for runs in (
        [run(2)],
        [run(3, DELETE)],
        [run(3, column="b")],
        [run(3, coverage=Coverage.PART)],
        [run(1), run(2)],
        [Run(None, None, truncate=True), run(3)],
    ):
        lake = Lake()
        unused(Slice({A: runs}), ready(lake, {A: lake.files("1", 3)}), lake)


def test_a_table_whose_keys_are_looked_up_is_written() -> None:
    lake = Lake()
    unused(Slice({A: [run(3)]}, unsure={A}), ready(lake, {A: lake.files("1", 3)}), lake)


def test_a_table_that_is_not_taken_needs_no_files() -> None:
    lake = Lake()
    unused(Slice({}), ready(lake, {A: lake.files("1", 3)}), lake)


def test_a_table_that_has_changed_is_written() -> None:
    lake = Lake()
    files = ready(lake, {A: lake.files("1", 3)})
    files.fits = lambda _relid, _work: False
    unused(Slice({A: [run(3)]}), files, lake)


def test_files_of_two_layouts_are_two_commits() -> None:
    lake, other = Lake(), LayoutId("uuid", 1, 0, 2)
    files = ready(lake, {A: lake.files("1", 3)}, {A: lake.files("2", 3, other)})
    slices = put_in(files, (10, Slice({A: [run(3)]})), (20, Slice({A: [run(3)]})))
    assert [paths(each) for each in slices] == [{A: [["1"], ["2"]]}]
    slices[0].ready[A].discard()
    assert lake.removed == ["1", "2"]


def test_the_keys_of_tables_in_one_slice_are_a_single_look_up() -> None:
    """Tables of a slice are written at a time, and each look-up takes memory for its keys."""
    lake, half = Lake(), LOOK_UP_AHEAD_CHANGES // 2
    sizes = [(A, 2 * half), (B, half), (C, half), (14, 1), (15, 5 * half)]
    first = {relid: lake.changes(f"{relid}", keys) for relid, keys in sizes}
    first[16] = lake.files("16", 1)
    files = ready(lake, first)
    slices = put_in(files, (10, Slice({relid: [run(1)] for relid in first})))
    assert [set(each.ready) for each in slices] == [{16, 14, B}, {C}, {A}, {15}]
    assert not any(each.work for each in slices)


def test_files_that_no_slice_took_are_removed() -> None:
    """An error of the lake between the slices of two tables."""
    lake = Lake()
    tables = {
        A: lake.changes("1", LOOK_UP_AHEAD_CHANGES),
        B: lake.changes("2", LOOK_UP_AHEAD_CHANGES),
    }
    slices = ready(lake, tables).put_in([(10, Slice({A: [run(1)], B: [run(1)]}))])
    taken = next(slices)
    del slices
    assert [*taken.ready, lake.removed] == [A, ["2"]]


def test_an_error_of_a_check_leaves_no_file() -> None:
    lake = Lake()
    files = ready(lake, {A: lake.files("1", 3)}, {A: lake.files("2", 3)})

    def slices() -> Iterator[tuple[int, Slice]]:
        yield 10, Slice({A: [run(3)]})
        raise ValueError

    try:
        list(files.put_in(slices()))
    except ValueError:
        files.discard()
    assert lake.removed == ["1", "2"]


def test_nothing_is_ready_without_threads() -> None:
    files = no_files(create_autospec(Batch, instance=True))
    assert not files
    each = Slice({A: [run(3)]})
    assert put_in(files, (10, each)) == [each]


def stood_in(lake: Lake, *pieces: dict[int, TableFiles]) -> ReadyFiles:
    """The same as ``ready``; a stand-in shows one row of each table."""
    files = ready(lake, *pieces)
    files.stand_ins = {end - 10: StandIn(end, NOTHING) for end in files.made}
    return files


def test_a_stand_in_is_replaced_by_its_files() -> None:
    lake = Lake()
    files = stood_in(lake, {A: lake.files("1", 3), B: lake.files("2", 4)}, {A: lake.files("3", 5)})
    slices = put_in(
        files, (10, Slice({A: [run(1)], B: [run(1)]})), (20, Slice({A: [run(1)]})), (25, Slice({}))
    )
    assert [(each.work, paths(each)) for each in slices] == [({}, {A: [["1", "3"]], B: [["2"]]})]
    assert (files.used, files.work_unseen) == (12, {"rows": {"insert": 9}})


def test_a_stand_in_is_never_written() -> None:
    """Whatever does not fit: the transaction is applied without files."""
    cases: list[dict[int, list[Run]]] = [
        {A: [run(1)], B: [run(1, column="b")]},
        {A: [run(1)], B: [run(1, coverage=Coverage.PART)]},
        {A: [run(1)], B: [run(1)], C: [run(1)]},  # B left, and joined again as C
        {A: [run(1)], B: [run(1), run(1)]},
    ]
    for work in cases:
        lake = Lake()
        files = stood_in(lake, {A: lake.files("1", 3), B: lake.files("2", 4)})
        with pytest.raises(SerializationFailure):
            put_in(files, (10, Slice(work)))
        files.discard()
        assert sorted(lake.removed) == ["1", "2"]
    unsure = Slice({A: [run(1)]}, unsure={A})
    with pytest.raises(SerializationFailure):
        put_in(stood_in(lake, {A: lake.files("1", 3)}), (10, unsure))


def test_a_stand_in_of_tables_that_are_not_taken_is_nothing() -> None:
    lake = Lake()
    files = stood_in(lake, {A: lake.files("1", 3), B: lake.files("2", 4)})
    slices = put_in(files, (10, Slice({B: [run(1)]})))
    assert [paths(each) for each in slices] == [{B: [["2"]]}]
    assert (lake.removed, files.used) == (["1"], 4)
