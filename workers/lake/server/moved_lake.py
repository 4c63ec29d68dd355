"""Notice a data directory that was moved: the embedded lake's tables know their files by path.

Iceberg stores absolute paths. After a move every table would end in a missing file, at the first
batch. So the start compares: a table's metadata file is missing at its path, and lies at the same
place in the warehouse of the present data directory.
"""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import suppress
from pathlib import Path
from typing import Final

from catalog.errcodes import ObjectNotInPrerequisiteState
from workers.lake.storage.catalog_pointers import CatalogPointers, Pointer
from workers.lake.storage.local_path import is_local, local_path

_WAREHOUSE: Final = "/lake/warehouse/"


def check_not_moved(lake_dir: Path) -> None:
    """55000 if the lake in ``lake_dir`` has tables whose paths lead to an earlier place."""
    pointers: list[Pointer] = []
    with suppress(sqlite3.Error):
        pointers = CatalogPointers(lake_dir / "catalog.db").all()
    for pointer in pointers:
        if not is_local(pointer.location):
            continue
        path = local_path(pointer.location)
        before, found, rest = str(path).partition(_WAREHOUSE)
        if not found or path.exists():
            continue
        here = lake_dir / "warehouse" / rest
        if here.exists():
            table, old, new = pointer.ident, before, str(lake_dir.parent)
            raise ObjectNotInPrerequisiteState(
                f'data directory "{new}" was moved',
                detail=f'Lake table "{table}" names its files by their former place, "{old}".',
                hint="Move the data directory back, or make a link: "
                f"{shlex.join(['ln', '-s', new, old])}",
            )
