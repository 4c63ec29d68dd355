"""Write a batch to the branches of the tables. Readers see no part of the batch yet.

Three steps, each for all tables in parallel, every table by a single thread:

1. The changes are folded and staged (``build_segments``). Layout, columns, identity, declared keys
   and values are decided here, for all tables, before a byte is committed for any table.
2. The lake applies the segments on the table's branch. The sources of a shared lake table are
   written together, on a single branch.
3. The lake is asked for the numbers of matched rows, for several tables at a time.

After an error in a table the remaining tables of the step are still tried. Then all staged rows are
discarded, all branches of the batch are dropped with the commits of the batch, and the first error
is raised. A batch that fails again and again leaves nothing in any table.

A large transaction comes in *slices*. The slices are written one after the other onto the same
branches, without a position. So a slice finds the rows of the earlier slices, and its own rows need
not stay in memory. At the end an empty snapshot on each branch carries the position::

    slice 1   I 1, U 7          branch of t: 1 added, 7 updated
    slice 2   U 1→2, D 7        branch of t: row 1 found and moved to 2, row 7 found and deleted
    the end   the position      main of t is fast-forwarded to the branch
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import Executor, wait
from dataclasses import dataclass, field, replace

from catalog.errcodes import (
    UNIQUE_VIOLATION,
    ObjectNotInPrerequisiteState,
    Policy,
    ReplicationError,
    at_fault,
    policy,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import KEY_UNSURE, SubscriptionRel
from config.limits import COUNT_AT_ONCE_TABLES
from workers.changes.by_table import Run
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.layout import PartOfIdentity
from workers.changes.segments import build_segments
from workers.changes.table_work import TableWork
from workers.freed_memory import give_back
from workers.lake.destination import Destination
from workers.lake.effects import Counts, Effect, joined
from workers.lake.refusals import check_not_overtaken
from workers.lake.segment import SourcePart
from workers.lake.table import LakeIdent, Stamp
from workers.process import failpoints
from workers.process.work_done import DONE
from workers.tables.open_table import OpenTable
from workers.tables.open_tables import OpenTables
from workers.tables.parallel import wait_for_all
from workers.tables.table_locks import TableLocks
from workers.tables.written import Written, by_lake_table


@dataclass(frozen=True, slots=True)
class Slice:
    """A part of the changes of a transaction: runs by relid.

    Inserted keys of the tables in ``unsure`` are looked up, copied whole or not. The tables in
    ``ready`` have no runs here: their new rows are in data files already.
    """

    work: Mapping[int, Sequence[Run]]
    unsure: Collection[int] = ()
    ready: Mapping[int, TableWork] = field(default_factory=dict)

    @property
    def relids(self) -> Collection[int]:
        """The tables of the slice."""
        return self.work.keys() | self.ready.keys()


class BatchWriter:
    """Writes batches to branches. Called by a single thread; works in the worker's threads."""

    def __init__(
        self,
        tables: OpenTables,
        dest: Destination,
        threads: Executor,
        locks: TableLocks,
        *,
        origin: str,
    ) -> None:
        """``origin``: the replication origin named in the positions of the batches."""
        self._tables = tables
        self._dest = dest
        self._threads = threads
        self._locks = locks
        self.origin = origin

    def write(
        self,
        work: Mapping[int, Sequence[Run]],
        end_lsn: LSN,
        unsure: Collection[int] = (),
    ) -> list[Written]:
        """Write a batch (runs by relid) to the branches; ``end_lsn`` is the batch's position.

        Inserted keys of the tables in ``unsure`` are looked up, copied whole or not.

        Takes the locks of shared tables. ``end_turn`` releases the locks, as does an error here.
        """
        units = by_lake_table([self._tables[relid] for relid in work], lambda table: table)
        self._locks.take(
            ident
            for ident, tables in units.items()
            if tables[0].source and not tables[0].own_branch
        )
        staged: dict[int, TableWork] = {}
        try:
            self._stage(work, unsure, staged)
            futures = [
                self._threads.submit(self._write_lake_table, tables, staged, end_lsn)
                for tables in units.values()
            ]
            return self._counted([written for unit in wait_for_all(futures) for written in unit])
        except BaseException:
            # Without all tables staged, nothing was committed yet.
            self._give_up(staged, work, committed=len(staged) == len(work))
            raise

    def write_slices(
        self, slices: Iterable[Slice], end_lsn: LSN, shared: Collection[LakeIdent]
    ) -> list[Written]:
        """Write a transaction slice by slice; a slice is made when the slice before is written.

        The tables are not known before the last slice. So the locks of all ``shared`` tables that
        the transaction may change are taken first.
        """
        self._locks.take(shared)
        touched: set[int] = set()
        written: dict[int, Written] = {}
        try:
            for each in slices:
                touched |= set(each.relids)
                self._write_slice(each, written, end_lsn)
                del each  # the slice must not stay in memory beside the next slice
                failpoints.reach(failpoints.SLICE_WRITTEN)
            if not written:
                self.end_turn()  # every table skipped the transaction: nothing is published
            return self._counted(self._with_positions(list(written.values())))
        except BaseException:
            self._give_up({}, touched, committed=True)
            raise

    def _write_slice(self, part: Slice, written: dict[int, Written], end_lsn: LSN) -> None:
        """Write a slice onto the branches of the slices in ``written``; only counts are kept."""
        branches = {each.table.lake.ident: each.table.branch for each in written.values()}
        units = by_lake_table([self._tables[relid] for relid in part.relids], lambda table: table)
        staged = dict(part.ready)
        try:
            self._stage(part.work, part.unsure, staged)
            futures = [
                self._threads.submit(
                    self._write_lake_table,
                    [replace(table, branch=branches.get(ident, table.branch)) for table in tables],
                    staged,
                    end_lsn,
                    is_slice=True,
                )
                for ident, tables in units.items()
            ]
            done = [each for unit in wait_for_all(futures) for each in unit]
        except BaseException:
            _discard_staged(staged)
            raise
        for now in done:
            relid = now.table.rel.srrelid
            before = written.get(relid)
            now.work.settle(None if before is None else before.work)
            effect = now.effect if before is None else joined(before.effect, now.effect)
            written[relid] = replace(now, effect=effect, in_slices=True)

    def _with_positions(self, written: Sequence[Written]) -> list[Written]:
        """Give the branches of a transaction in slices the position."""
        units = by_lake_table(written, lambda each: each.table).values()
        futures = [self._threads.submit(self._give_positions, unit) for unit in units]
        return [each for unit in wait_for_all(futures) for each in unit]

    def _give_positions(self, unit: Sequence[Written]) -> list[Written]:
        """Give a lake table's branch the position of each source, in one snapshot."""
        last = self._write_sources(
            [each.table for each in unit],
            [SourcePart((), each.stamp, each.table.base_lsn) for each in unit],
        )
        return [
            replace(each, effect=joined(each.effect, effect))
            for each, effect in zip(unit, last, strict=True)
        ]

    def _write_sources(
        self, tables: Sequence[OpenTable], parts: Sequence[SourcePart]
    ) -> list[Effect]:
        """Write the parts of the sources of one lake table.

        What a sync worker has written may wait for the apply worker before the publication.
        """
        first = tables[0]
        may_hold = not (first.own_branch or first.source)
        return self._dest.write_sources(
            first.lake.ident, first.branch or "", parts, may_hold=may_hold
        )

    def end_turn(self) -> None:
        """Let the next worker of the data directory write to the shared tables."""
        self._locks.release()

    def finish(self, written: Sequence[Written]) -> None:
        """Move every table's position to the batch's end and discard the staged rows.

        The batch is published by now, or stays on the branch of a sync worker's copy.
        """
        for each in written:
            is_reusable = each.table.own_branch or not each.table.source
            branch = each.table.branch if is_reusable else None
            self._tables.set(replace(each.table, lsn=each.stamp.lsn, branch=branch))
            each.work.discard()

    def _counted(self, written: Sequence[Written]) -> list[Written]:
        """Ask the lake for the numbers of matched rows. A key of several rows raises 23505 here."""
        starts = range(0, len(written), COUNT_AT_ONCE_TABLES)
        parts = [written[start : start + COUNT_AT_ONCE_TABLES] for start in starts]
        asked = [self._threads.submit(self._count, part) for part in parts]
        counts = [found for part in wait_for_all(asked) for found in part]
        return [replace(each, counts=found) for each, found in zip(written, counts, strict=True)]

    def _count(self, part: Sequence[Written]) -> list[Counts]:
        """Ask for the numbers of some tables together; after a data error, table by table."""
        try:
            return self._dest.count([each.effect for each in part])
        except ReplicationError as error:
            if policy(error.code) is not Policy.DATA:
                raise
        counts: list[Counts] = []
        for each in part:
            with at_fault(each.table.rel):
                counts += self._dest.count([each.effect])
        return counts

    def _give_up(
        self, staged: Mapping[int, TableWork], relids: Collection[int], *, committed: bool
    ) -> None:
        """After an error: remove the staged rows, and the commits of the batch if there are any."""
        try:
            _discard_staged(staged)
            for relid in relids:
                self._tables.abandon_branch(relid)
            if committed:
                self._tables.drop_failed_branches(relids)
        finally:
            self.end_turn()

    def _stage(
        self,
        work: Mapping[int, Sequence[Run]],
        unsure: Collection[int],
        staged: dict[int, TableWork],
    ) -> None:
        """Fold and stage the changes of every table into ``staged``; see ``build_segments``.

        Of several transactions at fault the first one counts.
        """

        def stage(relid: int) -> None:
            staged[relid] = self._stage_table(self._tables[relid], work[relid], relid in unsure)

        futures = [self._threads.submit(stage, relid) for relid in work]
        wait(futures)
        errors = [error for future in futures if (error := future.exception()) is not None]
        failed = [error for error in errors if isinstance(error, FailedTransaction)]
        if errors:
            first = min(failed, key=lambda each: each.txn) if len(failed) == len(errors) else None
            raise first or errors[0]

    def _stage_table(self, table: OpenTable, runs: Sequence[Run], unsure: bool) -> TableWork:
        with at_fault(table.rel):
            if table.rel.epoch is None:
                raise ObjectNotInPrerequisiteState(f'table "{table.lake.ident}" has no epoch')
            try:
                return build_segments(
                    runs,
                    table.lake,
                    self._tables.options(table.rel),
                    self._dest,
                    look_up_keys=unsure or self._tables.must_look_up_keys(table),
                    source=table.source,
                    constants=self._tables.constants.get(table.rel.srrelid, ()),
                )
            except FailedTransaction as failed:
                failed.blame(table.rel)
                self._look_up_keys_after(failed, table.rel)
                raise

    def _write_lake_table(
        self,
        tables: Sequence[OpenTable],
        staged: Mapping[int, TableWork],
        end_lsn: LSN,
        *,
        is_slice: bool = False,
    ) -> list[Written]:
        """Write the sources of a lake table together, on a single branch."""
        stamps = [
            Stamp(self.origin, end_lsn, table.rel.epoch or "", table.floor, table.source)
            for table in tables
        ]
        works = [staged[table.rel.srrelid] for table in tables]
        rels = [table.rel for table in tables]
        with at_fault(*rels):
            branch = self._tables.with_branch(tables[0]).branch
        ready = [replace(table, branch=branch) for table in tables]
        parts = [
            SourcePart(work.segments, None if is_slice else stamp, table.base_lsn)
            for work, stamp, table in zip(works, stamps, tables, strict=True)
        ]
        if any(work.keys_ahead for work in works):
            failpoints.reach("apply.keys_to_look_up")
        try:
            with DONE.timed("lake_commit"), at_fault(*rels):
                effects = self._write_sources(ready, parts)
        except FailedTransaction as failed:
            named = _tables_at_fault(failed, rels)
            failed.blame(*named)
            for rel in named:
                self._look_up_keys_after(failed, rel)
            raise
        give_back()  # the thread used most of the pool
        if not tables[0].own_branch:
            failpoints.reach("apply.table_written")
        return list(map(Written, ready, works, stamps, effects))

    def _look_up_keys_after(self, failed: FailedTransaction, rel: SubscriptionRel) -> None:
        """Look up inserted keys from now on, if the error casts doubt on the table's keys.

        The batch is cut before the transaction at fault, and the transaction alone may raise no
        error. Trace: T, I 1, U 1 | I 1 of a table with inserted keys known to be new. The second
        I 1 meets the row of the first without a look-up in the lake, because the TRUNCATE emptied
        the table. Alone, the second I 1 would be appended without a look-up, beside the row
        published by the first part.
        """
        if isinstance(failed.error, PartOfIdentity):
            # With a new identity the changes come again, and the key flags look whole.
            self._tables.look_up_inserted_keys(rel, fingerprint=KEY_UNSURE)
        elif failed.error.code == UNIQUE_VIOLATION:
            # A key came twice: the publisher does not send all changes of the table.
            self._tables.look_up_inserted_keys(rel)

    # -- once more, when another writer moved main ----------------------------------------------

    def begin_again(self, unit: Sequence[Written]) -> tuple[list[Written], bool]:
        """A lake table's part of a batch on a new branch at ``main``; is the part visible already?

        The sources of a shared lake table were published together, or not at all.
        """
        tables, stamps = self._tables.branch_again([each.table for each in unit])
        again = [replace(each, table=table) for each, table in zip(unit, tables, strict=True)]
        visible = all(stamp.lsn >= each.stamp.lsn for stamp, each in zip(stamps, unit, strict=True))
        if not visible:
            for stamp, table in zip(stamps, tables, strict=True):
                check_not_overtaken(table.lake.ident, stamp.lsn, table.lsn)
        return again, visible

    def write_again(self, unit: Sequence[Written]) -> list[Written]:
        """Apply a lake table's staged segments once more, on the new branch of ``begin_again``."""
        parts = [SourcePart(each.work.segments, each.stamp, each.table.base_lsn) for each in unit]
        try:
            effects = self._write_sources([each.table for each in unit], parts)
        except FailedTransaction as failed:
            # Further tables of the batch are published already: the batch cannot be cut any more.
            raise failed.error from None
        counts = self._dest.count(effects)
        return [
            replace(each, effect=effect, counts=found)
            for each, effect, found in zip(unit, effects, counts, strict=True)
        ]


def _discard_staged(staged: Mapping[int, TableWork]) -> None:
    """Remove the staged rows of a batch that failed."""
    for each in staged.values():
        each.discard()


def _tables_at_fault(
    failed: FailedTransaction, rels: Sequence[SubscriptionRel]
) -> list[SubscriptionRel]:
    """The table of the change at fault; all sources of the lake table if the table is not known."""
    change = failed.change
    named = (
        []
        if change is None
        else [rel for rel in rels if (rel.nspname, rel.relname) == (change.nspname, change.relname)]
    )
    return named or list(rels)
