"""Held rows: one file of each partition, and no more than memory allows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from workers.lake.files import held_rows
from workers.lake.files.held_rows import HeldRows
from workers.lake.staged_rows import NewFile, Place

MONDAY, TUESDAY = Place(1, "mon"), Place(1, "tue")


def rows(count: int) -> pa.Table:
    return pa.table({"a": pa.array(range(count), pa.int64())})


def file(path: str, count: int, place: Place | None) -> NewFile:
    return NewFile(path, 1, count, place=place)


def held(known: HeldRows, place: Place) -> str | None:
    found = known.of(place)
    return None if found is None else found.file.path


def test_a_file_takes_the_place_of_the_one_before() -> None:
    known = HeldRows()
    known.hold(file("a", 2, MONDAY), rows(2))
    known.hold(file("b", 3, MONDAY), rows(3))
    known.hold(file("c", 1, TUESDAY), rows(1))
    known.hold(file("d", 1, None), rows(1))
    assert (held(known, MONDAY), held(known, TUESDAY)) == ("b", "c")
    known.forget()
    assert held(known, MONDAY) is None


def test_a_large_file_ends_the_row_of_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_rows, "HELD_FILE_ROWS", 5)
    known = HeldRows()
    known.hold(file("a", 4, MONDAY), rows(4))
    known.hold(file("b", 5, MONDAY), rows(5))
    assert held(known, MONDAY) is None


def test_memory_is_bounded() -> None:
    known = HeldRows(max_bytes=80)
    known.hold(file("a", 6, MONDAY), rows(6))
    known.hold(file("b", 4, TUESDAY), rows(4))
    assert (held(known, MONDAY), held(known, TUESDAY)) == ("a", "b")
    known.hold(file("c", 5, TUESDAY), rows(5))
    assert (held(known, MONDAY), held(known, TUESDAY)) == (None, "c")
    known.hold(file("d", 11, TUESDAY), rows(11))
    assert held(known, TUESDAY) is None
    known.hold(file("e", 10, MONDAY), rows(10))
    assert held(known, MONDAY) == "e", "the room is free again"
