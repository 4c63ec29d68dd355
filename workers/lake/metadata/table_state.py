"""A table as the metadata describes the table now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.lake.metadata.snapshots import History, history_of
from workers.lake.metadata.table_schema import columns_of
from workers.lake.table import LakeColumn


@dataclass(frozen=True, slots=True)
class TableState:
    """A table's columns, history and properties."""

    columns: tuple[LakeColumn, ...]
    history: History
    properties: Mapping[str, str]


def state_of(metadata: Mapping[str, Any]) -> TableState | None:
    """A table's state from the metadata; None if only Spark knows a column's type."""
    columns = columns_of(metadata)
    if columns is None:
        return None
    return TableState(columns, history_of(metadata), metadata.get("properties", {}))
