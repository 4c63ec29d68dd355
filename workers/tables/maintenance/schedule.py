"""Compaction and vacuum: when a table is due, and the rewrite of the table's files.

**Compaction** joins small files. Every batch leaves files, and compaction is due after a number of
batches, not after a time. The count begins with the number of files that the table holds when it
is opened: workers that were killed every two minutes never counted to three hundred by themselves,
and after an hour a table had five times the files it should have. Nothing is due within the first
batches of a worker: a worker that comes and goes should not begin each life with seconds of
maintenance. Compaction may take a tenth of a table's time: eighteen seconds without compaction
follow two seconds of compaction.

**Vacuum** removes deleted rows. Deleted rows stay in the data files, as in PostgreSQL's heap, and
cost every reader time. Vacuum follows PostgreSQL's rule and settings: a table is due when more rows
are deleted than autovacuum_vacuum_threshold + autovacuum_vacuum_scale_factor × live rows. A worker
vacuums one table in every autovacuum_naptime. A vacuum rewrites some files. Once a vacuum finds no
file to rewrite, the remaining deletes (of files already gone) count no more.

**Idle tables** keep the small files of the last batches, and deleted rows. Once in every
autovacuum_naptime one idle table is maintained, whether other tables change or not. An empty batch
publishes the result (``LakeWriter.maintain_idle_table``).

**Turns.** After a batch a tenth of the changed tables are compacted, first the tables that have
waited longest; the rewrites run in parallel. Tables changed together are due together: with forty
tables, at 0.4 s a table, the next batch waited 15 s after every tenth batch.

A rewrite runs between two batches: if a rewrite and a MERGE commit at the same time, one of the two
fails. Every rewrite is therefore small (docs/decisions/0006-upkeep.md). Expiries run in the
background (``workers.tables.maintenance.expiry``). A table that is not ready has no maintenance.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from catalog.errcodes import ReplicationError
from catalog.lake_maintenance import AUTOVACUUM, COMPACTION
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from config.limits import (
    COMPACTION_REST_FACTOR,
    FIRST_MAINTENANCE_BATCHES,
    FRAGMENTED_POINTS,
    IDLE_AFTER_SECONDS,
    SMALL_BATCH_ROWS,
)
from workers.lake.destination import Destination
from workers.lake.effects import FileSizes
from workers.lake.table import LakeTable
from workers.process import failpoints
from workers.tables.maintenance.expired_files import FileRemoval
from workers.tables.maintenance.expiry import SnapshotExpiry
from workers.tables.maintenance.jobs import (
    Job,
    Outcome,
    Outcomes,
    Record,
    RunInBackground,
    RunInParallel,
    maintenance_job,
    record_nothing,
    run_now,
    run_one_by_one,
)
from workers.tables.maintenance.turn_order import TurnOrder
from workers.tables.maintenance.vacuum_due import NONE_DELETED, DeletedRows, vacuum_is_due
from workers.tables.open_table import OpenTable
from workers.tables.table_locks import TableLocks
from workers.tables.written import Written


class Maintenance:
    """Counts the files and deleted rows of a worker's tables, by relid, and rewrites files."""

    def __init__(
        self,
        dest: Destination,
        run_in_background: RunInBackground = run_now,
        settings: Callable[[], Settings] = Settings,
        record: Record = record_nothing,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        new_place: Callable[[], float] = random.random,
        locks: TableLocks | None = None,
        files: FileRemoval | None = None,
    ) -> None:
        """``run_in_background`` runs expiries. ``settings`` returns the settings in force.
        ``record`` stores outcomes. ``clock`` returns the time since any start, ``now`` Unix time,
        both in seconds. ``new_place`` orders equally fragmented tables. ``locks`` are for expiries
        of shared tables, ``files`` for files of expired snapshots."""
        self._dest = dest
        self._settings = settings
        self._clock = clock
        self._turns = TurnOrder(new_place)
        self._outcomes = Outcomes(record, now)
        self.expiry = SnapshotExpiry(
            dest,
            self._outcomes,
            self._turns,
            run_in_background=run_in_background,
            settings=settings,
            now=now,
            locks=locks or TableLocks(None),
            files=files,
        )
        self._deleted: dict[int, DeletedRows] = {}
        self._last_vacuum = self._last_idle_turn = clock()
        self._fragmentation: dict[int, int] = {}
        self._no_compaction_before: dict[int, float] = {}
        self._last_change: dict[int, float] = {}
        self._unpublished_rewrites: set[int] = set()
        self._last_idle_attempt: dict[int, float] = {}

    # -- events -------------------------------------------------------------------------------

    def opened(self, relid: int, lake: LakeTable) -> None:
        """Begin the counts with the table's present files and snapshots."""
        self.expiry.opened(lake)
        self._turns.opened(relid)
        most = max(self._settings().compaction_batches - FIRST_MAINTENANCE_BATCHES, 0)
        self._fragmentation[relid] = min(lake.files, most)
        self._deleted.pop(relid, None)
        self._unpublished_rewrites.discard(relid)

    def published(self, written: Written) -> None:
        """Count a table's part of a published batch."""
        relid, counts = written.table.rel.srrelid, written.counts
        self._last_change[relid] = self._clock()
        self._unpublished_rewrites.discard(relid)
        if written.effect.commits:  # of several sources of a lake table the first one has them
            self.expiry.published(written.table.lake.ident, written.effect)
        rows = counts.appended + counts.merged
        if rows:  # a batch without rows, only to publish rewrites for example, adds no files
            files = 10 if rows < SMALL_BATCH_ROWS else 1
            self._fragmentation[relid] = self._fragmentation.get(relid, 0) + files
        if counts.rows:
            known = self._deleted.get(relid, NONE_DELETED)
            not_found = min(known.not_found, counts.deleted)
            self._deleted[relid] = DeletedRows(
                counts.rows, counts.deleted, not_found, known.looked_at
            )

    # -- after a batch ------------------------------------------------------------------------

    def maintain_changed_tables(
        self, changed: Sequence[OpenTable], run_in_parallel: RunInParallel = run_one_by_one
    ) -> set[int]:
        """Maintain the tables changed by a batch; return the relids of the branches to replace.

        At most one table is vacuumed, the table with the oldest vacuum: batches go on between two
        vacuums, however many tables are due.
        """
        most = -(-len(changed) // FIRST_MAINTENANCE_BATCHES)
        tables = [table for table in changed if _is_ready(table.rel)]
        self.expiry.begin_due(tables)
        standing = [table for table in tables if _keeps_its_branch(table)]
        branches_to_replace = self._compact(standing, most, run_in_parallel)
        due = [
            table
            for table in standing
            if table.rel.srrelid not in branches_to_replace and self._vacuum_due(table.rel.srrelid)
        ]
        if due:
            table = min(due, key=lambda table: self._deleted[table.rel.srrelid].looked_at)
            if not self._vacuum(table):
                branches_to_replace.add(table.rel.srrelid)
        return branches_to_replace

    def maintain_new_branch(self, table: OpenTable) -> bool:
        """Rewrite files on a shared table's new branch, if due; False: replace the branch."""
        if not _is_ready(table.rel):
            return True
        vacuum_due = self._vacuum_due(table.rel.srrelid)
        compacted = not self._compact([table], 1, run_one_by_one)
        return compacted and (not vacuum_due or self._vacuum(table))

    # -- idle tables --------------------------------------------------------------------------

    def idle_maintenance_due(self) -> bool:
        """Is it time to maintain an idle table?"""
        settings = self._settings()
        rested = self._clock() - self._last_idle_turn >= settings.autovacuum_naptime
        return settings.autovacuum and rested

    def most_fragmented_idle_table(self, tables: Iterable[OpenTable]) -> OpenTable | None:
        """The idle table to maintain next, if any. Then the next turn is a naptime away."""
        now = self._clock()
        idle = [
            (self._fragmentation.get(table.rel.srrelid, 0), table)
            for table in tables
            if _is_ready(table.rel)
            and not table.source
            and now - self._last_change.get(table.rel.srrelid, now) >= IDLE_AFTER_SECONDS
        ]
        due = [
            (fragmentation, table)
            for fragmentation, table in idle
            if fragmentation >= FRAGMENTED_POINTS or self._has_other_work(table.rel.srrelid)
        ]
        if not due:
            return None
        # A failed table keeps the score. Sort by last attempt, or the failed table always wins.
        _, table = min(
            due, key=lambda each: (self._last_idle_attempt.get(each[1].rel.srrelid, 0.0), -each[0])
        )
        self._last_idle_turn = self._last_idle_attempt[table.rel.srrelid] = now
        return table

    def maintain_idle_table(self, table: OpenTable) -> bool | None:
        """Maintain an idle table. No batch waits, so two small files are enough to join.

        True if the branch has rewrites to publish, from now or from behind the table's last batch.
        None if the branch must be replaced.
        """
        relid = table.rel.srrelid
        if self._fragmentation.get(relid, 0) >= FRAGMENTED_POINTS:
            self._fragmentation[relid] = 0
            sizes = replace(_sizes(self._settings()), few=2)
            outcome = self._compaction(table, sizes)()
            if self._record_rewrites(COMPACTION, [table], [outcome]):
                self._fragmentation[relid] = FRAGMENTED_POINTS  # else never tried again
                return None
            _reach_if_rewritten(outcome)
        if self._vacuum_due(relid) and not self._vacuum(table):
            return None
        has_rewrites = relid in self._unpublished_rewrites
        self._unpublished_rewrites.discard(relid)
        return has_rewrites

    def idle_publish_failed(self, table: OpenTable, error: ReplicationError) -> None:
        """Record a failed publication of an idle table's rewrites: no error of the subscription."""
        self._fragmentation[table.rel.srrelid] = FRAGMENTED_POINTS
        self._outcomes.record_failure(COMPACTION, table, error)

    def _has_other_work(self, relid: int) -> bool:
        return relid in self._unpublished_rewrites or self._vacuum_due(relid)

    # -- compaction ---------------------------------------------------------------------------

    def _compact(
        self, tables: Sequence[OpenTable], most: int, run_in_parallel: RunInParallel
    ) -> set[int]:
        """Compact at most ``most`` of the due tables; return the relids of branches to replace."""
        settings = self._settings()
        if not settings.autovacuum:
            return set()
        now = self._clock()
        fragmented = [(self._fragmentation.get(table.rel.srrelid, 0), table) for table in tables]
        due = [
            (fragmentation, table)
            for fragmentation, table in fragmented
            if fragmentation >= settings.compaction_batches
            and now >= self._no_compaction_before.get(table.rel.srrelid, now)
        ]
        chosen = self._turns.first(due, most)
        for table in chosen:
            self._fragmentation[table.rel.srrelid] = 0
        outcomes = run_in_parallel([self._compaction(table, _sizes(settings)) for table in chosen])
        branches_to_replace = self._record_rewrites(COMPACTION, chosen, outcomes)
        _reach_if_rewritten(*outcomes)
        return branches_to_replace

    def _compaction(self, table: OpenTable, sizes: FileSizes) -> Job:
        def compact(table: OpenTable) -> int:
            begun = self._clock()
            try:
                return self._dest.compact(table.lake.ident, table.branch or "", sizes)
            finally:
                now = self._clock()
                rest = COMPACTION_REST_FACTOR * (now - begun)
                self._no_compaction_before[table.rel.srrelid] = now + rest

        return maintenance_job(compact, table, "action=compact relid=%d files=%d")

    # -- vacuum -------------------------------------------------------------------------------

    def _vacuum_due(self, relid: int) -> bool:
        settings = self._settings()
        rested = self._clock() - self._last_vacuum >= settings.autovacuum_naptime
        deleted = self._deleted.get(relid, NONE_DELETED)
        return settings.autovacuum and rested and vacuum_is_due(deleted, settings)

    def _vacuum(self, table: OpenTable) -> bool:
        """Rewrite files with many deleted rows; False if the branch must be replaced."""
        relid, settings = table.rel.srrelid, self._settings()
        share = settings.autovacuum_vacuum_scale_factor / 2  # some files have more
        # Set before the attempt: a failed vacuum must wait for the next turn, too.
        self._last_vacuum = self._clock()
        deleted = replace(self._deleted[relid], looked_at=self._last_vacuum)
        self._deleted[relid] = deleted

        def vacuum(table: OpenTable) -> int:
            return self._dest.compact(
                table.lake.ident, table.branch or "", _sizes(settings), deleted_share=share
            )

        outcome = maintenance_job(vacuum, table, "action=vacuum relid=%d files=%d")()
        if outcome == 0:
            self._deleted[relid] = replace(deleted, not_found=deleted.deleted)
        if self._record_rewrites(AUTOVACUUM, [table], [outcome]):
            return False
        _reach_if_rewritten(outcome)
        return True

    def _record_rewrites(
        self, kind: str, tables: Sequence[OpenTable], outcomes: Sequence[Outcome]
    ) -> set[int]:
        """Record the outcomes; return the relids of branches to replace."""
        for table, outcome in zip(tables, outcomes, strict=True):
            relid = table.rel.srrelid
            if isinstance(outcome, ReplicationError):
                self._unpublished_rewrites.discard(relid)
            elif outcome or kind == AUTOVACUUM:  # a vacuum may have joined delete files alone
                self._unpublished_rewrites.add(relid)
        return self._outcomes.record_all(kind, tables, outcomes)


def _is_ready(rel: SubscriptionRel) -> bool:
    return rel.srsubstate is SubRelState.READY


def _sizes(settings: Settings) -> FileSizes:
    return FileSizes(
        small=settings.compaction_small_size,
        whole=settings.compaction_target_size,
        at_once=settings.autovacuum_max_size,
    )


def _keeps_its_branch(table: OpenTable) -> bool:
    """Does the next batch use the branch, and publish the rewrites made on the branch?"""
    return bool(table.branch) and not table.source


def _reach_if_rewritten(*outcomes: Outcome) -> None:
    if any(isinstance(outcome, int) and outcome for outcome in outcomes):
        failpoints.reach("apply.branch_rewritten")
