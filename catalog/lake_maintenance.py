"""What was done about a lake table's orphan files: ours, PostgreSQL's heap has none."""

from __future__ import annotations

from dataclasses import dataclass


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
