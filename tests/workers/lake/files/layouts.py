"""Layouts of tables for tests of files: metadata as Iceberg writes it, rows, files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from workers.lake.files.data_files import (
    as_rows,
    write_groups,
)
from workers.lake.files.position_deletes import write_deletes
from workers.lake.files.table_layout import TableLayout, read_layout
from workers.lake.staged_rows import NewFile
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeIdent

IDENT = LakeIdent("s", "t")
ON_READ = {f"write.{each}.mode": "merge-on-read" for each in ("merge", "update", "delete")}
FIELD_ID = b"PARQUET:field_id"


def a_list(element: Any, element_id: int, *, required: bool = False) -> dict[str, Any]:
    return {
        "type": "list",
        "element-id": element_id,
        "element": element,
        "element-required": required,
    }


def metadata(*types: Any, required: bool = False, **changes: Any) -> dict[str, Any]:
    """Of a table with columns ``a``, ``b`` … whose field ids are 11, 12 …"""
    fields = [
        {"id": 11 + n, "name": chr(ord("a") + n), "type": each, "required": required}
        for n, each in enumerate(types or ("long", "string"))
    ]
    made = {
        "format-version": 2,
        "location": "/lake/t",
        "table-uuid": "u",
        "current-schema-id": 3,
        "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 3, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": ON_READ,
    }
    return made | {name.replace("_", "-"): value for name, value in changes.items()}


def known(found: dict[str, Any]) -> TableLayout:
    files = read_layout(found)
    assert isinstance(files, TableLayout)
    return files


def rows(files: TableLayout, *ids: int) -> pa.RecordBatch:
    return as_rows(files, staged(pa.array(ids, pa.int64()), pa.array(["x"] * len(ids))), "ab")


def staged(*columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), [f"c{n}" for n in range(len(columns))])


def written(files: TableLayout, *batches: pa.RecordBatch, **more: Any) -> list[NewFile]:
    told: list[NewFile] = []
    groups = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
    write_groups(files, groups, told.append, **more)
    return told


def in_folder(files: TableLayout) -> set[str]:
    folder = local_path(files.location) / "data"
    return {str(path) for path in folder.iterdir()} if folder.exists() else set()


def places(*numbers: int) -> np.ndarray:
    return np.array(numbers, np.int64)


def deleting(table: TableLayout, of: str, *groups: Sequence[int]) -> tuple[NewFile, ...]:
    return tuple(write_deletes(table, {of: places(*each), "other": places(0)}) for each in groups)
