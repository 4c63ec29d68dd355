"""A worker's open tables: positions, schemas, branches.

A table is opened when the first change passes the gate, and opened again when the catalog row
changed. Opening reads the table in the lake and checks the position found there.

A worker writes a table on a branch, never on ``main``. A branch name holds the subscription, the
worker's generation, a random part and a number. No worker ever uses a name twice. A table's branch
takes batch after batch until an error: the worker then abandons the branch, and the next batch
begins a new branch at ``main``. A shared table's branch takes one batch.

In a table copied whole by the subscription, inserted keys are known to be new: no look-up is made.
``look_up_inserted_keys`` ends the rule for a table for good, for example because a different writer
added rows.
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import replace
from itertools import islice

from catalog.errcodes import (
    InternalError,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    UndefinedTable,
    at_fault,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SYNCED, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.monitor_limits import LOOKED_FOR_TABLES
from workers.lake.destination import Destination
from workers.lake.refusals import check_not_overtaken
from workers.lake.segment import Constants
from workers.lake.sources import branches_of, source_of
from workers.lake.table import BRANCH_PREFIX, LakeIdent, LakeTable, Stamp
from workers.process import failpoints
from workers.tables.lake_writer import choose_lake_writer
from workers.tables.open_table import OpenTable, same_sync
from workers.tables.parallel import wait_for_all
from workers.tables.position import check_position, recopy_command
from workers.tables.shared_tables import error_other_writer

log = logging.getLogger(__name__)

OnOpened = Callable[[int, LakeTable], None]
"""Called for every opened table with the relid and the lake table, snapshots included."""

MaintainBranch = Callable[[OpenTable], bool]
"""Rewrites files on a shared table's new branch if due; False: the branch must be replaced."""


class OpenTables:
    """The open tables of a worker, by relid. Several threads may open tables at a time."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        threads: Executor,
        *,
        generation: int,
        relid: int,
        on_opened: OnOpened,
        maintain_branch: MaintainBranch,
    ) -> None:
        """``relid`` is a sync worker's table, 0 in the apply worker."""
        self._dest = dest
        self._store = store
        self._sub = sub
        self._threads = threads
        # A new or restored data directory counts generations from 1 again, on an old lake.
        self._worker_id = f"{generation}_{secrets.token_hex(4)}"
        self._relid = relid
        self._on_opened = on_opened
        self._maintain_branch = maintain_branch
        self._branches_made = 0
        self._tables: dict[int, OpenTable] = {}
        self._branches_abandoned: set[int] = set()
        self.constants: dict[int, Constants] = {}
        """Of the part in hand, by relid: what runs from before a column have in the column."""

    def __getitem__(self, relid: int) -> OpenTable:
        return self._tables[relid]

    def set(self, table: OpenTable) -> None:
        """Remember an open table's new position or branch."""
        self._tables[table.rel.srrelid] = table

    def read_as(self, sub: Subscription) -> None:
        """Read the tables' options in ``sub`` from now on."""
        self._sub = sub

    def options(self, rel: SubscriptionRel) -> TableOptions:
        """The table's options in the configuration."""
        return self._sub.table_options(rel.nspname, rel.relname)

    def current(self, rels: Iterable[SubscriptionRel]) -> list[OpenTable]:
        """The open tables among ``rels`` whose catalog rows still describe the same copy."""
        known = [(self._tables.get(rel.srrelid), rel) for rel in rels]
        return [table for table, rel in known if table and same_sync(table.rel, rel)]

    # -- opening ------------------------------------------------------------------------------

    def open(self, rel: SubscriptionRel) -> OpenTable:
        """The table's position and schema, read when the first change passes the gate.

        Both are read again when the catalog row changed. Raises 55000 if the lake's position cannot
        be the position left by the subscription: no position, the position of a different copy, or
        a position behind the published position.
        """
        known = self._tables.get(rel.srrelid)
        if known is not None and same_sync(known.rel, rel):
            return known
        source = source_of(self._sub, rel)
        with at_fault(rel):
            lake = self.read(rel)
            stamp = check_position(rel, lake, self._sub.subname, source)
            choose_lake_writer(self._dest, self._store, rel, self.options(rel))
        floor = LSN(max(stamp.floor, rel.floor))
        self._on_opened(rel.srrelid, lake)
        lake = replace(lake, snapshots=())  # maintenance alone counts snapshots
        opened = OpenTable(rel, lake, stamp.lsn, floor, None, source=source)
        self._tables[rel.srrelid] = opened
        self._note_other_writer(lake, opened)
        return self._tables[rel.srrelid]

    def open_all(self, rels: Sequence[SubscriptionRel]) -> list[OpenTable]:
        """``open`` for several tables at a time, reading in parallel."""
        return wait_for_all([self._threads.submit(self.open, rel) for rel in rels])

    def adopt_branch(self, rel: SubscriptionRel, lake: LakeTable, branch: str, at: LSN) -> None:
        """Open a sync worker's table with the branch of the copy, at position ``at``."""
        source = source_of(self._sub, rel)
        self._tables[rel.srrelid] = OpenTable(
            rel, lake, at, at, branch, own_branch=True, source=source
        )

    def set_columns(self, rel: SubscriptionRel, lake: LakeTable) -> None:
        """Remember an open table's new columns. Position and branch stay."""
        table = self._tables[rel.srrelid]
        columns, text = lake.columns, lake.publisher_columns
        changed = replace(table.lake, columns=columns, publisher_columns=text)
        self._tables[rel.srrelid] = replace(table, lake=changed)

    def close(self, relid: int) -> None:
        """Forget the table's position and branch; the next change reads the position again."""
        self._tables.pop(relid, None)

    def leave(self, relid: int) -> None:
        """Drop the worker's branches of a table that takes no more changes; forget the table."""
        if relid in self._tables:
            self.drop_failed_branches([relid])
        self.close(relid)

    def read(self, rel: SubscriptionRel) -> LakeTable:
        """The lake table as ``main`` is now. Raises 42P01 for a missing table."""
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        lake = self._dest.table(ident)
        if lake is None:
            raise UndefinedTable(
                f'logical replication target relation "{ident}" does not exist',
                hint=f"{recopy_command(self._sub.subname, rel)} makes and fills it anew; or take "
                "the table out of its publication.",
            )
        return lake

    def can_read_others(self, rels: Iterable[SubscriptionRel], relids: Collection[int]) -> bool:
        """Does the lake have a followed table of ``rels`` that is not one of ``relids``?

        A few tables are looked at: a catalog that lacks all of them is a wrong catalog.
        """
        others = (rel for rel in rels if rel.srsubstate in SYNCED and rel.srrelid not in relids)
        return any(
            self._dest.table(LakeIdent(rel.lake_schema, rel.lake_table)) is not None
            for rel in islice(others, LOOKED_FOR_TABLES)
        )

    def read_again(self, rels: Iterable[SubscriptionRel]) -> None:
        """Read the lake tables again, after another writer changed one of them beside a batch.

        The tables have new columns or new positions; the next batch begins new branches. ``rels``
        are the subscription's tables: a table that left, or was copied again, is forgotten. The
        error of a table that the batch may not touch waits for the table's next change.
        """
        present = {table.rel.srrelid for table in self.current(rels)}
        tables = [table for table in self._tables.values() if not table.own_branch]
        for table in tables:
            if table.rel.srrelid not in present:
                self.close(table.rel.srrelid)
        staying = [table for table in tables if table.rel.srrelid in present]
        wait_for_all([self._threads.submit(self._read_again, table) for table in staying])

    def _read_again(self, table: OpenTable) -> None:
        relid = table.rel.srrelid
        try:
            lake = self.read(table.rel)
            stamp = check_position(table.expected_row, lake, self._sub.subname, table.source)
        except UndefinedTable:
            self.close(relid)  # ``open`` raises the error again
            return
        except ObjectNotInPrerequisiteState:
            self.abandon_branch(relid)  # ``with_branch`` raises the error again
            return
        lake = replace(lake, snapshots=())
        self._tables[relid] = replace(table, lake=lake, lsn=stamp.lsn, branch=None)
        self._branches_abandoned.add(relid)

    # -- inserted keys ------------------------------------------------------------------------

    def must_look_up_keys(self, table: OpenTable) -> bool:
        """May an inserted key be in the table already? Not in a table copied whole."""
        options = self.options(table.rel)
        return bool(options.on_key_conflict or options.keys) or not table.rel.copied

    def look_up_inserted_keys(self, rel: SubscriptionRel, **found: str | int | None) -> None:
        """From now on, and for good, look up every inserted key of the table.

        ``found``: more columns of the table's catalog row, to be stored in the same transaction.
        """
        table = self._tables.get(rel.srrelid)
        if table is not None:
            self._tables[rel.srrelid] = replace(table, rel=replace(table.rel, copied=False))
        with self._store.transaction():
            # The table may have left the subscription meanwhile.
            if self._store.rel(rel.srsubid, rel.srrelid) is not None:
                self._store.update_rel(rel.srsubid, rel.srrelid, copied=False, **found)

    def _note_other_writer(self, lake: LakeTable, table: OpenTable) -> bool:
        """Look up inserted keys from now on if another writer added rows to the table.

        True if batches were staged without key look-ups until now.
        """
        if not table.rel.copied or table.source not in lake.written_by_others:
            return False
        log.warning(
            'action=other_writer subid=%d relid=%d another writer added rows to lake table "%s"; '
            "inserted keys are looked up from now on",
            table.rel.srsubid,
            table.rel.srrelid,
            lake.ident,
        )
        self.look_up_inserted_keys(table.rel)
        return not self.must_look_up_keys(table)

    def _check_no_other_writer(self, lake: LakeTable, tables: Sequence[OpenTable]) -> None:
        """Raise 40001 if a batch was staged without key look-ups beside rows of another writer."""
        without_look_up = [self._note_other_writer(lake, table) for table in tables]
        if any(without_look_up):
            raise error_other_writer(lake.ident)

    # -- branches -----------------------------------------------------------------------------

    def new_branch_name(self, prefix: str = "") -> str:
        """A branch name never used before; ``prefix``: how a shared table's branches begin."""
        self._branches_made += 1
        return f"{self._own_prefix(prefix)}{self._branches_made}"

    def _prefix(self, table: OpenTable) -> str:
        """How the branches of the subscription begin in a shared lake table; else an empty text."""
        return branches_of(self._sub, self._relid) if table.source else ""

    def _own_prefix(self, prefix: str) -> str:
        """How the names of this worker's branches begin."""
        return f"{prefix or f'{BRANCH_PREFIX}{self._sub.oid}_'}{self._worker_id}_"

    def with_branch(self, table: OpenTable, *, maintain: bool = True) -> OpenTable:
        """The table with the present branch, or with a new branch at ``main``."""
        if table.branch is not None:
            return table
        if table.own_branch:
            raise InternalError("the branch that holds a table's copy was given up")
        ident = table.lake.ident
        prefix = self._prefix(table)
        branch = self.new_branch_name(prefix)
        self._dest.drop_branches(ident, prefix=prefix or BRANCH_PREFIX)
        self._dest.create_branch(ident, branch)
        if table.rel.srrelid in self._branches_abandoned or not table.source:
            # The branch begins at the present main. Another writer may have set main back or added
            # rows since the table was opened, and the next fast-forward would not notice.
            lake = self.read(table.rel)
            stamp = check_position(table.expected_row, lake, self._sub.subname, table.source)
            if not table.source:
                check_not_overtaken(ident, stamp.lsn, table.lsn)
            self._branches_abandoned.discard(table.rel.srrelid)
            self._check_no_other_writer(lake, [table])
        failpoints.reach("apply.branch_created")
        ready = replace(table, branch=branch)
        # A shared table's branch takes one batch: maintenance comes before the batch.
        usable = self._maintain_branch(ready) if table.source and maintain else True
        return ready if usable else self.with_branch(table, maintain=False)

    def abandon_branch(self, relid: int) -> None:
        """Never use the table's branch again; the next batch begins a new branch at ``main``."""
        table = self._tables.get(relid)
        if table is not None:
            self._tables[relid] = replace(table, branch=None)
            self._branches_abandoned.add(relid)

    def drop_failed_branches(self, relids: Iterable[int]) -> None:
        """After a failed write: drop the branches of this worker, with all unpublished commits.

        The branch of a sync worker's copy stays until the next attempt. An error of the lake is
        left to the successor, which drops all branches of pgsub before it begins a branch.
        """
        tables = [self._tables[relid] for relid in relids if not self._tables[relid].own_branch]
        dropped = [self._threads.submit(self._drop_own_branches, table) for table in tables]
        for each in dropped:
            with suppress(ReplicationError):
                each.result()

    def _drop_own_branches(self, table: OpenTable) -> None:
        prefix = self._prefix(table)
        self._dest.drop_branches(table.lake.ident, prefix=self._own_prefix(prefix))

    def branch_again(self, tables: Sequence[OpenTable]) -> tuple[list[OpenTable], list[Stamp]]:
        """The sources of a lake table on a new branch at ``main``, and the positions on ``main``.

        Called when another writer moved ``main``. A table with a single owner is fenced first: the
        refused publication cannot take effect any more. A shared table is not fenced: every fence
        moves ``main``, and the sources would never publish past each other's fences.
        """
        first = tables[0]
        lake = self.read(first.rel) if first.source else self._dest.fence(first.lake.ident)
        name = self._sub.subname
        stamps = [check_position(table.expected_row, lake, name, table.source) for table in tables]
        self._check_no_other_writer(lake, tables)
        fresh = self.with_branch(replace(first, lake=lake, lsn=stamps[0].lsn, branch=None))
        return [replace(table, lake=lake, branch=fresh.branch) for table in tables], stamps
