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


@dataclass(frozen=True, slots=True)
class StoredShape:
    """The last shape of a table that a trigger of the publisher told, up to ``lsn``.

    ``rewritten`` and ``using`` say how rows got new values that no row change has followed yet.
    ``shape`` is for ``workers.changes.captured_shape`` to know.
    """

    lsn: LSN
    shape: str
    rewritten: int
    using: bool


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

    def put_ddl_capture(self, subid: int, triggers: str | None) -> None:
        """Store which event triggers the publisher has; "" is none, None: no worker asks for them.

        Other triggers may have missed a change, so the shapes of before are forgotten.
        """
        with self.transaction():
            if self.ddl_capture().get(subid) != triggers or not triggers:
                self._write("forget_captured_shapes", {"subid": subid})
            self._write("forget_ddl_capture", {"subid": subid})
            if triggers is not None:
                self._write("put_ddl_capture", {"subid": subid, "triggers": triggers})

    def ddl_capture(self) -> dict[int, str]:
        """The subscriptions that ask for event triggers, and the triggers that were there."""
        return dict(self._all("ddl_capture", lambda row: (int(row["subid"]), row["triggers"])))

    def put_captured_shape(self, subid: int, relid: int, epoch: str, stored: StoredShape) -> None:
        """Store the last shape of a table under a copy id, if the table is in the subscription."""
        values = {"lsn": encode_lsn(stored.lsn), "shape": stored.shape, "epoch": epoch}
        flags = {"rewritten": stored.rewritten, "with_using": int(stored.using)}
        self._write("put_captured_shape", {"subid": subid, "relid": relid, **values, **flags})

    def captured_shape(self, subid: int, relid: int) -> StoredShape | None:
        """The last shape of a table under the present copy id, if one was told."""
        return self._one("captured_shape", _shape, subid=subid, relid=relid)

    def forget_captured_shape(self, subid: int, relid: int) -> None:
        """A shape that no Relation message is like: a change was not told."""
        self._write("forget_captured_shape", {"subid": subid, "relid": relid})

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


def _shape(row: sqlite3.Row) -> StoredShape:
    lsn = LSN(int(row["lsn"], 16))
    return StoredShape(lsn, row["shape"], int(row["rewritten"]), bool(row["with_using"]))


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
