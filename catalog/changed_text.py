"""What the publisher's columns were when a table was copied, and what has changed since.

The lake holds enums and composites as text, and the publisher changes the text without an event, or
drops a column and adds a column of the name (``workers.publisher.changing_text``). PostgreSQL's
native subscriber needs no such catalog: its types and columns are its own.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from catalog.sqlite_file import CatalogFile

_CHANGES = 8


@dataclass(frozen=True, slots=True)
class StoredTextTypes:
    """The types of a table under a copy id (``epoch``).

    ``types`` is the last comparison's text. ``changes`` are sentences about text of the publisher
    that the rows of the copy do not have, the newest at the end; ``since`` is the time of the first
    change in microseconds since 1970, None without changes.
    """

    subid: int
    relid: int
    epoch: str
    types: str
    changes: tuple[str, ...] = ()
    since: int | None = None

    def primary(self, table: str) -> str:
        """The first line of the message about the changes of a table."""
        if self._only_partitions:
            return f'rows of table "{table}" have come or gone on the publisher without an event'
        return f'values of table "{table}" have changed on the publisher without an event'

    @property
    def detail(self) -> str:
        """The DETAIL of the message."""
        if self._only_partitions:
            return f"{'; '.join(self.changes)}. The lake has the rows of before."
        return (
            f"{'; '.join(self.changes)}. Rows from before have the old values in the lake, and an "
            "UPDATE or DELETE by a key with a new value does not find them."
        )

    @property
    def _only_partitions(self) -> bool:
        return all(each.startswith("partition ") for each in self.changes)

    def changed(self, types: str, changes: Sequence[str], now: int) -> StoredTextTypes:
        """The row after a comparison. The newest changes are kept: a row stays small."""
        every = tuple(dict.fromkeys((*self.changes, *changes)))[-_CHANGES:]
        since = self.since or now if every else None
        return StoredTextTypes(self.subid, self.relid, self.epoch, types, every, since)


class ChangedText(CatalogFile):
    """The types of the tables of all subscriptions. A row goes with the table's row."""

    def put_text_types(self, row: StoredTextTypes) -> None:
        """Store the types of a table, if the table is in the subscription with the copy id."""
        self._write(
            "put_text_types",
            {
                "subid": row.subid,
                "relid": row.relid,
                "epoch": row.epoch,
                "types": row.types,
                "changes": json.dumps(row.changes),
                "since": row.since,
            },
        )

    def text_types(self, subid: int, relid: int) -> StoredTextTypes | None:
        """The types of a table under the present copy id, if they were stored."""
        return self._one("text_types", _stored, subid=subid, relid=relid)

    def changed_text(self) -> list[StoredTextTypes]:
        """The tables with changes."""
        return self._all("changed_text", _stored)


def _stored(row: sqlite3.Row) -> StoredTextTypes:
    return StoredTextTypes(
        row["subid"],
        row["relid"],
        row["epoch"],
        row["types"],
        tuple(json.loads(row["changes"])),
        row["since"],
    )
