"""Count the files of the tables that this process has committed to, for metrics.

Iceberg's summary of a commit has the table's totals, so the counts cost no look at the lake. A
commit replaces the table's earlier counts, and the sums over all tables move by the difference: a
worker with 10,000 tables reports ten times a second and must not add up 10,000 numbers each time.

Commits by Spark bring no summary along. A table has the counts of the last commit without Spark,
and no counts before the first.

Snapshots and the size of the metadata are in no summary. They are noted where the process reads the
metadata anyway: when a table is opened, and after each expiry. Each commit in between adds a
snapshot, and leaves the size as it was.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from workers.lake.table import LakeIdent


class TableFiles(NamedTuple):
    """The files of a table's branch after a commit, and the deleted rows in them.

    ``snapshots`` and ``metadata_bytes`` are those of the whole table.
    """

    data_files: int
    delete_files: int
    deleted_rows: int
    snapshots: int = 0
    metadata_bytes: int = 0


NO_FILES: Final = TableFiles(0, 0, 0)


class TableTotals:
    """The last counts of each table, and the sums; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[LakeIdent, TableFiles] = {}
        self._metadata: dict[LakeIdent, tuple[int, int]] = {}
        self._sums = NO_FILES

    def note(self, ident: LakeIdent, now: TableFiles) -> None:
        """Take over a table's counts of files after a commit."""
        with self._lock:
            snapshots, size = self._metadata.get(ident, (0, 0))
            self._metadata[ident] = snapshots + 1, size
            self._take(ident, now._replace(snapshots=snapshots + 1, metadata_bytes=size))

    def note_metadata(self, ident: LakeIdent, snapshots: int, size: int) -> None:
        """Take over what a table's metadata says; counted with the first commit."""
        with self._lock:
            self._metadata[ident] = snapshots, size
            known = self._tables.get(ident)
            if known is not None:
                self._take(ident, known._replace(snapshots=snapshots, metadata_bytes=size))

    def _take(self, ident: LakeIdent, now: TableFiles) -> None:
        before = self._tables.get(ident, NO_FILES)
        self._tables[ident] = now
        moved = zip(self._sums, before, now, strict=True)
        self._sums = TableFiles(*(each - old + new for each, old, new in moved))

    def sums(self) -> dict[str, int]:
        """The sums over all tables."""
        with self._lock:
            return {**self._sums._asdict(), "tables": len(self._tables)}


TOTALS: Final = TableTotals()
"""The counts of this process: a process works for one worker."""
