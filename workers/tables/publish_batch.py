"""Publish a written batch: fast-forward every table's ``main`` to the table's branch.

The order makes a batch safe::

    the list of tables is stored (in_flight)
    main of the tables is fast-forwarded (workers.tables.publish_tables)
    every file of the tables is on the disk
    origin and per-table positions are stored, the list is cleared

With ``synchronous_commit = off`` a thread takes the last two steps (``BackgroundSync``), and the
worker goes on with the next batch.

A worker killed in between leaves the list. From the list the successor knows the tables to fence
before reading positions (``workers.tables.after_crash``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.tables.background_sync import BackgroundSync, PublishedBatch
from workers.tables.publish_tables import InOneCall, TableByTable, choose
from workers.tables.write_batch import BatchWriter
from workers.tables.written import (
    StoreInSameTransaction,
    Written,
    by_lake_table,
    idents_of,
    store_durable,
)

OnPublished = Callable[[Written], None]
"""Called for every table of a batch, once the batch is published and the positions are stored."""


def store_nothing(_: Sequence[Written]) -> Callable[[], None]:
    """Store nothing else with a batch."""
    return lambda: None


class BatchPublisher:
    """Publishes batches, and stores the position that the subscription has reached."""

    def __init__(
        self,
        batches: BatchWriter,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        threads: Executor,
        *,
        origin: str,
        on_published: OnPublished,
        wake: Callable[[], None],
    ) -> None:
        """``origin``: the replication origin moved by a published batch. ``wake``: the call when
        ``background`` has stored batches or failed."""
        self.background = BackgroundSync(self._store_behind, wake)
        self._batches = batches
        self._dest = dest
        self._store = store
        self._sub = sub
        self.table_by_table = TableByTable(batches, dest, threads, self.begin_again)
        self._one_call = InOneCall(
            batches, dest, threads, self.begin_again, otherwise=self.table_by_table
        )
        self._origin = origin
        self._on_published = on_published

    def publish(
        self,
        written: Sequence[Written],
        end_lsn: LSN,
        store_also: StoreInSameTransaction = store_nothing,
        *,
        waits: bool = True,
    ) -> None:
        """Make a batch visible, then store the position of the subscription.

        ``store_also`` stores more in the same catalog transaction. Unless the worker ``waits``,
        ``background`` stores the position.
        """
        try:
            try:
                published = self._publish(written, end_lsn, store_also, waits=waits)
            except BaseException:
                for each in written:
                    each.work.discard()
                raise
        finally:
            self._batches.end_turn()
        self._batches.finish(published)
        for each in published:
            self._on_published(each)

    def _publish(
        self,
        written: Sequence[Written],
        end_lsn: LSN,
        store_also: StoreInSameTransaction,
        *,
        waits: bool,
    ) -> list[Written]:
        if waits:
            self.background.wait_until_stored()
        else:
            self.background.wait_for_room()
        relids = [each.table.rel.srrelid for each in written]
        failpoints.reach("apply.branches_written")
        self._store.put_in_flight(self._sub.oid, relids, end_lsn)
        failpoints.reach("apply.in_flight_stored")
        units = list(by_lake_table(written, lambda each: each.table).values())
        chosen = choose(units, self._dest, self._one_call, self.table_by_table)
        published = chosen.publish(units)
        failpoints.reach("apply.all_tables_published")
        batch = PublishedBatch(
            relids, idents_of(written), end_lsn, published[-1].position, store_also(published)
        )
        if waits:
            self._store_positions([batch], self._make_durable([batch]))
        else:
            self.background.put(batch)
        return published

    def _store_behind(self, batches: Sequence[PublishedBatch]) -> None:
        failpoints.reach("apply.background_begun")
        durable = self._make_durable(batches)
        failpoints.reach("apply.background_synced")
        self._store_positions(batches, durable)

    def _make_durable(self, batches: Sequence[PublishedBatch]) -> Mapping[LakeIdent, str]:
        return self._dest.make_durable(
            list(dict.fromkeys(ident for each in batches for ident in each.idents))
        )

    def _store_positions(
        self, batches: Sequence[PublishedBatch], durable: Mapping[LakeIdent, str]
    ) -> None:
        """Store the positions of batches that are on the disk, in one transaction."""
        with self._store.transaction():
            store_durable(self._store, durable)
            for each in batches:
                for relid in each.relids:
                    # The table may have left the subscription meanwhile.
                    if self._store.rel(self._sub.oid, relid) is not None:
                        self._store.update_rel(self._sub.oid, relid, lake_lsn=each.end_lsn)
                self._store.origin_advance(self._origin, each.end_lsn, each.position)
                self._store.clear_in_flight(self._sub.oid, each.relids, each.end_lsn)
                each.store_also()
        failpoints.reach("apply.origin_advanced")

    def begin_again(self, unit: Sequence[Written]) -> tuple[Sequence[Written], bool]:
        """Put a lake table's part on a new branch at ``main``.

        Returns the part, and True if ``main`` holds the part already: the fast-forward succeeded,
        and the answer was lost.
        """
        return self._batches.begin_again(unit)
