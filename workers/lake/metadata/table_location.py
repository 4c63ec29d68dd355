"""The folder of a table's files."""

from __future__ import annotations

import hashlib
import re
import uuid
from collections.abc import Mapping
from typing import Final

from config.lake import catalog_kind
from workers.lake.table import LakeIdent

_PLACE: Final = re.compile(r"/|[A-Za-z][A-Za-z0-9+.-]*:")
"""An absolute path, or a URI with its scheme."""

_WITH_HOST: Final = re.compile(r"(?!file:)[A-Za-z][A-Za-z0-9+.-]*://[^/]+/")
"""A URI that names the bucket or the host, as ``s3://bucket/prefix``."""

_FOLDERS: Final = ("write.data.path", "write.metadata.path")
"""Properties that name folders of a table's files outside of the location."""


def given_warehouse(catalog: Mapping[str, str]) -> str | None:
    """The warehouse below which pgsub chooses folders; None if the catalog chooses the folders.

    A REST catalog always chooses: there ``warehouse`` is a name, whatever the name looks like. A
    catalog may refuse a folder that is not below the folder of the table's schema.
    """
    named = {key: value for key, value in catalog.items() if value}
    if catalog_kind(named) == "rest" or catalog.get("catalog-impl", "").endswith(".RESTCatalog"):
        return None
    return catalog.get("warehouse") or None


def is_whole(location: str) -> bool:
    """Does the location name the bucket or the host, so that there is nothing to complete?"""
    return _WITH_HOST.match(location) is not None


def new_location(warehouse: str | None, ident: LakeIdent, relid: int) -> str | None:
    """The folder of a new table; None if the catalog chooses the folder.

    The catalog chooses if no warehouse is set, and if the warehouse is a name: a REST or Glue
    catalog knows its warehouses by name, and a path made of a name would lead anywhere.
    """
    if warehouse is None or not _PLACE.match(warehouse):
        return None
    return table_location(warehouse, ident, relid, uuid.uuid4().hex[:8])


def table_location(warehouse: str, ident: LakeIdent, relid: int, unique: str) -> str:
    """An explicit folder for a table; the table's name may be ``..`` or ``a/b`` or have a quote.

    ``unique`` separates the files of a dropped table from the files of a new table of the name.
    """
    return (
        f"{warehouse.rstrip('/')}/{_folder(ident.schema)}/{relid}-{_folder(ident.table)}-{unique}"
    )


def folders_of(location: str, properties: Mapping[str, str]) -> tuple[str, ...]:
    """The folders of a table's files: the location, and others that the properties name."""
    named = (properties[key] for key in _FOLDERS if key in properties)
    return tuple(dict.fromkeys((location, *named)))


def is_own_folder(location: str) -> bool:
    """Did ``table_location`` choose the folder's name? Then the folder holds no foreign files."""
    _, _, folder = location.rpartition("/")
    return re.fullmatch(r"[0-9]+-[A-Za-z0-9_-]+-[0-9a-f]{8}", folder) is not None


def _folder(name: str) -> str:
    safe = re.sub(r"[^A-Za-z0-9_-]", "_", name)[:40]
    if safe == name:
        return safe
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
