"""A worker's tables, and their parts of a batch between branch and ``main``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.counts import Counts, Effect, LakeIdent
from workers.lake.destination import LakeTable, Stamp
from workers.segments import TableWork

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table as this worker last read or published it; ``lsn`` is where its branch stands.

    A shared lake table's branch is made for each batch, and ``source`` says whose rows are ours.
    """

    rel: SubscriptionRel
    lake: LakeTable
    lsn: LSN
    floor: LSN
    branch: str | None
    own_branch: bool = False  # a sync worker's: it holds the copy, so there is no other to make
    source: str = ""

    @property
    def as_left(self) -> SubscriptionRel:
        """The row as it is since this worker published last: the lake must hold no less."""
        return replace(self.rel, lake_lsn=LSN(max(self.rel.lake_lsn, self.lsn)))

    @property
    def base(self) -> LSN | None:
        """What a fresh branch of a shared table must hold of us."""
        return self.lsn if self.source and not self.own_branch else None


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


def same_sync(known: SubscriptionRel, rel: SubscriptionRel) -> bool:
    """Whether what was read of a table still describes it.

    Trust that the writer has ended meanwhile (``copied``) does not come back with a row that was
    read before: only another copy, which has another epoch, brings it.
    """
    names = ("srsubstate", "srsublsn", "epoch", "lake_schema", "lake_table")
    distrusted = known.copied and not rel.copied
    return not distrusted and all(getattr(known, name) == getattr(rel, name) for name in names)
