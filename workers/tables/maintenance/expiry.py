"""Expiry: remove a table's old snapshots, many at a time.

Every batch leaves a snapshot. An expiry is due once ``snapshot_expiry_batches`` snapshots could be
removed. Snapshots protected by ``snapshot_retain_last`` or ``snapshot_retain_age`` do not count. A
table with thousands of young snapshots therefore has no expiry, however often the worker begins
anew. The first batches of a worker's life begin no expiry, so that a start is not burdened with
the expiries of all tables; only a table with twice the snapshots needed does not wait. A snapshot
protected by a tag or by a different branch counts, but an expiry cannot remove it:
such snapshots cause one needless expiry in a worker's life.

Trace: a table is opened with 290 snapshots, and an expiry would leave 100. Thus 190 of the 300
snapshots needed for an expiry exist. After 110 batches old snapshots go, 100 are left, and the next
expiry is 300 batches later. With an age of a day and a batch in every minute, no expiry is due for
a day. Then every batch makes a further snapshot old enough. 300 batches later the table has 1,740
snapshots, and 300 go.

No batch waits for an expiry. Expiries and orphan removal share a thread and take turns, because
orphan removal reads manifests that an expiry at that time could delete. An expiry of a shared table
holds the table's lock. A table that is not ready has no expiry. If a table leaves the subscription,
an expiry still waiting for the thread is cancelled.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial

from catalog.lake_maintenance import EXPIRY
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from config.limits import FIRST_MAINTENANCE_BATCHES
from workers.lake.destination import Destination
from workers.lake.effects import Effect
from workers.lake.table import LakeIdent, LakeTable
from workers.tables.maintenance.expired_files import FileRemoval
from workers.tables.maintenance.jobs import Outcome, Outcomes, RunInBackground, maintenance_job
from workers.tables.maintenance.turn_order import TurnOrder
from workers.tables.open_table import OpenTable
from workers.tables.table_locks import TableLocks


@dataclass(frozen=True, slots=True)
class _Expiry:
    """An expiry, waiting or running: table and outcome."""

    table: OpenTable
    outcome: Future[Outcome]


class SnapshotExpiry:
    """Counts the snapshots of a worker's lake tables, and runs due expiries."""

    def __init__(
        self,
        dest: Destination,
        outcomes: Outcomes,
        turns: TurnOrder,
        *,
        run_in_background: RunInBackground,
        settings: Callable[[], Settings],
        now: Callable[[], float],
        locks: TableLocks,
        files: FileRemoval | None,
    ) -> None:
        """``settings`` returns the settings in force. ``now`` returns Unix time in seconds.
        ``files`` keeps the files of expired snapshots for ``file_grace``; without ``files`` they
        go with the snapshots. ``locks`` are for expiries of shared tables alone. Batches lock with
        a ``TableLocks`` object of their own, because only one thread may use such an object."""
        self._dest = dest
        self._outcomes = outcomes
        self._turns = turns
        self._run_in_background = run_in_background
        self._settings = settings
        self._now = now
        self._locks = locks
        self._files = files
        self._running: dict[LakeIdent, _Expiry] = {}
        self._snapshots: dict[LakeIdent, array[float]] = {}
        self._seen: dict[LakeIdent, frozenset[int]] = {}
        self._batches: dict[LakeIdent, int] = {}

    def opened(self, lake: LakeTable) -> None:
        """Begin with the table's present snapshots."""
        self._snapshots[lake.ident] = array("d", lake.snapshots)
        self._seen.pop(lake.ident, None)
        self._batches[lake.ident] = 0

    def published(self, ident: LakeIdent, effect: Effect) -> None:
        """Count a batch and the batch's snapshots; of a shared table also those of other workers.

        Once for a lake table, and not for each of the sources that a batch changes. A shared table
        was read before the batch: what is new since the last such read includes this worker's last
        batch, and its present batch is counted with the next.
        """
        self._batches[ident] += 1
        made = effect.commits
        if effect.snapshots:
            before = self._seen.get(ident, effect.snapshots)
            made = len(effect.snapshots - before)
            self._seen[ident] = effect.snapshots
        if self._settings().snapshot_expiry_batches:  # else no expiry would ever shorten the list
            self._snapshots[ident].extend([self._now()] * made)

    def note_ended(self, rels: Iterable[SubscriptionRel]) -> None:
        """Record ended expiries and removals of files, and begin a due removal, without waiting.

        ``rels`` are the subscription's tables. A waiting expiry is cancelled if the table is not
        ready any more, or left the subscription.
        """
        ready = {rel.srrelid for rel in rels if rel.srsubstate is SubRelState.READY}
        for ident, expiry in list(self._running.items()):
            if expiry.table.rel.srrelid not in ready and expiry.outcome.cancel():
                del self._running[ident]
        self._record_ended()
        if self._files is not None:
            self._files.turn(self._settings())

    def begin_due(self, tables: Sequence[OpenTable]) -> None:
        """Begin due expiries, those with most snapshots to remove first.

        At most a tenth of the tables expire at a time, earlier expiries included. More tables
        expire if ``snapshot_expiry_batches`` is below ten.
        """
        self._record_ended()
        settings = self._settings()
        if not settings.snapshot_expiry_batches:
            return
        most = -(-len(tables) // min(FIRST_MAINTENANCE_BATCHES, settings.snapshot_expiry_batches))
        # Several sources share a shared lake table.
        by_ident = {table.lake.ident: table for table in tables}
        removable = [(self._removable(ident, settings), table) for ident, table in by_ident.items()]
        due = [each for each in removable if self._is_due(*each, settings)]
        for table in self._turns.first(due, max(most - len(self._running), 0)):
            # Forget the snapshots now: snapshots protected by a tag must not make the table due.
            ident = table.lake.ident
            del self._snapshots[ident][: self._removable(ident, settings)]
            expire = partial(self._expire, settings)
            job = maintenance_job(expire, table, "action=expire relid=%d snapshots=%d")
            self._running[table.lake.ident] = _Expiry(table, self._run_in_background(job))
        self._record_ended()

    def _record_ended(self) -> None:
        for ident, expiry in list(self._running.items()):
            if expiry.outcome.done():
                del self._running[ident]
                self._outcomes.record_all(EXPIRY, [expiry.table], [expiry.outcome.result()])

    def _expire(self, settings: Settings, table: OpenTable) -> int:
        retain, age = settings.snapshot_retain_last, settings.snapshot_retain_age
        ident = table.lake.ident
        with self._locks.held([ident] if table.source else []):
            if self._files is None or not settings.file_grace:
                return self._dest.expire(ident, retain=retain, age=age)
            list_files = partial(self._files.list_files, ident)
            return self._dest.expire(ident, retain=retain, age=age, list_files=list_files)

    def _is_due(self, removable: int, table: OpenTable, settings: Settings) -> bool:
        wanted = settings.snapshot_expiry_batches
        began = self._batches[table.lake.ident] >= FIRST_MAINTENANCE_BATCHES
        # A worker whose lives are all short would never begin.
        overdue = removable >= 2 * max(wanted, FIRST_MAINTENANCE_BATCHES)
        due = overdue or (began and removable >= wanted)
        return due and table.lake.ident not in self._running

    def _removable(self, ident: LakeIdent, settings: Settings) -> int:
        """How many snapshots an expiry would remove."""
        known, age = self._snapshots[ident], settings.snapshot_retain_age
        old = bisect_left(known, self._now() - age) if age else len(known)
        return max(min(len(known) - settings.snapshot_retain_last, old), 0)
