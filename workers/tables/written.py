"""A table's part of a batch, complete on the branch and not yet visible."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from catalog.store_sqlite import CatalogStore
from workers.changes.table_work import TableWork
from workers.lake.effects import Counts, Effect
from workers.lake.table import LakeIdent, Stamp
from workers.tables.open_table import OpenTable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Written:
    """A table's part of a batch, complete on the branch.

    ``counts`` are complete once ``Destination.count`` has looked at the ``effect``.
    ``snapshot_id`` is known once the part is published. The part was written slice by slice if
    ``in_slices``: then ``work`` has the counts and no rows.
    """

    table: OpenTable
    work: TableWork
    stamp: Stamp
    effect: Effect
    counts: Counts = field(default_factory=Counts)
    snapshot_id: int | None = None
    in_slices: bool = False

    @property
    def position(self) -> str:
        """The lake commit, as shown in column ``local_lsn``."""
        if self.snapshot_id is None:
            return f"LSN {self.stamp.lsn} of {self.table.lake.ident}"
        return f"snapshot {self.snapshot_id} of {self.table.lake.ident}"


StoreInSameTransaction = Callable[[Sequence[Written]], Callable[[], None]]
"""Called with the published tables, before the staged rows are discarded. Returns the call that
stores more in the catalog transaction of the batch's positions."""


def by_lake_table(
    items: Iterable[T], table_of: Callable[[T], OpenTable]
) -> dict[LakeIdent, list[T]]:
    """The items grouped by lake table: several for a shared table, else a single item."""
    found: dict[LakeIdent, list[T]] = {}
    for item in items:
        found.setdefault(table_of(item).lake.ident, []).append(item)
    return found


def idents_of(written: Iterable[Written]) -> list[LakeIdent]:
    """The lake tables of a batch, each once."""
    return list(dict.fromkeys(each.table.lake.ident for each in written))


def store_durable(store: CatalogStore, durable: Mapping[LakeIdent, str]) -> None:
    """Store what ``Destination.make_durable`` returned, in the transaction of the positions."""
    store.put_lake_durable((ident.schema, ident.table, at) for ident, at in durable.items())
