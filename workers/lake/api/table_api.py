"""``TableApi`` and ``FileCommits`` on Iceberg's Java API in the lake server.

Spark SQL has no statement for "the files belong to the table from now on": Spark would read the
files of a worker and write the rows again. Iceberg's API adds files in one commit, data
files and delete files, on a branch and with a snapshot's properties.

To close a dead worker's Spark sessions (``release_sessions``) does not stop the worker's call
through the gateway, the port for Iceberg's Java API: the call goes on and commits. So this module
has only calls that do no harm when they come late:

* calls that read;
* commits to a branch of the caller's generation. The branch may grow, or be created again, without
  harm once no worker will publish the branch;
* the creation of a table, refused if a successor has created the table;
* a change of columns: refused if the table changed meanwhile, else what the successor does too;
* the fast-forward of ``main`` to a branch of the generation, or of both to a new snapshot, refused
  behind a successor's fence; that of several tables is refused behind a fence on any of the tables;
* expiries: the age limit is an absolute time, so a late call removes no more;
* removals of listed files: a file that a snapshot names stays.

No further call of the gateway moves ``main`` of a table with rows; ``late_commits`` is for probes.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any

from catalog.errcodes import FeatureNotSupported
from catalog.table_layout import LayoutField
from workers.lake.api import expired_files, file_commits
from workers.lake.api.gateway import Gateway
from workers.lake.api.held_commits import unpublished
from workers.lake.api.java_api import JavaApi, is_missing
from workers.lake.api.late_commits import compares_by_itself, late_move_of_main
from workers.lake.api.loaded_tables import LoadedTables
from workers.lake.api.move_main import (
    ONE_CALL,
    Seen,
    commit_together,
    fast_forward,
    move_all,
    replace_columns,
)
from workers.lake.api.one_catalog import expect_commit
from workers.lake.api.snapshot_commits import commit_pauses, create_with_snapshot
from workers.lake.api.table_store import store_of_table
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.connect.errors import LakeFailure, repeated
from workers.lake.connect.sessions import Sessions
from workers.lake.effects import ListFiles
from workers.lake.interfaces.table_api import (
    FileChange,
    FileCommits,
    FileTotals,
    LateCommits,
    TableApi,
)
from workers.lake.metadata.partitioning import new_order, new_spec
from workers.lake.metadata.snapshots import History, history_of
from workers.lake.metadata.table_location import new_location
from workers.lake.metadata.table_schema import (
    columns_of,
    schema_json,
)
from workers.lake.metadata.table_state import TableState, state_of
from workers.lake.new_layout import NewTable
from workers.lake.publication import InParallel, Publication
from workers.lake.refusals import changed_meanwhile
from workers.lake.sql.statements import new_table_properties
from workers.lake.sql.table_api import SqlTableApi
from workers.lake.staged_rows import FileList
from workers.lake.storage.store import TableStore
from workers.lake.table import MAIN, LakeColumn, LakeIdent, Stamp


class GatewayTableApi(TableApi, FileCommits, LateCommits):
    """``TableApi`` and ``FileCommits`` through the gateway, with ``sql`` for everything else.

    ``sessions`` are the worker's Spark sessions; a successor closes them to stop the worker.
    """

    lists_expiries = True
    changes_columns = True

    def __init__(self, gateway: Gateway, sql: SqlTableApi, sessions: Sessions) -> None:
        self.beside = gateway.beside
        self._gateway = gateway
        self._sql = sql
        self._sessions = sessions
        self._moves_together: bool | None = None
        self._loaded = LoadedTables()

    # -- reading ----------------------------------------------------------------------------------

    def describe(self, ident: LakeIdent) -> TableState | None:
        """The table's state from the metadata file.

        Spark describes a table with a column type that only Spark knows.
        """
        metadata = self._metadata_if_any(ident, f'reading lake table "{ident}"')
        if metadata is None:
            return None
        return state_of(metadata) or self._sql.describe(ident)

    def columns(self, ident: LakeIdent) -> tuple[LakeColumn, ...]:
        """The table's columns."""
        columns = columns_of(self.metadata(ident, f'reading lake table "{ident}"'))
        return self._sql.columns(ident) if columns is None else columns

    def history(self, ident: LakeIdent) -> History:
        """All branches and snapshots."""
        # Ends an unanswered call of the thread, and fails if a successor has closed the session.
        self._sessions.get().check_open()
        return history_of(self.metadata(ident, f'reading the snapshots of lake table "{ident}"'))

    def branches(self, ident: LakeIdent) -> list[str]:
        """The names of the table's branches."""
        metadata = self._metadata_if_any(ident, f'reading the branches of lake table "{ident}"')
        refs: Mapping[str, Any] = {} if metadata is None else metadata.get("refs", {})
        named = [name for name, ref in refs.items() if ref["type"] == "branch"]
        return named or ([] if metadata is None else [MAIN])

    def once_on_main(self, ident: LakeIdent) -> Collection[int]:
        """The snapshots that ``main`` was at."""
        metadata = self.metadata(ident, f'reading the history of lake table "{ident}"')
        return frozenset(each["snapshot-id"] for each in metadata.get("snapshot-log", ()))

    # -- creating and dropping tables -------------------------------------------------------------

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        new: NewTable,
        summary: Mapping[str, str],
    ) -> TableState:
        """Create the table with an empty snapshot in a single commit, or else with Spark SQL.

        Not every catalog can create a table together with a snapshot. After any failure Spark
        creates the table, or names the reason why not.
        """
        with contextlib.suppress(LakeFailure):
            state = state_of(self._create_at_once(ident, columns, new, summary))
            if state is not None:
                return state
        return self._sql.create_table(ident, columns, new, summary)

    def set_order(self, ident: LakeIdent, sort_by: Sequence[LayoutField]) -> None:
        """Set the sort order of an unfinished table."""
        self._sql.set_order(ident, sort_by)

    def _create_at_once(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        new: NewTable,
        summary: Mapping[str, str],
    ) -> Mapping[str, Any]:
        """The new table's metadata. LakeFailure if the table exists, and for further reasons.

        The call creates the table or has no effect. A late call of a dead worker finds the
        successor's table. A REST catalog says by itself that the schema is missing.
        """
        with self._gateway.api(f'creating lake table "{ident}"') as api:
            is_known = api.answers_with_state or api.has_namespace(ident.schema)
        if is_known:
            try:
                return self._create(ident, columns, new, summary)
            except LakeFailure as error:
                if not is_missing(error.message):
                    raise
        self._sql.create_schema(ident)
        return self._create(ident, columns, new, summary)

    def _create(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        new: NewTable,
        summary: Mapping[str, str],
    ) -> Mapping[str, Any]:
        with self._gateway.api(f'creating lake table "{ident}"') as api:
            location = new.layout.location or new_location(api.warehouse, ident, new.relid)
            schema, properties = schema_json(columns), new_table_properties(new, location)
            builder = api.build_table(ident, schema, location, properties)
            api.lay_out(
                builder, schema, new_spec(columns, new.layout), new_order(columns, new.layout)
            )
            made = create_with_snapshot(api, builder, summary, new.branch)
            return api.metadata_of(ident, self._loaded.created(api, ident, made))

    def drop_table(self, ident: LakeIdent) -> None:
        """Drop the table with the files that may be deleted, through the Spark session."""
        self._sql.drop_table(ident)

    def rename_table(self, ident: LakeIdent, new: LakeIdent) -> None:
        """Rename the table, through the Spark session."""
        self._sql.rename_table(ident, new)

    def set_properties(self, ident: LakeIdent, properties: Mapping[str, str], what: str) -> None:
        """Set table properties."""
        self._sql.set_properties(ident, properties, what)

    def change_columns(
        self, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
    ) -> None:
        """Change columns and text by a compare-and-set of the table's metadata.

        ``UpdateSchema`` would repeat a refused commit with the columns that it read at first, and
        take back what another writer did meanwhile.
        """
        self._sessions.get().check_open()  # as in fast_forward

        def change() -> None:
            with self._gateway.api(f'changing the columns of lake table "{ident}"') as api:
                replace_columns(api, ident, changes, remember)

        repeated(change)

    # -- branches ---------------------------------------------------------------------------------

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """Create or replace a branch. Never ``main``."""

        def create() -> None:
            with self._gateway.api(f'creating a branch of lake table "{ident}"') as api:
                self._loaded.create_branch(api, ident, branch, at)

        repeated(create, commit_pauses())

    def drop_branch(self, ident: LakeIdent, branch: str) -> None:
        """Drop a branch."""
        self._sql.drop_branch(ident, branch)
        if self.held(ident, branch) is not None:
            with self._gateway.api(f'dropping a branch of lake table "{ident}"'):
                self._loaded.give_up(ident, branch)

    def check_branch(self, ident: LakeIdent, branch: str) -> None:
        """Raise 40001 if ``create_branch`` did not create the branch."""
        self._sql.check_branch(ident, branch)

    def fast_forward(self, ident: LakeIdent, branch: str, stamp: Stamp | None = None) -> int | None:
        """Move ``main`` to the branch. Returns the snapshot that ``main`` is at then.

        The ancestry is looked at in the very metadata that the commit replaces. A fence in between
        therefore makes the commit fail. ``ManageSnapshots`` of Iceberg does the same with two more
        requests to the catalog.
        """
        # A closed session does not end a gateway call: so ask first whether a successor closed it.
        self._sessions.get().check_open()
        return repeated(lambda: self._fast_forward(ident, branch, stamp=stamp))

    def fast_forward_with(
        self,
        ident: LakeIdent,
        branch: str,
        changes: Sequence[ColumnChange],
        remember: Remember | None = None,
    ) -> int:
        """``fast_forward``, and change columns in the same commit."""
        self._sessions.get().check_open()
        return repeated(lambda: self._fast_forward(ident, branch, changes, remember))

    def _fast_forward(
        self,
        ident: LakeIdent,
        branch: str,
        changes: Sequence[ColumnChange] = (),
        remember: Remember | None = None,
        stamp: Stamp | None = None,
    ) -> int:
        """Move ``main`` and change columns by a compare-and-set of the table's metadata.

        After an answer that was lost ``main`` is at the branch already, with the changed columns.
        """
        with self._gateway.api(f'publishing to lake table "{ident}"') as api:
            moved = None if stamp is None else self._loaded.move_main(api, ident, branch, stamp)
            if moved is not None:
                return moved
            if self.held(ident, branch) is not None:
                raise unpublished(ident)
            return fast_forward(api, ident, branch, changes, remember)

    def held(self, ident: LakeIdent, branch: str) -> int | None:
        """The snapshot that only the publication of the branch commits."""
        return self._loaded.held(ident, branch)

    @property
    def moves_together(self) -> bool:
        """Does the catalog list ``transactions/commit``, and has no call been refused so far?"""
        if self._moves_together is None:
            with self._gateway.api("asking the lake's catalog what it offers") as api:
                self._moves_together = api.lists_endpoint(ONE_CALL)
        return self._moves_together

    def fast_forward_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int]:
        """``fast_forward`` of several tables by one call; see ``move_main``."""
        looks = [partial(self._look, part) for part in parts]
        try:
            return move_all(lambda: in_parallel(looks), self._commit_together)
        except FeatureNotSupported:
            self._moves_together = False
            raise

    def _look(self, part: Publication) -> Seen:
        self._sessions.get().check_open()  # as in fast_forward
        with self._gateway.api(f'publishing to lake table "{part.ident}"') as api:
            return self._loaded.look(api, part)

    def _commit_together(self, changes: Sequence[Any]) -> None:
        with self._gateway.api(f"publishing to {len(changes)} lake tables") as api:
            commit_together(api, changes)

    def set_main(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` to a snapshot of the table."""
        self._loaded.forget(ident)
        self._sql.set_main(ident, snapshot_id)

    # -- commits without rows, and maintenance ----------------------------------------------------

    def commit_empty(
        self,
        ident: LakeIdent,
        ref: str,
        summary: Mapping[str, str],
        columns: Sequence[LakeColumn] | None = None,
    ) -> None:
        """Add an empty snapshot, through the Spark session.

        A fence on ``main`` of another catalog would be none: see ``one_catalog``.
        """
        columns = self.columns(ident) if columns is None else columns
        self._loaded.forget(ident)
        self._sql.commit_empty(ident, ref, summary, columns)
        if self.beside and ref == MAIN:
            what = f'reading the snapshots of lake table "{ident}"'
            expect_commit(ident, self.metadata(ident, what), summary)

    def expire_snapshots(
        self,
        ident: LakeIdent,
        *,
        older_than: float,
        retain_last: int,
        list_files: ListFiles | None = None,
    ) -> None:
        """Drop old snapshots. If the caller dies while waiting, the expiry goes on to its end."""
        with self._gateway.api(f'expiring snapshots of lake table "{ident}"') as api:
            expired_files.expire(api, ident, older_than, retain_last, list_files)

    def remove_files(
        self, ident: LakeIdent, files: Sequence[str], table_uuid: str | None = None
    ) -> int:
        """Remove files of expired snapshots, unless a snapshot names them."""
        try:
            with self._gateway.api(f'removing files of lake table "{ident}"') as api:
                return expired_files.remove_unnamed(api, ident, files, table_uuid)
        except LakeFailure as error:
            if is_missing(error.message):
                return 0
            raise

    def expire_named(
        self, ident: LakeIdent, snapshot_ids: Sequence[int], list_files: ListFiles | None = None
    ) -> None:
        """Drop exactly these snapshots. If the caller dies while waiting, the expiry goes on."""
        with self._gateway.api(f'expiring snapshots of lake table "{ident}"') as api:
            expired_files.expire_named(api, ident, snapshot_ids, list_files)

    # -- commits that name files ------------------------------------------------------------------

    def metadata(self, ident: LakeIdent, what: str) -> Mapping[str, Any]:
        """The table's newest metadata file; takes as long as a commit."""
        with self._gateway.api(what) as api:
            return api.metadata(ident)

    def metadata_and_store(
        self, ident: LakeIdent, what: str, *, newest: bool = True
    ) -> tuple[Mapping[str, Any], TableStore | None]:
        """The same, and the store of the table's files, with the keys that Iceberg has."""
        with self._gateway.api(what) as api:
            if newest:
                return _metadata_and_store(api, ident, api.load(ident))
            with self._loaded.lent(api, ident) as table:
                return _metadata_and_store(api, ident, table)

    def tip(self, ident: LakeIdent, branch: str, what: str) -> int:
        """The branch's newest snapshot."""
        with self._gateway.api(what) as api:
            snapshot = api.load(ident).snapshot(branch)
            if snapshot is None:
                raise changed_meanwhile(ident)
            return int(snapshot.snapshotId())

    def list_files(self, ident: LakeIdent, branch: str, what: str) -> FileList:
        """The data files of the branch with the deletes."""
        with self._gateway.api(what) as api:
            return file_commits.list_files(api, ident, branch)

    def commit_files(
        self, ident: LakeIdent, branch: str, change: FileChange, what: str
    ) -> FileTotals:
        """Add a snapshot to the branch."""
        with self._gateway.api(what) as api:
            return self._loaded.commit_files(api, ident, branch, change)

    def published(self, ident: LakeIdent, branch: str) -> None:
        """A held commit of the branch was made."""
        self._loaded.published(ident, branch)

    def forget(self, ident: LakeIdent) -> None:
        """Load the table before the next commit."""
        self._loaded.forget(ident)

    def set_main_late(self, ident: LakeIdent, branch: str, between: Callable[[], None]) -> None:
        """Move ``main`` of a scratch table to the branch, on the state from before ``between``."""
        with self._gateway.api(f'probing the catalog with lake table "{ident}"') as api:
            late = late_move_of_main(api, ident, branch)
            between()
            late()

    def refuses_at_once(self, ident: LakeIdent) -> bool:
        """Does the catalog refuse one of two commits to a scratch table at the same moment?"""
        with self._gateway.api(f'probing the catalog with lake table "{ident}"') as api:
            return compares_by_itself(api, ident)

    def close(self) -> None:
        """Close the gateway's connections."""
        self._gateway.close()

    def _metadata_if_any(self, ident: LakeIdent, what: str) -> Mapping[str, Any] | None:
        """The table's metadata, or None if the table does not exist."""
        try:
            return self.metadata(ident, what)
        except LakeFailure as error:
            if is_missing(error.message):
                return None
            raise


def _metadata_and_store(
    api: JavaApi, ident: LakeIdent, table: Any
) -> tuple[Mapping[str, Any], TableStore | None]:
    return api.metadata_of(ident, table), store_of_table(table)
