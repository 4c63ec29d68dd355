"""The tables of a destination: which tables this process writes, and the state kept for them.

Three kinds of state:

* A table's layout and the list of a branch's files. Both are dropped after a failure on the table.
  The list is dropped with the branch too: deletes on a branch do not apply to the next branch.
* The configuration's word for the writer of a table: it stays for the life of the destination.
* Keys and deleted rows, read from files. Files never change, so the caches stay valid.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from functools import partial
from typing import Final

import pyarrow as pa

from config.limits import IDLE_DELETE_FILES
from workers.lake.connect.errors import LakeFailure
from workers.lake.connect.session import LakeSession
from workers.lake.effects import FileSizes
from workers.lake.files.branch_commit import BranchCommits
from workers.lake.files.branch_files import BranchFiles
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.held_rows import HeldRows, HeldStore
from workers.lake.files.join_small_files import join_small
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.merge_delete_files import merge_deletes
from workers.lake.files.refused_files import RefusedFiles
from workers.lake.files.segment_writer import FileSegmentWriter
from workers.lake.files.table_layout import TableLayout, lacks_columns, read_layout
from workers.lake.files.vacuum_files import vacuum
from workers.lake.files.write_rows import write_staged_rows
from workers.lake.interfaces.table_api import FileCommits
from workers.lake.refusals import changed_meanwhile
from workers.lake.segment import RowsOf
from workers.lake.sql.other_writers import OtherWriters
from workers.lake.sql.row_queries import RowQueries
from workers.lake.staged_rows import NewFile, OwnFiles, Staged
from workers.lake.storage.staging import Staging
from workers.lake.storage.store import remove_all
from workers.lake.table import LakeIdent
from workers.lake.writer_choice import (
    ANOTHER_TABLE,
    AUTO,
    BESIDE,
    NO_GATEWAY,
    POSSIBLE,
    SPARK,
    Unwritable,
    WriterChoice,
    choose,
)

_NO_DELETES: Final = (
    "Only Spark writes deletes of the table: its changes are not merged on read, or it has format "
    "1, or a column _row_id."
)


class SparkTables:
    """The tables of a destination for which Spark writes all files."""

    _possible = POSSIBLE
    """The reason for files that nobody has asked for."""
    _only: str | None = SPARK
    """The writer of all tables, whatever is asked for."""

    def __init__(self, staging: Staging, default: str = AUTO) -> None:
        """``default`` is the word for tables of which the configuration says nothing."""
        self._staging = staging
        self._default = default
        self._lock = threading.Lock()
        self._asked: dict[LakeIdent, str] = {}

    def choose_writer(self, ident: LakeIdent, asked: str | None) -> WriterChoice:
        """Choose the writer of a table's rows, from here on; 0A000 if the writer cannot be had.

        ``asked`` is the configuration's word for the table, None for the default. Several
        published tables may be written to a lake table: Spark writes all of them if one says so.
        """
        own = asked or self._default
        with self._lock:  # the tables of a shared lake table may be opened at one time
            word = SPARK if self._asked.get(ident) == SPARK else own
            self._asked[ident] = word
        refusal = None if word == SPARK else self._refusal(ident)
        chosen = choose(word, refusal, ident, self._possible)
        return chosen if word == own else WriterChoice(own, chosen.writer, ANOTHER_TABLE)

    def merges(self, asked: str | None) -> bool:
        """Does Spark write the rows of a table that is to be made with the word ``asked``?"""
        return SPARK in (asked or self._default, self._only)

    def _refusal(self, ident: LakeIdent) -> str | None:
        """Why this process cannot write the table's files."""
        del ident
        return NO_GATEWAY

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None,
        changes_of: LakeIdent | None,
    ) -> Staged:
        """Take rows in, to memory or to files that Spark reads."""
        del rows_of, changes_of
        return self._staging.stage(batches, schema)

    def writer(
        self, queries: RowQueries, others: OtherWriters, *, may_hold: bool = False
    ) -> FileSegmentWriter | None:
        """The file writer for a batch on the queries' branch, or None if Spark has to write."""
        del queries, others, may_hold
        return None

    def merge_deletes(self, session: LakeSession, ident: LakeIdent, branch: str) -> bool:
        """Write a delete file for each data file; False if Spark has to do or to finish that."""
        del session, ident, branch
        return False

    def rewrite(
        self,
        session: LakeSession,
        ident: LakeIdent,
        branch: str,
        sizes: FileSizes,
        deleted_share: float | None = None,
    ) -> int | None:
        """Join the branch's small files, or write files again with that share of deleted rows.

        Returns the number of replaced files, or None if Spark has to do the work.
        """
        del session, ident, branch, sizes, deleted_share
        return None

    def remove_copied(self, ident: LakeIdent, copy_id: str, kept: Collection[str] = ()) -> None:
        """Remove the files that a failed copy wrote; orphan removal takes the files of Spark."""
        del ident, copy_id, kept

    def remove_refused(self, ident: LakeIdent) -> None:
        """Remove the files of commits that the lake refused; see ``refused_files``."""
        del ident

    def remove_undecided(self, ident: LakeIdent, branches: Iterable[str]) -> None:
        """Remove the files of commits without a known outcome to branches that are dropped now."""
        del ident, branches

    def published(self, ident: LakeIdent, branch: str) -> None:
        """The branch was published."""

    def forget(self, ident: LakeIdent) -> None:
        """Read the table and the branch's files again before the next use."""

    def begin_branch(self, ident: LakeIdent, at: int | None) -> None:
        """The table gets a new branch at snapshot ``at``, None for the newest of ``main``."""


class FileTables(SparkTables):
    """The tables of a destination for which this process writes files and commits them by name."""

    _only = None

    def __init__(
        self,
        commits: FileCommits,
        staging: Staging,
        default: str,
        keys: KeyCache,
        *,
        beside: bool = False,
    ) -> None:
        """``beside``: files are committed beside a Spark server of the user, which copies."""
        super().__init__(staging, default)
        self._beside = beside
        self._possible = BESIDE if beside else POSSIBLE
        self._commits = RefusedFiles(commits)
        self._files: dict[LakeIdent, TableLayout | Unwritable] = {}
        self._dead = DeletedRowsCache()
        self._keys = keys
        self._held = HeldStore()
        self._known: dict[LakeIdent, tuple[str, BranchFiles]] = {}

    def files(self, ident: LakeIdent) -> TableLayout | None:
        """The table's layout; None if Spark has to write the table, or shall."""
        if self._asked.get(ident, self._default) == SPARK:
            return None
        found = self._layout(ident)
        return None if isinstance(found, Unwritable) else found

    def _refusal(self, ident: LakeIdent) -> str | None:
        """Why this process cannot write the table's files."""
        found = self._layout(ident)
        if isinstance(found, Unwritable):
            return found.reason
        return None if found.writes_deletes else _NO_DELETES

    def _layout(self, ident: LakeIdent) -> TableLayout | Unwritable:
        with self._lock:
            found = self._files.get(ident)
        if found is not None and not (isinstance(found, TableLayout) and found.store.is_stale):
            return found
        found = layout_of(self._commits, ident, newest=found is not None)
        with self._lock:
            self._files[ident] = found
        return found

    def stage(
        self,
        batches: Iterable[pa.RecordBatch],
        schema: pa.Schema,
        rows_of: RowsOf | None,
        changes_of: LakeIdent | None,
    ) -> Staged:
        """Write many new rows to data files at once; stage everything else as usual.

        Changes to a table that this process writes stay in memory: Spark never reads them.
        """
        if changes_of is not None:
            known = self.files(changes_of)
            here = known is not None and known.writes_deletes
            return self._staging.stage(batches, schema, here=here)
        files = None if rows_of is None else self.files(rows_of.ident)
        if files is None or rows_of is None:
            return self._staging.stage(batches, schema)
        if lacks_columns(files, rows_of.columns):
            raise changed_meanwhile(rows_of.ident)
        if rows_of.in_files:
            return _write(files, rows_of, batches)
        return self._staging.stage(batches, schema, partial(_write, files, rows_of))

    def writer(
        self, queries: RowQueries, others: OtherWriters, *, may_hold: bool = False
    ) -> FileSegmentWriter | None:
        """The file writer for a batch on the queries' branch, or None if Spark has to write."""
        ident, branch = queries.ident, queries.branch
        files = self.files(ident)
        if files is None:
            return None
        target = self._target(ident, branch, files, may_hold)
        return FileSegmentWriter(target, queries, self._keys, others, copies=not self._beside)

    def merge_deletes(self, session: LakeSession, ident: LakeIdent, branch: str) -> bool:
        """Write a delete file for each data file; False if Spark has to do or to finish that."""
        files = self.files(ident)
        if files is None or not files.writes_deletes or files.has_vectors:
            return False
        try:
            return merge_deletes(self._commits, session, ident, branch, files)
        finally:
            self.forget(ident)

    def rewrite(
        self,
        session: LakeSession,
        ident: LakeIdent,
        branch: str,
        sizes: FileSizes,
        deleted_share: float | None = None,
    ) -> int | None:
        """Join the branch's small files, or write files again with that share of deleted rows.

        Returns the number of replaced files, or None if Spark has to do the work. A cluster of the
        user does all that is large.
        """
        files = self.files(ident)
        if files is None or not files.writes_deletes or files.has_vectors:
            return None
        if self._beside and deleted_share is not None:
            return None
        target = self._target(ident, branch, files)
        try:
            if deleted_share is None:
                replaced = join_small(target, sizes)
            else:
                replaced = vacuum(target, sizes, deleted_share)
            if replaced is None:
                return None
            went, idle = replaced
            if idle > IDLE_DELETE_FILES:
                self.merge_deletes(session, ident, branch)
        except BaseException:
            self.forget(ident)
            raise
        return went

    def remove_copied(self, ident: LakeIdent, copy_id: str, kept: Collection[str] = ()) -> None:
        """Remove the files that a failed copy wrote, committed or not, except those ``kept``.

        A file that a snapshot names stays: a user may have committed on top of the copy. The files
        may be of a worker with another word for the table: the present word does not matter.
        """
        files = self._layout(ident)
        names = {path.rpartition("/")[2] for path in kept}
        copied = [] if isinstance(files, Unwritable) else files.copied(copy_id)
        copied = [path for path in copied if path.rpartition("/")[2] not in names]
        if copied:
            with suppress(LakeFailure):  # no attempt waits for the removal; orphan removal follows
                self._commits.remove_files(ident, copied)

    def remove_refused(self, ident: LakeIdent) -> None:
        """Remove the files of commits that the lake refused; see ``refused_files``."""
        self._commits.remove_refused(ident)

    def remove_undecided(self, ident: LakeIdent, branches: Iterable[str]) -> None:
        """Remove the files of commits without a known outcome to branches that are dropped now."""
        self._commits.remove_undecided(ident, branches)

    def published(self, ident: LakeIdent, branch: str) -> None:
        """The branch was published."""
        self._commits.published(ident, branch)

    def _target(
        self, ident: LakeIdent, branch: str, files: TableLayout, may_hold: bool = False
    ) -> BranchCommits:
        known = self._known_files(ident, branch)
        return BranchCommits(self._commits, ident, branch, files, known, self._dead, may_hold)

    def _known_files(self, ident: LakeIdent, branch: str) -> BranchFiles:
        with self._lock:
            of, known = self._known.get(ident, (None, None))
            if known is None or of != branch:
                if known is not None:
                    known.rows.forget()
                known = BranchFiles(rows=HeldRows(self._held))
                self._known[ident] = branch, known
        return known

    def forget(self, ident: LakeIdent) -> None:
        """Read the table and the branch's files again before the next use."""
        self._commits.forget(ident)
        self._forget(ident)

    def begin_branch(self, ident: LakeIdent, at: int | None) -> None:
        """Read layout and files again. The table's state of a moment ago serves for that, if the
        caller knows the snapshot.
        """
        if at is None:
            self._commits.forget(ident)
        self._forget(ident)

    def _forget(self, ident: LakeIdent) -> None:
        with self._lock:
            self._files.pop(ident, None)
            _, known = self._known.pop(ident, ("", None))
            if known is not None:
                known.rows.forget()


def layout_of(
    commits: FileCommits, ident: LakeIdent, *, newest: bool = True
) -> TableLayout | Unwritable:
    """How this process writes the files of a table as the table is now, or was a moment ago.

    Files of a former schema or partition spec stay valid. ``newest``: with new keys, too.
    """
    what = f'reading lake table "{ident}"'
    return read_layout(*commits.metadata_and_store(ident, what, newest=newest))


def _write(files: TableLayout, rows_of: RowsOf, batches: Iterable[pa.RecordBatch]) -> Staged:
    written: list[NewFile] = []
    since = time.monotonic()
    try:
        write_staged_rows(
            files,
            rows_of.ident,
            batches,
            rows_of.columns,
            written.append,
            rows_of.source,
            rows_of.copy_id,
        )
    except BaseException:
        remove_all(files.store, [file.path for file in written])
        raise
    own = OwnFiles(
        tuple(written),
        files.layout_id,
        partial(remove_all, files.store),
        takes_deletes=files.keeps_positions,
        since=since,
    )
    return Staged(sum(file.rows for file in written), own=own)
