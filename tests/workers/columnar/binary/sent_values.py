"""Values as a publisher sends them in binary form, and the segments that carry them."""

from __future__ import annotations

import struct
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.workers.columnar.records import TABLE, layout, segment
from workers.columnar.binary.forms import Form, compile_forms, form_of
from workers.columnar.binary.text import binary_texts
from workers.columnar.column_reader import Changes, ColumnReader, UnreadableValue, in_form
from workers.columnar.tuples import readonly
from workers.proto.messages import ColumnStatus, Insert, TupleColumn, TupleData

INT4, INT8, TEXT, NUMERIC, DATE, FLOAT8 = 23, 20, 25, 1700, 1082, 701


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


def array(has_null: int, *numbers: int | None) -> bytes:
    """``array_send`` of int4[]; the flag only says what may be in it."""
    sent = struct.pack(">iiiii", 1, has_null, INT4, len(numbers), 1)
    return sent + b"".join(
        struct.pack(">i", -1) if n is None else struct.pack(">ii", 4, n) for n in numbers
    )


def check_damaged(oid: int, sent: bytes, sqlstate: str) -> None:
    """A damaged value in the second row is that row's error."""
    changes = binary(segment(Insert(TABLE, row(None)), Insert(TABLE, row(sent))), oid)
    with pytest.raises(UnreadableValue) as caught:
        read(changes, pa.string())
    assert (caught.value.code, caught.value.change) == (sqlstate, 1)
    primary = {"08P01": "insufficient data", "22P03": "incorrect binary", "22008": "out of range"}
    assert primary[sqlstate] in caught.value.primary


def texts(oid: int, *sent: bytes | None) -> list[Any]:
    """The texts of the values of a type, without a segment."""
    nodes = compile_forms(forms(oid))
    length = np.array([-1 if value is None else len(value) for value in sent], np.int32)
    sizes = np.maximum(length, 0)
    loc = np.cumsum(sizes, dtype=np.int64) - sizes
    buf = readonly(np.frombuffer(b"".join(value or b"" for value in sent) or b"\0", np.uint8))
    found = binary_texts(nodes.table, int(nodes.roots[0]), buf, loc, length)
    found.validate(full=True)
    return found.to_pylist()
