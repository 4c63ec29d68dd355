"""A table as its metadata describes it now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.lake.metadata.snapshots import History, history_of
from workers.lake.metadata.table_schema import columns_of
from workers.lake.table import LakeColumn


@dataclass(frozen=True, slots=True)
class TableState:
    """Columns, refs and snapshots, and the table's own properties."""

    columns: tuple[LakeColumn, ...]
    history: History
    properties: Mapping[str, str]


def state_of(metadata: Mapping[str, Any]) -> TableState | None:
    """The same from a table's metadata; None where Spark has to be asked for its columns."""
    columns = columns_of(metadata)
    if columns is None:
        return None
    return TableState(columns, history_of(metadata), metadata.get("properties", {}))
