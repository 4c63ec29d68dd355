"""Held rows: one file of each partition, and no more than memory allows."""

from __future__ import annotations

import pyarrow as pa
import pytest

from config.monitor_limits import HELD_COLUMN_BYTES, HELD_FILE_BYTES
from workers.lake.files import held_rows
from workers.lake.files.held_rows import HeldRows, HeldStore
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
    one = 8 + 3 * HELD_COLUMN_BYTES
    store = HeldStore(max_bytes=2 * one + 10)
    known, other = HeldRows(store), HeldRows(store)
    known.hold(file("a", 1, MONDAY), rows(1))
    other.hold(file("b", 1, MONDAY), rows(1))
    assert (held(known, MONDAY), held(other, MONDAY)) == ("a", "b")
    known.hold(file("c", 1, TUESDAY), rows(1))
    assert (held(known, MONDAY), held(other, MONDAY)) == (None, "b"), "used longest ago"
    other.forget()
    known.hold(file("d", 1, MONDAY), rows(1))
    assert (held(known, MONDAY), held(known, TUESDAY)) == ("d", "c"), "the room is free again"


def test_many_files_of_a_row_are_bounded() -> None:
    """A row of 20 columns takes some 20 kB, of which its values tell 160 bytes."""
    known, one = HeldRows(), pa.table({f"c{n}": pa.array([n], pa.int64()) for n in range(20)})
    for number in range(3_000):
        known.hold(NewFile(f"f{number}", 1, 1, place=Place(0, str(number))), one)
    assert len(known.store._files) < 1_600


def test_a_held_file_keeps_no_footer() -> None:
    known = HeldRows()
    known.hold(NewFile("a", 1, 1, place=MONDAY, footer=b"x" * 6000), rows(1))
    found = known.of(MONDAY)
    assert found is not None
    assert found.file.footer == b""


def test_a_file_of_many_bytes_is_not_written_again() -> None:
    known, wide = HeldRows(), pa.table({"a": ["x" * HELD_FILE_BYTES]})
    known.hold(file("a", 1, MONDAY), rows(1))
    known.hold(file("b", 1, MONDAY), wide)
    assert held(known, MONDAY) is None
