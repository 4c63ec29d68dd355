"""The pointers of the embedded catalog: the metadata file that each table is at.

Iceberg's JDBC catalog keeps the pointers in a SQLite file. The lake server alone moves the pointers
while the server runs; without a server, ``set_back`` does.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

from config.limits import LAKE_CATALOG_BUSY_SECONDS
from workers.lake.table import LakeIdent

_NAME: Final = "lake"
_OF: Final = (
    "SELECT metadata_location FROM iceberg_tables"
    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ?"
)
_ALL: Final = (
    "SELECT table_namespace, table_name, metadata_location, previous_metadata_location"
    " FROM iceberg_tables WHERE catalog_name = ? AND metadata_location IS NOT NULL"
)
_SET: Final = (
    "UPDATE iceberg_tables SET metadata_location = ?, previous_metadata_location = NULL"
    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)
_DROP: Final = (
    "DELETE FROM iceberg_tables"
    " WHERE catalog_name = ? AND table_namespace = ? AND table_name = ? AND metadata_location = ?"
)


@dataclass(frozen=True, slots=True)
class Pointer:
    """A table's metadata file, and the file before; None for a new table."""

    ident: LakeIdent
    location: str
    previous: str | None


@dataclass(frozen=True, slots=True)
class CatalogPointers:
    """The pointers in a file; a missing file has none."""

    path: Path

    def of(self, idents: Collection[LakeIdent]) -> Mapping[LakeIdent, str]:
        """The tables' metadata files; a table that the catalog cannot tell now is left out."""
        found: dict[LakeIdent, str] = {}
        with contextlib.suppress(sqlite3.Error), self._open("ro") as connection:
            for ident in idents:
                row = connection.execute(_OF, (_NAME, ident.schema, ident.table)).fetchone()
                if row is not None and row[0] is not None:
                    found[ident] = row[0]
        return found

    def all(self) -> list[Pointer]:
        """All pointers; raises ``sqlite3.Error``."""
        with self._open("rw") as connection:
            rows = connection.execute(_ALL, (_NAME,)).fetchall()
        return [Pointer(LakeIdent(row[0], row[1]), row[2], row[3]) for row in rows]

    def set(self, pointer: Pointer, location: str | None) -> None:
        """Set a pointer to another metadata file, or drop the table from the catalog with None."""
        where = (_NAME, pointer.ident.schema, pointer.ident.table, pointer.location)
        with self._open("rw") as connection:
            if location is None:
                connection.execute(_DROP, where)
            else:
                connection.execute(_SET, (location, *where))

    @contextlib.contextmanager
    def _open(self, mode: str) -> Iterator[sqlite3.Connection]:
        uri = f"file:{quote(str(self.path))}?mode={mode}"
        with closing(
            sqlite3.connect(uri, uri=True, timeout=LAKE_CATALOG_BUSY_SECONDS, isolation_level=None)
        ) as connection:
            connection.execute("PRAGMA synchronous = FULL")
            yield connection
