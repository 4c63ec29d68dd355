"""A worker's tables, and their parts of a batch between branch and ``main``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from workers.changes.segments import TableWork
from workers.lake.effects import Counts, Effect
from workers.lake.table import LakeIdent, Stamp
from workers.tables.open_table import OpenTable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """A table's part of a batch, complete on its branch and not yet visible.

    ``counts`` are whole once ``Destination.count`` has looked at the ``effect``.
    """

    table: OpenTable
    work: TableWork
    stamp: Stamp
    effect: Effect
    counts: Counts = field(default_factory=Counts)
    snapshot_id: int | None = None

    @property
    def position(self) -> str:
        """Where it is in the lake, for people: what ``local_lsn`` shows."""
        if self.snapshot_id is None:
            return f"LSN {self.stamp.lsn} of {self.table.lake.ident}"
        return f"snapshot {self.snapshot_id} of {self.table.lake.ident}"


Alongside = Callable[[Sequence[Written]], None]
"""What else is stored when a batch has been published; it is given what was published."""


def by_lake_table(
    items: Iterable[T], table_of: Callable[[T], OpenTable]
) -> dict[LakeIdent, list[T]]:
    """What goes to one lake table together; more than one item only where it is shared."""
    found: dict[LakeIdent, list[T]] = {}
    for item in items:
        found.setdefault(table_of(item).lake.ident, []).append(item)
    return found
