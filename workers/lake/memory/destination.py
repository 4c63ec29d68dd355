"""The lake in memory: a twin of ``IcebergDestination`` for tests of the workers without Spark.

Branches, fast-forward, positions, fences, sessions and errors behave as on Iceberg; the contract
tests run on the twin and on Iceberg. Rows are Python dictionaries. Several destinations, one for
every worker, share a ``MemoryLake``.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace

import pyarrow as pa

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateTable,
    ObjectInUse,
    ReplicationError,
    UndefinedTable,
)
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import read_copy
from workers.lake.destination import Destination
from workers.lake.effects import Counts, Effect, ExistingKeys, FileSizes, ListFiles, Orphans, counts
from workers.lake.generated_columns import check_uses, read_generated
from workers.lake.memory.apply_segments import Work
from workers.lake.memory.changed_columns import change_columns
from workers.lake.memory.lake import (
    MemoryLake,
    MemoryTable,
    ancestors_of,
    forget_left_behind,
    sources_of,
)
from workers.lake.memory.rows import Row, complete, generate, overwrite_rows, pairs, repeated
from workers.lake.metadata.snapshots import written_by_others
from workers.lake.new_layout import PLAIN, NewLayout
from workers.lake.refusals import check_base, main_was_moved
from workers.lake.segment import Generated, RowsOf, Segment, SourcePart
from workers.lake.staged_rows import Staged
from workers.lake.table import (
    BRANCH_PREFIX,
    MAIN,
    Identity,
    LakeColumn,
    LakeIdent,
    LakeTable,
    Stamp,
)


class MemoryDestination(Destination):
    """``Destination`` on a ``MemoryLake``.

    Every operation calls ``failpoint`` with the operation's name before the operation takes effect;
    ``failpoint`` may raise or wait. ``copy_source`` answers a COPY statement with CSV.
    """

    def __init__(
        self,
        lake: MemoryLake | None = None,
        *,
        identity: Identity | None = None,
        remember_session: Callable[[str, str], None] | None = None,
        failpoint: Callable[[str], None] | None = None,
        copy_source: Callable[[str], Iterable[bytes]] | None = None,
    ) -> None:
        self.lake = lake or MemoryLake()
        self.failpoint = failpoint or (lambda name: None)
        self.copy_source = copy_source
        self._session = (f"pgsub_{identity.subid if identity else 0}", str(uuid.uuid4()))
        self._staged: set[int] = set()
        if remember_session is not None:
            remember_session(*self._session)

    # -- tables -----------------------------------------------------------------------------------

    def table(self, ident: LakeIdent) -> LakeTable | None:
        """The table on ``main`` now; None if the table does not exist."""
        self._enter("table")
        with self.lake.lock:
            table = self.lake.tables.get(ident)
            if table is None:
                return None
            stamp = next((s.stamp for s in ancestors_of(table, MAIN) if s.stamp), None)
            rows = len(self._rows(table, MAIN))
            sources = sources_of(table, MAIN)
            return LakeTable(
                ident,
                table.columns,
                table.owner,
                table.refs.get(MAIN),
                stamp,
                sources,
                rows,
                tuple(each.committed for each in table.snapshots.values()),
                written_by_others=written_by_others(ancestors_of(table, MAIN), sources),
                publisher_columns=table.publisher_columns,
            )

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        *,
        owner: str,
        relid: int,
        stamp: Stamp,
        layout: NewLayout = PLAIN,
        publisher_columns: str = "",
        branch: str = "",
    ) -> LakeTable:
        """Create the table with an empty snapshot on ``main`` that has the position."""
        del layout, branch
        self._enter("create_table")
        with self.lake.lock:
            existing = self.lake.tables.get(ident)
            if existing is not None and (existing.owner != owner or MAIN in existing.refs):
                raise DuplicateTable(f'lake table "{ident}" already exists')
            self.lake.tables[ident] = table = MemoryTable(tuple(columns), owner, publisher_columns)
            self.lake.commit(table, MAIN, (), None if stamp.source else stamp)
        return self._existing(ident)

    def generated_columns(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        """The generated columns; the type is the type of the first column in the expression."""
        self._enter("generated_columns")
        names = {name for name, _ in generated}
        types = {column.name: column.type for column in columns if column.name not in names}
        check_uses(generated, list(types), ident)
        return tuple(
            LakeColumn(each.column, types[each.places[0][2]] if each.places else pa.string())
            for each in read_generated(generated)
        )

    def adopt_table(
        self, ident: LakeIdent, *, owner: str, stamp: Stamp, former_owners: Collection[str] = ()
    ) -> LakeTable:
        """Make an existing table pgsub's."""
        self._enter("adopt_table")
        table = self._get(ident)
        if table.owner not in (None, owner, *former_owners):
            raise ObjectInUse(f'lake table "{ident}" belongs to another subscription')
        table.owner = owner
        self.lake.commit(table, MAIN, self._rows(table, MAIN), None if stamp.source else stamp)
        return self._existing(ident)

    changes_columns = True

    def change_columns(
        self, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
    ) -> LakeTable:
        """Change the columns of the table in all snapshots, and keep the text."""
        self._enter("change_columns")
        table = self._get(ident)
        with self.lake.lock:
            change_columns(table, changes, remember)
        return self._existing(ident)

    def rename_table(self, ident: LakeIdent, new: LakeIdent) -> None:
        """Move the table to another name; the old name is free."""
        self._enter("rename_table")
        self.lake.rename(ident, new, self._get(ident))

    def drop_table(self, ident: LakeIdent) -> None:
        """Drop the table; no error if the table does not exist."""
        self._enter("drop_table")
        self.lake.tables.pop(ident, None)

    def fence(self, ident: LakeIdent) -> LakeTable:
        """Commit an empty snapshot on ``main``; the newest ancestor's position counts on."""
        self._enter("fence")
        table = self._get(ident)
        with self.lake.lock:
            self.lake.commit(table, MAIN, self._rows(table, MAIN))
        return self._existing(ident)

    def release_sessions(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Close sessions for good: every further call of a session's destination fails."""
        self.lake.closed_sessions.update(sessions)

    # -- branches ---------------------------------------------------------------------------------

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """Create or replace a branch at a snapshot, by default at the tip of ``main``."""
        self._enter("create_branch")
        table = self._get(ident)
        table.refs[branch] = table.refs[MAIN] if at is None else at

    def drop_branches(
        self, ident: LakeIdent, *, keep: str | None = None, prefix: str = BRANCH_PREFIX
    ) -> None:
        """Drop every branch with ``prefix`` except ``keep``."""
        self._enter("drop_branches")
        table = self.lake.tables.get(ident)
        if table is None:
            return
        with self.lake.lock:
            for name in [n for n in table.refs if n.startswith(prefix) and n != keep]:
                del table.refs[name]
            forget_left_behind(table)

    def discard_copy(
        self, ident: LakeIdent, copy_id: str, list_files: ListFiles | None = None
    ) -> None:
        """Forget the snapshots of a copy that no ref leads to."""
        self._enter("discard_copy")
        del list_files  # the twin has no files
        with self.lake.lock:
            forget_left_behind(self._get(ident), copy_id)

    # -- writing ----------------------------------------------------------------------------------

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        """Keep all rows in memory."""
        del rows_of, changes_of
        table = pa.Table.from_batches(list(batches), schema)
        self._staged.add(id(table))
        return Staged(table.num_rows, table=table)

    def discard(self, staged: Staged) -> None:
        """Forget the rows."""
        self._staged.discard(id(staged.table))

    @property
    def staged(self) -> int:
        """The number of stagings that were not discarded: 0 without a leak."""
        return len(self._staged)

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        """The effects of the commits; a key that two rows share is an error."""
        self._enter("count")
        return counts(effects, self.lake.outcomes)

    def write_sources(
        self, ident: LakeIdent, branch: str, parts: Sequence[SourcePart], *, may_hold: bool = False
    ) -> list[Effect]:
        """Apply the parts in one commit, which is never held."""
        self._enter("write_branch")
        table = self._get(ident)
        if branch not in table.refs:
            raise ReplicationError(f'branch "{branch}" of lake table "{ident}" does not exist')
        stamps = [part.stamp for part in parts if part.stamp is not None]
        before = sources_of(table, branch)
        for part in parts:
            if part.stamp is not None:
                check_base(ident, before.get(part.stamp.source), part.stamp, part.base)
        known = frozenset(table.snapshots if any(stamp.source for stamp in stamps) else ())
        rows, effects = list(self._rows(table, branch)), []
        for part in parts:
            work = self._applied(table, Work(ident, table.columns, rows), part.segments)
            rows = work.rows
            merges = tuple(merge for merge, _ in work.merges)
            effects.append(Effect(ident, branch, Counts(work.appended), merges))
        self.lake.commit(table, branch, rows, *stamps[::-1])
        return [replace(effects[0], commits=1, snapshots=known), *effects[1:]]

    def _applied(self, table: MemoryTable, work: Work, segments: Sequence[Segment]) -> Work:
        for segment in segments:
            if segment.from_branch is not None:
                work.elsewhere[segment.from_branch] = self._rows(table, segment.from_branch)
        first = max((n for n, s in enumerate(segments) if s.truncate), default=0)
        for segment in segments[first:]:
            work.apply(segment)
        self.lake.outcomes |= {merge.operation: outcome for merge, outcome in work.merges}
        return work

    def copy(
        self,
        ident: LakeIdent,
        branch: str,
        plan: CopyPlan,
        progress: Callable[[int, int], None],
    ) -> int:
        """Read every statement from ``copy_source``; a single commit."""
        self._enter("copy")
        if self.copy_source is None:
            raise ReplicationError("this lake has no source to copy from")
        table = self._get(ident)
        copied: list[Row] = []
        for done, statement in enumerate(plan.statements):
            progress(done, len(plan.statements))
            null = plan.on_unrepresentable == "null"
            chunks = self.copy_source(statement)
            batches = read_copy(chunks, plan.columns, null, plan.relation, plan.nodes, plan.clamped)
            names = [column.name for column in plan.columns]
            read = (
                dict(zip(names, row.values(), strict=True))
                for b in batches
                for row in b.to_pylist()
            )
            whole = (complete(table.columns, row, {}, plan.source) for row in read)
            copied += (generate(row, plan.generated) for row in whole)
        progress(len(plan.statements), len(plan.statements))
        self.lake.commit(table, branch, [*self._rows(table, branch), *copied], plan.stamp)
        return len(copied)

    def existing_keys(self, ident: LakeIdent, branch: str, key: Sequence[str]) -> ExistingKeys:
        """Count the rows of the branch's last commit with a key that an existing row has."""
        self._enter("existing_keys")
        found = pairs(*self._existing_and_copied(ident, branch), key)
        return ExistingKeys(len({copied for _, copied in found}), len(found))

    def repeated_keys(
        self, ident: LakeIdent, branch: str, key: Sequence[str], source: str = ""
    ) -> int:
        """Count the values of a key that more than one row of the branch has."""
        self._enter("repeated_keys")
        return repeated(self._rows(self._get(ident), branch), key, source)

    def overwrite_existing(
        self,
        ident: LakeIdent,
        branch: str,
        columns: Sequence[str],
        key: Sequence[str],
        generated: Generated = (),
    ) -> None:
        """Overwrite existing rows with the copied rows."""
        self._enter("overwrite_existing")
        existing, copied = self._existing_and_copied(ident, branch)
        rows = overwrite_rows(existing, copied, columns, key, generated)
        self.lake.commit(self._get(ident), branch, rows)

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Fast-forward ``main`` to the branch, if the branch's tip carries exactly ``stamp``."""
        self._enter("publish")
        table = self._get(ident)
        with self.lake.lock:
            tip = table.refs.get(branch)
            if tip is None or table.snapshots[tip].stamp != stamp:
                raise main_was_moved(ident, "The branch's last snapshot is not this batch's.")
            if tip in (s.snapshot_id for s in ancestors_of(table, MAIN)):
                return table.refs[MAIN]
            if table.refs[MAIN] not in (s.snapshot_id for s in ancestors_of(table, branch)):
                raise main_was_moved(ident, "Another commit is on main.")
            table.refs[MAIN] = tip
            table.once_on_main.add(tip)
            return tip

    def publish_with(
        self,
        ident: LakeIdent,
        branch: str,
        stamp: Stamp,
        changes: Sequence[ColumnChange],
        remember: Remember | None = None,
    ) -> None:
        """``publish``, and change the columns of all snapshots."""
        with self.lake.lock:
            self.publish(ident, branch, stamp)
            change_columns(self._get(ident), changes, remember)

    def make_durable(self, idents: Collection[LakeIdent]) -> Mapping[LakeIdent, str]:
        """Keep the tables as they are now over the lake's next ``power_cut``."""
        self._enter("make_durable")
        self.lake.make_durable(idents)
        return {ident: f"snapshot {self._get(ident).refs.get(MAIN)}" for ident in idents}

    def expire(
        self,
        ident: LakeIdent,
        *,
        retain: int,
        age: float = 0.0,
        list_files: ListFiles | None = None,
    ) -> int:
        """Drop no snapshot: the twin keeps all."""
        self._enter("expire")
        del ident, retain, age, list_files
        return 0

    def remove_files(self, ident: LakeIdent, table_uuid: str, files: Sequence[str]) -> int:
        """Remove no file: the twin has none."""
        self._enter("remove_files")
        del ident, table_uuid, files
        return 0

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, deleted_share: float | None = None
    ) -> int:
        """Rewrite no files: the twin has none."""
        self._enter("compact")
        del ident, branch, sizes, deleted_share
        return 0

    def remove_orphans(
        self,
        ident: LakeIdent,
        *,
        owner: str,
        older_than: float,
        listed: Callable[[], Collection[str]] = tuple,
    ) -> Orphans:
        """Remove no files: the twin has none."""
        self._enter("remove_orphans")
        del ident, owner, older_than, listed
        return Orphans()

    def rollback(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` back to a snapshot."""
        self._enter("rollback")
        table = self._get(ident)
        if snapshot_id not in table.snapshots:
            raise ReplicationError(f'lake table "{ident}" has no snapshot {snapshot_id}')
        table.refs[MAIN] = snapshot_id

    def close(self) -> None:
        """Release the session."""
        self.lake.closed_sessions.add(self._session)

    # -- within -----------------------------------------------------------------------------------

    def _enter(self, operation: str) -> None:
        self.failpoint(operation)
        if self._session in self.lake.closed_sessions:
            raise ConnectionFailure("lost the lake server", detail="The session was closed.")

    def _get(self, ident: LakeIdent) -> MemoryTable:
        if (table := self.lake.tables.get(ident)) is None:
            raise UndefinedTable(f'lake table "{ident}" does not exist')
        return table

    def _existing(self, ident: LakeIdent) -> LakeTable:
        if (table := self.table(ident)) is None:
            raise UndefinedTable(f'lake table "{ident}" does not exist')
        return table

    def _existing_and_copied(
        self, ident: LakeIdent, branch: str
    ) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """The existing rows before the branch's last commit, and the rows that the commit added."""
        rows = self._rows(table := self._get(ident), branch)
        parent = table.snapshots[table.refs[branch]].parent_id
        existing = () if parent is None else table.snapshots[parent].rows
        return existing, rows[len(existing) :]

    @staticmethod
    def _rows(table: MemoryTable, ref: str) -> tuple[Row, ...]:
        return () if ref not in table.refs else table.snapshots[table.refs[ref]].rows
