"""The writer of a sync worker whose copy is published already: one table, published by batches.

An apply worker stores the list of tables that a batch is published to, so that its successor knows
which tables to fence. Here there is one table, and the successor fences it in any case. Every batch
carries the table's own origin: a table with that origin is still on its way, and a worker that
finds the table without its catalog must not take it for one that the main stream goes on with. The
last commit carries the subscription's origin. Nothing is compacted or vacuumed: a copy that has to
be undone needs its base.
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
from workers.sync.attempt_check import check_attempt_and_publisher
from workers.tables.publish_batch import BatchPublisher
from workers.tables.table_locks import TableLocks
from workers.tables.writer import LakeWriter
from workers.tables.written import StoreInSameTransaction, Written


class SyncPublisher(BatchPublisher):
    """``BatchPublisher`` for a table in ``f``: a batch moves the table's origin."""

    def _publish(
        self, written: Sequence[Written], end_lsn: LSN, store_also: StoreInSameTransaction
    ) -> list[Written]:
        rel = written[0].table.rel
        check_attempt_and_publisher(self._store, self._sub, rel)
        published = list(self.publish_lake_table(written))
        failpoints.reach("tablesync.batch_published")
        with self._store.transaction():
            check_attempt_and_publisher(self._store, self._sub, rel)
            self._store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=end_lsn)
            self._store.origin_advance(self._origin, end_lsn, published[-1].position)
            store_also(published)
        return published

    def begin_again(self, unit: Sequence[Written]) -> tuple[Sequence[Written], bool]:
        """The last commit may differ from the commit before in its origin, and not in its LSN."""
        again, visible = super().begin_again(unit)
        found = [each.table.lake.position(each.table.source) for each in again]
        return again, visible and found == [each.stamp for each in again]


class SyncWriter(LakeWriter):
    """``LakeWriter`` for a table in ``f``."""

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
            relid=relid,
            locks=TableLocks(data_dir),
            publisher=SyncPublisher,
        )

    def finish(self, rel: SubscriptionRel, s_lsn: LSN, store_also: Callable[[], None]) -> None:
        """Publish position ``s_lsn`` under the subscription's origin, by an empty batch."""
        self._batches.origin = origin_name(rel.srsubid)
        self.open(rel)
        self.publish(self.write({rel.srrelid: []}, s_lsn), s_lsn, lambda _: store_also())
