"""The seam between the workers and a table format: the calls that a lake must offer.

The apply worker and the table-sync worker see the lake only through this Protocol and the value
types beside it. A worker writes only to a *branch* that no other generation of workers uses.
Readers see a branch's rows after ``publish`` (a fast-forward of ``main``) and never earlier: the
fast-forward makes a batch atomic per table, and it fences a worker that died with a call in flight.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from catalog.pg_lsn import LSN
from workers.lake.column_changes import ColumnChange, Remember
from workers.lake.copy_plan import CopyPlan
from workers.lake.effects import Counts, Effect, ExistingKeys, FileSizes, ListFiles, Orphans
from workers.lake.new_layout import PLAIN, NewLayout
from workers.lake.publication import InParallel, Publication
from workers.lake.refusals import no_call_for_several
from workers.lake.segment import Generated, RowsOf, Segment, SourcePart
from workers.lake.staged_rows import Staged
from workers.lake.table import BRANCH_PREFIX, LakeColumn, LakeIdent, LakeTable, Stamp
from workers.lake.writer_choice import AUTO, WriterChoice, choose

if TYPE_CHECKING:
    import pyarrow as pa


class Destination(Protocol):
    """The lake as the workers see it. Every call may raise ``ReplicationError``."""

    def table(self, ident: LakeIdent) -> LakeTable | None:
        """The table on ``main`` now, never cached; None if the table does not exist."""

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
        """Create the namespace and the table; ``main`` gets an empty snapshot with the stamp.

        A stamp with a source is left out: a commit to ``main`` of a shared table would hide the
        positions that workers of other sources have published meanwhile. ``publisher_columns`` is
        kept in the table (``LakeTable``). ``branch`` is what the caller creates next, at the
        snapshot: the branch may come with the table already.
        """

    def generated_columns(
        self, ident: LakeIdent, columns: Sequence[LakeColumn], generated: Generated
    ) -> tuple[LakeColumn, ...]:
        """The generated columns over ``columns``, with types. The table need not exist.

        Raises PostgreSQL's errors for a generation expression, or for an expression over a missing
        column.
        """

    def adopt_table(
        self, ident: LakeIdent, *, owner: str, stamp: Stamp, former_owners: Collection[str] = ()
    ) -> LakeTable:
        """Take over an existing table: set the owner, commit an empty snapshot with the stamp.

        As in ``create_table``, a stamp with a source is left out.
        A table of another owner is refused (55006) unless the owner is among ``former_owners``.
        """

    @property
    def changes_columns(self) -> bool:
        """Can ``change_columns`` change the columns of a table?"""

    def change_columns(
        self, ident: LakeIdent, changes: Sequence[ColumnChange], remember: Remember
    ) -> LakeTable:
        """Change a table's columns, and keep the text that ``remember`` returns, in one commit.

        Readers see the change at once, all branches have the new columns, and rows in the lake stay
        as they are. A change that was made already has no effect.
        """

    def choose_writer(self, ident: LakeIdent, asked: str | None) -> WriterChoice:
        """Choose the writer of a table's rows from here on; ``asked`` is the configuration's word.

        None means the destination's default. 0A000 if the writer that is asked for cannot be had.
        A destination may have a single writer.
        """
        return choose(asked or AUTO, None, ident)

    def rename_table(self, ident: LakeIdent, new: LakeIdent) -> None:
        """Give a table another name, in another schema too; the files stay where they are.

        42P07 if the new name is taken, 42P01 if there is no table ``ident``, 0A000 if the catalog
        cannot rename. Made twice, the second call is 42P01.
        """

    def drop_table(self, ident: LakeIdent) -> None:
        """Drop a table that pgsub created and never used (undo of a failed CREATE)."""

    def fence(self, ident: LakeIdent) -> LakeTable:
        """Commit an empty snapshot on ``main``, then read the table.

        The position stays. No earlier branch can be published any more.
        """

    def release_sessions(self, sessions: Iterable[tuple[str, str]]) -> None:
        """Close the (user_id, session_id) pairs of a dead worker for good; stop running calls."""

    def create_branch(self, ident: LakeIdent, branch: str, at: int | None = None) -> None:
        """Create or replace a branch at snapshot ``at``, by default at the tip of ``main``."""

    def drop_branches(
        self, ident: LakeIdent, *, keep: str | None = None, prefix: str = BRANCH_PREFIX
    ) -> None:
        """Drop every branch whose name begins with ``prefix``, except ``keep``.

        The snapshots that only these branches led to go too, with the files. A missing branch is no
        error.
        """

    def discard_copy(
        self, ident: LakeIdent, copy_id: str, list_files: ListFiles | None = None
    ) -> None:
        """Remove what a failed copy left: snapshots that no ref leads to, and uncommitted files.

        The caller has dropped the copy's branches. If ``main`` of a shared table still holds the
        copy, no file is removed by name. If readers may have seen the copy on ``main``, the caller
        gives ``list_files``, as to ``expire``: no file is removed then, and uncommitted files are
        left to ``discard_files``.
        """

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None = None,
        changes_of: LakeIdent | None = None,
    ) -> Staged:
        """Take rows in; few rows stay in memory, more rows become Parquet files (0600).

        ``rows_of`` says that the rows are whole rows of a table, and may become data files of the
        table as they are. ``changes_of`` names the table whose rows they change whole; where no
        Spark is needed for the change, more rows stay in memory.
        """

    def discard(self, staged: Staged) -> None:
        """Remove staged files; a missing file is no error."""

    def discard_files(self, ident: LakeIdent, file_id: str, kept: Collection[str] = ()) -> None:
        """Remove the data files with ``file_id`` in the name, and without a snapshot.

        A dead worker left the files before the commit of a transaction, or of a copy. Files that
        are ``kept`` stay. The twin in memory has no files.
        """
        del ident, file_id, kept

    def write_sources(
        self,
        ident: LakeIdent,
        branch: str,
        parts: Sequence[SourcePart],
        *,
        may_hold: bool = False,
    ) -> list[Effect]:
        """Apply the parts of several sources of a shared table together: one effect for each.

        The segments of a part are applied in order; the rows of different sources do not meet. Only
        the last snapshot carries the parts' stamps. Without stamps no snapshot carries any: the
        segments are a slice of a transaction, and further slices follow.
        ``count`` has to look at the effects before the branch is published.
        A part's ``base`` is the position that the source must have on the branch already. Branches
        of a shared table are short-lived, so no other check would notice a ``main`` that was set
        back. ``may_hold``: the next call about the branch is ``count``, then ``publish`` with the
        stamp or ``drop_branches``. The lake may then leave the last commit to ``publish``.
        """

    def write_branch(
        self,
        ident: LakeIdent,
        branch: str,
        segments: Sequence[Segment],
        stamp: Stamp | None,
        base: LSN | None = None,
        *,
        may_hold: bool = False,
    ) -> Effect:
        """``write_sources`` for a table of a single owner, or for one source."""
        part = SourcePart(segments, stamp, base)
        return self.write_sources(ident, branch, [part], may_hold=may_hold)[0]

    def count(self, effects: Sequence[Effect]) -> list[Counts]:
        """The counts of each effect, all read in one call.

        23505 if a change matched more rows than one: the branch must not be published.
        """

    def write(
        self,
        ident: LakeIdent,
        branch: str,
        segments: Sequence[Segment],
        stamp: Stamp,
        base: LSN | None = None,
        *,
        may_hold: bool = False,
    ) -> Counts:
        """``write_branch`` and ``count`` for a single table."""
        effect = self.write_branch(ident, branch, segments, stamp, base, may_hold=may_hold)
        return self.count([effect])[0]

    def expect_copy(self) -> None:
        """Say that ``copy`` follows. What the tasks need may start meanwhile, in the background."""
        return

    def copy(
        self,
        ident: LakeIdent,
        branch: str,
        plan: CopyPlan,
        progress: Callable[[int, int], None],
    ) -> int:
        """Copy the plan's ranges in parallel onto the branch. Returns the number of rows.

        ``progress(done, total)`` counts ranges.
        """

    def existing_keys(self, ident: LakeIdent, branch: str, key: Sequence[str]) -> ExistingKeys:
        """The keys that rows of the branch's last commit share with rows from before the commit.

        Keys are compared by value; a key with a NULL equals no key.
        """

    def repeated_keys(
        self, ident: LakeIdent, branch: str, key: Sequence[str], source: str = ""
    ) -> int:
        """The number of key values that more than one row of the branch has. NULL is no value.

        ``source`` limits the rows to a source.
        """

    def overwrite_existing(
        self,
        ident: LakeIdent,
        branch: str,
        columns: Sequence[str],
        key: Sequence[str],
        generated: Generated = (),
    ) -> None:
        """Give the existing rows that ``existing_keys`` counts the copied values of ``columns``.

        Generated columns are computed anew, all remaining columns keep their values, and no key is
        repeated afterwards. The branch's tip carries no stamp afterwards.
        """

    def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
        """Fast-forward ``main`` to the branch, if the branch's tip carries exactly ``stamp``.

        Returns the new snapshot of ``main``, or None if the answer did not name the snapshot.
        """

    @property
    def publishes_together(self) -> bool:
        """Does ``publish_together`` show several tables at one moment? Most lakes cannot."""
        return False

    def publish_together(
        self, parts: Sequence[Publication], in_parallel: InParallel
    ) -> list[int | None]:
        """``publish`` of several tables by one call: readers see all tables move at one moment.

        Returns the new snapshots of ``main``; None for a snapshot that the answer did not name.
        After 40001 each table may be visible or not, as after 40001 of ``publish``: a lake may
        break its word. 0A000 if the lake takes no such call after all; ``publishes_together`` is
        False from then on. ``in_parallel`` runs what is asked of each table.
        """
        del parts, in_parallel
        raise no_call_for_several()

    def publish_with(
        self,
        ident: LakeIdent,
        branch: str,
        stamp: Stamp,
        changes: Sequence[ColumnChange],
        remember: Remember | None = None,
    ) -> None:
        """``publish``, and change columns in the same commit (``changes_columns``).

        No reader sees the old rows with the new columns, or the other way round. The text that
        ``remember`` returns is kept in the table as by ``change_columns``.
        """

    def make_durable(self, idents: Collection[LakeIdent]) -> Mapping[LakeIdent, str]:
        """Put all commits to the tables onto the disk, with every file that the commits rest on.

        A worker calls this before it stores or confirms a position of the tables: only then the
        position survives a power cut. 58030 or 53100 if the disk refuses. Returns the tables'
        metadata files as of the call, of tables whose catalog is the embedded lake's.
        """

    def expire(
        self,
        ident: LakeIdent,
        *,
        retain: int,
        age: float = 0.0,
        list_files: ListFiles | None = None,
    ) -> int:
        """Drop old snapshots. Returns the number of dropped snapshots.

        Kept are the last ``retain`` snapshots of ``main``, snapshots younger than ``age`` seconds,
        and the newest snapshot with a stamp. ``list_files`` gets the files that would go with the
        snapshots, before the commit; the files stay until ``remove_files``.
        """

    def remove_files(self, ident: LakeIdent, table_uuid: str, files: Sequence[str]) -> int:
        """Remove the files of an expiry's list, unless a snapshot names them. Returns how many."""

    def compact(
        self, ident: LakeIdent, branch: str, sizes: FileSizes, *, deleted_share: float | None = None
    ) -> int:
        """Merge the branch's small files, between batches. Returns the number of replaced files.

        With ``deleted_share`` instead rewrite files in which at least that share of the rows is
        deleted, as many as ``sizes`` allows.
        """

    def remove_orphans(
        self,
        ident: LakeIdent,
        *,
        owner: str,
        older_than: float,
        listed: Callable[[], Collection[str]] = tuple,
    ) -> Orphans:
        """Remove files of the table that no snapshot has and that are older than a Unix time.

        ``listed`` returns the files on the lists of expiries, which stay until ``remove_files``.
        Commits nothing, so batches may go on. Nothing is removed unless a file is certainly the
        table's, the table is certainly ``owner``'s, and no pending commit can need the file.
        """

    def rollback(self, ident: LakeIdent, snapshot_id: int) -> None:
        """Set ``main`` back to a snapshot (a copy that was published but never stored as s)."""

    def close(self) -> None:
        """Release the sessions of this destination."""
