"""Values in binary form without a server: what is damaged, mixed with text, or too much."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import ReplicationError
from tests.workers.columnar.records import TABLE, layout, rows, segment
from workers.columnar import binary_scalars as scalars
from workers.columnar.binary_catalog import TEXT_ONLY, Form, form_of
from workers.columnar.binary_rows import Room, UnreadableValue, textual
from workers.columnar.columns import Changes, ColumnReader, UnrepresentableValue
from workers.columnar.fold import fold_keyed
from workers.columnar.full import full_images
from workers.proto.messages import ColumnStatus, Delete, Insert, TupleColumn, TupleData, Update

INT4, INT8, TEXT, NUMERIC, DATE = 23, 20, 25, 1700, 1082


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
    (texts,) = read(textual(changes, forms(NUMERIC)), pa.string())
    for text, number in zip(texts, near, strict=True):
        if number.is_nan():
            assert text == "NaN"
        else:
            assert Decimal(text) == number
            assert not number.is_finite() or text in (f"{number:f}", f"{abs(number):f}")


@pytest.mark.parametrize("sent", ["NaN", "123456.785", "1234567890.5", "-Infinity"])
def test_014_a_numeric_that_does_not_fit_fails_as_its_text_does(sent: str) -> None:
    errors = []
    for form in (numeric(Decimal(sent)), sent):
        changes = segment(Insert(TABLE, row(form)))
        with pytest.raises(UnrepresentableValue) as caught:
            read(textual(changes, forms(NUMERIC)), pa.decimal128(9, 2))
        errors.append((caught.value.code, caught.value.primary, caught.value.change))
        found = read(
            textual(changes, forms(NUMERIC)), pa.decimal128(9, 2), null_unrepresentable=True
        )
        assert found == [[None]]
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
    sound = row("1")
    changes = segment(Insert(TABLE, sound), Insert(TABLE, row(sent)))
    with pytest.raises(UnreadableValue) as caught:
        textual(changes, forms(oid))
    assert (caught.value.code, caught.value.change) == (sqlstate, 1)
    primary = {"08P01": "insufficient data", "22P03": "incorrect binary", "22008": "out of range"}
    assert primary[sqlstate] in caught.value.primary


def test_014_a_binary_value_nobody_asked_for_is_refused() -> None:
    changes = segment(Insert(TABLE, row(b"\0")))
    with pytest.raises(UnreadableValue) as caught:
        textual(changes, [TEXT_ONLY])
    assert caught.value.code == "0A000"
    assert caught.value.hint == (
        "Set binary = false for the subscription: values then arrive as text."
    )


def test_014_a_key_is_the_same_in_either_form() -> None:
    """As b, as t, and by an UPDATE whose key did not change."""
    changes = segment(
        Insert(TABLE, row("7", b"one")),
        Update(TABLE, None, None, row(int4(7), ...)),
        Update(TABLE, "K", row(int4(7), None), row("8", ...)),
        Update(TABLE, "K", row("8", None), row(int4(9), "two")),
        Insert(TABLE, row(int4(1), b"x")),
        Delete(TABLE, "K", row("1", None)),
    )
    folded = fold_keyed(
        textual(changes, forms(INT4, TEXT)), layout(pa.int32(), pa.string(), key=(0,))
    )
    assert folded.conflict == -1
    assert folded.merge_rows == 0
    assert rows(folded.append_batches()) == [{"c0": 9, "c1": "two"}]


def test_014_whole_rows_are_the_same_in_either_form() -> None:
    changes = segment(
        Insert(TABLE, row("7", numeric(Decimal("1.50")))),
        Update(TABLE, "O", row(int4(7), "1.5"), row("7", numeric(Decimal("2")))),
        Delete(TABLE, "O", row(int4(7), "2.000")),
        Delete(TABLE, "O", row("3", None)),
        Delete(TABLE, "O", row(int4(3), None)),
    )
    full = full_images(
        textual(changes, forms(INT4, NUMERIC)),
        layout(pa.int32(), pa.decimal128(9, 3), key=()),
    )
    assert [(i["c0"], i["n"]) for i in rows(full.image_batches())] == [(3, 2)]
    full.resolve([])
    assert full.append_rows == 0


def test_014_an_array_is_read_where_its_text_would_be_refused() -> None:
    """A backslash or a bound of 0 makes text slow or odd; the values are the same."""
    array = struct.pack(">iiiii", 1, 1, TEXT, 3, 1)
    array += struct.pack(">i", 2) + b'"\\' + struct.pack(">i", -1) + struct.pack(">i", 4) + b"null"
    changes = segment(Insert(TABLE, row(array)))
    assert read(textual(changes, forms(1009)), pa.list_(pa.string())) == [[['"\\', None, "null"]]]


def test_rewritten_rows_grow_into_a_file_beside_the_spool(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("workers.columnar.binary_rows.IN_MEMORY", 1 << 14)
    messages = [Insert(TABLE, row(int4(at), b"\xde" * 100)) for at in range(1000)]
    changes = segment(*messages)
    assert not isinstance(textual(changes, forms(INT4, 17)).buf, np.memmap)
    found = textual(changes, forms(INT4, 17), tmp_path)
    assert isinstance(found.buf, np.memmap)
    wanted = [list(range(1000)), [b"\xde" * 100] * 1000]
    assert read(found, pa.int32(), pa.binary()) == wanted
    assert list(tmp_path.iterdir()) == []


def test_a_room_keeps_what_is_in_it() -> None:
    room = Room(10)
    room.buf[:3] = [1, 2, 3]
    size = len(room.buf)
    room.grow(3)
    assert len(room.buf) >= 2 * size
    assert room.buf[:3].tolist() == [1, 2, 3]


def test_surplus_columns_of_an_old_row_are_ignored() -> None:
    """H-30: publishers before 15.2 send more of an old row than the publication lists."""
    changes = segment(
        Update(TABLE, "K", row("1", None, None, "junk"), row("2", "x", "t")),
        Delete(TABLE, "K", row(int4(2), None, None, b"\1\2\3")),
        Delete(TABLE, "K", row("5", None, None, None)),
    )
    mapped = layout(pa.int32(), pa.string(), pa.bool_(), key=(0,))
    folded = fold_keyed(textual(changes, forms(INT4, TEXT, 16)), mapped)
    assert [(each["op"], each["b0"]) for each in rows(folded.merge_batches())] == [(1, 1), (1, 5)]
    whole = segment(Insert(TABLE, row("1", "x")), Delete(TABLE, "O", row("1", "x", "surplus")))
    full = full_images(whole, layout(pa.int32(), pa.string(), key=()))
    assert full.append_schema is not None
    full.resolve([])
    assert full.append_rows == 0


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
