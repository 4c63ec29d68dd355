"""Rows of the lake in memory: values, keys and generated columns."""

from __future__ import annotations

import pyarrow as pa
import pytest

from catalog.errcodes import FeatureNotSupported
from workers.lake.memory.rows import (
    Row,
    as_dicts,
    complete,
    find_keys,
    generate,
    new_values,
    overwrite_rows,
    pairs,
    repeated,
    same,
)
from workers.lake.segment import KeyLookup, OtherKey, Segment
from workers.lake.staged_rows import Staged
from workers.lake.table import SOURCE_COLUMN, LakeColumn

NAN = float("nan")


def rows(*ids: int | None) -> list[Row]:
    return [{"id": each, "v": f"v{n}"} for n, each in enumerate(ids)]


def staged(**columns: list[int] | list[str]) -> Staged:
    table = pa.table(columns)
    return Staged(table.num_rows, table=table)


@pytest.mark.parametrize(
    ("left", "right", "equal"),
    [(1, 1, True), (1, 2, False), (None, None, True), (None, 1, False), (NAN, NAN, True)],
)
def test_nulls_and_nans_equal_themselves(left: object, right: object, equal: bool) -> None:
    assert same(left, right) is equal


def test_an_unchanged_value_is_not_set() -> None:
    segment = Segment(("id", "big"), ("id",), unchanged=("big",))
    assert new_values(segment, {"c0": 1, "c1": None, "m1": True}) == {"id": 1}
    assert new_values(segment, {"c0": 1, "c1": "x", "m1": False}) == {"id": 1, "big": "x"}


def test_a_row_is_completed_with_defaults_and_with_its_source() -> None:
    columns = [LakeColumn(name, pa.string()) for name in ("id", "note", "none")]
    assert complete(columns, {"id": 1}, {"note": "now()"}, "") == {
        "id": 1,
        "note": "now()",
        "none": None,
    }
    assert complete(columns, {"id": 1}, {}, "s")[SOURCE_COLUMN] == "s"


def test_generated_columns_are_computed_and_null_makes_null() -> None:
    generated = (("twice", "id * 2"), ("name", "upper(coalesce(v, 'none'))"))
    assert generate({"id": 2, "v": None}, generated) == {
        "id": 2,
        "v": None,
        "twice": 4,
        "name": "NONE",
    }
    assert generate({"id": None, "v": "x"}, generated)["twice"] is None
    with pytest.raises(FeatureNotSupported):
        generate({"id": 1}, (("g", "sqrt(id)"),))


def test_keys_are_compared_without_nulls() -> None:
    assert pairs(rows(1, 2, None, 2), rows(2, None, 3), ["id"]) == [(1, 0), (3, 0)]
    assert repeated([*rows(1, 1, None, None), *rows(2)], ["id"], "") == 1


def test_existing_rows_take_copied_values() -> None:
    existing = [{"id": 1, "v": "a", "note": "n"}, {"id": 2, "v": "b", "note": "n"}]
    copied = [{"id": 2, "v": "new", "note": None}, {"id": 3, "v": "c", "note": None}]
    assert overwrite_rows(existing, copied, ["id", "v"], ["id"], ()) == [
        existing[0],
        {"id": 2, "v": "new", "note": "n"},
        copied[1],
    ]


def test_a_look_up_names_the_keys_that_a_row_has() -> None:
    own = staged(k=[0, 1], b0=[1, 5])
    others = (OtherKey(("v",), staged(k=[0], b0=["v1"])),)
    lookup = KeyLookup(own, lambda _: Segment(("id", "v")), others)
    found = find_keys(rows(1, 2, 3), Segment(("id", "v"), ("id",)), lookup)
    assert [tuple(row.values()) for row in found.to_pylist()] == [(0, None), (None, 0)]
    assert as_dicts(None) == []
