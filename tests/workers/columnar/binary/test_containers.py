"""Arrays, ranges, multiranges and composites: braces, bounds and quotes as PostgreSQL's."""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.workers.columnar.binary.sent_values import (
    INT4,
    TEXT,
    array,
    binary,
    check_damaged,
    forms,
    int4,
    read,
    row,
    texts,
)
from tests.workers.columnar.records import TABLE, segment
from workers.columnar.binary.containers import RECORD
from workers.columnar.binary.forms import Form, compile_forms
from workers.columnar.binary.text import binary_texts
from workers.columnar.tuples import readonly
from workers.proto.messages import Insert

INT4_ARRAY, TEXT_ARRAY, INT4_RANGE, INT4_MULTIRANGE = 1007, 1009, 3904, 4451

ARRAY = struct.pack(">iiiii", 1, 0, INT4, 1, 1)

DAMAGED: list[tuple[int, bytes, str]] = [
    (INT4_ARRAY, b"\0\0\0\1", "08P01"),
    (INT4_ARRAY, ARRAY, "08P01"),
    (INT4_ARRAY, ARRAY + b"\0\0\0\2\0\1", "08P01"),
    (INT4_ARRAY, ARRAY + b"\0\0\0\5\0\0\0\0\0", "22P03"),
    (INT4_ARRAY, ARRAY + b"\0\0\0\4\0\0\0\0\0", "22P03"),
    (INT4_ARRAY, struct.pack(">iii", 7, 0, INT4) + b"\0" * 56, "22P03"),
    (INT4_ARRAY, struct.pack(">iiiii", 1, 0, INT4, -1, 1), "22P03"),
    (INT4_ARRAY, struct.pack(">iiiiiii", 2, 0, INT4, 0x7FFFFFFF, 1, 0x7FFFFFFF, 1), "08P01"),
    (INT4_RANGE, b"", "08P01"),
    (INT4_RANGE, b"\2\0\0\0\4\0\0", "08P01"),
    (INT4_RANGE, b"\1\0", "22P03"),
    (INT4_MULTIRANGE, b"\0\0\0\1\0\0\0\7\1", "08P01"),
    (INT4_MULTIRANGE, b"\0\0\0\0\0", "22P03"),
]


@pytest.mark.parametrize(("oid", "sent", "sqlstate"), DAMAGED)
def test_014_a_damaged_value_has_postgresql_s_error(oid: int, sent: bytes, sqlstate: str) -> None:
    check_damaged(oid, sent, sqlstate)


def field(sent: bytes | None) -> bytes:
    """A value after its length."""
    return struct.pack(">i", -1) if sent is None else struct.pack(">i", len(sent)) + sent


def text_array(*elements: str | None) -> bytes:
    head = struct.pack(">iiiii", 1, 1, TEXT, len(elements), 1)
    return head + b"".join(field(None if e is None else e.encode()) for e in elements)


@pytest.mark.parametrize(
    ("element", "text"),
    [
        ("a", "a"),
        ("", '""'),
        (None, "NULL"),
        ("null", '"null"'),
        ("nul", "nul"),
        ("NULLS", "NULLS"),
        ("a,b", '"a,b"'),
        ("a b", '"a b"'),
        ("{", '"{"'),
        ('say "hi"', '"say \\"hi\\""'),
        ("back\\", '"back\\\\"'),
        ("é", "é"),
    ],
)
def test_an_element_is_quoted_where_it_must_be(element: str | None, text: str) -> None:
    found = texts(TEXT_ARRAY, text_array("x", element, "y"))
    assert found == ["{x," + text + ",y}"]


@pytest.mark.parametrize(
    ("dimensions", "text"),
    [
        ([], "{}"),
        ([(4, 1)], "{0,1,2,3}"),
        ([(2, 0)], "[0:1]={0,1}"),
        ([(2, 1), (2, 1)], "{{0,1},{2,3}}"),
        ([(2, -1), (1, 3)], "[-1:0][3:3]={{0},{1}}"),
        ([(1, 1), (2, 1), (2, 1)], "{{{0,1},{2,3}}}"),
    ],
)
def test_an_array_has_its_dimensions_and_bounds(
    dimensions: list[tuple[int, int]], text: str
) -> None:
    sent = struct.pack(">iii", len(dimensions), 0, INT4)
    sent += b"".join(struct.pack(">ii", *dimension) for dimension in dimensions)
    count = int(np.prod([size for size, _ in dimensions])) if dimensions else 0
    sent += b"".join(field(int4(number)) for number in range(count))
    assert texts(INT4_ARRAY, sent) == [text]


ONE_TO_FIVE = b"\2" + field(int4(1)) + field(int4(5))


@pytest.mark.parametrize(
    ("sent", "text"),
    [
        (b"\1", "empty"),
        (ONE_TO_FIVE, "[1,5)"),
        (b"\6" + ONE_TO_FIVE[1:], "[1,5]"),
        (b"\4" + ONE_TO_FIVE[1:], "(1,5]"),
        (b"\x08" + field(int4(5)), "(,5)"),
        (b"\x12" + field(int4(1)), "[1,)"),
        (b"\x18", "(,)"),
    ],
)
def test_a_range_has_its_bounds(sent: bytes, text: str) -> None:
    assert texts(INT4_RANGE, sent) == [text]
    assert texts(INT4_MULTIRANGE, struct.pack(">i", 1) + field(sent)) == ["{" + text + "}"]


def test_a_multirange_may_have_no_and_many_ranges() -> None:
    many = struct.pack(">i", 2) + field(ONE_TO_FIVE) * 2
    assert texts(INT4_MULTIRANGE, struct.pack(">i", 0), many) == ["{}", "{[1,5),[1,5)}"]


def test_a_composite_doubles_quotes_and_leaves_nulls_out() -> None:
    [number], [word], [numbers] = forms(INT4), forms(TEXT), forms(INT4_ARRAY)
    nodes = compile_forms([Form(RECORD, (word, number, word, numbers))])
    fields = [(TEXT, b'a "(b)'), (INT4, None), (TEXT, b""), (INT4_ARRAY, array(0, 1, 2))]
    sent = struct.pack(">i", len(fields))
    sent += b"".join(struct.pack(">i", oid) + field(value) for oid, value in fields)
    found = binary_texts(
        nodes.table,
        int(nodes.roots[0]),
        readonly(np.frombuffer(sent, np.uint8)),
        np.zeros(1, np.int64),
        np.array([len(sent)], np.int32),
    )
    assert found.to_pylist() == ['("a ""(b)",,"","{1,2}")']


WORDS = st.one_of(st.none(), st.text(st.sampled_from('{},"\\ \tNULnulé'), max_size=5))


@settings(deadline=None)
@given(st.lists(st.lists(WORDS, min_size=1), min_size=1))
def test_any_array_of_text_comes_back_as_it_was(arrays: list[list[str | None]]) -> None:
    changes = segment(*(Insert(TABLE, row(text_array(*each))) for each in arrays))
    assert read(binary(changes, TEXT_ARRAY), pa.list_(pa.string())) == [arrays]


def test_014_an_array_is_read_where_its_text_would_be_refused() -> None:
    """A backslash or a bound of 0 makes text slow or odd; the values are the same."""
    sent = struct.pack(">iiiii", 1, 1, TEXT, 3, 1)
    sent += struct.pack(">i", 2) + b'"\\' + struct.pack(">i", -1) + struct.pack(">i", 4) + b"null"
    changes = segment(Insert(TABLE, row(sent)))
    assert read(binary(changes, 1009), pa.list_(pa.string())) == [[['"\\', None, "null"]]]
