"""A lake table as a worker has opened it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubscriptionRel
from workers.lake.table import LakeTable


@dataclass(frozen=True, slots=True)
class OpenTable:
    """A table as the worker last read or published it.

    ``lsn`` is the position of the table's branch. A shared lake table gets a new branch for every
    batch, and ``source`` names the publisher table among the sources of the lake table.
    """

    rel: SubscriptionRel
    lake: LakeTable
    lsn: LSN
    floor: LSN
    branch: str | None
    own_branch: bool = False  # a sync worker's branch: holds the copy, cannot be made again
    source: str = ""

    @property
    def expected_row(self) -> SubscriptionRel:
        """The catalog row with the last published position: the lake must not be behind."""
        return replace(self.rel, lake_lsn=LSN(max(self.rel.lake_lsn, self.lsn)))

    @property
    def base_lsn(self) -> LSN | None:
        """The position required of the source on a new branch of a shared table."""
        return self.lsn if self.source and not self.own_branch else None


def same_sync(known: SubscriptionRel, rel: SubscriptionRel) -> bool:
    """Does the catalog row still describe the open copy?

    A row without ``copied`` does not describe a table opened with ``copied``: from now on inserted
    keys must be looked up. In the reverse case the row is an old one and the table stays open: only
    a new copy, with a new epoch, makes inserted keys known to be new again.
    """
    names = ("srsubstate", "srsublsn", "epoch", "lake_schema", "lake_table")
    no_longer_copied = known.copied and not rel.copied
    return not no_longer_copied and all(
        getattr(known, name) == getattr(rel, name) for name in names
    )
