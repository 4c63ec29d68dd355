"""Where a table's files lie."""

from __future__ import annotations

import hashlib
import re
import uuid

from workers.lake.table import LakeIdent


def new_location(warehouse: str | None, ident: LakeIdent, relid: int) -> str | None:
    """The folder of a new table; None if the catalog chooses one, because no warehouse is set."""
    unique = uuid.uuid4().hex[:8]
    return table_location(warehouse, ident, relid, unique) if warehouse else None


def table_location(warehouse: str, ident: LakeIdent, relid: int, unique: str) -> str:
    """An explicit folder for a table, whose name may be ``..`` or ``a/b`` or have a quote in it.

    ``unique`` keeps the files of a table that was dropped and made again apart.
    """
    return (
        f"{warehouse.rstrip('/')}/{_folder(ident.schema)}/{relid}-{_folder(ident.table)}-{unique}"
    )


def is_own_folder(location: str) -> bool:
    """Whether ``table_location`` made the folder's name: then nobody else's files are in it."""
    _, _, folder = location.rpartition("/")
    return re.fullmatch(r"[0-9]+-[A-Za-z0-9_-]+-[0-9a-f]{8}", folder) is not None


def _folder(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40]
    if safe == name:
        return safe
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
