"""A worker's tables in the lake: opened, written on a branch, published together.

A batch reaches readers in this order, and in no other::

    every table's branch holds its part        write()    errors of values and keys end here
    the list of tables is stored (in_flight)   publish()
    each table's main is fast-forwarded
    origin and per-table positions are stored, the list is cleared

so that no table shows a transaction that another table's error could still stop, and whoever
comes after a crash knows which tables' outcomes are open. A branch is named for the subscription
and this process's generation and attempt and is never used again once anything about it failed.

Trace: tables a and b, batch up to 500. Killed between the two fast-forwards. The successor fences a
and b (an empty snapshot on each main), reads a at 500 and b at 400, receives 401..500 again and
applies it to b only.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial

import pyarrow as pa

from catalog.errcodes import (
    FamilyProcessGone,
    InternalError,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    UndefinedTable,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import KEY_UNSURE, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.by_table import Run
from workers.changes.failed_transaction import FailedTransaction
from workers.changes.layout import PartOfIdentity
from workers.changes.segments import build_segments
from workers.lake.destination import Destination
from workers.lake.sources import branches_of, source_of
from workers.lake.table import BRANCH_PREFIX, LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.tables.after_crash import settle
from workers.tables.maintenance.schedule import Upkeep
from workers.tables.open_table import OpenTable, same_sync
from workers.tables.parallel import results
from workers.tables.position import check_stamp, copy_again
from workers.tables.publish_batch import _PUBLISH_ATTEMPTS, _nothing
from workers.tables.shared_tables import ATTEMPTS, MAIN_MOVED, others_beside, outrun
from workers.tables.table_locks import TableLocks
from workers.tables.write_batch import _COUNTED_TOGETHER, _NOT_UNIQUE
from workers.tables.written import Alongside, Written, by_lake_table

log = logging.getLogger(__name__)
"""How often a batch is redone because somebody else moved main."""
"""Tables whose outcomes are one query: 40 of them in ones take 1.5 s, in tens 0.8 s."""


class LakeWriter:
    """The tables of one worker process; one thread uses it, and it runs its own inside."""

    _relid = 0

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        *,
        generation: int,
        origin: str,
        threads: int,
        locks: TableLocks | None = None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self._dest = dest
        self._store = store
        self._sub = sub
        self._origin = origin
        # A new or restored data directory counts its generations anew, on the same lake.
        self._own = f"{generation}_{secrets.token_hex(4)}"
        self._attempt = 0
        self._locks = locks or TableLocks(None)
        self._tables: dict[int, OpenTable] = {}
        self.upkeep = upkeep or Upkeep(dest)
        self._given_up: set[int] = set()
        self._untended: set[int] = set()
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="lake")

    # -- tables -------------------------------------------------------------------------------

    def new_branch_name(self, prefix: str = "") -> str:
        """A name nobody has used or will use; ``prefix`` is that of a shared table's branches."""
        self._attempt += 1
        return f"{prefix or f'{BRANCH_PREFIX}{self._sub.oid}_'}{self._own}_{self._attempt}"

    def options(self, rel: SubscriptionRel) -> TableOptions:
        """What the configuration says of the table."""
        return self._sub.tables.get(qualified_name(rel.nspname, rel.relname), TableOptions())

    def open(self, rel: SubscriptionRel) -> OpenTable:
        """The table's position and schema, read when its first change passes the gate.

        Never carried over from before the catalog row changed. Raises 55000 where the lake's
        position cannot be the one we left: another epoch, none, or one behind what we published.
        """
        known = self._tables.get(rel.srrelid)
        if known is not None and same_sync(known.rel, rel):
            return known
        lake = self._existing(rel)
        source = source_of(self._sub, rel)
        stamp = check_stamp(rel, lake, self._sub.subname, source)
        floor = LSN(max(stamp.floor, rel.floor))
        self.upkeep.opened(rel.srrelid, lake)
        lake = replace(lake, snapshots=())  # it counts them, and nobody else does
        opened = OpenTable(rel, lake, stamp.lsn, floor, None, source=source)
        self._tables[rel.srrelid] = opened
        self._distrust_others(lake, opened)
        return self._tables[rel.srrelid]

    def open_all(self, rels: Sequence[SubscriptionRel]) -> list[OpenTable]:
        """``open`` for several tables at a time; those that must be read are read in parallel."""
        return results([self._pool.submit(self.open, rel) for rel in rels])

    def adopt_branch(self, rel: SubscriptionRel, lake: LakeTable, branch: str, at: LSN) -> None:
        """A table whose branch exists already and stands at ``at`` (a sync worker's own)."""
        source = source_of(self._sub, rel)
        self._tables[rel.srrelid] = OpenTable(
            rel, lake, at, at, branch, own_branch=True, source=source
        )

    def distrust(self, rel: SubscriptionRel, **found: str | int | None) -> None:
        """From now on, and for good, an inserted key may be in the table already.

        ``found``: other columns of the table's row to be stored along with that.
        """
        table = self._tables[rel.srrelid]
        self._tables[rel.srrelid] = replace(table, rel=replace(table.rel, copied=False))
        with self._store.transaction():
            if self._store.rel(rel.srsubid, rel.srrelid) is not None:  # it may have left meanwhile
                self._store.update_rel(rel.srsubid, rel.srrelid, copied=False, **found)

    def forget(self, relid: int) -> None:
        """Read the table anew when it is next needed."""
        self._tables.pop(relid, None)

    # -- a batch ------------------------------------------------------------------------------

    def write(self, work: Mapping[int, Sequence[Run]], end_lsn: LSN) -> list[Written]:
        """Put a batch (runs by relid) on the branches; nothing is visible before ``publish``.

        All tables are tried even if one fails, then the first error is raised and every branch
        the batch touched is given up.
        """
        units = by_lake_table([self._tables[relid] for relid in work], lambda table: table)
        self._locks.take(
            ident
            for ident, tables in units.items()
            if tables[0].source and not tables[0].own_branch
        )
        futures = [
            self._pool.submit(self._write_tables, tables, work, end_lsn)
            for tables in units.values()
        ]
        try:
            return self._counted([written for unit in results(futures) for written in unit])
        except BaseException:
            self._locks.release()
            for future in futures:
                if future.exception() is None:
                    for written in future.result():
                        written.work.discard()
            for relid in work:
                self._give_up_branch(relid)
            raise

    def _counted(self, written: Sequence[Written]) -> list[Written]:
        """Where what was matched is known: a key that is there twice ends here."""
        starts = range(0, len(written), _COUNTED_TOGETHER)
        parts = [written[start : start + _COUNTED_TOGETHER] for start in starts]
        asked = [
            self._pool.submit(self._dest.count, [each.effect for each in part]) for part in parts
        ]
        counts = [found for part in results(asked) for found in part]
        return [replace(each, counts=found) for each, found in zip(written, counts, strict=True)]

    def _write_tables(
        self, tables: Sequence[OpenTable], work: Mapping[int, Sequence[Run]], end_lsn: LSN
    ) -> list[Written]:
        """What goes to one lake table: one after the other, on one branch."""
        done: list[Written] = []
        try:
            for table in tables:
                begun = replace(table, branch=done[0].table.branch) if done else table
                done.append(self._write_table(begun, work[table.rel.srrelid], end_lsn))
        except BaseException:
            for written in done:
                written.work.discard()
            raise
        return done

    def _write_table(self, table: OpenTable, runs: Sequence[Run], end_lsn: LSN) -> Written:
        try:
            work = build_segments(
                runs,
                table.lake,
                self.options(table.rel),
                self._dest,
                probe=self._needs_probe(table),
                source=table.source,
            )
        except FailedTransaction as failed:
            self._distrust_after(failed, table.rel)
            raise
        try:
            if table.rel.epoch is None:
                raise ObjectNotInPrerequisiteState(f'table "{table.lake.ident}" has no epoch')
            stamp = Stamp(self._origin, end_lsn, table.rel.epoch, table.floor, table.source)
            ready = self._with_branch(table)
            effect = self._dest.write_branch(
                ready.lake.ident, ready.branch or "", work.segments, stamp, table.base
            )
            pa.default_memory_pool().release_unused()  # by this thread, which used most of it
            if not table.own_branch:
                failpoints.reach("apply.table_written")
        except BaseException as error:
            work.discard()
            if isinstance(error, FailedTransaction):
                self._distrust_after(error, table.rel)
            raise
        return Written(ready, work, stamp, effect)

    def _distrust_after(self, failed: FailedTransaction, rel: SubscriptionRel) -> None:
        """The batch is cut before the transaction at fault, which alone may show no error.

        Trace: T, I 1, U 1 | I 1 of a table that is trusted. The second I 1 meets the first one's
        row, without a look at the lake, for nothing is there behind a TRUNCATE. Alone it would be
        appended unseen, beside the row that the part before it has published.
        """
        if isinstance(failed.error, PartOfIdentity):
            # With another identity the same changes come again, and their flags look whole.
            self.distrust(rel, fingerprint=KEY_UNSURE)
        elif failed.error.code == _NOT_UNIQUE:
            # A key came twice: not all that happens to the table arrives.
            self.distrust(rel)

    def _distrust_others(self, lake: LakeTable, table: OpenTable) -> bool:
        """Rows that somebody else added may have keys that are inserted.

        Whether they were taken for ours alone: where keys are looked for anyway, they were not.
        """
        if not table.rel.copied or table.source not in lake.written_by_others:
            return False
        log.warning(
            'action=other_writer subid=%d relid=%d somebody else added rows to lake table "%s"; '
            "inserted keys are looked for",
            table.rel.srsubid,
            table.rel.srrelid,
            lake.ident,
        )
        self.distrust(table.rel)
        return not self._needs_probe(table)

    def _check_alone(self, lake: LakeTable, tables: Sequence[OpenTable]) -> None:
        """What is staged for tables of ours alone is of no use beside rows of somebody else."""
        news = [self._distrust_others(lake, table) for table in tables]
        if any(news):
            raise others_beside(lake.ident, self._sub.subname)

    def _needs_probe(self, table: OpenTable) -> bool:
        """May a key that is inserted be in the table already? Not in one we copied whole."""
        options = self.options(table.rel)
        return bool(options.on_key_conflict or options.keys) or not table.rel.copied

    def _with_branch(self, table: OpenTable, *, tidy: bool = True) -> OpenTable:
        if table.branch is not None:
            return table
        if table.own_branch:
            raise InternalError("the branch that holds a table's copy was given up")
        ident = table.lake.ident
        prefix = branches_of(self._sub, self._relid) if table.source else ""
        branch = self.new_branch_name(prefix)
        self._dest.drop_branches(ident, prefix=prefix or BRANCH_PREFIX)
        self._dest.create_branch(ident, branch)
        if table.rel.srrelid in self._given_up or not table.source:
            # The branch is main as it is now, which somebody may have set back since the table was
            # opened, or added rows to; the next fast-forward would not tell.
            lake = self._existing(table.rel)
            check_stamp(table.as_left, lake, self._sub.subname, table.source)
            self._given_up.discard(table.rel.srrelid)
            self._check_alone(lake, [table])
        failpoints.reach("apply.branch_created")
        ready = replace(table, branch=branch)
        # A shared table's branch does not stand: its files are put together before its batch.
        usable = self.upkeep.tidy(ready) if table.source and tidy else True
        return ready if usable else self._with_branch(table, tidy=False)

    def _give_up_branch(self, relid: int) -> None:
        table = self._tables.get(relid)
        if table is not None:
            self._tables[relid] = replace(table, branch=None)
            self._given_up.add(relid)

    def keep(self, written: Iterable[Written]) -> None:
        """The batch is where it belongs (published, or on a sync worker's branch)."""
        for each in written:
            stands = each.table.own_branch or not each.table.source
            branch = each.table.branch if stands else None
            table = replace(each.table, lsn=each.stamp.lsn, branch=branch)
            self._tables[table.rel.srrelid] = table
            each.work.discard()

    def publish(
        self, written: Sequence[Written], end_lsn: LSN, alongside: Alongside = _nothing
    ) -> None:
        """Make a batch visible, table by table, then store how far the subscription is.

        ``alongside`` stores what else is true from that moment on, in the same transaction; it is
        given what was published.
        """
        try:
            try:
                published = self._publish(written, end_lsn, alongside)
            except BaseException:
                for each in written:
                    each.work.discard()
                raise
        finally:
            self._locks.release()
        self.keep(published)
        for each in published:
            self.upkeep.count(each)
            self._untended.add(each.table.rel.srrelid)

    def _publish(
        self, written: Sequence[Written], end_lsn: LSN, alongside: Alongside
    ) -> list[Written]:
        relids = [each.table.rel.srrelid for each in written]
        failpoints.reach("apply.branches_written")
        self._store.put_in_flight(self._sub.oid, relids, end_lsn)
        failpoints.reach("apply.in_flight_stored")
        units = by_lake_table(written, lambda each: each.table).values()
        shown = results([self._pool.submit(self._publish_tables, unit) for unit in units])
        published = [each for unit in shown for each in unit]
        failpoints.reach("apply.all_tables_published")
        with self._store.transaction():
            for relid in relids:
                if self._store.rel(self._sub.oid, relid) is not None:  # it may have left meanwhile
                    self._store.update_rel(self._sub.oid, relid, lake_lsn=end_lsn)
            self._store.origin_advance(self._origin, end_lsn, published[-1].position)
            self._store.clear_in_flight(self._sub.oid, relids)
            alongside(published)
        failpoints.reach("apply.origin_advanced")
        return published

    def tend(self, rels: Iterable[SubscriptionRel]) -> None:
        """Upkeep of what was published since the last one: the next batch waits, the publisher not.

        ``rels`` as in ``rest``: what is another table by now is not ours to thin out.
        """
        relids, self._untended = self._untended, set()
        tables = [table for table in self._still(rels) if table.rel.srrelid in relids]
        for relid in self.upkeep.tend(tables, lambda jobs: results(map(self._pool.submit, jobs))):
            self._give_up_branch(relid)

    def rest(self, rels: Iterable[SubscriptionRel]) -> None:
        """Tidy one of these that changes no more, if it is time, and show it by an empty batch."""
        if not self.upkeep.has_rested():
            return
        table = self.upkeep.left_untidy(self._still(rels))
        if table is None:
            return
        relid = table.rel.srrelid
        try:
            ready = self._tables[relid] = self._with_branch(table)
            rewritten = self.upkeep.rest(ready)
            if rewritten is None:
                self._give_up_branch(relid)
            elif rewritten:
                self.publish(self.write({relid: []}, ready.lsn), ready.lsn)
        except FamilyProcessGone:
            raise
        except ReplicationError as error:
            self._give_up_branch(relid)  # nothing of ours is lost with it
            if error.code != MAIN_MOVED:
                self.upkeep.not_shown(table, error)

    def _still(self, rels: Iterable[SubscriptionRel]) -> list[OpenTable]:
        known = [(self._tables.get(rel.srrelid), rel) for rel in rels]
        return [table for table, rel in known if table and same_sync(table.rel, rel)]

    def _publish_tables(self, unit: Sequence[Written]) -> Sequence[Written]:
        """Fast-forward one lake table; if somebody else moved main, redo from what is staged."""
        ident, source = unit[0].table.lake.ident, unit[0].table.source
        for _ in range(ATTEMPTS if source else _PUBLISH_ATTEMPTS):
            try:
                last = unit[-1]
                snapshot_id = self._dest.publish(ident, last.table.branch or "", last.stamp)
            except ReplicationError as error:
                if error.code != MAIN_MOVED:
                    raise
            else:
                failpoints.reach("apply.one_table_published")
                return [replace(each, snapshot_id=snapshot_id) for each in unit]
            unit, shown = self._begin_again(unit)
            if shown:
                return unit
            unit = [self._write_again(each) for each in unit]
        if source:
            raise outrun(ident)
        raise ReplicationError(
            f'main of lake table "{ident}" is moved by somebody else '
            "faster than a batch can be published",
            hint="Stop the other writer or its maintenance; the table has one owner.",
            sqlstate=MAIN_MOVED,
        )

    def _begin_again(self, unit: Sequence[Written]) -> tuple[Sequence[Written], bool]:
        """A fresh branch at main; whether main shows the batch already.

        A fence first, but for a shared table: what was refused is not under way any more, and
        fences would keep its sources from ever publishing past each other.
        """
        ident = unit[0].table.lake.ident
        first = unit[0].table
        lake = self._existing(first.rel) if first.source else self._dest.fence(ident)
        name = self._sub.subname
        stamps = [check_stamp(each.table.as_left, lake, name, each.table.source) for each in unit]
        self._check_alone(lake, [each.table for each in unit])
        fresh = self._with_branch(replace(first, lake=lake, branch=None))
        again = [
            replace(each, table=replace(each.table, lake=lake, branch=fresh.branch))
            for each in unit
        ]
        # They were published together, or not at all.
        shown = all(stamp.lsn >= each.stamp.lsn for stamp, each in zip(stamps, unit, strict=True))
        return again, shown

    def _existing(self, rel: SubscriptionRel) -> LakeTable:
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        lake = self._dest.table(ident)
        if lake is None:
            raise UndefinedTable(
                f'logical replication target relation "{ident}" does not exist',
                hint=f"{copy_again(self._sub.subname, rel)} makes and fills it anew; or take the "
                "table out of its publication.",
            )
        return lake

    def _write_again(self, written: Written) -> Written:
        table, work = written.table, written.work
        try:
            effect = self._dest.write_branch(
                table.lake.ident, table.branch or "", work.segments, written.stamp, table.base
            )
        except FailedTransaction as failed:
            # Other tables show the batch already: it cannot be cut any more.
            raise failed.error from None
        return replace(written, effect=effect, counts=self._dest.count([effect])[0])

    # -- after a crash ------------------------------------------------------------------------

    def settle_in_flight(self, ident_of: Callable[[int], LakeIdent | None]) -> None:
        """Fence every table whose batch was being published, so that its position can be read."""
        open_outcomes = self._store.in_flight(self._sub.oid)
        fence, submit = partial(settle, self._dest, self._store, self._sub), self._pool.submit
        results(submit(fence, relid, lsn, ident_of(relid)) for relid, lsn in open_outcomes)
        self._store.clear_in_flight(self._sub.oid, [relid for relid, _ in open_outcomes])

    def close(self) -> None:
        """End the threads; what they run is finished first."""
        self._pool.shutdown(wait=True)
