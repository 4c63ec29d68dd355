"""The writer of a sync worker whose copy is shown already: one table, shown batch by batch.

An apply worker stores which tables a batch is published to, so that its successor knows which to
fence. Here there is one table, and the successor fences it whatever happened. Every batch is
stamped with the table's own origin: a table that says so is on its way, and nobody who finds it
without its catalog may take it for one that the main stream goes on with. The last commit bears the
subscription's origin. Nothing is tidied: a copy that has to be taken back needs its base.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.process import failpoints
from workers.sync.attempt_check import still_fits
from workers.tables.table_locks import TableLocks
from workers.tables.writer import LakeWriter
from workers.tables.written import Alongside, Written


class SyncWriter(LakeWriter):
    """``LakeWriter`` for a table in ``f``; what it publishes moves the table's origin."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        relid: int,
        *,
        generation: int,
        data_dir: Path | None,
    ) -> None:
        super().__init__(
            dest,
            store,
            sub,
            generation=generation,
            origin=origin_name(sub.oid, relid),
            threads=1,
            locks=TableLocks(data_dir),
        )
        self._relid = relid
        self._table_origin = origin_name(sub.oid, relid)

    def finish(self, rel: SubscriptionRel, s_lsn: LSN, alongside: Callable[[], None]) -> None:
        """Stamp the table with the position of ``s``, as the subscription's from here on."""
        self._origin = origin_name(self._sub.oid)
        self.open(rel)
        self.publish(self.write({rel.srrelid: []}, s_lsn), s_lsn, lambda _: alongside())

    def _publish(
        self, written: Sequence[Written], end_lsn: LSN, alongside: Alongside
    ) -> list[Written]:
        rel = written[0].table.rel
        self._check(rel)
        published = list(self._publish_tables(written))
        failpoints.reach("tablesync.batch_published")
        with self._store.transaction():
            self._check(rel)
            self._store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=end_lsn)
            self._store.origin_advance(self._table_origin, end_lsn, published[-1].position)
            alongside(published)
        return published

    def _begin_again(self, unit: Sequence[Written]) -> tuple[Sequence[Written], bool]:
        """The last commit may differ from the one before in whose position it is, and in no LSN."""
        again, shown = super()._begin_again(unit)
        found = [each.table.lake.position(each.table.source) for each in again]
        return again, shown and found == [each.stamp for each in again]

    def _check(self, rel: SubscriptionRel) -> None:
        still_fits(self._store, self._sub, rel)

    def _to_be_tended(self, published: object) -> None:
        """Maintenance stays away from a table that is not ready."""
