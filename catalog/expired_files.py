"""Lists of files that expiries of lake tables left without a snapshot, until the files are removed.

A reader plans a scan on a snapshot and reads the files of the snapshot minutes later. So an expiry
removes no file: the expiry stores a list of the files, and the files go when the grace of readers
is over. A list is one row: an expiry of 300 snapshots has some 2,000 paths, compressed 60 kB.
"""

from __future__ import annotations

import json
import sqlite3
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from catalog.sqlite_file import CatalogFile


@dataclass(frozen=True, slots=True)
class ExpiredFiles:
    """The files of one expiry of a lake table.

    ``table_uuid`` is Iceberg's: a table that is dropped and created again has another uuid.
    ``expired`` is the time of the expiry, in seconds since 1970. ``id`` is 0 before the row is
    stored.
    """

    subid: int
    lake_schema: str
    lake_table: str
    table_uuid: str
    expired: float
    files: Sequence[str]
    id: int = 0


class ExpiredFileLists(CatalogFile):
    """The lists of all subscriptions. A list outlives the subscription's row for the table."""

    def add_expired_files(self, expired: ExpiredFiles) -> None:
        """Store a list; on return the list is on the disk."""
        self._write(
            "add_expired_files",
            {
                "subid": expired.subid,
                "lake_schema": expired.lake_schema,
                "lake_table": expired.lake_table,
                "table_uuid": expired.table_uuid,
                "expired": _microseconds(expired.expired),
                "files": zlib.compress(json.dumps(list(expired.files)).encode()),
            },
        )

    def due_expired_files(
        self, subid: int, *, now: float, grace: float, tried: Collection[int] = ()
    ) -> ExpiredFiles | None:
        """The oldest list whose grace is over, of the subscription or of a dropped one.

        ``tried`` are ids of lists to leave out. A list from the future is due when the clock was
        set back by more than the grace. One list is read and no more: after a long outage the
        lists that are due may be many.
        """
        return self._one(
            "due_expired_files",
            _expired_files,
            subid=subid,
            before=_microseconds(now - grace),
            after=_microseconds(now + grace),
            tried=json.dumps(list(tried)),
        )

    def expired_files_of_table(self, lake_schema: str, lake_table: str) -> list[ExpiredFiles]:
        """All lists of a lake table, oldest first."""
        return self._all(
            "expired_files_of_table",
            _expired_files,
            lake_schema=lake_schema,
            lake_table=lake_table,
        )

    def forget_expired_files(self, list_id: int) -> None:
        """Remove a list whose files are gone."""
        self._write("forget_expired_files", {"id": list_id})


def _microseconds(seconds: float) -> int:
    return int(seconds * 10**6)


def _expired_files(row: sqlite3.Row) -> ExpiredFiles:
    return ExpiredFiles(
        row["subid"],
        row["lake_schema"],
        row["lake_table"],
        row["table_uuid"],
        row["expired"] / 10**6,
        json.loads(zlib.decompress(row["files"])),
        row["id"],
    )
