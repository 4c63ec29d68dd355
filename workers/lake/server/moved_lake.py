"""Notice a data directory that was moved: the embedded lake's tables know their files by path.

Iceberg stores absolute paths. After a move every table would end in a missing file, at the first
batch. So the start compares: a table's metadata file is missing at its path, and lies at the same
place in the warehouse of the present data directory.
"""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Final

from catalog.errcodes import ObjectNotInPrerequisiteState

_WAREHOUSE: Final = "/lake/warehouse/"


def check_not_moved(lake_dir: Path) -> None:
    """55000 if the lake in ``lake_dir`` has tables whose paths lead to an earlier place."""
    for table, location in _metadata_files(lake_dir / "catalog.db"):
        path = location.removeprefix("file://").removeprefix("file:")
        before, found, rest = path.partition(_WAREHOUSE)
        if not found or Path(path).exists():
            continue
        here = lake_dir / "warehouse" / rest
        if here.exists():
            old, new = before, str(lake_dir.parent)
            raise ObjectNotInPrerequisiteState(
                f'data directory "{new}" was moved',
                detail=f'Lake table "{table}" names its files by their former place, "{old}".',
                hint="Move the data directory back, or make a link: "
                f"{shlex.join(['ln', '-s', new, old])}",
            )


def _metadata_files(catalog: Path) -> list[tuple[str, str]]:
    """The tables of the embedded lake's own catalog, each with the newest metadata file."""
    if not catalog.exists():
        return []
    with (
        suppress(sqlite3.Error),
        closing(sqlite3.connect(f"{catalog.as_uri()}?mode=ro", uri=True)) as db,
    ):
        return db.execute(
            "SELECT table_namespace || '.' || table_name, metadata_location FROM iceberg_tables"
            " WHERE metadata_location IS NOT NULL"
        ).fetchall()
    return []
