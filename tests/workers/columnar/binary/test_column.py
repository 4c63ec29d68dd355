"""Values in binary form without a server: what is damaged, in another form, or too much."""

from __future__ import annotations

import struct
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from tests.workers.columnar.records import TABLE, layout, rows, segment
from workers.columnar.binary import scalars as scalars
from workers.columnar.binary.forms import TEXT_ONLY, Form, compile_forms, form_of
from workers.columnar.column_reader import (
    Changes,
    ColumnReader,
    UnreadableValue,
    UnrepresentableValue,
    in_form,
)
from workers.columnar.fold.by_key import fold_keyed
from workers.columnar.fold.whole_rows import full_images
from workers.proto.messages import ColumnStatus, Delete, Insert, TupleColumn, TupleData, Update

INT4, INT8, TEXT, NUMERIC, DATE, FLOAT8 = 23, 20, 25, 1700, 1082, 701
NO_FORM = "cannot read a value in binary format"


def value(given: object) -> TupleColumn:
    """A ``str`` as text, ``bytes`` in binary form, ``...`` unchanged."""
    if isinstance(given, str):
        return TupleColumn(ColumnStatus.TEXT, given.encode())
    if isinstance(given, bytes):
        return TupleColumn(ColumnStatus.BINARY, given)
    return TupleColumn(ColumnStatus.NULL if given is None else ColumnStatus.UNCHANGED)


def row(*values: object) -> TupleData:
    return tuple(value(each) for each in values)


def int4(number: int) -> bytes:
    return struct.pack(">i", number)


def forms(*oids: int) -> list[Form]:
    return [found for oid in oids if (found := form_of(oid, {})) is not None]


def binary(changes: Changes, *oids: int) -> Changes:
    """Changes of columns of these types, all of them in binary form."""
    return in_form(changes, compile_forms(forms(*oids)))


def numeric(number: Decimal) -> bytes:
    """``numeric_send``, written from its description."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        code = {"n": 0xC000, "F": 0xF000 if sign else 0xD000}[exponent]
        return struct.pack(">hhHH", 0, 0, code, 0)
    scale = max(-exponent, 0)
    whole = int("".join(map(str, digits))) * 10 ** max(exponent, 0)
    padded = -(-scale // 4) * 4
    whole *= 10 ** (padded - scale)
    groups: list[int] = []
    while whole:
        whole, group = divmod(whole, 10_000)
        groups.insert(0, group)
    weight = len(groups) - padded // 4 - 1
    while groups and groups[-1] == 0:
        groups.pop()
    head = struct.pack(">hhHH", len(groups), weight, 0x4000 if sign and groups else 0, scale)
    return head + b"".join(struct.pack(">h", group) for group in groups)


def read(changes: Changes, *types: pa.DataType, null_unrepresentable: bool = False) -> list[Any]:
    """The new rows of a segment, decoded."""
    mapped = layout(*types, key=(), null_unrepresentable=null_unrepresentable)
    reader = ColumnReader(changes, mapped, mapped.columns)
    refs = np.arange(len(changes)) * 2 + 1
    arrays = [arrays for _, arrays, _ in reader.chunks(refs)]
    return [
        [item for array in column for item in array.to_pylist()]
        for column in zip(*arrays, strict=True)
    ]


@settings(deadline=None)  # the first one compiles
@given(st.lists(st.decimals(allow_nan=True, allow_infinity=True, places=None), min_size=1))
def test_014_any_numeric_is_the_text_of_the_same_numeric(numbers: list[Decimal]) -> None:
    quiet = [Decimal("NaN") if number.is_nan() else number for number in numbers]
    near = [n for n in quiet if not n.is_finite() or -600 < int(n.as_tuple().exponent) < 600]
    if not near:
        return
    changes = segment(*(Insert(TABLE, row(numeric(number))) for number in near))
    (texts,) = read(binary(changes, NUMERIC), pa.string())
    for text, number in zip(texts, near, strict=True):
        if number.is_nan():
            assert text == "NaN"
        else:
            assert Decimal(text) == number
            assert not number.is_finite() or text in (f"{number:f}", f"{abs(number):f}")


@pytest.mark.parametrize("sent", ["NaN", "123456.785", "1234567890.5", "-Infinity"])
def test_014_a_numeric_that_does_not_fit_fails_as_its_text_does(sent: str) -> None:
    errors = []
    for changes in (
        binary(segment(Insert(TABLE, row(numeric(Decimal(sent))))), NUMERIC),
        segment(Insert(TABLE, row(sent))),
    ):
        with pytest.raises(UnrepresentableValue) as caught:
            read(changes, pa.decimal128(9, 2))
        errors.append((caught.value.code, caught.value.primary, caught.value.change))
        assert read(changes, pa.decimal128(9, 2), null_unrepresentable=True) == [[None]]
    assert errors[0] == errors[1]


ARRAY = struct.pack(">iiiii", 1, 0, INT4, 1, 1)

DAMAGED: list[tuple[int, bytes, str]] = [
    (INT4, b"\0\0\0", "08P01"),
    (INT4, b"\0\0\0\0\0", "22P03"),
    (INT4, b"", "08P01"),
    (INT8, b"\0" * 4, "08P01"),
    (16, b"", "08P01"),
    (701, b"\0" * 4, "08P01"),
    (NUMERIC, b"\0\1\0\0\0\0\0\0", "08P01"),
    (NUMERIC, b"\0\1\0\0\0\0\0\0\x27\x10", "22P03"),
    (NUMERIC, b"\0\0\0\0\x80\0\0\0", "22P03"),
    (NUMERIC, b"\0\0\0\0\0\0\xff\xff", "22P03"),
    (DATE, struct.pack(">i", 0x7FFFFFFE), "22008"),
    (1114, struct.pack(">q", -(2**62)), "22008"),
    (1083, struct.pack(">q", -1), "22008"),
    (1266, struct.pack(">qi", 0, 16 * 3600), "22008"),
    (3802, b"\2{}", "22P03"),
    (3802, b"", "08P01"),
    (869, b"\2\x21\0\4\1\2\3\4", "22P03"),
    (869, b"\7\x20\0\4\1\2\3\4", "22P03"),
    (869, b"\2\x20\0\4\1\2\3", "08P01"),
    (1562, struct.pack(">i", 9) + b"\0", "08P01"),
    (1562, b"\xff\xff\xff\xff", "22P03"),
    (604, struct.pack(">i", 2) + b"\0" * 16, "08P01"),
    (1007, b"\0\0\0\1", "08P01"),
    (1007, ARRAY, "08P01"),
    (1007, ARRAY + b"\0\0\0\2\0\1", "08P01"),
    (1007, ARRAY + b"\0\0\0\5\0\0\0\0\0", "22P03"),
    (1007, ARRAY + b"\0\0\0\4\0\0\0\0\0", "22P03"),
    (1007, struct.pack(">iii", 7, 0, INT4) + b"\0" * 56, "22P03"),
    (1007, struct.pack(">iiiii", 1, 0, INT4, -1, 1), "22P03"),
    (1007, struct.pack(">iiiiiii", 2, 0, INT4, 0x7FFFFFFF, 1, 0x7FFFFFFF, 1), "08P01"),
    (3904, b"", "08P01"),
    (3904, b"\2\0\0\0\4\0\0", "08P01"),
    (3904, b"\1\0", "22P03"),
    (4451, b"\0\0\0\1\0\0\0\7\1", "08P01"),
    (4451, b"\0\0\0\0\0", "22P03"),
]


@pytest.mark.parametrize(("oid", "sent", "sqlstate"), DAMAGED)
def test_014_a_damaged_value_has_postgresql_s_error(oid: int, sent: bytes, sqlstate: str) -> None:
    changes = binary(segment(Insert(TABLE, row(None)), Insert(TABLE, row(sent))), oid)
    with pytest.raises(UnreadableValue) as caught:
        read(changes, pa.string())
    assert (caught.value.code, caught.value.change) == (sqlstate, 1)
    primary = {"08P01": "insufficient data", "22P03": "incorrect binary", "22008": "out of range"}
    assert primary[sqlstate] in caught.value.primary


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


def array(has_null: int, *numbers: int | None) -> bytes:
    """``array_send`` of int4[]; the flag only says what may be in it."""
    sent = struct.pack(">iiiii", 1, has_null, INT4, len(numbers), 1)
    return sent + b"".join(
        struct.pack(">i", -1) if n is None else struct.pack(">ii", 4, n) for n in numbers
    )


def digits(*numbers: str) -> list[bytes]:
    return [numeric(Decimal(number)) for number in numbers]


FLOATS = [struct.pack(">d", number) for number in (-0.0, 0.0, float("nan"), float("nan"), 1.0)]
LARGE = [struct.pack(">q", 2**53 + more) for more in (0, 1, 2)]


@pytest.mark.parametrize(
    ("oid", "type", "sent", "counts"),
    [
        (NUMERIC, pa.decimal128(9, 2), digits("1.5", "1.50", "1.500", "0", "0.00"), [3, 2]),
        (NUMERIC, pa.decimal128(9, 2), digits("1.50", "1.51", "1.50"), [2, 1]),
        (NUMERIC, pa.string(), digits("1.5", "1.50", "1.5"), [2, 1]),
        (1007, pa.list_(pa.int32()), [array(0, 1, 2), array(1, 1, 2), array(1, 1, None)], [2, 1]),
        (1007, pa.string(), [array(0, 1, 2), array(1, 1, 2), array(1, 1, None)], [2, 1]),
        (FLOAT8, pa.float64(), FLOATS, [2, 2, 1]),
        (TEXT, pa.int32(), [b"1", b"01", b"2"], [2, 1]),
        (TEXT, pa.decimal128(9, 2), [b"1.5", b"1.50", b"2"], [2, 1]),
        (TEXT, pa.string(), [b"1", b"01", b"1"], [2, 1]),
        (3802, pa.decimal128(9, 2), [b"\1" + b"1.5", b"\1" + b"1.50"], [2]),
        (INT8, pa.float64(), LARGE, [2, 1]),
        (INT8, pa.int64(), LARGE, [1, 1, 1]),
    ],
)
def test_014_what_the_lake_calls_equal_is_one_image(
    oid: int, type: pa.DataType, sent: list[bytes], counts: list[int]
) -> None:
    """Also where the lake's column is of another type than the publisher's."""
    deletes = [Delete(TABLE, "O", row(each, None)) for each in sent]
    changes = binary(segment(*deletes), oid, TEXT)
    full = full_images(changes, layout(type, pa.string(), key=()))
    assert [each["n"] for each in rows(full.image_batches())] == counts


def test_014_values_that_become_null_are_one_image() -> None:
    days = [struct.pack(">i", day) for day in (0x7FFFFFFF, -0x80000000, 0)]
    deletes = [Delete(TABLE, "O", row(day, b"x")) for day in [*days, None]]
    form = layout(pa.date32(), pa.string(), key=(), null_unrepresentable=True)
    full = full_images(binary(segment(*deletes), DATE, TEXT), form)
    assert [each["n"] for each in rows(full.image_batches())] == [3, 1]


def test_014_an_array_is_read_where_its_text_would_be_refused() -> None:
    """A backslash or a bound of 0 makes text slow or odd; the values are the same."""
    sent = struct.pack(">iiiii", 1, 1, TEXT, 3, 1)
    sent += struct.pack(">i", 2) + b'"\\' + struct.pack(">i", -1) + struct.pack(">i", 4) + b"null"
    changes = segment(Insert(TABLE, row(sent)))
    assert read(binary(changes, 1009), pa.list_(pa.string())) == [[['"\\', None, "null"]]]


LONG = [Decimal(at).scaleb(1000) for at in range(1, 12)]
"""Ten bytes or so each in binary form, more than a thousand as text."""


@pytest.fixture
def little_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """An array takes three of ``LONG``."""
    monkeypatch.setattr("workers.columnar.binary.text.TEXT_ARRAY_BYTES", 2500)


def batches_of(found: Any) -> tuple[list[int], list[dict[str, Any]]]:
    batches = list(found)
    return [batch.num_rows for batch in batches], rows(batches)


@pytest.mark.usefixtures("little_text")
def test_014_a_chunk_is_split_where_its_text_is_much_larger() -> None:
    inserts = [Insert(TABLE, row(int4(at), numeric(n))) for at, n in enumerate(LONG)]
    changes = binary(segment(*inserts), INT4, NUMERIC)
    folded = fold_keyed(changes, layout(pa.int32(), pa.string()))
    sizes, found = batches_of(folded.append_batches())
    assert sizes == [3, 3, 3, 2]
    assert found == [{"c0": at, "c1": f"{n:f}"} for at, n in enumerate(LONG)]
    assert batches_of(folded.append_batches(chunk_rows=4))[0] == [3, 1, 3, 1, 3]
    assert rows(folded.append_batches(chunk_rows=4)) == found


@pytest.mark.usefixtures("little_text")
@pytest.mark.parametrize("values_too", [False, True])
def test_014_keys_are_split_where_their_text_is_much_larger(values_too: bool) -> None:
    """Each stays beside its own row: what becomes of it, and what was not sent of it."""
    updates: list[Any] = []
    for at, number in enumerate(LONG):
        new = number + 1 if values_too else Decimal(at)
        note = ... if at % 2 else str(at).encode()
        updates.append(Update(TABLE, "K", row(numeric(number), None), row(numeric(new), note)))
    updates[4] = Delete(TABLE, "K", row(numeric(LONG[4]), None))
    changes = binary(segment(*updates), NUMERIC, TEXT)
    folded = fold_keyed(changes, layout(pa.string(), pa.string()))
    sizes, found = batches_of(folded.merge_batches())
    assert sizes == ([3, 3, 1, 3, 1] if values_too else [3, 3, 3, 2])
    assert rows(folded.merge_batches(chunk_rows=4)) == found
    assert len(found) == len(LONG)
    for at, (each, number) in enumerate(zip(found, LONG, strict=True)):
        new = number + 1 if values_too else Decimal(at)
        wanted: tuple[Any, ...] = (f"{new:f}", None if at % 2 else str(at), bool(at % 2))
        if at == 4:
            wanted = (None, None, False)
        assert (each["b0"], each["op"]) == (f"{number:f}", int(at == 4))
        assert (each["c0"], each["c1"], each["m1"]) == wanted


@pytest.mark.usefixtures("little_text")
def test_014_whole_rows_are_split_where_their_text_is_much_larger() -> None:
    deletes = [Delete(TABLE, "O", row(numeric(number))) for number in LONG]
    full = full_images(binary(segment(*deletes), NUMERIC), layout(pa.string(), key=()))
    sizes, found = batches_of(full.image_batches())
    assert sizes == [3, 3, 3, 2]
    assert [each["c0"] for each in found] == [f"{number:f}" for number in LONG]
    assert [each["image"] for each in found] == list(range(len(LONG)))


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


def test_kinds_have_one_number_each() -> None:
    numbers = [n for name, n in vars(scalars).items() if name.isupper() and name[0] != "_"]
    assert len(numbers) > 30
    kinds = [n for n in numbers if isinstance(n, int)]
    assert sorted(set(kinds)) == list(range(1, 35))
