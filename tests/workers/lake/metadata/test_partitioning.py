"""Partition specs and sort orders in a table's metadata."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from catalog.table_layout import LayoutField
from workers.lake.metadata.partitioning import (
    PartitionField,
    SortField,
    Transform,
    current_order,
    current_spec,
    has_places,
    new_order,
    new_spec,
    transform_of,
    with_layout,
)
from workers.lake.new_layout import PLAIN, NewLayout
from workers.lake.table import LakeColumn

FIELD = {"name": "p", "transform": "day", "source-id": 3, "field-id": 1000}
SPECS: dict[str, Any] = {
    "default-spec-id": 1,
    "partition-specs": [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": [FIELD]}],
}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("identity", Transform("identity")),
        ("bucket[16]", Transform("bucket", 16)),
        ("truncate[4]", Transform("truncate", 4)),
        ("bucket[0]", None),
        ("bucket", None),
        ("zorder", None),
        ("hour[2]", None),
    ],
)
def test_a_transform_has_a_name(name: str, expected: Transform | None) -> None:
    assert transform_of(name) == expected


def test_the_newest_spec_counts() -> None:
    spec = current_spec(SPECS)
    assert spec is not None
    assert spec.fields == (PartitionField(1000, 3, Transform("day")),)
    assert has_places(SPECS)
    first = current_spec(SPECS | {"default-spec-id": 0})
    assert first is not None
    assert first.fields == ()


def test_a_table_without_an_order_and_one_with() -> None:
    assert current_order({}) == current_order({"default-sort-order-id": 0}) == ()
    field = {"transform": "bucket[2]", "source-id": 5, "direction": "ASC"}
    field["null-order"] = "nulls-first"
    orders = [{"order-id": 0, "fields": []}, {"order-id": 2, "fields": [field]}]
    found = current_order({"default-sort-order-id": 2, "sort-orders": orders})
    assert found == (SortField(5, Transform("bucket", 2), False, True),)
    unknown = [{"order-id": 2, "fields": [field | {"transform": "zorder"}]}]
    assert current_order({"default-sort-order-id": 2, "sort-orders": unknown}) is None


COLUMNS = [LakeColumn(name, pa.int64()) for name in ("a", "a_day", "b")]


def test_a_new_table_s_spec_has_names_that_no_column_has() -> None:
    fields = (LayoutField("a", "day"), LayoutField("b"), LayoutField("b", "bucket", 4))
    spec = new_spec(COLUMNS, NewLayout(fields))
    assert spec is not None
    assert [(each["name"], each["source-id"], each["transform"], each["field-id"])
            for each in json.loads(spec)["fields"]] == [
        ("a_day_", 1, "day", 1000), ("b", 3, "identity", 1001), ("b_bucket", 3, "bucket[4]", 1002),
    ]  # fmt: skip
    assert new_spec(COLUMNS, PLAIN) is None


def test_a_new_table_s_order_is_read_back() -> None:
    fields = (LayoutField("b", descending=True, nulls_first=True), LayoutField("a", "truncate", 9))
    order = new_order(COLUMNS, NewLayout(sort_by=fields))
    assert order is not None
    found = current_order({"default-sort-order-id": 1, "sort-orders": [json.loads(order)]})
    assert found == (
        SortField(3, Transform("identity"), True, True),
        SortField(1, Transform("truncate", 9), False, False),
    )
    assert new_order(COLUMNS, PLAIN) is None


def test_columns_know_what_the_layout_makes_from_them() -> None:
    """Of every spec, but of the current order; ``void`` makes nothing."""
    columns = [LakeColumn(name, pa.int32(), field_id=n) for n, name in enumerate("abcde", 1)]
    void = {"name": "e", "transform": "void", "source-id": 5, "field-id": 1003}
    several = {"name": "q", "transform": "bucket[4]", "source-ids": [1, 3], "field-id": 1002}
    specs = [*SPECS["partition-specs"], {"spec-id": 2, "fields": [void, several]}]
    orders = [
        {"order-id": 1, "fields": [{"transform": "identity", "source-id": 1}]},
        {"order-id": 2, "fields": [{"transform": "identity", "source-id": 2}]},
    ]
    order = {"default-sort-order-id": 2, "sort-orders": orders}
    found = with_layout(columns, {"partition-specs": specs, **order})
    assert [each.partition_fields for each in found] == [("q",), (), ("p", "q"), (), ()]
    assert [each.sorts for each in found] == [False, True, False, False, False]
    assert [each.in_layout for each in found] == [True, True, True, False, False]
