"""What tables of a lake on the local disk say of themselves, read without the lake server."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any, Final

from tests.harness import Pgsub

SCHEMA: Final = "bench"


def lake_metadata(pgsub: Pgsub, table: str) -> dict[str, Any]:
    """What the lake's catalog points to for a table now; {} when there is none."""
    path = pgsub.lake_catalog_file()
    if not path.exists():
        return {}
    query = (
        "SELECT metadata_location FROM iceberg_tables WHERE table_namespace = ? AND table_name = ?"
    )
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as connection:
        row = connection.execute(query, (SCHEMA, table)).fetchone()
    return dict(json.loads(Path(row[0].removeprefix("file:")).read_text())) if row else {}


def current_snapshot(metadata: dict[str, Any]) -> dict[str, Any]:
    """The tip of ``main`` in a table's metadata; {} when there is none."""
    current = metadata.get("current-snapshot-id")
    found = (each for each in metadata.get("snapshots", []) if each["snapshot-id"] == current)
    return next(found, {})
