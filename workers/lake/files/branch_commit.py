"""Commit files to a branch, and keep the list of the branch's files up to date."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Final

import pyarrow as pa

from workers.lake.effects import Counts
from workers.lake.files.branch_files import BranchFiles, Deletes, after_commit
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.deletion_vectors import write_vectors
from workers.lake.files.merge_delete_files import read_all_deletes
from workers.lake.files.position_deletes import RowPositions, merge_positions, write_deletes
from workers.lake.files.read_rows import Unreadable
from workers.lake.files.table_layout import TableLayout
from workers.lake.interfaces.segment_writer import Properties
from workers.lake.interfaces.table_api import FileChange, FileCommits
from workers.lake.refusals import changed_meanwhile
from workers.lake.staged_rows import FileList, NewFile, OwnFiles
from workers.lake.table import LakeIdent

_NONE: Final = Deletes()


@dataclass(slots=True)
class CommitParts:
    """The collected parts of a commit.

    ``files`` are data files already written, ``batches`` are rows still to be written, ``staged``
    are the staged files among ``files``. ``deleted`` are positions of rows to delete.
    """

    files: list[NewFile] = field(default_factory=list)
    batches: list[Iterator[pa.RecordBatch]] = field(default_factory=list)
    staged: list[OwnFiles] = field(default_factory=list)
    deleted: list[RowPositions] = field(default_factory=list)
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True)
class BranchCommits:
    """Commits files to a branch. A commit also updates ``known`` and ``dead``."""

    commits: FileCommits
    ident: LakeIdent
    branch: str
    files: TableLayout
    known: BranchFiles
    dead: DeletedRowsCache

    def write_deletes(self, parts: CommitParts, tip: int | None) -> Deletes:
        """Write the delete files of a commit; the positions are positions in snapshot ``tip``."""
        places = merge_positions(parts.deleted)
        if not places:
            return Deletes()
        if not self.files.has_vectors:
            replaced = self.known.deletes.full()
            earlier = self._of_living_files(read_all_deletes(self.files.store, replaced), tip)
            all_places = merge_positions([places, earlier])
            file = write_deletes(self.files, all_places)
            return Deletes(places, [(file, all_places.keys())], replaced)
        live = self.known.listed
        if live is None or live.files is None or live.tip != tip:
            raise changed_meanwhile(self.ident)
        before = {file.path: file.deletes for file in live.files if file.path in places}
        try:
            vectors = write_vectors(self.files, places, before)
        except Unreadable:  # the next look-up fails too, and leaves the rows to Spark
            self.dead.forget(places)
            raise changed_meanwhile(self.ident) from None
        replaced = [each for path, known in before.items() for each in known if each.of == path]
        return Deletes(places, [(file, [str(file.of)]) for file in vectors], replaced)

    def commit(
        self,
        parts: CommitParts,
        properties: Properties,
        tip: int | None = None,
        deletes: Deletes = _NONE,
    ) -> Counts:
        """Make the commit; 40001 if the branch is not at ``tip`` any more."""
        for staged in parts.staged:
            staged.committed = True
        change = FileChange(
            self.files.layout_id,
            added=parts.files,
            added_deletes=[file for file, _ in deletes.files],
            removed_deletes=deletes.replaced,
            summary=properties,
            expected_tip=tip,
        )
        what = f'writing to lake table "{self.ident}"'
        totals = self.commits.commit_files(self.ident, self.branch, change, what)
        live = after_commit(self.known.listed, totals, parts.files, deletes, self.dead)
        self.known.listed = None if self.files.has_vectors and _numbers_rows(live) else live
        for file, _ in deletes.files:
            if not file.vector:
                self.known.deletes.add(file, deletes.replaced)
        if not deletes.files:
            return parts.counts
        return replace(parts.counts, rows=totals.rows, deleted=totals.deleted)

    def _of_living_files(self, places: RowPositions, tip: int | None) -> RowPositions:
        """The positions, without positions in data files that the branch is known to have lost."""
        live = self.known.listed
        if live is None or live.files is None or live.tip != tip:
            return places
        paths = {file.path for file in live.files}
        return {path: each for path, each in places.items() if path in paths}


def _numbers_rows(live: FileList | None) -> bool:
    """Did the commit give numbers to rows? Iceberg numbers every unnumbered row, unreported."""
    files = () if live is None or live.files is None else live.files
    return any(file.first_row_id is None for file in files)
