"""Counters of the maintenance of lake tables, and who writes the rows of a table.

PostgreSQL's heap knows neither orphan files nor snapshots; the remaining columns have the names of
pg_stat_all_tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LakeMaintenance:
    """The number of orphan removals of a table, and of removed files.

    ``since`` is the time of the last attempt, or the start of counting before the first attempt: in
    microseconds since 1970. ``reason`` is why the last attempt removed no file, None after success.
    """

    subid: int
    relid: int
    since: int
    orphan_removals: int = 0
    orphan_files: int = 0
    reason: str | None = None

    @property
    def tried(self) -> bool:
        """Whether ``since`` is the time of an attempt."""
        return self.orphan_removals > 0 or self.reason is not None


COMPACTION: Final = "compaction"
AUTOVACUUM: Final = "autovacuum"
EXPIRY: Final = "expiry"
UPKEEP: Final = (COMPACTION, AUTOVACUUM, EXPIRY)
"""The kinds of maintenance: of small files, of files with deleted rows, of snapshots."""


@dataclass(frozen=True, slots=True)
class LakeWriter:
    """The writer that a worker chose when the worker opened the table.

    ``asked`` is the configuration's word then, ``writer`` the choice, ``reason`` the reason for the
    choice.
    """

    subid: int
    relid: int
    asked: str  # auto | files | spark
    writer: str  # files | spark
    reason: str


@dataclass(frozen=True, slots=True)
class LakeUpkeep:
    """The count and the last time of a kind of maintenance of a table.

    ``failed`` is the time of the last failure and ``error`` the reason; a later success sets both
    to None. Times are microseconds since 1970. ``times`` of an increment is 1, after a failure 0.
    """

    subid: int
    relid: int
    kind: str
    times: int = 0
    done: int | None = None
    failed: int | None = None
    error: str | None = None
