"""A lake table that a worker has opened."""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.table import LakeTable


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


def same_sync(known: SubscriptionRel, rel: SubscriptionRel) -> bool:
    """Whether what was read of a table still describes it.

    Trust that the writer has ended meanwhile (``copied``) does not come back with a row that was
    read before: only another copy, which has another epoch, brings it.
    """
    names = ("srsubstate", "srsublsn", "epoch", "lake_schema", "lake_table")
    distrusted = known.copied and not rel.copied
    return not distrusted and all(getattr(known, name) == getattr(rel, name) for name in names)
