"""The lake in memory: a twin of ``IcebergDestination`` for tests of the workers without Spark.

Branches, fast-forward, stamps, fences, sessions and errors behave as on Iceberg (one contract test
runs against both); rows are Python dictionaries. A ``MemoryLake`` is what several destinations,
each a worker's, have in common.
"""

from __future__ import annotations

import itertools
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateTable,
    ObjectInUse,
    ReplicationError,
    UndefinedTable,
)
from catalog.pg_lsn import LSN
from workers.lake.copy_plan import CopyPlan
from workers.lake.copy_task import read_copy
from workers.lake.destination import Destination
from workers.lake.effects import Counts, Effect, ExistingKeys, FileSizes, Orphans, Outcome, counts
from workers.lake.generated_columns import check_uses, read_generated
from workers.lake.memory.apply_segments import Work
from workers.lake.memory.rows import Row, complete, generate, overwrite_rows, pairs, repeated
from workers.lake.metadata.snapshots import written_by_others
from workers.lake.refusals import check_base, main_was_moved
from workers.lake.segment import Generated, RowsOf, Segment
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


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """One state of a table."""

    snapshot_id: int
    parent_id: int | None
    rows: tuple[Row, ...]
    stamp: Stamp | None = None
    sources: Mapping[str, Stamp] | None = None
    foreign: bool = False
    committed: float = field(default_factory=time.time)


@dataclass(slots=True)
class MemoryTable:
    """A table: its columns, refs (name → snapshot id) and snapshots."""

    columns: tuple[LakeColumn, ...]
    owner: str | None = None
    refs: dict[str, int] = field(default_factory=dict)
    snapshots: dict[int, MemorySnapshot] = field(default_factory=dict)


class MemoryLake:
    """What outlives a destination: tables, and sessions that were closed for good.

    ``outcomes``: what each commit of a destination did, by its operation.
    """

    def __init__(self) -> None:
        self.lock = threading.RLock()
        self.tables: dict[LakeIdent, MemoryTable] = {}
        self.closed_sessions: set[tuple[str, str]] = set()
        self.outcomes: dict[str, Outcome] = {}
        self._ids = itertools.count(1)

    def commit(
        self,
        table: MemoryTable,
        ref: str,
        rows: Iterable[Row],
        stamp: Stamp | None = None,
        *,
        foreign: bool = False,
    ) -> MemorySnapshot:
        """A new snapshot at the tip of a ref; ``foreign``: as somebody else who adds rows."""
        with self.lock:
            sources = None
            if stamp is not None and stamp.source:
                sources = {**_sources(table, ref), stamp.source: stamp}
            tip = table.refs.get(ref)
            snapshot = MemorySnapshot(next(self._ids), tip, tuple(rows), stamp, sources, foreign)
            table.snapshots[snapshot.snapshot_id] = snapshot
            table.refs[ref] = snapshot.snapshot_id
            return snapshot

    def rows(self, ident: LakeIdent, ref: str = MAIN) -> list[Row]:
        """The rows a reader sees."""
        with self.lock:
            table = self.tables[ident]
            tip = table.refs.get(ref)
            return [] if tip is None else [dict(row) for row in table.snapshots[tip].rows]


class MemoryDestination(Destination):
    """``Destination`` on a ``MemoryLake``.

    ``failpoint`` is called with the name of each operation before it takes effect and may raise or
    wait; ``copy_source`` answers a COPY statement with CSV.
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
        """What ``main`` holds now; None when there is no such table."""
        self._enter("table")
        with self.lake.lock:
            table = self.lake.tables.get(ident)
            if table is None:
                return None
            stamp = next((s.stamp for s in _ancestors(table, MAIN) if s.stamp), None)
            rows = len(self._rows(table, MAIN))
            sources = _sources(table, MAIN)
            return LakeTable(
                ident,
                table.columns,
                table.owner,
                table.refs.get(MAIN),
                stamp,
                sources,
                rows,
                tuple(each.committed for each in table.snapshots.values()),
                written_by_others=written_by_others(_ancestors(table, MAIN), sources),
            )

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        *,
        owner: str,
        relid: int,
        stamp: Stamp,
    ) -> LakeTable:
        """Create the table with an empty stamped snapshot on ``main``."""
        self._enter("create_table")
        with self.lake.lock:
            existing = self.lake.tables.get(ident)
            if existing is not None and (existing.owner != owner or MAIN in existing.refs):
                raise DuplicateTable(f'lake table "{ident}" already exists')
            table = self.lake.tables[ident] = MemoryTable(tuple(columns), owner)
            self.lake.commit(table, MAIN, (), None if stamp.source else stamp)
        return self._existing(ident)

    def generated_columns(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        """What is generated, with the type of the first column that each uses."""
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
        """Take over an existing table."""
        self._enter("adopt_table")
        table = self._get(ident)
        if table.owner not in (None, owner, *former_owners):
            raise ObjectInUse(f'lake table "{ident}" belongs to another subscription')
        table.owner = owner
        self.lake.commit(table, MAIN, self._rows(table, MAIN), None if stamp.source else stamp)
        return self._existing(ident)

    def drop_table(self, ident: LakeIdent) -> None:
        """DROP TABLE IF EXISTS."""
        self._enter("drop_table")
        self.lake.tables.pop(ident, None)

    def fence(self, ident: LakeIdent) -> LakeTable:
        """An empty snapshot on ``main`` that carries the stamp on."""
        self._enter("fence")
        table = self._get(ident)
        with self.lake.lock:
            self.lake.commit(table, MAIN, self._rows(table, MAIN))
        return self._existing(ident)

    def release_sessions(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Close sessions for good: a destination that has one of them can do nothing more."""
        self.lake.closed_sessions.update(sessions)

    # -- branches ---------------------------------------------------------------------------------

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """A fresh branch at a snapshot, ``main``'s tip if none is named."""
        self._enter("create_branch")
        table = self._get(ident)
        table.refs[branch] = table.refs[MAIN] if at is None else at

    def drop_branches(
        self, ident: LakeIdent, *, keep: str | None = None, prefix: str = BRANCH_PREFIX
    ) -> None:
        """Drop every branch of ours on the table but ``keep``."""
        self._enter("drop_branches")
        table = self.lake.tables.get(ident)
        if table is None:
            return
        with self.lake.lock:
            for name in [n for n in table.refs if n.startswith(prefix) and n != keep]:
                del table.refs[name]

    # -- writing ----------------------------------------------------------------------------------

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        """Everything stays in memory."""
        del rows_of, changes_of
        table = pa.Table.from_batches(list(batches), schema)
        self._staged.add(id(table))
        return Staged(table.num_rows, table=table)

    def discard(self, staged: Staged) -> None:
        """Forget it."""
        self._staged.discard(id(staged.table))

    @property
    def staged(self) -> int:
        """How many stagings were not discarded: 0 when nothing leaks."""
        return len(self._staged)

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        """What was done; a key that is there twice is an error."""
        self._enter("count")
        return counts(effects, self.lake.outcomes)

    def write_branch(
        self,
        ident: LakeIdent,
        branch: str,
        segments: Sequence[Segment],
        stamp: Stamp,
        base: LSN | None = None,
    ) -> Effect:
        """Apply the segments in order on the branch."""
        self._enter("write_branch")
        table = self._get(ident)
        if branch not in table.refs:
            raise ReplicationError(f'branch "{branch}" of lake table "{ident}" does not exist')
        check_base(ident, _sources(table, branch).get(stamp.source), stamp, base)
        work = Work(ident, table.columns, list(self._rows(table, branch)))
        for segment in segments:
            if segment.from_branch is not None:
                work.elsewhere[segment.from_branch] = self._rows(table, segment.from_branch)
        first = max((n for n, s in enumerate(segments) if s.truncate), default=0)
        for segment in segments[first:]:
            work.apply(segment)
        self.lake.commit(table, branch, work.rows, stamp)
        self.lake.outcomes |= {merge.operation: outcome for merge, outcome in work.merges}
        merges = tuple(merge for merge, _ in work.merges)
        return Effect(ident, branch, Counts(work.appended), merges)

    def copy(
        self,
        ident: LakeIdent,
        branch: str,
        plan: CopyPlan,
        progress: Callable[[int, int], None],
    ) -> int:
        """Read each statement from ``copy_source``; one commit."""
        self._enter("copy")
        if self.copy_source is None:
            raise ReplicationError("this lake has no source to copy from")
        table = self._get(ident)
        copied: list[Row] = []
        for done, statement in enumerate(plan.statements):
            progress(done, len(plan.statements))
            null = plan.on_unrepresentable == "null"
            chunks = self.copy_source(statement)
            batches = read_copy(chunks, plan.columns, null, plan.relation, plan.nodes)
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
        """What the rows that the branch's last commit appended meet in the table before it."""
        self._enter("existing_keys")
        met = pairs(*self._held_and_copied(ident, branch), key)
        return ExistingKeys(len({copied for _, copied in met}), len(met))

    def repeated_keys(
        self, ident: LakeIdent, branch: str, key: Sequence[str], source: str = ""
    ) -> int:
        """How many values of a key more than one row of the branch has."""
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
        """The rows that are met become what was copied."""
        self._enter("overwrite_existing")
        held, copied = self._held_and_copied(ident, branch)
        rows = overwrite_rows(held, copied, columns, key, generated)
        self.lake.commit(self._get(ident), branch, rows)

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Fast-forward ``main`` to the branch, if the branch's tip carries exactly ``stamp``."""
        self._enter("publish")
        table = self._get(ident)
        with self.lake.lock:
            tip = table.refs.get(branch)
            if tip is None or table.snapshots[tip].stamp != stamp:
                raise main_was_moved(ident, "The branch's last snapshot is not this batch's.")
            if tip in (s.snapshot_id for s in _ancestors(table, MAIN)):
                return table.refs[MAIN]
            if table.refs[MAIN] not in (s.snapshot_id for s in _ancestors(table, branch)):
                raise main_was_moved(ident, "Another commit is on main.")
            table.refs[MAIN] = tip
            return tip

    def expire(self, ident: LakeIdent, *, retain: int, age: float = 0.0) -> int:
        """Nothing is ever in the way here."""
        self._enter("expire")
        del ident, retain, age
        return 0

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, dead_share: float | None = None
    ) -> int:
        """There are no files here."""
        self._enter("compact")
        del ident, branch, sizes, dead_share
        return 0

    def remove_orphans(self, ident: LakeIdent, *, owner: str, older_than: float) -> Orphans:
        """There are no files here."""
        self._enter("remove_orphans")
        del ident, owner, older_than
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
        table = self.lake.tables.get(ident)
        if table is None:
            raise UndefinedTable(f'lake table "{ident}" does not exist')
        return table

    def _existing(self, ident: LakeIdent) -> LakeTable:
        table = self.table(ident)
        if table is None:
            raise UndefinedTable(f'lake table "{ident}" does not exist')
        return table

    def _held_and_copied(
        self, ident: LakeIdent, branch: str
    ) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
        """The branch's rows before its last commit, an append, and those of it."""
        table = self._get(ident)
        rows = self._rows(table, branch)
        parent = table.snapshots[table.refs[branch]].parent_id
        held = () if parent is None else table.snapshots[parent].rows
        return held, rows[len(held) :]

    @staticmethod
    def _rows(table: MemoryTable, ref: str) -> tuple[Row, ...]:
        tip = table.refs.get(ref)
        return () if tip is None else table.snapshots[tip].rows


def _ancestors(table: MemoryTable, ref: str) -> Iterator[MemorySnapshot]:
    at = table.refs.get(ref)
    while at is not None:
        snapshot = table.snapshots[at]
        yield snapshot
        at = snapshot.parent_id


def _sources(table: MemoryTable, ref: str) -> Mapping[str, Stamp]:
    """The newest ancestor's list of a shared table's sources."""
    return next((s.sources for s in _ancestors(table, ref) if s.sources is not None), {})
