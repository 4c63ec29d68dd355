"""The Protocols for an Iceberg catalog: tables, branches, snapshots, and commits of files.

``TableApi`` has two implementations: ``GatewayTableApi`` calls Iceberg's Java API in the embedded
lake server, ``SqlTableApi`` uses Spark SQL. ``FileCommits`` needs the Java API: only
``GatewayTableApi`` implements ``FileCommits``. An implementation subclasses the Protocol, and mypy
then finds a missing method.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from catalog.table_layout import LayoutField
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.effects import ListFiles
from workers.lake.metadata.snapshots import History
from workers.lake.metadata.table_state import TableState
from workers.lake.new_layout import NewTable
from workers.lake.publication import InParallel, Publication
from workers.lake.staged_rows import FileList, LayoutId, NewFile
from workers.lake.storage.store import TableStore
from workers.lake.table import LakeColumn, LakeIdent, Stamp


class TableApi(Protocol):
    """Reads and changes the tables of one Iceberg catalog: names, branches, snapshots. Never rows.

    * ``GatewayTableApi`` starts no Spark job; a call takes about 10 ms.
    * ``SqlTableApi`` works on every Spark Connect server.

    ``GatewayTableApi`` owns a ``SqlTableApi`` and passes on the calls that the Java API cannot do:
    columns of a nested type, a catalog that cannot create a table together with a snapshot, DROP
    TABLE. A caller never knows which implementation answered.

    Rules for every implementation:

    * No answer is cached. A second process may have committed since the last call.
    * ``main`` moves only in ``create_table``, ``commit_empty``, ``set_main`` and the calls named
      ``fast_forward…``.
    * The caller may die while a call is running, and the server then finishes the call. A call may
      therefore take effect late; under "Late" a method says why a late effect is harmless.
    * SQLSTATE 40001 means: another writer changed the table, and the call had no effect.
    * Any thread may call; every thread has a Spark session.
    """

    lists_expiries: bool
    """Can ``expire_snapshots`` list the files of snapshots, so that the files stay for a while?"""
    changes_columns: bool
    """Can ``change_columns`` change a table's columns?"""

    # -- reading ----------------------------------------------------------------------------------

    def describe(self, ident: LakeIdent) -> TableState | None:
        """The table, or None if the catalog has no table of the name.

        Gateway: a single metadata file. SQL: three statements.
        """

    def columns(self, ident: LakeIdent) -> tuple[LakeColumn, ...]:
        """The table's columns. Raises if the table does not exist."""

    def history(self, ident: LakeIdent) -> History:
        """All branches and snapshots, read at the same moment.

        An unanswered call of the thread has ended before the history is read. Fails
        if a successor has closed the thread's session.
        """

    def branches(self, ident: LakeIdent) -> list[str]:
        """The names of the table's branches; empty if the table does not exist."""

    def once_on_main(self, ident: LakeIdent) -> Collection[int]:
        """The snapshots that ``main`` was at, as far as the table remembers."""

    # -- creating and dropping tables -------------------------------------------------------------

    def create_table(
        self,
        ident: LakeIdent,
        columns: Sequence[LakeColumn],
        new: NewTable,
        summary: Mapping[str, str],
    ) -> TableState:
        """Create the schema if needed, and the table with an empty snapshot that has ``summary``.

        Raises 42P07 if the table exists. ``new.branch`` may come with the table, or not.
        Gateway: a single commit. SQL: two commits. A worker that dies in between leaves a table
        without a snapshot; the caller recognises the table and finishes the creation.
        Late: the successor has created the table, and a second creation is refused.
        """

    def set_order(self, ident: LakeIdent, sort_by: Sequence[LayoutField]) -> None:
        """Set the sort order of a table whose creation a worker did not finish."""

    def rename_table(self, ident: LakeIdent, new: LakeIdent) -> None:
        """Give the table another name; the files stay where they are.

        42P01 without the table, 42P07 if the name is taken, 0A000 if the catalog cannot rename.
        Late: the second of two calls finds no table.
        """

    def drop_table(self, ident: LakeIdent) -> None:
        """Drop the table with all files; no error if the table does not exist.

        The files stay where the table's property ``gc.enabled`` is false.
        """

    def set_properties(self, ident: LakeIdent, properties: Mapping[str, str], what: str) -> None:
        """Set table properties; all further properties stay.

        ``what`` names the purpose in error messages.
        """

    def change_columns(
        self, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
    ) -> None:
        """Change the table's columns, and keep the text that ``remember`` returns, in one commit.

        The columns are the table's, not a branch's: readers of ``main`` see the change at once.
        Gateway: a single compare-and-set, never repeated by Iceberg. SQL: 0A000, because Spark does
        not tell the field ids.
        Late: refused if the table changed meanwhile. If not, the successor decides on the same
        changes, and finds them made.
        """

    # -- branches ---------------------------------------------------------------------------------

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """Create or replace a branch at snapshot ``at``, or at the newest snapshot of ``main``.

        The branch gets a maximum reference age. The age marks the branch as created by pgsub: if a
        foreign client drops the branch, an append makes Iceberg create a branch of the name again,
        without an age.
        Late: the name contains the worker's generation and is never used again.
        """

    def drop_branch(self, ident: LakeIdent, branch: str) -> None:
        """Drop a branch; no error if the branch does not exist.

        Late: no worker publishes the branch any more.
        """

    def check_branch(self, ident: LakeIdent, branch: str) -> None:
        """Raise 40001 if the branch exists and ``create_branch`` did not create the branch.

        Iceberg creates a dropped branch again at ``main``, without the commits of the dropped
        branch.
        """

    def fast_forward(self, ident: LakeIdent, branch: str, stamp: Stamp | None = None) -> int | None:
        """Move ``main`` to the newest snapshot of the branch. Returns the snapshot's id if known.

        ``stamp`` says that a snapshot of the branch with this position is as good as the newest:
        the table then need not be read again behind the commit of that snapshot.
        Refused if ``main`` is no ancestor of the branch. Includes ``check_branch``.
        Gateway: first asks whether the worker's Spark session is still open, because a successor
        closes sessions and cannot close a gateway call.
        Late: behind a successor's fence ``main`` is no ancestor any more, and the call is refused.
        """

    def held(self, ident: LakeIdent, branch: str) -> int | None:
        """The snapshot that only the publication of the branch commits, if there is one.

        See ``FileChange.may_hold``. A publication without a clear answer took effect if the table
        has the snapshot.
        """

    def fast_forward_with(
        self,
        ident: LakeIdent,
        branch: str,
        changes: Sequence[ColumnChange],
        remember: Remember | None = None,
    ) -> int:
        """``fast_forward``, and change columns in the same commit. Late: as ``fast_forward``.

        ``remember``: as in ``change_columns``.
        """

    @property
    def moves_together(self) -> bool:
        """Does the catalog take ``fast_forward_together``? Only a REST catalog may."""

    def fast_forward_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int]:
        """``fast_forward`` of several tables by one call: all of them, and at the same moment.

        Each branch ends with the part's position. Returns the new snapshots of ``main``. 0A000 if
        the catalog takes no such call after all. ``in_parallel`` runs what is asked of each table.
        Late: behind a successor's fence on one of the tables the whole call is refused.
        """

    def set_main(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` to a snapshot of the table, also backwards. Only to undo a copy.

        Late: the caller has fenced the table first, and no worker publishes in between.
        """

    # -- commits without rows ---------------------------------------------------------------------

    def commit_empty(
        self,
        ident: LakeIdent,
        ref: str,
        summary: Mapping[str, str],
        columns: Sequence[LakeColumn] | None = None,
    ) -> None:
        """Add an empty snapshot to ``main`` or to a branch, for the sake of the ``summary``.

        The commit goes through the Spark session in every implementation. On ``main`` the commit
        is the fence, and a successor must be able to stop a late fence by closing the session.
        ``columns`` are the table's columns, if the caller knows them; else the call reads the
        columns first.
        """

    # -- maintenance ------------------------------------------------------------------------------

    def expire_snapshots(
        self,
        ident: LakeIdent,
        *,
        older_than: float,
        retain_last: int,
        list_files: ListFiles | None = None,
    ) -> None:
        """Drop snapshots older than a Unix time, except the last ``retain_last`` of every branch.

        The caller has chosen the arguments to keep the newest snapshot with a position. Files that
        only dropped snapshots used are removed; with ``list_files`` the files stay, and
        ``list_files`` gets them before the commit. SQL: the files are removed, with ``list_files``
        too, because Spark has no other expiry.
        Late: ``older_than`` is absolute, and no newer snapshot is dropped.
        """

    def remove_files(
        self, ident: LakeIdent, files: Sequence[str], table_uuid: str | None = None
    ) -> int:
        """Remove the files that no snapshot of the table names; return how many.

        A table of another uuid than ``table_uuid``, or no table, keeps all files. SQL: removes no
        file; orphan removal finds the files.
        Late: a file that a snapshot names stays.
        """

    def expire_named(
        self, ident: LakeIdent, snapshot_ids: Sequence[int], list_files: ListFiles | None = None
    ) -> None:
        """Drop the snapshots with the given ids, and no other snapshot.

        Files that no kept snapshot uses are removed. ``list_files``: as in ``expire_snapshots``.
        Iceberg refuses the call if a ref is at one of the snapshots.
        Late: no ref ever leads to one of the snapshots again.
        """

    def close(self) -> None:
        """Close the connections of the object."""


@dataclass(frozen=True, slots=True)
class FileChange:
    """A commit that names files. ``layout`` is the table layout that the files were written for.

    ``added`` and ``removed`` are data files. The living rows of the ``removed`` ones are in
    ``added``, except rows that the commit deletes; without ``changes_rows`` the commit changes no
    row. No delete of a ``removed`` file may have come meanwhile. ``added_deletes`` and
    ``removed_deletes`` are position deletes or deletion vectors. ``expected_tip`` is the snapshot
    of the branch in which row positions were looked up. ``stored`` are the paths of new files that
    the store has just confirmed; every other new file is looked for, because a lost file must not
    be committed. ``may_hold``: the next call about the branch publishes the branch, or gives it up.
    """

    layout: LayoutId
    added: Sequence[NewFile] = ()
    added_deletes: Sequence[NewFile] = ()
    removed: Sequence[NewFile] = ()
    removed_deletes: Sequence[NewFile] = ()
    changes_rows: bool = False
    summary: Mapping[str, str] = field(default_factory=dict)
    expected_tip: int | None = None
    stored: Collection[str] = ()
    may_hold: bool = False


@dataclass(frozen=True, slots=True)
class FileTotals:
    """The contents of a branch's files after a commit.

    ``rows`` counts deleted rows too; ``deleted`` is their number. ``tip`` is the new snapshot,
    ``parent`` the snapshot before. ``idle_deletes`` is the number of delete files minus the number
    of data files; below zero if the branch has fewer delete files. ``held``: the publication of the
    branch makes the commit.
    """

    rows: int
    deleted: int
    tip: int
    parent: int | None
    idle_deletes: int = 0
    held: bool = False


class FileCommits(Protocol):
    """Commits on a branch that add and remove files by name. Never on ``main``.

    ``what`` names the caller's purpose in error messages: "the lake failed while <what>".
    """

    def metadata_and_store(
        self, ident: LakeIdent, what: str, *, newest: bool = True
    ) -> tuple[Mapping[str, Any], TableStore | None]:
        """The table's newest metadata file, as Iceberg's specification describes it, and the store
        of the table's files; no store if only Spark can reach the files.

        Unless ``newest``, metadata that the process has read a moment ago serve as well.
        """

    def tip(self, ident: LakeIdent, branch: str, what: str) -> int:
        """The branch's newest snapshot. 40001 if the branch does not exist."""

    def list_files(self, ident: LakeIdent, branch: str, what: str) -> FileList:
        """The data files of the branch with their deletes. 40001 if the branch does not exist.

        ``files`` of the answer is None if there are more than ``limits.LISTED_FILES``, or files
        that only Spark can read.
        """

    def commit_files(
        self, ident: LakeIdent, branch: str, change: FileChange, what: str
    ) -> FileTotals:
        """Add a snapshot. 40001 if the branch, the tip or the table's layout is not as expected.

        A change that may be held and ends with a position may be committed by the publication of
        the branch only: then the branch is as before, and an error may come as late as that.
        Late: the branch belongs to a dead worker's generation, and no worker publishes the branch.
        """

    def published(self, ident: LakeIdent, branch: str) -> None:
        """The branch was published, also if no call said so: no commit of the branch is held."""

    def forget(self, ident: LakeIdent) -> None:
        """Read the table again before the next commit: somebody else has committed."""

    def remove_files(
        self, ident: LakeIdent, files: Sequence[str], table_uuid: str | None = None
    ) -> int:
        """Remove the files that no snapshot of the table names; see ``TableApi``."""


class LateCommits(Protocol):
    """A commit as of a worker that was asleep: for the probe of a catalog, never for rows."""

    def set_main_late(self, ident: LakeIdent, branch: str, between: Callable[[], None]) -> None:
        """Read the table, call ``between``, and move ``main`` to the branch without reading again.

        ``between`` commits to ``main``. A fit catalog refuses the move as a commit conflict.
        """

    def refuses_at_once(self, ident: LakeIdent) -> bool:
        """Does the catalog refuse one of two commits to a scratch table at the same moment?

        True for a catalog that ``set_main_late`` has tried enough.
        """
