"""A lake table that a worker has opened."""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table as this worker last read or published it.

    ``lsn`` is the position of the table's branch. A shared lake table gets a branch for each batch,
    and ``source`` names the publisher table whose rows this worker writes.
    """

    rel: SubscriptionRel
    lake: LakeTable
    lsn: LSN
    floor: LSN
    branch: str | None
    own_branch: bool = False  # a sync worker's: it holds the copy and cannot be made again
    source: str = ""

    @property
    def expected_row(self) -> SubscriptionRel:
        """The catalog row with the last published position: the lake must not be behind it."""
        return replace(self.rel, lake_lsn=LSN(max(self.rel.lake_lsn, self.lsn)))

    @property
    def base_lsn(self) -> LSN | None:
        """The position that the source must have on a new branch of a shared table."""
        return self.lsn if self.source and not self.own_branch else None


def same_sync(known: SubscriptionRel, rel: SubscriptionRel) -> bool:
    """Does the catalog row still describe the copy that was opened?

    A row without ``copied`` does not describe a table that was opened with it: inserted keys must
    be looked up from now on. A row with ``copied`` that was read earlier changes nothing the other
    way round: only another copy, which has another epoch, makes inserted keys known to be new.
    """
    names = ("srsubstate", "srsublsn", "epoch", "lake_schema", "lake_table")
    no_longer_copied = known.copied and not rel.copied
    return not no_longer_copied and all(
        getattr(known, name) == getattr(rel, name) for name in names
    )
