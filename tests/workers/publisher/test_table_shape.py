"""The shape of a table, as a publisher tells it; every version is in ``tests/integration``."""

from __future__ import annotations

from typing import Any

import pytest

from tests.workers.publisher.scripted import ScriptedPublisher
from workers.publisher.table_shape import TableShape, fetch_shape, only_element

TYPES: list[Any] = [
    ("23", "pg_catalog", "int4", "b", "0", "-1", "0", ","),
    ("20001", "public", "price", "d", "23", "-1", "0", ","),
]


def test_a_table_with_a_dropped_column() -> None:
    rows: list[Any] = [
        ("1", "id", "23", "-1", "f", "f", None, "16389:7", "5/9*", "700", None),
        ("2", "..pg.dropped.2..", "0", "-1", "t", "f", None, "16389:7", "5/9*", "700", None),
        ("3", "p", "20001", "-1", "f", "t", "16389 16390", "16389:7", "5/9*", "700", "{7}"),
    ]
    conn = ScriptedPublisher(18, {"f.relfilenode": rows, "FROM needed": TYPES})
    shape = fetch_shape(conn, 16389, ["pub"])
    assert shape is not None
    assert (shape.relid, shape.dropped, shape.files, shape.lists) == (
        16389,
        frozenset({2}),
        {16389: 7},
        "5/9*",
    )
    first, last = shape.columns
    assert first.version == "700"
    assert (first.attnum, first.name, first.computed, first.has_missing) == (1, "id", False, False)
    assert (last.typid, last.type.oid, last.computed, last.has_missing) == (20001, 23, True, True)
    assert (last.stored, last.stored_in) == ("7", frozenset({16389, 16390}))


@pytest.mark.parametrize(
    ("array", "element"),
    [
        ("{7}", "7"),
        ('{""}', ""),
        ('{"NULL"}', "NULL"),
        ('{"2026-01-01 00:00:00+00"}', "2026-01-01 00:00:00+00"),
        (r'{"a \"quoted\" \\ {word}, and\nmore"}', 'a "quoted" \\ {word}, andnmore'),
        ('{"{1,2,NULL}"}', "{1,2,NULL}"),
        (r'{"{\"a b\",c}"}', '{"a b",c}'),
        ('{"two\nlines"}', "two\nlines"),
    ],
)
def test_the_element_of_an_array_with_one(array: str, element: str) -> None:
    assert only_element(array) == element


def test_a_relation_that_is_gone() -> None:
    assert fetch_shape(ScriptedPublisher(18, {}), 16389, ["pub"]) is None


def test_a_partitioned_table_without_partitions_has_no_file() -> None:
    row = ("1", "id", "23", "-1", "f", "f", None, None, None, "700", None)
    shape = fetch_shape(
        ScriptedPublisher(14, {"f.relfilenode": [row], "FROM needed": TYPES}), 1, ["pub"]
    )
    assert isinstance(shape, TableShape)
    assert (shape.files, shape.lists) == ({}, "")
