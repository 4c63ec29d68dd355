"""Whole rows against applying message by message: exactly one of several equal rows."""

from __future__ import annotations

import math
import random
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import InternalError, ProtocolViolation
from tests.workers.columnar.native import NativeTable, Stored, stored
from tests.workers.columnar.records import Row, delete, insert, layout, rows, segment, update
from workers.columnar.column_reader import Layout, UnrepresentableValue
from workers.columnar.fold.whole_rows import Full, full_images
from workers.columnar.text_values import typed
from workers.proto.messages import Message

TWO = layout(pa.string(), pa.string(), key=())
Values = tuple[Any, ...]


def as_values(content: list[Stored], form: Layout) -> list[Values]:
    """Rows as the lake holds them; -0 and NaN as Spark compares them."""

    def plain(value: Any) -> Any:
        if isinstance(value, float):
            return "NaN" if math.isnan(value) else value + 0.0
        return [plain(item) for item in value] if isinstance(value, list) else value

    columns = [
        typed(
            pa.array([row[at] for row in content], pa.string()),
            column.type,
            null_unrepresentable=form.null_unrepresentable,
        ).to_pylist()
        for at, column in enumerate(form.columns)
    ]
    return [tuple(map(plain, row)) for row in zip(*columns, strict=True)]


class WholeRowTable:
    """What the lake does: find at most n equal rows per image, move or delete by position."""

    def __init__(self, content: list[Stored], form: Layout) -> None:
        self.form = form
        self.rows: list[Values] = as_values(content, form)

    def apply(self, full: Full, seed: int = 0) -> None:
        found: list[tuple[int, int]] = []
        asked: list[Values] = []
        for image in rows(full.image_batches(chunk_rows=3)):
            values = self.values(image)
            assert values not in asked
            asked.append(values)
            equal = [at for at, row in enumerate(self.rows) if row == values]
            found += [(image["image"], at) for at in equal[: image["n"]]]
        random.Random(seed).shuffle(found)
        full.resolve(pa.chunked_array([pa.array([image for image, _ in found], pa.int64())]))
        files = pa.chunked_array([pa.array([f"file {at}" for _, at in found], pa.string())])
        places = pa.chunked_array([pa.array([at for _, at in found], pa.int64())])
        gone = set()
        moved = rows(full.position_batches(files, places, chunk_rows=3))
        assert len(moved) == full.position_rows
        for row in moved:
            at = row["p"]
            assert row["f"] == f"file {at}"
            assert at not in gone
            gone.add(at)
            assert isinstance(at, int)
            if row["op"] == 0:
                self.rows.append(self.values(row))
        self.rows = [row for at, row in enumerate(self.rows) if at not in gone]
        appended = rows(full.append_batches(chunk_rows=3))
        assert len(appended) == full.append_rows
        self.rows += [self.values(row) for row in appended]

    def values(self, row: dict[str, object]) -> Values:
        def plain(value: Any) -> Any:
            if isinstance(value, float):
                return "NaN" if math.isnan(value) else value + 0.0
            return [plain(item) for item in value] if isinstance(value, list) else value

        return tuple(plain(row[f"c{at}"]) for at in range(len(self.form.columns)))


def assert_same(
    messages: list[Message], content: list[Stored], form: Layout = TWO, seed: int = 0
) -> Full:
    native = NativeTable(content, ())
    native.apply(messages)
    full = full_images(segment(*messages), form)
    lake = WholeRowTable(content, form)
    lake.apply(full, seed)
    assert sorted(lake.rows, key=repr) == sorted(as_values(native.rows, form), key=repr)
    assert (full.missing_updates, full.missing_deletes) == (
        native.missing_updates,
        native.missing_deletes,
    )
    return full


A, B, C = ("a", "1"), ("b", None), ("c", "3")


def test_one_of_several_equal_rows_changes() -> None:
    assert_same([update(["x", ...], old=A), delete(old=A)], [A, A, A, B])


def test_a_null_equals_a_null() -> None:
    assert_same([delete(old=B)], [A, B, B])


def test_an_update_of_a_missing_row_leaves_nothing_behind() -> None:
    full = assert_same([update(["x", "y"], old=C), update(["z", "y"], old=["x", "y"])], [A])
    assert (full.missing_updates, full.append_rows, full.position_rows) == (2, 0, 0)


def test_a_row_may_come_from_the_table_when_the_one_it_would_become_is_missing() -> None:
    """C→A is missing, so the DELETE of A needs a row that was in the table all along."""
    full = assert_same([update(A, old=C), delete(old=A)], [A])
    assert (full.missing_updates, full.missing_deletes) == (1, 0)


def test_rows_made_here_serve_before_rows_of_the_table() -> None:
    full = assert_same([insert(*A), delete(old=A)], [A])
    assert sum(batch.num_rows for batch in full.image_batches()) == 0


def test_a_row_that_ends_as_it_was_is_left_alone() -> None:
    full = assert_same([update(C, old=A), update(A, old=C)], [A])
    assert full.position_rows == 0


def test_unchanged_values_come_from_the_old_row_of_the_same_message() -> None:
    full = assert_same([update(["new", ...], old=["a", "BIG"])], [("a", "BIG")])
    assert full.position_rows == 1


def test_found_rows_beyond_what_was_asked_are_left_alone() -> None:
    full = full_images(segment(delete(old=A)), TWO)
    (image,) = rows(full.image_batches())
    full.resolve([image["image"]] * 3)
    found_f, found_p = pa.array(["f", "g", "h"]), pa.array([7, 8, 9])
    assert len(rows(full.position_batches(found_f, found_p))) == 1
    full.resolve([])
    assert (full.position_rows, full.missing_deletes) == (0, 1)


def test_texts_of_one_value_are_one_image() -> None:
    money = layout(pa.decimal128(9, 2), key=())
    full = full_images(
        segment(*[delete(old=[text]) for text in ("1", "1.0", "1.00", "2.00", "-0", "0.00")]),
        money,
    )
    assert [(row["n"], row["c0"]) for row in rows(full.image_batches())] == [
        (3, Decimal(1)),
        (1, Decimal(2)),
        (2, Decimal(0)),
    ]
    floats = full_images(
        segment(*[delete(old=[text]) for text in ("0", "-0", "NaN", "NaN", "1e0")]),
        layout(pa.float64(), key=()),
    )
    assert [row["n"] for row in rows(floats.image_batches())] == [2, 2, 1]


def test_values_that_become_null_are_one_image() -> None:
    form = layout(pa.date32(), pa.string(), key=(), null_unrepresentable=True)
    texts: list[Row] = [["infinity", "x"], ["-infinity", "x"], [None, "x"], [None, "y"]]
    full = full_images(segment(*[delete(old=old) for old in texts]), form)
    assert [row["n"] for row in rows(full.image_batches())] == [3, 1]


def test_an_unrepresentable_value_names_its_change() -> None:
    form = layout(pa.int32(), key=())
    full = full_images(segment(insert("1"), delete(old=["x"])), form)
    with pytest.raises(UnrepresentableValue) as caught:
        list(full.image_batches())
    assert (caught.value.column, caught.value.change) == ("column 0", 1)


@pytest.mark.parametrize(
    "message",
    [
        update(["a", "b"]),
        update(["a", "b"], key=["a", None]),
        delete(key=["a", None]),
        update(["a", ...], old=["a", ...]),
        delete(old=["a", ...]),
        insert("a", ...),
        insert("a"),
    ],
)
def test_what_names_no_whole_row_is_refused(message: Message) -> None:
    with pytest.raises(ProtocolViolation):
        full_images(segment(message), TWO)


def test_batches_wait_for_the_answer() -> None:
    full = full_images(segment(delete(old=A)), TWO)
    with pytest.raises(InternalError):
        list(full.append_batches())
    with pytest.raises(InternalError):
        full.resolve([5])


def test_nothing_and_inserts_alone() -> None:
    assert_same([], [A])
    assert_same([insert(*A), insert(*A)], [A])


FORMS = [
    (TWO, ["a", "b", None, "a longer value, unlike the others"], ["1", None, ""]),
    (
        layout(pa.decimal128(9, 2), pa.float64(), key=()),
        ["1", "1.0", "1.00", "-0", "0", None],
        ["0", "-0", "NaN", "0.5", None],
    ),
    (
        layout(pa.date32(), pa.list_(pa.float64()), key=(), null_unrepresentable=True),
        ["infinity", "2024-01-01", None],
        ["{0,1}", "{-0,1}", "{{1}}", "{NaN}", None],
    ),
    (
        layout(pa.timestamp("us", "UTC"), pa.int32(), key=()),
        ["2024-01-01 00:00:00+00", "2024-01-01 01:00:00+01", "2024-01-01 00:00:00.5+00", None],
        ["1", "-1", "0", None],
    ),
]


class ByValue(NativeTable):
    """Finds rows as their types' equality operators do."""

    def __init__(self, content: list[Stored], form: Layout) -> None:
        super().__init__(content, ())
        self.form = form

    def _find(self, row: Stored) -> int | None:
        (wanted,) = as_values([row], self.form)
        return next(
            (at for at, each in enumerate(as_values(self.rows, self.form)) if each == wanted), None
        )


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_whole_rows_do_what_applying_one_by_one_does(data: st.DataObject) -> None:
    """Any messages, any lake: rows it never had, rows the publisher knows nothing of."""
    form, firsts, seconds = data.draw(st.sampled_from(FORMS))
    any_row = st.tuples(st.sampled_from(firsts), st.sampled_from(seconds))
    messages: list[Message] = []
    for _ in range(data.draw(st.integers(0, 12))):
        old, new = data.draw(any_row), data.draw(any_row)
        what = data.draw(st.sampled_from("IUUDD"))
        sent: list[Any] = [
            ... if now == then and now is not None and data.draw(st.booleans()) else now
            for now, then in zip(new, old, strict=True)
        ]
        if what == "I":
            messages.append(insert(*new))
        elif what == "U":
            messages.append(update(sent, old=old))
        else:
            messages.append(delete(old=old))
    content = [stored(row) for row in data.draw(st.lists(any_row, max_size=6))]
    native = ByValue(content, form)
    native.apply(messages)
    full = full_images(segment(*messages), form)
    lake = WholeRowTable(content, form)
    lake.apply(full, data.draw(st.integers(0, 3)))
    assert sorted(lake.rows, key=repr) == sorted(as_values(native.rows, form), key=repr)
    assert full.missing_updates == native.missing_updates
    assert full.missing_deletes == native.missing_deletes
