"""Count the files of the tables that this process has committed to, for metrics.

Iceberg's summary of a commit has the table's totals, so the counts cost no look at the lake. A
commit replaces the table's earlier counts, and the sums over all tables move by the difference: a
worker with 10,000 tables reports ten times a second and must not add up 10,000 numbers each time.

Commits by Spark bring no summary along. A table has the counts of the last commit without Spark,
and no counts before the first.
"""

from __future__ import annotations

import threading
from typing import Final, NamedTuple

from workers.lake.table import LakeIdent


class TableFiles(NamedTuple):
    """The files of a table's branch after a commit, and the deleted rows in them."""

    data_files: int
    delete_files: int
    deleted_rows: int


NO_FILES: Final = TableFiles(0, 0, 0)


class TableTotals:
    """The last counts of each table, and the sums; any thread may call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._tables: dict[LakeIdent, TableFiles] = {}
        self._sums = NO_FILES

    def note(self, ident: LakeIdent, now: TableFiles) -> None:
        """Take over a table's counts after a commit."""
        with self._lock:
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
