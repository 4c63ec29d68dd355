"""Apply batches to the lake, in the apply worker and in the sync worker alike.

A batch holds whole transactions, and is applied in parts. The steps for a part:

1. The bytes are framed, and the tables that the part changes are found.
2. For each table the gate decides transaction by transaction. Then the position of the lake table
   decides: a transaction that ends at or before the position is in the lake table already.
3. Lake tables follow changed columns (``follow_schema``). Tables are checked (``table_checks``).
4. The remaining changes are written to the tables' branches.
5. When every branch is complete, the part is published and the progress is stored.

At first the whole batch is the only part. A part that cannot be applied is cut into smaller parts.
The smaller parts go through the steps in commit order. So all transactions before a transaction at
fault are published before the worker tries the transaction alone. A part is cut for five reasons:

- A transaction is to be skipped (``workers.apply.skip``). The cut leaves the transactions before,
  the transaction alone, and the transactions after.
- An error is the fault of a transaction. The cut is the same.
- An error of the data names no transaction. The cut leaves two halves.
- The transaction ended the worker before (``workers.apply.known_fault``). The cut leaves the
  transaction alone.
- The columns of a table change (``workers.apply.follow_schema``). The cut is before the change.

An error of a single transaction ends the worker, and names the transaction's finish LSN. If the
tables at fault are known, and all of them say ``on_error: suspend``, the tables are suspended
instead, and the transaction is applied to the others (``workers.apply.suspend``).

A part that does not fit ``work_mem`` is cut, too: into two halves, or, if the part is a single
transaction, into *slices* of changes. The steps 1 to 4 are done for each slice. So a transaction of
any size takes bounded memory. Step 5 follows the last slice, and readers see the whole transaction.

Another writer may change a lake table beside the worker (40001). Then the write had no effect. The
tables are read again, and the part goes through the steps again, a few times at most.

A trace: a batch of transactions 1 to 8. The lake refuses a row of 6, and the error does not name
the transaction::

    parts [1-8]                 fails: two halves
    parts [1-4] [5-8]           1-4 is published
    parts [5-8]                 fails: two halves
    parts [5-6] [7-8]           fails: two halves
    parts [5] [6] [7-8]         5 is published, 6 fails: the error, at the finish LSN of 6
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from catalog.errcodes import (
    Policy,
    ReplicationError,
    SerializationFailure,
    UndefinedTable,
    error_context,
    policy,
)
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.limits import PUBLISH_ATTEMPTS
from workers.apply import progress
from workers.apply.cut_batch import CutBefore, around, before_and_from, halves
from workers.apply.follow_schema import ColumnsKeeper
from workers.apply.gate import should_apply_changes_for_rel
from workers.apply.known_fault import KnownFault
from workers.apply.other_table import check_not_other
from workers.apply.parallel.ready_files import ReadyFiles, no_files
from workers.apply.skip import Skip, look_for_skip
from workers.apply.suspend import blame_tables, may_suspend, suspend_tables
from workers.apply.table_checks import (
    ChangedTable,
    TableChecks,
    check_not_renamed,
    run_in_form,
    subscribed_as,
)
from workers.changes.by_table import (
    FramedBatch,
    Run,
    Targets,
    frame_batch,
    frame_in_slices,
    work_of,
)
from workers.changes.failed_transaction import FailedChange, FailedTransaction
from workers.changes.relation_map import LogicalRepRelMap, RelName
from workers.columnar.column_reader import UnreadableValue
from workers.columnar.frame_slices import fits_one_slice
from workers.lake.sources import shared_tables
from workers.process.work_done import DONE, total
from workers.publisher.binary_columns import BinaryForms, RestartAsText, UnknownForm
from workers.stream.batch import Batch
from workers.stream.pages import giving_pages_back
from workers.tables.publish_tables import MainMoved
from workers.tables.rename_watch import RenameWatch, by_oid
from workers.tables.write_batch import Slice
from workers.tables.writer import LakeWriter
from workers.tables.written import Written


@dataclass(slots=True)
class Applier:
    """Applies the batches of a worker.

    - ``own_relid`` is the table of a sync worker, 0 in the apply worker.
    - ``publishes_each_batch`` is True in a sync worker after the copy was published.
    - ``decided_lsn`` is the end of the last transaction that the gate has decided.
    - ``skip_logged`` is the finish LSN of the last transaction that the log reports as skipped.
    - ``default_on_error`` is what an error does to a table that does not say (the setting).
    - ``work_mem`` is the memory for the changes of a part, in bytes (``apply_work_mem``).
    - ``binary`` reads columns in binary form, and is None if the stream is text.
    - ``known_fault`` is what ended the apply worker before; ``schema`` follows changed columns,
      ``renames`` changed names.
    - ``work_of_part`` are the changes of the part in hand, counted by ``work_of``.
    - ``ready_files`` are the data files of a transaction that were written while it ran.
    - ``_attempts`` counts how often in succession another writer prevented a part (40001).
    """

    store: CatalogStore
    sub: Subscription
    writer: LakeWriter
    checks: TableChecks
    own_relid: int = 0
    publishes_each_batch: bool = False
    relmap: LogicalRepRelMap = field(default_factory=LogicalRepRelMap)
    rels: dict[RelName, SubscriptionRel] = field(default_factory=dict)
    decided_lsn: LSN = InvalidXLogRecPtr
    skip_logged: LSN = InvalidXLogRecPtr
    work_mem: int = field(default_factory=lambda: Settings().apply_work_mem)
    default_on_error: str = field(default_factory=lambda: Settings().default_on_error)
    binary: BinaryForms | None = None
    known_fault: KnownFault | None = None
    schema: ColumnsKeeper | None = None
    renames: RenameWatch | None = None
    work_of_part: dict[str, object] = field(default_factory=dict)
    ready_files: Callable[[Batch], ReadyFiles] = no_files
    _attempts: int = 0

    @property
    def holds_back_until_synced(self) -> bool:
        """True if a sync worker publishes its branch only when the table is synchronised."""
        return bool(self.own_relid) and not self.publishes_each_batch

    def read_rels(self) -> None:
        """Read the tables' states; called at batch boundaries only."""
        rels = self.store.rels(self.sub.oid)
        self.rels = {(rel.nspname, rel.relname): rel for rel in rels}

    def apply_batch(self, batch: Batch) -> None:
        """Apply all transactions; raise the error of the first transaction that fails."""
        parts = deque([batch])
        with DONE.timed("batch"):
            while parts:
                smaller = self._apply_or_cut(parts.popleft())
                parts.extendleft(reversed(smaller))

    def _apply_or_cut(self, part: Batch) -> list[Batch]:
        """Apply and publish a part, or return the smaller parts that replace it.

        A worker that holds back does not cut at an error. The branch of the worker holds the copy,
        and a failed write makes the branch unusable: the table is copied again.
        """
        skip = look_for_skip(self.sub.subskiplsn, part)
        if skip is not None and skip.txn is not None and part.ntxns > 1:
            return around(part, skip.txn)
        fault = None if self.known_fault is None else self.known_fault.find(part)
        if fault is not None:
            return around(part, fault)
        if part.ntxns > 1 and not self._is_one_slice(part):
            return halves(part)
        relmap = self.relmap.copy()
        try:
            with giving_pages_back(part):
                written = self._write(part, skip)
        except CutBefore as cut:
            self._forget_part(relmap)
            return before_and_from(part, cut.txn)
        except FailedTransaction as failed:
            self._forget_part(relmap)
            if self.holds_back_until_synced or part.ntxns == 1:
                alone = part.part(failed.txn, failed.txn + 1)
                return self._suspend_or_raise(alone, failed.error, failed.change)
            return around(part, failed.txn)
        except SerializationFailure:
            if self.holds_back_until_synced or self._attempts >= PUBLISH_ATTEMPTS:
                self.relmap = relmap
                raise
            self._attempts += 1
            self._forget_part(relmap)
            self.writer.read_again(self.rels.values())
            return [part]
        except ReplicationError as error:
            may_cut = policy(error.code) is Policy.DATA or self._may_suspend(error)
            if self.holds_back_until_synced or not may_cut:
                self.relmap = relmap
                raise
            self._forget_part(relmap)
            return self._suspend_or_raise(part, error) if part.ntxns == 1 else halves(part)
        try:
            self._finish(written, part.last_end, skip)
        except MainMoved:
            self._attempts += 1
            if self.own_relid or self._attempts >= PUBLISH_ATTEMPTS:
                raise
            # Some tables may show the transaction. The fence tells which, and the gate skips them.
            self._forget_part(relmap)
            self.writer.settle_again()
            self._take_over_published()
            return [part]
        self._attempts = 0
        DONE.count(0 if self.own_relid else part.ntxns, self.work_of_part)
        return []

    def _is_one_slice(self, part: Batch) -> bool:
        return fits_one_slice(part.end - part.start, part.nchanges, self.work_mem)

    def _forget_part(self, relmap: LogicalRepRelMap) -> None:
        """Take back the changes that a failed part made in memory.

        The catalog may say meanwhile that inserted keys of a table must be looked up. ``rels``
        takes over ``copied`` and the fingerprint. The states of the tables in ``rels`` stay.
        """
        self.relmap = relmap
        self.checks.files.forget_part()
        stored = {rel.srrelid: rel for rel in self.store.rels(self.sub.oid)}
        for name, rel in self.rels.items():
            now = stored.get(rel.srrelid)
            if now is None or not now.copied:
                found = rel.fingerprint if now is None else now.fingerprint
                self.rels[name] = replace(rel, copied=False, fingerprint=found)

    def _take_over_published(self) -> None:
        """Know the published positions of the tables that will be opened again."""
        for rel in self.store.rels(self.sub.oid):
            name = rel.nspname, rel.relname
            known = self.rels.get(name)
            if known is not None and known.epoch == rel.epoch:
                self.rels[name] = replace(known, lake_lsn=rel.lake_lsn)

    def _may_suspend(self, error: ReplicationError) -> bool:
        follows = self.schema is not None and self.schema.takes_out(self.sub, error)
        renamed = self.renames is not None and self.renames.suspends(self.sub, error)
        own = follows or renamed or may_suspend(error, self.sub, self.default_on_error)
        if self.own_relid or not own:
            return False
        return not isinstance(error, UndefinedTable) or self.writer.can_read_others(
            self.rels.values(), {rel.srrelid for rel in error.tables}
        )

    def _suspend_or_raise(
        self, alone: Batch, error: ReplicationError, change: FailedChange | None = None
    ) -> list[Batch]:
        """Suspend the tables at fault and return the transaction, to be applied to the others.

        Raises the error if the error may not suspend. A sync worker's table is suspended by the
        caller (``workers.sync.suspend``).
        """
        blame_tables(error, change, self.rels)
        try:
            self._raise_for_transaction(alone, error, change)
        except ReplicationError:
            if not self._may_suspend(error):
                raise
        self.take_out(error)
        return [alone]

    def take_out(self, error: ReplicationError) -> None:
        """Suspend the tables at fault, or copy them again: the gate drops their changes."""
        self.writer.wait_until_stored()
        if self.schema is None or not self.schema.copy_again(self.sub, error):
            suspend_tables(self.store, self.sub, error, is_copy=False)
        for rel in error.tables:
            self.writer.leave(rel.srrelid)
            name = rel.nspname, rel.relname
            now = self.store.rel(rel.srsubid, rel.srrelid)
            if now is None:
                self.rels.pop(name, None)
            else:
                self.rels[name] = now

    def _raise_for_transaction(
        self, batch: Batch, error: ReplicationError, change: FailedChange | None = None
    ) -> None:
        """``apply_error_callback``: raise the error with the place of the change, without a value.

        Raises ``RestartAsText`` instead if a value in binary form cannot be read, and text may be
        sent. By then all transactions before this transaction are published.
        """
        unread = isinstance(error, UnknownForm | UnreadableValue)
        if unread and self.binary is not None and not self.binary.binary_required:
            raise RestartAsText(error.primary) from error
        if self.known_fault is not None:
            self.known_fault.remember(batch, error, change)
        words = [f'processing remote data for replication origin "{origin_name(self.sub.oid)}"']
        words += [] if change is None else change.words()
        finished = LSN(int(batch.final_lsn[0]))
        error.end_lsn = batch.last_end
        words.append(f"in transaction {batch.first_xid}, finished at {finished}")
        with error_context(" ".join(words)):
            raise error

    def _write(self, part: Batch, skip: Skip | None) -> list[Written]:
        """Write a part to the branches of the tables; no change is visible yet."""
        self.work_of_part = {}
        if self.schema is not None:
            self.schema.begin_part()
        if skip is not None and skip.txn is not None:
            return self._write_at_once(self._checked(self._skip(part, skip.lsn)), part)
        files = self.ready_files(part)
        if self._is_one_slice(part) and not files:
            whole = self._checked(self._runs(frame_batch(part, self.relmap), part))
            return self._write_at_once(whole, part)
        framed = frame_in_slices(part, self.relmap, self.work_mem, files.stops, files.stand_ins)
        slices = ((each.end, self._checked(self._runs(each, part))) for each in framed)
        shared = () if self.holds_back_until_synced else shared_tables(self.sub, self.rels.values())
        written = files.write_slices(self.writer, slices, part.last_end, shared)
        self.work_of_part = total(self.work_of_part, files.work_unseen)
        return written

    def _write_at_once(self, whole: Slice, part: Batch) -> list[Written]:
        if not whole.work:
            return []
        return self.writer.write(whole.work, part.last_end, unsure=whole.unsure)

    def _checked(self, runs: dict[RelName, list[Run]]) -> Slice:
        """Check the tables of the runs; return the runs as the lake gets them."""
        announced = self.relmap.take_announced()
        runs = self.checks.by_key_under_full(runs, self.rels, announced)
        for changed in self.checks.changed_tables(runs, self.rels, announced):
            self.look_up_inserted_keys(changed)
        for rel in self.checks.with_first_keys(runs, self.rels):
            self._store_fingerprint(rel)
        runs = self.checks.with_coverage(runs, self.rels)
        work = {
            self.rels[target].srrelid: [run_in_form(run, self.binary) for run in own]
            for target, own in runs.items()
        }
        self.work_of_part = total(self.work_of_part, work_of(runs.values()))
        unsure = {self.rels[target].srrelid for target in runs.keys() & self.checks.uncompared}
        return Slice(work, unsure)

    def _runs(self, framed: FramedBatch, part: Batch) -> dict[RelName, list[Run]]:
        """Return the runs of a part, or of a slice, that this worker has to write, by table."""
        framed = by_oid(self.renames, self.sub, self.rels, framed)
        takes, rels = self._gate(framed.targets, part)
        runs = framed.runs(takes)
        check_not_renamed(self.sub, runs, rels, part, may_cut=not self.holds_back_until_synced)
        if self.schema is not None:
            self.schema.follow(self.sub, rels, runs, part, framed.shapes)
        check_not_other(self.sub, {} if self.own_relid else runs, rels, self.default_on_error)
        opened = self.writer.open_all([rels[target] for target in runs])
        lakes = {target: table.lake for target, table in zip(runs, opened, strict=True)}
        self.checks.check_delimiters(runs, lakes, self.sub.tables)
        return runs

    def _skip(self, part: Batch, lsn: LSN) -> dict[RelName, list[Run]]:
        """Drop all changes of a part of one transaction; return the tables, without any run.

        From now on each table lacks changes. A dropped change may be a DELETE, so an inserted key
        may be in the table already.
        """
        if self.skip_logged != lsn:
            self.skip_logged = lsn
            progress.log_skip_start(self.sub, lsn)
        skipping: dict[RelName, SubscriptionRel] = {}
        for each in frame_in_slices(part, self.relmap, self.work_mem):
            framed = by_oid(self.renames, self.sub, self.rels, each)
            takes, rels = self._gate(framed.targets, part)
            taking = [rels[target] for target, taken in takes.items() if taken.any()]
            skipping |= {(rel.nspname, rel.relname): rel for rel in taking}
        for rel in skipping.values():
            self.look_up_inserted_keys(ChangedTable(replace(rel, copied=False)))
        return {target: [] for target in skipping}

    def _gate(
        self, targets: Targets, part: Batch
    ) -> tuple[dict[RelName, NDArray[np.bool_]], dict[RelName, SubscriptionRel]]:
        """Decide for each table and transaction if this worker applies it: gate, then position.

        A table is absent if no transaction passes the gate. The first answer says by table which
        transactions are applied. The second answer has the tables' catalog rows.
        """
        gated: dict[RelName, NDArray[np.bool_]] = {}
        found: dict[RelName, SubscriptionRel] = {}
        for target, relids in targets.items():
            rel = subscribed_as(self.rels, target, relids)
            passes = should_apply_changes_for_rel(rel, part.final_lsn, own_relid=self.own_relid)
            if rel is not None and passes.any():
                gated[target] = passes
                found[target] = rel
        rels = {rel.srrelid: rel for rel in found.values()}
        opened = dict(zip(rels, self.writer.open_all(list(rels.values())), strict=True))
        tables = {target: opened[rel.srrelid] for target, rel in found.items()}
        takes = {
            target: gated[target] & (part.end_lsn > max(table.lsn, table.floor))
            for target, table in tables.items()
        }
        return takes, found

    def look_up_inserted_keys(self, table: ChangedTable) -> None:
        """Look up the keys of a table's inserts from now on, and store the decision."""
        rel = table.rel
        self.rels[rel.nspname, rel.relname] = rel
        self.writer.look_up_inserted_keys(rel, **table.columns)

    def _store_fingerprint(self, rel: SubscriptionRel) -> None:
        """Store the fingerprint with key and file, unless a command has changed the row."""
        before = self.rels[rel.nspname, rel.relname]
        self.rels[rel.nspname, rel.relname] = rel
        with self.store.transaction():
            now = self.store.rel(rel.srsubid, rel.srrelid)
            if now is not None and now.fingerprint == before.fingerprint:
                self.store.update_rel(rel.srsubid, rel.srrelid, fingerprint=rel.fingerprint)

    def _finish(self, written: list[Written], end_lsn: LSN, skip: Skip | None) -> None:
        """Publish a written part, or hold it back, and move ``decided_lsn``.

        A sync worker never clears ``subskiplsn``. The sync worker skips the transaction in one
        table, and the apply worker still has to skip the transaction in the remaining tables.
        """
        if self.holds_back_until_synced:
            progress.hold_back(self.store, self.sub, self.writer, written)
        else:
            clears = None if self.own_relid else skip
            progress.publish(
                self.store,
                self.sub,
                self.writer,
                written,
                end_lsn,
                clears,
                waits=bool(self.own_relid) or self.sub.subsynccommit != "off",
            )
            if clears is not None:
                self.sub = replace(self.sub, subskiplsn=InvalidXLogRecPtr)
        if skip is not None and skip.txn is not None:
            progress.log_skip_end(self.sub, skip.lsn)
        for rel in self.checks.files.take_over(self.rels):
            self._store_fingerprint(rel)
        self.decided_lsn = end_lsn
        if self.known_fault is not None:
            self.known_fault.passed(end_lsn)
