"""A worker's tables in the lake: opened, written on a branch, published together.

A batch reaches readers in exactly the following order::

    every branch holds the table's part        write()    errors of values and keys end here
    the list of tables is stored (in_flight)   publish()
    each table's main is fast-forwarded
    every file of the tables is on the disk
    origin and per-table positions are stored, the list is cleared

The order of the last two lines keeps a stored or confirmed position over a power cut. With
``synchronous_commit = off`` a thread takes these two steps while the next batch is written
(``workers.tables.background_sync``); ``publish`` does not wait, ``wait_until_stored`` does.

Thus an error in a table stops a transaction before any table shows the transaction, and after a
crash the successor knows the tables with an open outcome. A branch is never used again after an
error.

Trace: tables a and b, batch up to 500. The worker is killed between the two fast-forwards. The
successor fences a and b (an empty snapshot on each main), reads a at 500 and b at 400, receives
401..500 again and applies 401..500 to b only.

Three classes do the work: ``OpenTables``, ``BatchWriter``, ``BatchPublisher``. A class knows only
the class before. ``LakeWriter`` connects the three and tells maintenance of opened and published
tables.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa

from catalog.errcodes import SERIALIZATION_FAILURE, ReplicationError, RequiredProcessGone
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.by_table import Run
from workers.changes.table_work import TableWork
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent, LakeTable
from workers.tables.after_crash import settle_in_flight
from workers.tables.fill_columns import FillColumns
from workers.tables.maintenance.schedule import Maintenance
from workers.tables.open_table import OpenTable
from workers.tables.open_tables import OpenTables
from workers.tables.parallel import wait_for_all
from workers.tables.publish_batch import BatchPublisher, store_nothing
from workers.tables.table_locks import TableLocks
from workers.tables.write_batch import BatchWriter, Slice
from workers.tables.written import StoreInSameTransaction, Written


class LakeWriter:
    """The tables of a worker process. A single thread calls; several threads work inside."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        *,
        generation: int,
        origin: str,
        threads: int,
        relid: int = 0,
        locks: TableLocks | None = None,
        maintenance: Maintenance | None = None,
        publisher: type[BatchPublisher] = BatchPublisher,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """``relid`` is a sync worker's table, 0 in the apply worker. ``locks`` are the turns at
        shared tables. ``publisher``: the class to publish a batch and store positions. ``wake`` is
        called when the thread of ``synchronous_commit = off`` has stored batches or failed."""
        self.maintenance = maintenance or Maintenance(dest)
        self.dest = self._dest = dest
        self._store = store
        self._sub = sub
        self._changed_since_maintenance: set[int] = set()
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="lake")
        self._tables = OpenTables(
            dest,
            store,
            sub,
            self._threads,
            generation=generation,
            relid=relid,
            on_opened=lambda relid, lake: self.maintenance.opened(relid, lake),
            maintain_branch=lambda table: self.maintenance.maintain_new_branch(table),
        )
        self._batches = BatchWriter(
            self._tables, dest, self._threads, locks or TableLocks(None), origin=origin
        )
        self._publisher = publisher(
            self._batches,
            dest,
            store,
            sub,
            self._threads,
            origin=origin,
            on_published=self._on_published,
            wake=wake,
        )
        self._background = self._publisher.background

    def settle_in_flight(self) -> None:
        """Fence every table a dead worker was publishing, so that positions can be read."""
        settle_in_flight(self._dest, self._store, self._sub, self._threads)

    def read_as(self, sub: Subscription) -> None:
        """Read the options of tables in ``sub`` from now on, and not in the catalog's row."""
        self._tables.read_as(sub)

    # -- tables -------------------------------------------------------------------------------

    def new_branch_name(self, prefix: str = "") -> str:
        """A branch name never used before; ``prefix``: how a shared table's branches begin."""
        return self._tables.new_branch_name(prefix)

    def open(self, rel: SubscriptionRel) -> OpenTable:
        """The table's position and schema, read unless the table is open already."""
        return self._tables.open(rel)

    @property
    def changes_columns(self) -> bool:
        """Can ``change_columns`` change the columns of lake tables?"""
        return self._dest.changes_columns

    def open_all(self, rels: Sequence[SubscriptionRel]) -> list[OpenTable]:
        """``open`` for several tables at a time, reading in parallel."""
        return self._tables.open_all(rels)

    def read_again(self, rels: Iterable[SubscriptionRel]) -> None:
        """Read the lake tables again, after another writer changed one of them beside a batch.

        ``rels`` are the subscription's tables.
        """
        self._tables.read_again(rels)

    def adopt_branch(self, rel: SubscriptionRel, lake: LakeTable, branch: str, at: LSN) -> None:
        """Open a sync worker's table with the branch of the copy, at position ``at``."""
        self._tables.adopt_branch(rel, lake, branch, at)

    def look_up_inserted_keys(self, rel: SubscriptionRel, **found: str | int | None) -> None:
        """From now on, and for good, look up every inserted key of the table.

        ``found``: more columns of the table's catalog row, to be stored in the same transaction.
        """
        self._tables.look_up_inserted_keys(rel, **found)

    def change_columns(
        self, rel: SubscriptionRel, changes: Sequence[ColumnChange], remember: Remember
    ) -> Mapping[LakeIdent, str]:
        """Change the columns of an open table, between two batches (``Destination``).

        All published batches are stored first, so no position is behind the columns. Returns what
        ``Destination.make_durable`` returned, to be stored; nothing if no column changed.
        """
        if changes:
            self.wait_until_stored()
        table = self.open(rel)
        lake = self._dest.change_columns(table.lake.ident, changes, remember)
        self._tables.set_columns(rel, lake)
        return self._dest.make_durable([lake.ident]) if changes else {}

    def fill_columns(
        self,
        rel: SubscriptionRel,
        changes: Sequence[ColumnChange],
        fills: Mapping[str, pa.Scalar[Any]],
        remember: Remember,
    ) -> Mapping[LakeIdent, str]:
        """``change_columns``, and values of added columns in all rows that are there.

        Until ``begin_part`` rows that are written without the columns have the values too.
        """
        self.wait_until_stored()
        fill = FillColumns(self._dest, self._store, self._tables, self._batches.origin)
        durable = fill(rel, changes, fills, remember)
        earlier = self._tables.constants.get(rel.srrelid, ())  # of the same transaction
        self._tables.constants[rel.srrelid] = (*earlier, *fills.items())
        return durable

    def begin_part(self) -> None:
        """Begin with another part of a batch."""
        self._tables.constants.clear()

    def leave(self, relid: int) -> None:
        """Forget a table that takes no more changes; the worker's branches are dropped."""
        self._tables.leave(relid)

    def can_read_others(self, rels: Iterable[SubscriptionRel], relids: Collection[int]) -> bool:
        """Does the lake have a followed table of ``rels`` that is not one of ``relids``?"""
        return self._tables.can_read_others(rels, relids)

    # -- a batch ------------------------------------------------------------------------------

    def write(
        self,
        work: Mapping[int, Sequence[Run]],
        end_lsn: LSN,
        *,
        unsure: Collection[int] = (),
    ) -> list[Written]:
        """Write a batch (runs by relid) to the branches; nothing is visible before ``publish``.

        ``unsure``: the tables whose inserted keys are looked up in this batch, copied whole or not.

        After an error the remaining tables are still tried. Then all branches of the batch are
        abandoned, and the first error is raised.
        """
        return self._batches.write(work, end_lsn, unsure)

    def write_slices(
        self, slices: Iterable[Slice], end_lsn: LSN, shared: Collection[LakeIdent]
    ) -> list[Written]:
        """Write a large transaction to the branches, slice by slice; as ``write`` otherwise.

        ``shared``: the shared tables that the transaction may change.
        """
        return self._batches.write_slices(slices, end_lsn, shared)

    def takes_files(self, rel: SubscriptionRel, work: TableWork) -> bool:
        """Are data files that were written earlier what ``write_slices`` would write now?

        Not if inserted keys are looked up, or if the table's columns or options have changed.
        """
        table = self.open(rel)
        same = (table.lake.ident, table.lake.columns, table.source, self.options(rel)) == (
            work.table.ident,
            work.table.columns,
            work.source,
            work.options,
        )
        return same and not self._tables.must_look_up_keys(table)

    def must_look_up_keys(self, rel: SubscriptionRel) -> bool:
        """May an inserted key be in the table already? Not in a table copied whole."""
        return self._tables.must_look_up_keys(self.open(rel))

    def options(self, rel: SubscriptionRel) -> TableOptions:
        """The table's options in the configuration."""
        return self._tables.options(rel)

    def settle_again(self) -> None:
        """Fence the tables of a batch that was not published everywhere, and read them again."""
        self.wait_until_stored()
        relids = [relid for relid, _ in self._store.in_flight(self._sub.oid)]
        self.settle_in_flight()
        for relid in relids:
            self._tables.close(relid)

    def hold_back(self, written: Sequence[Written]) -> None:
        """Leave the batch on the branch of a sync worker's copy."""
        self._batches.finish(written)

    def publish(
        self,
        written: Sequence[Written],
        end_lsn: LSN,
        store_also: StoreInSameTransaction = store_nothing,
        *,
        waits: bool = True,
    ) -> None:
        """Make a batch visible, table by table, then store how far the subscription is.

        ``store_also`` stores more in the same catalog transaction. Unless the worker ``waits``, a
        thread stores the position later.
        """
        self._publisher.publish(written, end_lsn, store_also, waits=waits)

    # -- published batches that a thread stores (synchronous_commit = off) ----------------------

    def wait_until_stored(self) -> None:
        """Wait until the positions of all published batches are stored; raise the thread's error.

        Returns at once if the worker waited for each batch.
        """
        self._background.wait_until_stored()

    def when_stored(self, then: Callable[[], None]) -> None:
        """Call ``then`` once the positions of all published batches are stored, perhaps now."""
        self._background.when_stored(then)

    def raise_if_failed(self) -> None:
        """Raise the error with which the thread ended."""
        self._background.raise_if_failed()

    def end_storing(self) -> None:
        """Let the thread store what is published, and end; raises no error."""
        self._background.end()

    # -- maintenance --------------------------------------------------------------------------

    def maintain_changed_tables(self, rels: Iterable[SubscriptionRel]) -> None:
        """Maintain the tables published since the last call, between two batches.

        The next batch waits for maintenance, the publisher does not. A table is left alone if
        ``rels`` describe a different copy: the worker may not rewrite the table any more.
        """
        relids, self._changed_since_maintenance = self._changed_since_maintenance, set()
        tables = [table for table in self._tables.current(rels) if table.rel.srrelid in relids]
        to_replace = self.maintenance.maintain_changed_tables(
            tables, lambda jobs: wait_for_all(map(self._threads.submit, jobs))
        )
        for relid in to_replace:
            self._tables.abandon_branch(relid)

    def maintain_idle_table(self, rels: Iterable[SubscriptionRel]) -> None:
        """Maintain an idle table if the time has come, and publish the result.

        An empty batch at the table's position publishes the result.
        """
        if not self.maintenance.idle_maintenance_due():
            return
        table = self.maintenance.most_fragmented_idle_table(self._tables.current(rels))
        if table is None:
            return
        relid = table.rel.srrelid
        try:
            ready = self._tables.with_branch(table)
            self._tables.set(ready)
            to_publish = self.maintenance.maintain_idle_table(ready)
            if to_publish is None:
                self._tables.abandon_branch(relid)
            elif to_publish:
                self.publish(self.write({relid: []}, ready.lsn), ready.lsn)
        except RequiredProcessGone:
            raise
        except ReplicationError as error:
            self._tables.abandon_branch(relid)  # the branch holds rewrites only, no rows are lost
            if error.code != SERIALIZATION_FAILURE:
                self.maintenance.idle_publish_failed(table, error)

    def note_ended_expiries(self, rels: Iterable[SubscriptionRel]) -> None:
        """Record ended expiries, without waiting. ``rels`` are the subscription's tables."""
        self.maintenance.expiry.note_ended(rels)

    def _on_published(self, written: Written) -> None:
        self.maintenance.published(written)
        self._changed_since_maintenance.add(written.table.rel.srrelid)

    def close(self) -> None:
        """End the threads; running calls are finished first."""
        self._background.end()
        self._threads.shutdown(wait=True)
