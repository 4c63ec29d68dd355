"""The publisher's columns of each table, and the changes of them that the lake has followed.

PostgreSQL's native subscriber has neither: its columns change by hand.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from catalog.pg_lsn import LSN
from catalog.rows import encode_lsn
from catalog.sqlite_file import CatalogFile


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """A change of a table's columns that the lake table has followed.

    ``changed`` is the time in microseconds since 1970. ``lsn`` is the end of the first transaction
    with the new columns. ``changes`` are sentences about the publisher's columns. ``copies`` says
    that the table is copied again for the change; ``copied`` is the end of the copy.
    """

    subid: int
    relid: int
    changed: int
    lsn: LSN
    changes: tuple[str, ...]
    copies: bool = False
    copied: int | None = None


class SchemaChanges(CatalogFile):
    """Remembered columns and followed changes of all subscriptions. They go with the table's row.

    What a text says is for ``workers.changes.remembered_columns`` to know.
    """

    def put_columns(self, subid: int, relid: int, epoch: str, columns: str) -> None:
        """Store the columns of a table, if the table is in the subscription with the copy id."""
        values = {"subid": subid, "relid": relid, "epoch": epoch, "columns": columns}
        self._write("put_columns", values)

    def columns(self, subid: int, relid: int) -> str | None:
        """The columns of a table under the present copy id, if they were stored."""
        return self._one("columns", lambda row: str(row["columns"]), subid=subid, relid=relid)

    def add_schema_change(
        self,
        subid: int,
        relid: int,
        now: int,
        lsn: LSN,
        of: Sequence[str],
        *,
        copies: bool = False,
    ) -> None:
        """Store a followed change; the newest changes of a table are kept."""
        with self.transaction():
            self._write(
                "add_schema_change",
                {
                    "subid": subid,
                    "relid": relid,
                    "changed": now,
                    "lsn": encode_lsn(lsn),
                    "changes": json.dumps(of),
                    "copies": int(copies),
                },
            )
            self._write("forget_schema_changes", {"subid": subid, "relid": relid, "kept": _KEPT})

    def end_copy_of_change(self, subid: int, relid: int, now: int) -> None:
        """Store the end of the copy that a change of the table waits for, if any does."""
        self._write("end_copy_of_change", {"subid": subid, "relid": relid, "now": now})

    def schema_changes(self) -> list[SchemaChange]:
        """The followed changes of all tables, the newest of a table at the end."""
        return self._all("schema_changes", _change)


_KEPT = 20


def _change(row: sqlite3.Row) -> SchemaChange:
    return SchemaChange(
        row["subid"],
        row["relid"],
        row["changed"],
        LSN(int(row["lsn"], 16)),
        tuple(json.loads(row["changes"])),
        bool(row["copies"]),
        row["copied"],
    )
