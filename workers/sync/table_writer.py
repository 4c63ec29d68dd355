"""The lake writer of a sync worker after the copy is published: a single table, batch by batch.

Three differences from the writer of an apply worker:

* The catalog gets no list of the tables of a batch. An apply worker stores the list to tell its
  successor which tables to fence. A sync worker has a single table, and the successor always fences
  the table.
* Every batch carries the origin of the table. The origin says that the table is still being
  synchronised. A worker that finds the lake table, but no catalog row, must not continue the table
  with the main stream. Only the last commit carries the origin of the subscription.
* The table is neither compacted nor vacuumed, because the undo of a copy needs the base snapshot.
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
from workers.tables.written import StoreInSameTransaction, Written, idents_of, store_durable


class SyncPublisher(BatchPublisher):
    """Publishes the batches of a table in ``f``; every batch advances the origin of the table."""

    def _publish(
        self,
        written: Sequence[Written],
        end_lsn: LSN,
        store_also: StoreInSameTransaction,
        *,
        waits: bool,
    ) -> list[Written]:
        del waits  # a sync worker always waits
        rel = written[0].table.rel
        check_attempt_and_publisher(self._store, self._sub, rel)
        published = list(self.table_by_table.publish_one(written))
        failpoints.reach("tablesync.batch_published")
        store_more = store_also(published)
        durable = self._dest.make_durable(idents_of(written))
        with self._store.transaction():
            store_durable(self._store, durable)
            check_attempt_and_publisher(self._store, self._sub, rel)
            self._store.update_rel(rel.srsubid, rel.srrelid, lake_lsn=end_lsn)
            self._store.origin_advance(self._origin, end_lsn, published[-1].position)
            store_more()
        return published

    def begin_again(self, unit: Sequence[Written]) -> tuple[Sequence[Written], bool]:
        """Begin the part again on a new branch; a visible part must also have the expected origin.

        The last commit may have the LSN of the commit before, and differ in the origin only.
        """
        again, visible = super().begin_again(unit)
        found = [each.table.lake.position(each.table.source) for each in again]
        return again, visible and found == [each.stamp for each in again]


class SyncWriter(LakeWriter):
    """Writes the batches of a table in ``f``."""

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
        """Publish position ``s_lsn`` with the subscription's origin, as an empty batch.

        ``store_also`` stores more in the catalog transaction of the batch.
        """
        self._batches.origin = origin_name(rel.srsubid)
        self.open(rel)
        self.publish(self.write({rel.srrelid: []}, s_lsn), s_lsn, lambda _: store_also)
