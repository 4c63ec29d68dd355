"""Rows of files by their keys; no server."""

from __future__ import annotations

import datetime
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from tests.workers.lake.files.layouts import a_list, known, metadata, written
from workers.lake.files import find_rows
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.find_rows import RowLookup, is_found_here
from workers.lake.files.keys import remember_keys
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.keys.key_files import KeyFiles
from workers.lake.files.position_deletes import write_deletes
from workers.lake.files.read_rows import TooLargeToFetch, Unreadable, _rows_at_once
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import LiveFile
from workers.lake.storage.local_path import local_path
from workers.lake.table import SOURCE_COLUMN

NOON = datetime.datetime(2026, 1, 2, 12)
TYPES: dict[str, tuple[str, list[Any]]] = {
    "int": ("int", [3, -4, 5, 6]),
    "long": ("long", [3, -4, 5, 2**40]),
    "boolean": ("boolean", [True, False]),
    "date": ("date", [NOON.date(), datetime.date(1, 1, 1), datetime.date(9999, 12, 31)]),
    "timestamp": ("timestamp", [NOON, NOON.replace(year=1)]),
    "timestamptz": ("timestamptz", [NOON.replace(tzinfo=datetime.UTC)]),
    "short decimal": ("decimal(9,2)", [Decimal("1.50"), Decimal("-0.01")]),
    "decimal": ("decimal(18,0)", [Decimal(10) ** 17, Decimal(-1)]),
    "long decimal": ("decimal(38,2)", [Decimal("1.50"), Decimal(10) ** 35]),
    "string": ("string", ["", "a", "é" * 50]),
    "binary": ("binary", [b"", b"\0", b"\xff" * 20]),
}


@dataclass(slots=True)
class Stored:
    """Files of a table in a folder, each with its deletes."""

    table: TableLayout
    files: list[LiveFile]
    known: KeyCache = field(default_factory=KeyCache)

    def add(self, *columns: Sequence[Any], deleted: Sequence[Sequence[int]] = ()) -> LiveFile:
        fields = zip(columns, self.table.schema, strict=True)
        arrays = [pa.array(values, each.type) for values, each in fields]
        rows = pa.RecordBatch.from_arrays(arrays, schema=self.table.schema)
        (file,) = written(self.table, rows)
        places = [np.array(each, np.int64) for each in deleted if each]
        deletes = [write_deletes(self.table, {file.path: each}) for each in places]
        self.files.append(LiveFile(file.path, file.rows, tuple(deletes)))
        return self.files[-1]

    def find(
        self,
        *keys: Sequence[Any],
        own: Sequence[str] = (),
        source: str = "",
        again: bool = True,
    ) -> list[tuple[Any, ...]]:
        """Number of the key, number of the file, position, and what is asked for.

        Looked up with nothing in mind, and ``again`` with what that leaves.
        """
        names = self.table.names[: len(keys)]
        fields = zip(keys, names, strict=True)
        arrays = [pa.array(values, self.table.schema.field(name).type) for values, name in fields]
        columns = {f"b{n}": array for n, array in enumerate(arrays)}
        wanted = pa.table({"k": pa.array(range(len(keys[0])), pa.int64()), **columns})
        found, *more = [
            RowLookup(self.table, names, wanted, source, known).find(
                self.files, DeletedRowsCache(), own
            )
            for known in (None, *([self.known] * 2 if again else []))
        ]
        assert all(each.equals(found) for each in more)
        assert found.schema.field("k").type == found.schema.field("p").type == pa.int64()
        paths = [file.path for file in self.files]
        rows = zip(*(column.to_pylist() for column in found.columns), strict=True)
        return sorted((k, paths.index(f), *rest) for k, f, *rest in rows)


def a_table(folder: Path, *types: Any) -> Stored:
    return Stored(known(metadata(*types, location=str(folder))), [])


@pytest.mark.parametrize("name", TYPES)
def test_keys_of_every_type_are_found_where_they_are(tmp_path: Path, name: str) -> None:
    type, values = TYPES[name]
    stored = a_table(tmp_path, type, "long")
    assert is_found_here(stored.table, "a")
    stored.add([None, *values], [None, *range(len(values))])
    stored.add([*values, None, values[0]], [*range(len(values)), 7, 8], deleted=[[0]])
    expected = [(n, 0, 1 + n, n) for n in range(len(values))]
    expected += [(n, 1, n, n) for n in range(1, len(values))] + [(0, 1, len(values) + 1, 8)]
    assert stored.find(values, own="b") == sorted(expected)
    assert stored.find([None, *values]) == sorted((k + 1, *more[:2]) for k, *more in expected)
    assert stored.find([], own="b") == []
    # With another column they are no numbers of their own.
    wrong = [*range(1, len(values)), 99]
    assert stored.find(values, wrong) == []
    assert stored.find(values, list(range(len(values)))) == sorted(
        (n, file, place) for n, file, place, own in expected if own == n
    )


@pytest.mark.parametrize("type", ["float", "double", a_list("long", 30)], ids=str)
def test_columns_whose_values_are_equal_in_other_ways_are_spark_s(
    tmp_path: Path, type: Any
) -> None:
    stored = a_table(tmp_path, "long", type)
    assert is_found_here(stored.table, "a")
    assert not is_found_here(stored.table, "ab")
    assert not is_found_here(stored.table, ("a", "other"))
    assert not is_found_here(stored.table, ())


def test_row_groups_without_a_key_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = a_table(tmp_path, "long", "string")
    with monkeypatch.context() as small:
        small.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 10)
        stored.add(range(100), ["x"] * 100, deleted=[[50, 51], [55]])
    assert pq.read_metadata(local_path(stored.files[0].path)).num_row_groups == 10
    read: list[int] = []
    searched = RowLookup._search_batch

    def counted(self: RowLookup, arrays: Any, numbers: Any, start: int) -> Any:
        read.append(start)
        return searched(self, arrays, numbers, start)

    monkeypatch.setattr(RowLookup, "_search_batch", counted)
    expected = [(n, 0, 50 + n, "x") for n in range(20) if n not in (0, 1, 5)]
    assert stored.find(range(50, 70), own="b", again=False) == expected
    assert read == [50, 60]
    assert stored.find([7, 93], again=False) == [(0, 0, 7), (1, 0, 93)]
    assert read[2:] == list(range(0, 100, 10))
    # To be remembered: all of a file that is small, of a larger one what is read anyway.
    assert stored.find(range(50, 70), own="b") == expected
    assert read[14:] == list(range(0, 100, 10)), "and once"
    monkeypatch.setattr(find_rows, "ALWAYS_READ_ROWS", 99)
    stored.known = KeyCache()
    assert stored.find([55, 65], again=False) == [(1, 0, 65)]
    for _ in range(2):
        assert stored.find([56, 66]) == [(0, 0, 56), (1, 0, 66)]
    assert read[24:] == [50, 60] * 7
    assert len(stored.find([7, 93])) == 2
    assert len(read) == 24 + 14 + 20, "not the second time"


@pytest.mark.parametrize("keys", [[0, 2**40], [1, None]], ids=["far from each other", "NULL"])
def test_a_small_file_that_cannot_be_packed_is_read_whole_once(
    tmp_path: Path, keys: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = a_table(tmp_path, "long", "string")
    stored.add(keys, ["x", "y"])
    searched: list[int] = []
    search = RowLookup._search_batch

    def counted(self: RowLookup, *given: Any) -> Any:
        searched.append(1)
        return search(self, *given)

    monkeypatch.setattr(RowLookup, "_search_batch", counted)
    for _ in range(3):
        assert stored.find([2**41]) == []
    assert searched == [1]


def test_keys_are_remembered_in_the_type_that_they_had(tmp_path: Path) -> None:
    """A column of days that is one of moments by now, as Iceberg's third format allows."""
    day = datetime.date(2026, 1, 2)
    stored = a_table(tmp_path, "date", "long")
    stored.add([day], [1])
    assert stored.find([day]) == [(0, 0, 0)]
    now = Stored(known(metadata("timestamp", "long", location=str(tmp_path))), stored.files)
    now.known = stored.known
    assert now.find([datetime.datetime(2026, 1, 2)]) == [(0, 0, 0)]
    wider = a_table(tmp_path, "int", "long")
    wider.add([7], [1])
    assert wider.find([7]) == [(0, 0, 0)]
    wide = Stored(known(metadata("long", "long", location=str(tmp_path))), wider.files)
    wide.known = wider.known
    assert wide.find([7]) == [(0, 0, 0)]


def test_a_file_has_the_columns_of_its_day(tmp_path: Path) -> None:
    """Renamed, widened and come since: by their numbers, whatever they are called."""
    before = a_table(tmp_path, "int", "string")
    before.add([1, 2], ["one", "two"])
    fields = [
        {"id": 12, "name": "a", "type": "string", "required": False},
        {"id": 11, "name": "key", "type": "long", "required": False},
        {"id": 13, "name": "b", "type": "string", "required": False},
    ]
    schemas = [{"schema-id": 3, "fields": fields}]
    now = Stored(known(metadata(location=str(tmp_path), schemas=schemas)), before.files)
    now.add(["three"], [3], ["late"])
    keys = pa.table({"k": [10, 11, 12], "b0": pa.array([3, 2, 9], pa.int64())})
    found = RowLookup(now.table, ["key"], keys).find(now.files, DeletedRowsCache(), ["b", "a"])
    assert sorted(zip(*(found[name].to_pylist() for name in ("k", "o0", "o1")), strict=True)) == [
        (10, "late", "three"),
        (11, None, "two"),
    ]
    late = pa.table({"k": [0], "b0": ["late"]})
    found = RowLookup(now.table, ["b"], late).find(now.files, DeletedRowsCache())
    assert found["p"].to_pylist() == [0], "in the file that has the column alone"
    found = RowLookup(now.table, ["key"], keys.slice(1, 1)).find(
        now.files, DeletedRowsCache(), ["b"]
    )
    assert found["o0"].to_pylist() == [None]


def test_only_a_source_s_own_rows_are_found(tmp_path: Path) -> None:
    fields = [
        {"id": 11, "name": "id", "type": "long", "required": False},
        {"id": 12, "name": SOURCE_COLUMN, "type": "string", "required": True},
    ]
    given = metadata(location=str(tmp_path), schemas=[{"schema-id": 3, "fields": fields}])
    stored = Stored(known(given), [])
    stored.add([1, 2, 1], ["one", "one", "other"])
    assert stored.find([1, 2], source="one") == [(0, 0, 0), (1, 0, 1)]
    assert stored.find([1, 2], source="other") == [(0, 0, 2)]
    assert stored.find([1, 2], source="none") == []
    assert len(stored.find([1, 2])) == 3


def test_what_is_not_read_here_is_said(tmp_path: Path) -> None:
    stored = a_table(tmp_path, "long", "string")
    with pytest.raises(Unreadable):
        RowLookup(stored.table, ["a"], pa.table({"k": [0], "b0": ["word"]}))
    stored.add([1], ["x"])
    file = stored.files[0]
    stored.files[0] = replace(file, rows=2)
    with pytest.raises(Unreadable):  # the table was told another number of rows
        stored.find([1])
    stored.files[0] = file
    pq.write_table(pa.table({"a": [1], "b": ["x"]}), local_path(stored.files[0].path))
    with pytest.raises(Unreadable):
        stored.find([1])
    local_path(stored.files[0].path).unlink()
    with pytest.raises(ReplicationError):
        stored.find([1])


@pytest.mark.parametrize("cut", [0, 3, 40], ids=["empty", "short", "cut off"])
def test_a_damaged_file_is_left_to_spark(tmp_path: Path, cut: int) -> None:
    stored = a_table(tmp_path, "long", "string")
    stored.add([1, 2], ["x", "y"])
    place = local_path(stored.files[0].path)
    place.write_bytes(place.read_bytes()[:-cut] if cut else b"")
    with pytest.raises(Unreadable):
        stored.find([1])


def test_a_day_that_python_has_not_is_no_reason_to_leave_anything_out(tmp_path: Path) -> None:
    stored = a_table(tmp_path, "date", "long")
    far = pa.array([3_000_000, 1], pa.int32()).cast(pa.date32())
    rows = pa.RecordBatch.from_arrays([far, pa.array([1, 2])], schema=stored.table.schema)
    (file,) = written(stored.table, rows)
    stored.files.append(LiveFile(file.path, 2))
    assert stored.find([datetime.date(1970, 1, 2)], own="b") == [(0, 0, 1, 2)]


def test_deletes_beyond_the_file_are_left_to_spark(tmp_path: Path) -> None:
    stored = a_table(tmp_path, "long", "string")
    stored.add([1, 2], ["x", "y"], deleted=[[1000]])
    with pytest.raises(Unreadable):
        stored.find([1])


def test_values_that_are_too_much_stay_where_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In one row group, in several, in several files."""
    monkeypatch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 4)
    stored = a_table(tmp_path, "long", "string")
    for first in (0, 8):
        stored.add(range(first, first + 8), ["x" * 1000] * 8)
    for module in ("read_rows", "find_rows"):
        monkeypatch.setattr(f"workers.lake.files.{module}.FETCHED_BYTES", 3_500)
    assert len(stored.find([0, 4, 8], own="b")) == 3
    for keys in ([0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 8, 9]):
        with pytest.raises(TooLargeToFetch):
            stored.find(keys, own="b")
        assert len(stored.find(keys)) == 4


def test_of_large_values_few_are_read_in_one_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = a_table(tmp_path, "long", "string", a_list("string", 30))
    texts = [f"{n}" * 3000 for n in range(100, 120)]
    stored.add(range(20), texts, [[text] for text in texts])
    monkeypatch.setattr("workers.lake.files.read_rows.FETCH_STEP_BYTES", 40_000)
    footer = pq.read_metadata(local_path(stored.files[0].path)).row_group(0)
    assert _rows_at_once(footer, ["a"]) == 20 * 40_000 // footer.column(0).total_uncompressed_size
    assert [_rows_at_once(footer, names) for names in ("b", "c", "bc")] == [4, 4, 2]
    found = stored.find([19, 0, 7], own="bc")
    assert found == [(k, 0, n, texts[n], [texts[n]]) for k, n in enumerate((19, 0, 7))]


def test_row_groups_of_text_are_skipped_by_their_bounds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that grow with time, as UUIDs of version 7, are in the last row groups."""
    monkeypatch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 2)
    excludes, skipped = find_rows._excludes_keys, list[bool]()

    def excludes_keys(*of: Any) -> bool:
        skipped.append(excludes(*of))
        return skipped[-1]

    monkeypatch.setattr(find_rows, "_excludes_keys", excludes_keys)
    stored = a_table(tmp_path, "string", "long")
    texts = ["", "a", "a\0", "z", "\u00e9", "\uffff", "\U0001f511", "\U0001f511" * 2000]
    stored.add(texts, range(8))
    for n, text in enumerate(texts):
        skipped.clear()
        assert stored.find([text], again=False) == [(0, 0, n)]
        # The last group's greatest text is too long for a footer: nobody knows the bounds.
        assert skipped == [group not in (n // 2, 3) for group in range(4)]
    skipped.clear()
    assert stored.find(["b", "\u00ea"], again=False) == []
    assert skipped == [True, False, False, False]


def test_files_of_a_large_table_are_looked_through_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in one piece or in several."""
    monkeypatch.setattr(find_rows, "PARALLEL_LOOK_UP_ROWS", 10)
    monkeypatch.setattr("os.cpu_count", lambda: 3)
    monkeypatch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 3)
    stored = a_table(tmp_path, "long", "long")
    for n in range(7):
        stored.add(range(n * 10, n * 10 + 10), range(10), deleted=[[n]])
    expected = [(n, n // 10, n % 10, n % 10) for n in range(70) if n // 10 != n % 10]
    assert stored.find(range(70), own="b") == expected


def test_equal_numbers_are_not_yet_equal_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = a_table(tmp_path, "string", "long")
    stored.add(["a", "b", "c", "a"], [1, 2, 3, 4])
    monkeypatch.setattr(
        find_rows, "numbers_of", lambda columns: np.zeros(len(columns[0]), np.int64)
    )
    assert stored.find(["a", "z", "c"], own="b") == [(0, 0, 0, 1), (0, 0, 3, 4), (2, 0, 2, 3)]


def test_a_key_that_is_looked_for_twice_is_found_for_both(tmp_path: Path) -> None:
    stored = a_table(tmp_path, "long", "string")
    stored.add([5, 6], ["x", "y"])
    assert stored.find([6, 5, 6], own="b") == [(0, 0, 1, "y"), (1, 0, 0, "x"), (2, 0, 1, "y")]


@st.composite
def lakes(draw: st.DrawFn) -> tuple[list[tuple[list[Any], list[int]]], list[int]]:
    """Files of keys, each with positions that are deleted, and keys to look for."""
    key = st.none() | st.integers(-15, 15)
    files = []
    for _ in range(draw(st.integers(0, 4))):
        keys = draw(st.lists(key, min_size=1, max_size=40))
        files.append((keys, draw(st.lists(st.integers(0, len(keys) - 1), unique=True))))
    return files, draw(st.lists(st.integers(-20, 20), max_size=20))


@settings(max_examples=60, deadline=None)
@given(lakes())
def test_what_a_join_would_find_is_found(
    tmp_path_factory: pytest.TempPathFactory, lake: tuple[Any, Any]
) -> None:
    given_files, keys = lake
    numbers = a_table(tmp_path_factory.mktemp("numbers"), "long", "long")
    texts = a_table(tmp_path_factory.mktemp("texts"), "string", "long")
    for held, gone in given_files:
        own = [n * n for n in range(len(held))]
        numbers.add(held, own, deleted=[sorted(gone)])
        texts.add([None if n is None else str(n) for n in held], own, deleted=[sorted(gone)])
    expected = sorted(
        (k, at, place, place * place)
        for k, key in enumerate(keys)
        for at, (held, gone) in enumerate(given_files)
        for place, value in enumerate(held)
        if value == key and place not in gone
    )
    assert numbers.find(keys, own="b") == expected
    assert texts.find(list(map(str, keys)), own="b") == expected


@given(st.integers(1, 300), st.integers(1, 8))
def test_each_row_group_is_in_one_piece(groups: int, count: int) -> None:
    pieces = [find_rows.Piece(number, count) for number in range(count)]
    assert all(sum(piece.has(group, groups) for piece in pieces) == 1 for group in range(groups))


@pytest.mark.parametrize("restarts", [False, True])
def test_remembered_texts_beside_a_file_that_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Rows of the two are found in one look-up; the file of the first is not opened again."""
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 0 if restarts else 100)
    stored = a_table(tmp_path / "table", "string", "long", "long")
    stored.known = KeyCache(files=KeyFiles(tmp_path / "keys", 2**20))
    first = stored.add(["a", None, "b"], [1, 1, 2], [5, 6, 7], deleted=[[2]])
    assert stored.find(["b", "a"], [2, 1]) == [(1, 0, 0)]
    if restarts:
        stored.known = KeyCache(files=KeyFiles(tmp_path / "keys", 2**20))
    stored.add(["b", "c", "a"], [2, 3, 9], [8, 9, 10])
    local_path(first.path).unlink()
    keys = pa.table({"k": [0, 1, 2], "b0": ["b", "a", "c"], "b1": pa.array([2, 1, 3], pa.int64())})
    for _ in range(2):
        lookup = RowLookup(stored.table, ("a", "b"), keys, cache=stored.known)
        found = lookup.find(stored.files, DeletedRowsCache())
        assert found["k"].to_pylist() == [1, 0, 2]
        assert found["p"].to_pylist() == [0, 0, 1]
        assert [stored.files[n].path for n in (0, 1, 1)] == found["f"].to_pylist()


def test_of_a_file_that_is_not_read_whole_nothing_is_hashed_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else each batch that changes rows of the first row groups would do that in vain."""
    monkeypatch.setattr(remember_keys, "ALWAYS_READ_ROWS", 0)
    monkeypatch.setattr(find_rows, "ALWAYS_READ_ROWS", 0)
    stored = a_table(tmp_path / "table", "string", "long")
    with monkeypatch.context() as small:
        small.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 10)
        stored.add([f"{n:03}" for n in range(30)], range(30))
    stored.known = KeyCache(files=KeyFiles(tmp_path / "keys", 2**20))
    with monkeypatch.context() as patch:
        patch.setattr("workers.lake.files.keys.hashed_keys.Hashing.add", None)
        assert stored.find(["005"]) == [(0, 0, 5)]
    assert [path.name for path in (tmp_path / "keys").iterdir()] == ["seed"]
    assert stored.find(["005", "025"]) == [(0, 0, 5), (1, 0, 25)]
