"""Commit files to a branch, and keep the list of the branch's files up to date."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Final

import pyarrow as pa

from config.monitor_limits import WRITE_THREADS
from workers.lake.effects import Counts
from workers.lake.files.branch_files import BranchFiles, Deletes, after_commit, unused_deletes
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.deletion_vectors import write_vectors
from workers.lake.files.position_deletes import Array, RowPositions, merge_positions, write_deletes
from workers.lake.files.read_rows import Unreadable
from workers.lake.files.table_layout import TableLayout
from workers.lake.interfaces.segment_writer import Properties
from workers.lake.interfaces.table_api import FileChange, FileCommits
from workers.lake.refusals import changed_meanwhile
from workers.lake.staged_rows import FileList, LiveFile, NewFile, OwnFiles, Place
from workers.lake.storage.store import confirmed, remove_all
from workers.lake.table import LakeIdent

_NONE: Final = Deletes()


@dataclass(slots=True)
class CommitParts:
    """The collected parts of a commit.

    ``files`` are data files already written, ``batches`` are rows still to be written, ``staged``
    are the staged files among ``files``. ``deleted`` are positions of rows to delete. ``placed``
    are the rows of a small batch, by partition in place of ``batches``, and ``removed`` are the
    data files of which the living rows are among ``placed``. ``small`` are the files of the placed
    rows. ``keys`` are the keys of the rows that look-ups of one source search.
    """

    files: list[NewFile] = field(default_factory=list)
    batches: list[Iterator[pa.RecordBatch]] = field(default_factory=list)
    staged: list[OwnFiles] = field(default_factory=list)
    deleted: list[RowPositions] = field(default_factory=list)
    placed: dict[Place, pa.Table] = field(default_factory=dict)
    removed: list[NewFile] = field(default_factory=list)
    small: dict[Place, NewFile] = field(default_factory=dict)
    keys: set[tuple[str, ...]] = field(default_factory=set)
    counts: Counts = field(default_factory=Counts)


@dataclass(slots=True)
class BranchCommits:
    """Commits files to a branch. A commit also updates ``known`` and ``dead``.

    ``may_hold``: see ``FileChange``.
    """

    commits: FileCommits
    ident: LakeIdent
    branch: str
    files: TableLayout
    known: BranchFiles
    dead: DeletedRowsCache
    may_hold: bool = False

    def list_files(self, what: str) -> FileList:
        """The branch's files; listed once, and then known from the commits."""
        known = self.known
        known.listed = known.listed or self.commits.list_files(self.ident, self.branch, what)
        return known.listed

    def write_deletes_beside(
        self, write_rows: Callable[[], None], parts: CommitParts, tip: int | None
    ) -> Deletes:
        """Write the rows and the deletes of a commit; in an object store at the same time."""
        if not (parts.batches or parts.placed) or self.files.store.has_cheap_requests:
            write_rows()
            return self.write_deletes(parts, tip)
        with ThreadPoolExecutor(1) as pool:
            writing = pool.submit(self.write_deletes, parts, tip)
            try:
                write_rows()
            except BaseException:
                with suppress(Exception):  # the error of the rows is the one to be told
                    self._remove(writing.result().files)
                raise
            return writing.result()

    def write_deletes(self, parts: CommitParts, tip: int | None) -> Deletes:
        """Write the delete files of a commit; the positions are positions in snapshot ``tip``."""
        positions = dict(merge_positions(parts.deleted))
        gone = {file.path for file in parts.removed}
        for path in gone:
            positions.pop(path, None)
        unused = unused_deletes(self._listed(tip), gone) if gone else []
        if not positions:
            return Deletes(replaced=unused)
        if not self.files.has_vectors:
            return self._write_position_deletes(positions, tip, gone, unused)
        live = {file.path: file for file in self._listed(tip)}
        before = {path: live[path].deletes for path in positions if path in live}
        places = {path: live[path].place for path in before}
        try:
            vectors = write_vectors(self.files, positions, before, places)
        except Unreadable:  # the next look-up fails too, and leaves the rows to Spark
            self.dead.forget(positions)
            raise changed_meanwhile(self.ident) from None
        replaced = [each for path, known in before.items() for each in known if each.of == path]
        return Deletes(positions, [(file, [str(file.of)]) for file in vectors], replaced)

    def _write_position_deletes(
        self,
        positions: RowPositions,
        tip: int | None,
        gone: Collection[str],
        unused: Sequence[NewFile],
    ) -> Deletes:
        """A delete file, in a table with partitions one for each place of the data files.

        The commit removes the data files ``gone`` and the delete files ``unused``.
        """
        by_place: dict[Place | None, dict[str, Array]] = {}
        places: dict[str, Place | None] = {}
        if self.files.has_places:
            places = {file.path: file.place for file in self._listed(tip)}
            if not positions.keys() <= places.keys():
                raise changed_meanwhile(self.ident)
        for path, rows in positions.items():
            by_place.setdefault(places.get(path), {})[path] = rows
        replaced = {place: self.known.deletes.full(place) for place in by_place}
        written: list[tuple[NewFile, Collection[str]]] = []
        contents: dict[str, RowPositions] = {}

        def write(place: Place | None) -> None:
            taken_in = self.known.deletes.read(self.files.store, replaced[place])
            living = self._of_living_files(taken_in, tip, gone)
            rows = merge_positions([by_place[place], living])
            file = write_deletes(self.files, rows, place)
            contents[file.path] = rows
            written.append((file, rows.keys()))

        try:
            if len(by_place) == 1:
                write(*by_place)
            else:
                with ThreadPoolExecutor(min(WRITE_THREADS, len(by_place))) as pool:
                    list(pool.map(write, by_place))
        except BaseException:
            self._remove(written)
            raise
        former = {each.path: each for each in chain(unused, *replaced.values())}
        return Deletes(positions, written, list(former.values()), contents)

    def _remove(self, written: Iterable[tuple[NewFile, Collection[str]]]) -> None:
        """Remove delete files that no commit has."""
        remove_all(self.files.store, {file.path for file, _ in written})

    def _listed(self, tip: int | None) -> Sequence[LiveFile]:
        """The branch's files at ``tip``; 40001 if they are not known."""
        live = self.known.listed
        if live is None or live.files is None or live.tip != tip:
            raise changed_meanwhile(self.ident)
        return live.files

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
        added_deletes = [file for file, _ in deletes.files]
        now = time.monotonic()
        old = (own.files for own in parts.staged if own.may_be_gone(now))
        new = chain(parts.files, added_deletes)
        change = FileChange(
            self.files.layout_id,
            added=parts.files,
            added_deletes=added_deletes,
            removed=parts.removed,
            changes_rows=True,
            removed_deletes=deletes.replaced,
            summary=properties,
            expected_tip=tip,
            stored=confirmed(self.files.store, new, but=chain.from_iterable(old)),
            may_hold=self.may_hold,
        )
        what = f'writing to lake table "{self.ident}"'
        totals = self.commits.commit_files(self.ident, self.branch, change, what)
        gone = {file.path for file in parts.removed}
        before = self.known.listed
        live = after_commit(before, totals, parts.files, deletes, self.dead, gone)
        self.known.listed = None if self.files.has_vectors and _numbers_rows(live) else live
        self.known.deletes.drop(deletes.replaced)
        for file, _ in deletes.files:
            if not file.vector:
                self.known.deletes.add(file, deletes.contents.get(file.path))
        if before is not None and before.files is not None:  # the branch's rows are looked up
            for place, small in parts.small.items():
                self.known.rows.hold(small, parts.placed[place])
        if not (deletes.files or parts.removed):
            return parts.counts
        return replace(parts.counts, rows=totals.rows, deleted=totals.deleted)

    def _of_living_files(
        self, places: RowPositions, tip: int | None, gone: Collection[str]
    ) -> RowPositions:
        """The positions, without positions in data files that the branch is known to have lost.

        The commit removes the data files ``gone``.
        """
        live = self.known.listed
        if live is None or live.files is None or live.tip != tip:
            return places
        paths = {file.path for file in live.files if file.path not in gone}
        return {path: each for path, each in places.items() if path in paths}


def _numbers_rows(live: FileList | None) -> bool:
    """Did the commit give numbers to rows? Iceberg numbers every unnumbered row, unreported."""
    files = () if live is None or live.files is None else live.files
    return any(file.first_row_id is None for file in files)
