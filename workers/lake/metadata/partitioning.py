"""The partitions and the order of a table's rows, as the table's metadata describes them.

A partition spec has fields. A field applies a transform to a source column; the files of one
partition have rows with equal results in all fields. A sort order has fields of the same kind. An
owner may change the spec: files of the former spec stay, and every file names its spec.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from workers.lake.new_layout import NewLayout
from workers.lake.table import LakeColumn

_WITH_WIDTH: Final = re.compile(r"(bucket|truncate)\[(\d+)\]")
_PLAIN: Final = frozenset({"identity", "void", "year", "month", "day", "hour"})


@dataclass(frozen=True, slots=True)
class Transform:
    """A function of Iceberg from a column's value; ``width`` is of ``bucket`` and ``truncate``."""

    kind: str
    width: int = 0


@dataclass(frozen=True, slots=True)
class PartitionField:
    """A field of a partition spec: the transform of the column with the field id ``source_id``."""

    field_id: int
    source_id: int
    transform: Transform


@dataclass(frozen=True, slots=True)
class PartitionSpec:
    """A partition spec; an unpartitioned table has a spec without fields."""

    spec_id: int
    fields: tuple[PartitionField, ...]


UNPARTITIONED: Final = PartitionSpec(0, ())
"""The spec of a table that never had partitions."""


@dataclass(frozen=True, slots=True)
class SortField:
    """A field of a sort order."""

    source_id: int
    transform: Transform
    descending: bool
    nulls_first: bool


def transform_of(name: str) -> Transform | None:
    """The transform of a name such as ``bucket[16]``; None for an unknown one."""
    if found := _WITH_WIDTH.fullmatch(name):
        return Transform(found[1], int(found[2])) if int(found[2]) else None
    return Transform(name) if name in _PLAIN else None


def current_spec(metadata: Mapping[str, Any]) -> PartitionSpec | None:
    """The spec of new files; None if a field has an unknown transform or several columns."""
    spec_id = metadata["default-spec-id"]
    spec = next(each for each in metadata["partition-specs"] if each["spec-id"] == spec_id)
    fields = []
    for each in spec["fields"]:
        transform = transform_of(each["transform"])
        if transform is None or "source-id" not in each:
            return None
        fields.append(PartitionField(each["field-id"], each["source-id"], transform))
    return PartitionSpec(spec_id, tuple(fields))


def has_places(metadata: Mapping[str, Any]) -> bool:
    """May files of the table belong to different partitions or specs?"""
    specs = metadata["partition-specs"]
    return len(specs) > 1 or bool(specs[0]["fields"])


def current_order(metadata: Mapping[str, Any]) -> tuple[SortField, ...] | None:
    """The sort order of new files; None if a field has an unknown transform or several columns."""
    order_id = metadata.get("default-sort-order-id")
    if not order_id:
        return ()
    order = next(each for each in metadata["sort-orders"] if each["order-id"] == order_id)
    fields = []
    for each in order["fields"]:
        transform = transform_of(each["transform"])
        if transform is None or "source-id" not in each:
            return None
        descending = each["direction"].lower() == "desc"
        nulls_first = each["null-order"].lower() == "nulls-first"
        fields.append(SortField(each["source-id"], transform, descending, nulls_first))
    return tuple(fields)


def with_layout(
    columns: Sequence[LakeColumn], metadata: Mapping[str, Any]
) -> tuple[LakeColumn, ...]:
    """The columns with what the table's layout makes from them.

    Every spec counts: files of a former spec stay, and a reader needs their partitions' types. Of
    the sort orders only the current one counts.
    """
    names: dict[int, list[str]] = {}
    for spec in metadata.get("partition-specs", ()):
        for each in spec["fields"]:
            for source in _sources(each):
                names.setdefault(source, []).append(each["name"])
    order_id = metadata.get("default-sort-order-id")
    orders = [o for o in metadata.get("sort-orders", ()) if o["order-id"] == order_id]
    sorting = {source for order in orders for each in order["fields"] for source in _sources(each)}
    return tuple(
        replace(
            column,
            partition_fields=tuple(dict.fromkeys(names.get(column.field_id, ()))),
            sorts=column.field_id in sorting,
        )
        for column in columns
    )


def _sources(each: Mapping[str, Any]) -> Iterator[int]:
    """The columns that a field of a spec or an order reads; ``void`` reads none."""
    if each["transform"] != "void":
        yield from each.get("source-ids") or [each["source-id"]]


_FIRST_FIELD: Final = 1000
"""Iceberg's first id of a partition field."""
_ENDINGS: Final = {"identity": "", "truncate": "_trunc"}


def new_spec(columns: Sequence[LakeColumn], layout: NewLayout) -> str | None:
    """The spec of a new table as Iceberg reads a spec; None for a table without partitions.

    The columns have the ids 1, 2 … (``table_schema.schema_json``).
    """
    names = [column.name for column in columns]
    fields, taken = [], {*names}
    for number, each in enumerate(layout.partition_by):
        name = each.column + _ENDINGS.get(each.transform, f"_{each.transform}")
        while name in taken and each.transform != "identity":  # identity has the column's name
            name += "_"
        taken.add(name)
        fields.append(
            {
                "name": name,
                "transform": each.iceberg_name,
                "source-id": names.index(each.column) + 1,
                "field-id": _FIRST_FIELD + number,
            }
        )
    return json.dumps({"spec-id": 0, "fields": fields}) if fields else None


def new_order(columns: Sequence[LakeColumn], layout: NewLayout) -> str | None:
    """The sort order of a new table as Iceberg reads an order; None for no order."""
    names = [column.name for column in columns]
    fields = [
        {
            "transform": each.iceberg_name,
            "source-id": names.index(each.column) + 1,
            "direction": "desc" if each.descending else "asc",
            "null-order": "nulls-first" if each.nulls_first else "nulls-last",
        }
        for each in layout.sort_by
    ]
    return json.dumps({"order-id": 1, "fields": fields}) if fields else None
