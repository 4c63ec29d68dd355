"""Changes in binary form do what the same changes do as text, or are refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.columnar.binary.sent_values import (
    INT4,
    TEXT,
    binary,
    forms,
    int4,
    read,
    row,
)
from tests.workers.columnar.records import TABLE, layout, rows, segment
from workers.columnar.binary.forms import TEXT_ONLY, Form, compile_forms
from workers.columnar.column_reader import (
    Changes,
    UnreadableValue,
    in_form,
)
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.whole_rows import full_images
from workers.proto.messages import Delete, Insert, Update

NO_FORM = "cannot read a value in binary format"


def test_014_the_change_that_sent_a_damaged_value_is_at_fault() -> None:
    """Not the one that left it as it was."""
    changes = binary(
        segment(
            Insert(TABLE, row(int4(1), int4(5))),
            Update(TABLE, None, None, row(int4(1), b"\0\0\0")),
            Update(TABLE, None, None, row(int4(1), ...)),
        ),
        INT4,
        INT4,
    )
    folded = fold_keyed(changes, layout(pa.int32(), pa.int32(), key=(0,)))
    with pytest.raises(UnreadableValue) as caught:
        list(folded.append_batches())
    assert (caught.value.code, caught.value.change) == ("08P01", 1)


@pytest.mark.parametrize(
    ("changed", "types"),
    [
        (Insert(TABLE, row(b"\0", "x")), [TEXT_ONLY, TEXT_ONLY]),
        (Insert(TABLE, row(b"\0", "x")), None),
        (Insert(TABLE, row("1", "x")), [*forms(INT4), TEXT_ONLY]),
        (Insert(TABLE, row(int4(1), b"x")), [*forms(INT4), TEXT_ONLY]),
        (Insert(TABLE, row(int4(1), "x")), forms(INT4, TEXT)),
        (Update(TABLE, "K", row("1", None), row(int4(1), "x")), [*forms(INT4), TEXT_ONLY]),
        (Delete(TABLE, "O", row(int4(1), b"x")), [*forms(INT4), TEXT_ONLY]),
    ],
)
def test_014_a_value_in_another_form_than_its_column_is_refused(
    changed: Insert | Update | Delete, types: list[Form] | None
) -> None:
    """A binary one nobody asked for, and a text where binary form is known."""
    changes = segment(Insert(TABLE, row(None, None)), changed)
    with pytest.raises(UnreadableValue) as caught:
        in_form(changes, None if types is None else compile_forms(types))
    assert (caught.value.code, caught.value.primary) == ("0A000", NO_FORM)
    assert caught.value.change == 1
    assert caught.value.hint == (
        "Set binary = false for the subscription: values then arrive as text."
    )


def test_014_a_type_that_cannot_be_sent_is_text_beside_binary_ones() -> None:
    changes = segment(Insert(TABLE, row(int4(1), "=r/me")), Insert(TABLE, row(None, None)))
    found = in_form(changes, compile_forms([*forms(INT4), TEXT_ONLY]))
    assert read(found, pa.int32(), pa.string()) == [[1, None], ["=r/me", None]]


Make = Callable[..., Any]


def in_either_form(changed: Callable[[Make, Make], list[Any]]) -> list[Changes]:
    """Changes of a table (int4, text) in binary form and as text."""
    sent = segment(*changed(int4, str.encode))
    return [binary(sent, INT4, TEXT), segment(*changed(str, str))]


def test_014_a_key_is_found_in_either_form() -> None:
    """Also by an UPDATE whose key did not change, and with values that were not sent again."""

    def changed(key: Make, text: Make) -> list[Any]:
        return [
            Insert(TABLE, row(key(7), text("one"))),
            Update(TABLE, None, None, row(key(7), ...)),
            Update(TABLE, "K", row(key(7), None), row(key(8), ...)),
            Update(TABLE, None, None, row(key(4), ...)),
            Update(TABLE, "K", row(key(5), None), row(key(6), ...)),
            Update(TABLE, "O", row(key(3), text("old")), row(key(3), ...)),
            Insert(TABLE, row(key(1), text("x"))),
            Delete(TABLE, "K", row(key(1), None)),
            Delete(TABLE, "K", row(key(2), None)),
        ]

    for changes in in_either_form(changed):
        folded = fold_keyed(changes, layout(pa.int32(), pa.string(), key=(0,)))
        assert (folded.conflict, folded.unchanged) == (-1, ("column 1",))
        assert rows(folded.append_batches()) == [{"c0": 8, "c1": "one"}]
        merged = [tuple(each.values()) for each in rows(folded.merge_batches())]
        assert merged == [
            (0, 4, 4, None, True),
            (0, 5, 6, None, True),
            (0, 3, 3, "old", False),
            (1, 2, None, None, False),
        ]


def test_014_whole_rows_are_found_in_either_form() -> None:
    def changed(key: Make, text: Make) -> list[Any]:
        return [
            Insert(TABLE, row(key(7), text("a"))),
            Update(TABLE, "O", row(key(7), text("a")), row(key(7), text("b"))),
            Delete(TABLE, "O", row(key(7), text("b"))),
            Delete(TABLE, "O", row(key(3), None)),
            Delete(TABLE, "O", row(key(3), None)),
        ]

    for changes in in_either_form(changed):
        full = full_images(changes, layout(pa.int32(), pa.string(), key=()))
        assert [(i["c0"], i["n"]) for i in rows(full.image_batches())] == [(3, 2)]
        full.resolve([])
        assert full.append_rows == 0


def test_surplus_columns_of_an_old_row_are_ignored() -> None:
    """H-30: publishers before 15.2 send more of an old row than the publication lists."""
    as_text = segment(
        Update(TABLE, "K", row("1", None, None, "junk"), row("2", "x", "t")),
        Delete(TABLE, "K", row("2", None, None, "junk")),
        Delete(TABLE, "K", row("5", None, None, None)),
    )
    in_binary = segment(
        Update(TABLE, "K", row(int4(1), None, None, b"\1"), row(int4(2), b"x", b"\1")),
        Delete(TABLE, "K", row(int4(2), None, None, "text, of a type that is not sent")),
        Delete(TABLE, "K", row(int4(5), None, None, None)),
    )
    mapped = layout(pa.int32(), pa.string(), pa.bool_(), key=(0,))
    for changes in (in_form(as_text, None), binary(in_binary, INT4, TEXT, 16)):
        found = rows(fold_keyed(changes, mapped).merge_batches())
        assert [(each["op"], each["b0"]) for each in found] == [(1, 1), (1, 5)]


def test_surplus_columns_of_a_whole_old_row_are_ignored() -> None:
    as_text = segment(Insert(TABLE, row("1", "x")), Delete(TABLE, "O", row("1", "x", "surplus")))
    in_binary = segment(
        Insert(TABLE, row(int4(1), b"x")), Delete(TABLE, "O", row(int4(1), b"x", b"\1\2\3"))
    )
    for changes in (in_form(as_text, None), binary(in_binary, INT4, TEXT)):
        full = full_images(changes, layout(pa.int32(), pa.string(), key=()))
        full.resolve([])
        assert (full.append_rows, full.missing_deletes) == (0, 0)


@pytest.mark.parametrize(
    "message",
    [
        Insert(TABLE, row("1", "x", "t", "surplus")),
        Update(TABLE, None, None, row("1", "x", "t", "surplus")),
        Delete(TABLE, "K", row("1", None)),
    ],
)
def test_no_other_count_is_read(message: Insert | Update | Delete) -> None:
    """H-30: a short row, or a new one with a surplus."""
    mapped = layout(pa.int32(), pa.string(), pa.bool_(), key=(0,))
    with pytest.raises(ReplicationError) as caught:
        rows(fold_keyed(segment(message), mapped).append_batches())
    assert caught.value.code == "08P01"
