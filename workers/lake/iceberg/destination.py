"""The lake on Apache Iceberg, through Spark Connect.

Readers see ``main``. ``main`` moves only by ``fast_forward`` to a branch of the worker's
generation, or by an empty snapshot (creation, fence). The rule matters after a crash, because a
dead worker's call may still be running inside the server. ``release_sessions`` stops the calls of
known sessions; ``fence`` makes all further calls harmless. ``fence`` first commits an empty
snapshot on ``main``: no older branch is a descendant of ``main`` any more, and Iceberg refuses a
late ``fast_forward``. Only then does ``fence`` read the table's position.

Trace: worker A calls fast_forward of batch 40 (LSN 500) and is killed. B fences: if A's call came
first, B reads 500. If the fence came first, A's call fails and B reads 400. Never both.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import pyarrow as pa

from catalog.errcodes import DuplicateTable, ObjectInUse, UndefinedTable
from config.limits import SEGMENT_COMMITS
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.connect.session import LakeSession
from workers.lake.connect.session_conf import LakeSettings
from workers.lake.connect.sessions import Sessions
from workers.lake.copy_plan import CopyPlan
from workers.lake.destination import Destination
from workers.lake.effects import Counts, Effect, ExistingKeys, FileSizes, ListFiles, Orphans
from workers.lake.iceberg.branch_writer import BranchWriter
from workers.lake.iceberg.checked_generated import CheckedGenerated
from workers.lake.iceberg.choose_writer import (
    choose_gateway,
    choose_table_api,
    choose_tables,
    writers_for,
)
from workers.lake.iceberg.copy_job import PythonStart, run_copy
from workers.lake.iceberg.discard import discard_branches, discard_copied_snapshots
from workers.lake.iceberg.durability import Durability
from workers.lake.iceberg.expiry import expire_snapshots
from workers.lake.iceberg.known_columns import KnownColumns
from workers.lake.iceberg.known_others import KnownOthers
from workers.lake.iceberg.new_table import first_summary, is_unfinished
from workers.lake.iceberg.publish_branches import BranchPublisher
from workers.lake.metadata.snapshots import FENCE, OWNER, lake_table
from workers.lake.metadata.table_state import TableState
from workers.lake.new_layout import PLAIN, NewLayout, NewTable
from workers.lake.publication import InParallel, Publication
from workers.lake.segment import Generated, RowsOf, SourcePart
from workers.lake.sql.copied_keys import count_existing_keys, overwrite_existing_rows
from workers.lake.sql.merge_results import count
from workers.lake.sql.orphan_files import KeptFiles, remove_orphans
from workers.lake.sql.other_writers import SINCE, all_others
from workers.lake.sql.rewrite_files import compact
from workers.lake.sql.row_queries import RowQueries, count_repeated_keys
from workers.lake.sql.statements import TABLE_PROPERTIES
from workers.lake.staged_rows import Staged
from workers.lake.storage.staging import Staging
from workers.lake.table import (
    BRANCH_PREFIX,
    MAIN,
    Identity,
    LakeColumn,
    LakeIdent,
    LakeTable,
    Stamp,
)
from workers.lake.writer_choice import AUTO, WriterChoice


class IcebergDestination(Destination):
    """``Destination`` on Iceberg tables; any thread may call, and has a Spark session."""

    def __init__(
        self,
        url: str,
        *,
        identity: Identity,
        staging_dir: Path | str,
        settings: LakeSettings,
        format_version: int = 2,
        writer: str = AUTO,
        remember_session: Callable[[str, str], None],
        conf: Mapping[str, str] | None = None,
        session: tuple[str, str] | None = None,
        has_successor: Callable[[tuple[str, str]], bool] = lambda _ids: True,
        catalog_file: Path | None = None,
        keys_dir: Path | None = None,
    ) -> None:
        """``session``: user and session id of a session to take over, for the first thread.
        ``has_successor``: did a successor close this session, which was closed from outside?
        ``catalog_file``: the embedded lake's catalog. ``format_version``: of new tables.
        ``writer`` is ``lake.writer``. ``keys_dir`` has the keys of data files."""
        user_id = f"pgsub_{identity.subid}"
        gateway, keys, close = choose_gateway(url, conf or {})
        made = partial(Sessions, url, user_id, remember_session, keys, close_catalogs=close)
        self._sessions = made(session, has_successor=has_successor)
        self._maintenance_sessions = made(fenced=False)
        self._python = PythonStart(made(fenced=False))
        self._staging = staging = Staging(str(staging_dir), settings.local_relation_rows)
        self._tables, commits = choose_table_api(gateway, self._sessions)
        self._file_tables = choose_tables(commits, staging, writer, keys_dir, settings.key_cache)
        self._columns = KnownColumns(self._tables, self._file_tables.forget)
        self._generated = CheckedGenerated(self._sessions, self._columns)
        self._others = KnownOthers(self._sessions, finds=settings.track_commit_timestamp)
        self._format_version = max(format_version, SINCE if settings.track_commit_timestamp else 0)
        self._durability = Durability(self._tables, self._sessions, catalog_file)
        done = self._file_tables.published
        self._branches = BranchPublisher(self._tables, self._durability, self.fence, done)
        self._branch_positions = self._branches.positions

    def table(self, ident: LakeIdent) -> LakeTable | None:
        """The table on ``main`` now; no answer is cached."""
        state = self._tables.describe(ident)
        return None if state is None else self._as_table(ident, state)

    def _as_table(self, ident: LakeIdent, state: TableState) -> LakeTable:
        self._columns.note(ident, state.columns)
        self._durability.read(ident, state)
        return lake_table(ident, state.columns, state.properties, state.history)

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
        """Create the table with an empty snapshot that has the position.

        A table that an earlier attempt of the owner left as new is finished; others are 42P07.
        """
        summary = first_summary(stamp)
        merge = self._file_tables.merges(layout.writer)
        new = NewTable(owner, relid, self._format_version, layout, publisher_columns, merge, branch)
        try:
            created = self._tables.create_table(ident, columns, new, summary)
        except DuplicateTable:
            if not is_unfinished(self._existing(ident), columns, owner, stamp):
                raise
            self._tables.set_order(ident, layout.sort_by)
            self._tables.commit_empty(ident, MAIN, summary)
            found = self._existing(ident)
        else:
            found = self._as_table(ident, created)
        self.make_durable([ident])  # a later power cut leaves a state to set the table back to
        return found

    def generated_columns(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        """The generated columns over ``columns``, with types; at most one call."""
        return self._generated.types(ident, columns, generated)

    def adopt_table(
        self, ident: LakeIdent, *, owner: str, stamp: Stamp, former_owners: Collection[str] = ()
    ) -> LakeTable:
        """Make an existing table pgsub's; the rows stay as they are."""
        existing = self._existing(ident)
        if existing.owner not in (None, "", owner, *former_owners):
            raise ObjectInUse(
                f'lake table "{ident}" belongs to another subscription',
                hint="Drop that subscription first, or map the table to another name.",
            )
        ours = stamp.source or existing.owner == owner
        others = {} if ours else all_others(self._sessions.get(), ident)
        properties = {**TABLE_PROPERTIES, **others, OWNER: owner}
        self._tables.set_properties(ident, properties, f'adopting lake table "{ident}"')
        self._tables.commit_empty(ident, MAIN, first_summary(stamp), existing.columns)
        return self._existing(ident)

    @property
    def changes_columns(self) -> bool:
        """Can ``change_columns`` change the columns of a table?"""
        return self._tables.changes_columns

    def change_columns(
        self, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
    ) -> LakeTable:
        """Change columns and text in one commit; the files of branches are listed again."""
        self._tables.change_columns(ident, changes, remember)
        self._durability.committed(ident, 1)
        self._forget(ident)
        return self._existing(ident)

    def rename_table(self, ident: LakeIdent, new: LakeIdent) -> None:
        """Rename the table in the catalog."""
        self._forget(ident)
        self._tables.rename_table(ident, new)

    def drop_table(self, ident: LakeIdent) -> None:
        """Drop the table with all files; no error if the table does not exist."""
        self._forget(ident)
        self._tables.drop_table(ident)

    def fence(self, ident: LakeIdent) -> LakeTable:
        """Commit an empty snapshot on ``main`` without a position; the newest ancestor's counts on.

        A fence could carry only a position that was read before. Committed late, by a dead worker,
        the old position would hide a newer position.
        """
        self._tables.commit_empty(ident, MAIN, {FENCE: uuid.uuid4().hex})
        return self._existing(ident)

    def release_sessions(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Close a dead worker's sessions (user_id, session_id) for good; running calls stop."""
        self._sessions.release(sessions)

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """Create or replace a branch at a snapshot, by default at the tip of ``main``."""
        self._branch_positions.pop((ident, branch), None)
        self._file_tables.begin_branch(ident, at)
        self._tables.create_branch(ident, branch, at)
        self._durability.committed(ident, 1)
        self._others.look(ident)

    def drop_branches(
        self, ident: LakeIdent, *, keep: str | None = None, prefix: str = BRANCH_PREFIX
    ) -> None:
        """Drop branches, with snapshots, and files of refused commits; see ``discard``."""
        self._file_tables.remove_refused(ident)
        for name in (dropped := discard_branches(self._tables, ident, prefix, keep)):
            self._branch_positions.pop((ident, name), None)
            self._durability.committed(ident, 2)
        self._file_tables.remove_undecided(ident, dropped)

    def discard_copy(
        self, ident: LakeIdent, copy_id: str, list_files: ListFiles | None = None
    ) -> None:
        """Remove what a failed copy left, once ``main`` without it is on the disk."""
        self._durability.make_durable([ident])
        gone = discard_copied_snapshots(self._tables, ident, copy_id, list_files)
        if gone and list_files is None:
            self._file_tables.remove_copied(ident, copy_id)

    # -- writing ----------------------------------------------------------------------------------

    def choose_writer(self, ident: LakeIdent, asked: str | None) -> WriterChoice:
        """Choose the writer of a table's rows; see ``writer_choice``."""
        return self._file_tables.choose_writer(ident, asked)

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        """Take rows in, to memory or to files."""
        return self._file_tables.stage(batches, schema, rows_of, changes_of)

    def discard(self, staged: Staged) -> None:
        """Remove staged files; a missing file is no error."""
        self._staging.discard(staged)

    def discard_files(self, ident: LakeIdent, file_id: str, kept: Collection[str] = ()) -> None:
        """Remove the data files with ``file_id`` in the name, and without a snapshot."""
        self._file_tables.remove_copied(ident, file_id, kept)

    def write_sources(
        self, ident: LakeIdent, branch: str, parts: Sequence[SourcePart], *, may_hold: bool = False
    ) -> list[Effect]:
        """Apply the parts; without segments, and with the stamp on the branch, nothing is done."""
        segments = [segment for part in parts for segment in part.segments]
        stamp = parts[-1].stamp
        alone = len(parts) == 1 and not segments and parts[0].base is None
        if alone and self._branch_positions.get((ident, branch)) == stamp:
            return [Effect(ident, branch, Counts())]
        self._branch_positions.pop((ident, branch), None)
        for segment in segments:
            self._generated.check(ident, segment.generated)
        try:
            effects = self._writer(self._sessions.get(), ident, branch, may_hold).write(parts)
        except BaseException:
            self._forget(ident)
            raise
        if stamp is not None:
            self._branch_positions[ident, branch] = stamp
        self._durability.committed(ident, 1 + SEGMENT_COMMITS * len(segments))
        return effects

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        """The effects of a batch on the branches, in at most one call; see ``merge_results``."""
        try:
            return count(self._sessions.get, effects)
        except BaseException:
            for effect in effects:
                self._branch_positions.pop((effect.ident, effect.branch), None)
                self._forget(effect.ident)
            raise

    def expect_copy(self) -> None:
        """Start Spark's Python in the background; see ``copy_job``."""
        self._python.begin()

    def copy(
        self,
        ident: LakeIdent,
        branch: str,
        plan: CopyPlan,
        progress: Callable[[int, int], None],
    ) -> int:
        """Run the copy's ranges in parallel onto the branch; ``progress(done, total)`` ranges."""
        session = self._sessions.get()
        self._branch_positions.pop((ident, branch), None)
        self._generated.check(ident, plan.generated)
        rows = run_copy(session, self._writer(session, ident, branch), plan, progress)
        if plan.stamp is not None:
            self._branch_positions[ident, branch] = plan.stamp
        return rows

    def existing_keys(self, ident: LakeIdent, branch: str, key: Sequence[str]) -> ExistingKeys:
        """Count existing keys among rows of the last commit; see ``copied_keys``."""
        return count_existing_keys(self._sessions.get(), ident, branch, key)

    def repeated_keys(
        self, ident: LakeIdent, branch: str, key: Sequence[str], source: str = ""
    ) -> int:
        """Count the values of a key that more than one row of the branch has."""
        return count_repeated_keys(self._sessions.get(), ident, branch, key, source)

    def overwrite_existing(
        self,
        ident: LakeIdent,
        branch: str,
        columns: Sequence[str],
        key: Sequence[str],
        generated: Generated = (),
    ) -> None:
        """Overwrite existing rows with the copied rows; see ``copied_keys``."""
        self._branch_positions.pop((ident, branch), None)
        self._file_tables.forget(ident)
        self._generated.check(ident, generated)
        overwrite_existing_rows(self._sessions.get(), ident, branch, columns, key, generated)

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Fast-forward ``main`` to the branch, if the branch's tip carries exactly ``stamp``."""
        return self._branches.publish(ident, branch, stamp)

    @property
    def publishes_together(self) -> bool:
        """Does the catalog move several tables in one call?"""
        return self._tables.moves_together

    def publish_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int | None]:
        """``publish`` of several tables by one call."""
        return self._branches.publish_together(parts, in_parallel)

    def publish_with(
        self,
        ident: LakeIdent,
        branch: str,
        stamp: Stamp,
        changes: Sequence[ColumnChange],
        remember: Remember | None = None,
    ) -> None:
        """``publish`` with a change of columns; the files of branches are listed again."""
        move = partial(self._tables.fast_forward_with, changes=changes, remember=remember)
        self._branches.publish(ident, branch, stamp, move)
        self._forget(ident)

    def rollback(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` back to a snapshot of the table, an ancestor of ``main`` or not."""
        self._tables.set_main(ident, snapshot_id)

    def make_durable(self, idents: Collection[LakeIdent]) -> Mapping[LakeIdent, str]:
        """Synchronise the tables' stores; see ``durability``."""
        return self._durability.make_durable(idents)

    def expire(
        self,
        ident: LakeIdent,
        *,
        retain: int,
        age: float = 0.0,
        list_files: ListFiles | None = None,
    ) -> int:
        """Drop old snapshots of ``main``; returns how many. See ``expiry``."""
        expire = partial(expire_snapshots, self._tables, ident, retain=retain, age=age)
        return expire(make_durable=partial(self.make_durable, [ident]), list_files=list_files)

    def remove_files(self, ident: LakeIdent, table_uuid: str, files: Sequence[str]) -> int:
        """Remove listed files that no snapshot names; returns how many."""
        return self._tables.remove_files(ident, files, table_uuid)

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, deleted_share: float | None = None
    ) -> int:
        """Rewrite the branch's small files, or files with deleted rows; see ``rewrite_files``."""
        self._branch_positions.pop((ident, branch), None)
        self._durability.committed(ident, SEGMENT_COMMITS)
        session = self._sessions.get()
        of = session, ident, branch, sizes
        if (files := self._file_tables.rewrite(*of, deleted_share)) is not None:
            return files
        self._file_tables.forget(ident)
        columns = self._columns.of(ident)
        merge_deletes = partial(self._file_tables.merge_deletes, session, ident, branch)
        return compact(session, ident, branch, columns, sizes, deleted_share, merge_deletes)

    def remove_orphans(
        self,
        ident: LakeIdent,
        *,
        owner: str,
        older_than: float,
        listed: Callable[[], Collection[str]] = tuple,
    ) -> Orphans:
        """Remove orphan files, in a session that no batch uses; see ``orphan_files``."""
        remove, lists = partial(self._tables.remove_files, ident), self._tables.lists_expiries
        kept = KeptFiles(listed, remove, lists_expiries=lists)
        session = self._maintenance_sessions.get()
        return remove_orphans(session, ident, owner=owner, older_than=older_than, kept=kept)

    def idle_session(self) -> tuple[str, str] | None:
        """Give the thread's session up for reuse."""
        return self._sessions.release_for_reuse()

    def close(self) -> None:
        """Release the sessions of the destination."""
        for each in (self._python, self._sessions, self._maintenance_sessions, self._tables):
            each.close()

    def _writer(
        self, session: LakeSession, ident: LakeIdent, branch: str, may_hold: bool = False
    ) -> BranchWriter:
        columns, ranges = self._columns.of(ident), self._columns.key_ranges(ident)
        queries = RowQueries(session, self._staging, ident, branch, ranges)
        of = self._file_tables, self._tables, queries, columns, self._others.of(ident)
        writers = writers_for(*of, may_hold=may_hold)
        return BranchWriter(self._tables, ident, branch, writers)

    def _existing(self, ident: LakeIdent) -> LakeTable:
        if (table := self.table(ident)) is None:
            raise UndefinedTable(f'lake table "{ident}" does not exist')
        return table

    def _forget(self, ident: LakeIdent) -> None:
        self._file_tables.forget(ident)
        self._columns.forget(ident)
