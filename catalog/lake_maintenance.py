"""What was done to lake tables between their batches, and beside them.

PostgreSQL's heap knows neither orphan files nor snapshots; the rest has the names of
pg_stat_all_tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class LakeMaintenance:
    """How often orphan files of a table were removed, and how many in all.

    ``since`` is when that was last tried, or, before the first time, since when it is counted: in
    microseconds since 1970. ``reason`` is why the last try removed nothing, None if it was done.
    """

    subid: int
    relid: int
    since: int
    orphan_removals: int = 0
    orphan_files: int = 0
    reason: str | None = None

    @property
    def tried(self) -> bool:
        """Whether ``since`` is the time of a try."""
        return self.orphan_removals > 0 or self.reason is not None


COMPACTION: Final = "compaction"
AUTOVACUUM: Final = "autovacuum"
EXPIRY: Final = "expiry"
UPKEEP: Final = (COMPACTION, AUTOVACUUM, EXPIRY)
"""The kinds of upkeep: small files, files with deleted rows, snapshots."""


@dataclass(frozen=True, slots=True)
class LakeUpkeep:
    """Of one kind of upkeep of a table: how often it was done, and when last.

    ``failed`` is when it last failed and ``error`` why, both None once it has gone well since.
    Times are microseconds since 1970. What is added to a row has ``times`` 1, or 0 if it failed.
    """

    subid: int
    relid: int
    kind: str
    times: int = 0
    done: int | None = None
    failed: int | None = None
    error: str | None = None
