"""A table as the metadata describes the table now."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.lake.metadata.snapshots import History, history_of
from workers.lake.metadata.table_location import folders_of
from workers.lake.metadata.table_schema import columns_of
from workers.lake.table import LakeColumn


@dataclass(frozen=True, slots=True)
class TableState:
    """A table's columns, history and properties.

    ``folders`` hold the table's files; empty if only the metadata file tells the folders.
    """

    columns: tuple[LakeColumn, ...]
    history: History
    properties: Mapping[str, str]
    folders: tuple[str, ...] = ()


def state_of(metadata: Mapping[str, Any]) -> TableState | None:
    """A table's state from the metadata; None if only Spark knows a column's type."""
    columns = columns_of(metadata)
    if columns is None:
        return None
    properties = metadata.get("properties", {})
    folders = folders_of(metadata["location"], properties)
    return TableState(columns, history_of(metadata), properties, folders)
