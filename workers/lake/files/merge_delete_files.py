"""Merge delete files: a reader of the table opens every delete file, so the files must stay few.

Two mechanisms:

1. A batch writes a single delete file, for all data files concerned. Writing all earlier positions
   again in the file, as a MERGE does, would cost more with every deleted row. So the next delete
   file takes in the small delete files before only when ``BATCH_DELETE_FILES`` of them exist. In a
   table with partitions each partition has delete files: as long as they have few rows, every next
   one takes the former in.
2. Such a shared delete file concerns every reader of the table. Maintenance (``merge_deletes``)
   writes a delete file for each data file, and vacuum can then count the deleted rows of a data
   file. Deletes of data files that the branch no longer has are dropped.

Trace of 2: the branch has data files ``a`` and ``b``, and the shared delete files ``d1: {a: [1]}``
and ``d2: {a: [4], b: [0], x: [7]}``; data file ``x`` is gone. The commit replaces ``d1`` and ``d2``
by ``{a: [1, 4]}`` and ``{b: [0]}``. If the worker dies before the commit, the two new files are
orphans.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from config.limits import BATCH_DELETE_FILES, LARGE_DELETE_FILE_ROWS, MERGED_DELETES_ROWS
from config.monitor_limits import HELD_DELETES_ROWS, TAKEN_IN_DELETES_ROWS
from workers.lake.connect.session import LakeSession
from workers.lake.files.position_deletes import (
    RowPositions,
    merge_positions,
    read_deletes,
    write_deletes,
)
from workers.lake.files.table_layout import TableLayout
from workers.lake.interfaces.table_api import FileChange, FileCommits
from workers.lake.metadata.snapshots import OPERATION
from workers.lake.sql.statements import sql_text, table_path, text
from workers.lake.staged_rows import LiveFile, NewFile, Place
from workers.lake.storage.store import TableStore, confirmed, for_each
from workers.lake.table import LakeIdent


@dataclass(slots=True)
class DeleteFiles:
    """The small delete files that this process committed to a branch.

    After a failure the branch is abandoned, and this list with the branch.
    """

    _small: dict[Place | None, list[NewFile]] = field(default_factory=dict)
    _held: dict[str, RowPositions] = field(default_factory=dict)
    _held_rows: int = 0

    def full(self, place: Place | None = None) -> list[NewFile]:
        """The delete files that the next delete file of the place has to take in."""
        of_place = self._small.get(place, [])
        rows = sum(each.rows for each in of_place)
        is_held = all(each.path in self._held for each in of_place)
        if place is not None and is_held and rows <= TAKEN_IN_DELETES_ROWS:
            return list(of_place)
        return list(of_place) if len(of_place) >= BATCH_DELETE_FILES else []

    def forget(self) -> None:
        """Empty the list: Spark has written to the branch and may have replaced the files."""
        self._small.clear()
        self._held.clear()
        self._held_rows = 0

    def drop(self, gone: Sequence[NewFile]) -> None:
        """Take files that left the branch off the list."""
        if not gone:
            return
        paths = {each.path for each in gone}
        for place, files in list(self._small.items()):
            self._small[place] = [file for file in files if file.path not in paths]
            if not self._small[place]:
                del self._small[place]
        for each in gone:
            if self._held.pop(each.path, None) is not None:
                self._held_rows -= each.rows

    def add(self, file: NewFile, content: RowPositions | None = None) -> None:
        """Add a committed delete file.

        The ``content`` of some rows is held: the file need not be read to be taken in.
        """
        if file.rows >= LARGE_DELETE_FILE_ROWS:
            return
        self._small.setdefault(file.place, []).append(file)
        if content is not None and self._held_rows + file.rows <= HELD_DELETES_ROWS:
            self._held[file.path] = content
            self._held_rows += file.rows

    def read(self, store: TableStore, files: Iterable[NewFile]) -> RowPositions:
        """The positions in several delete files of the list."""
        known = ((file, self._held.get(file.path)) for file in files)
        return merge_positions(
            read_deletes(store, file) if held is None else held for file, held in known
        )


def read_all_deletes(store: TableStore, files: Iterable[NewFile]) -> RowPositions:
    """Read several delete files."""
    return merge_positions(for_each(store, partial(read_deletes, store), list(files)))


def merge_deletes(
    commits: FileCommits, session: LakeSession, ident: LakeIdent, branch: str, table: TableLayout
) -> bool:
    """Write a delete file for each data file of the branch; drop deletes of files that are gone.

    No second writer may use the branch meanwhile. Adds a snapshot without a position, or none.
    False if deletes of files that are gone may stay: in a table with partitions only Iceberg lists
    delete files with their places, and lists no delete file without a data file.
    """
    what = f'writing the deletes of lake table "{ident}" together'
    if table.has_places:
        listed = commits.list_files(ident, branch, what)
        live = {file.path: file for file in listed.files or ()}
        deletes = {each.path: each for file in live.values() for each in file.deletes}
        _merge(commits, ident, branch, table, listed.tip, list(deletes.values()), live, what)
        return False
    tip = commits.tip(ident, branch, what)
    found = session.query(list_deletes(ident, branch), what)
    columns = zip(*(column.to_pylist() for column in found.columns), strict=True)
    files = [NewFile(*each) for each in columns]
    paths = session.query(list_data(ident, branch), what).column(0).to_pylist()
    live = {str(path): LiveFile(str(path), 0) for path in paths}
    _merge(commits, ident, branch, table, tip, files, live, what)
    return True


def _merge(
    commits: FileCommits,
    ident: LakeIdent,
    branch: str,
    table: TableLayout,
    tip: int,
    files: Sequence[NewFile],
    live: Mapping[str, LiveFile],
    what: str,
) -> None:
    replaced = to_replace(files, set(live))
    if not replaced:
        return
    places = read_all_deletes(
        table.store, (file for file in replaced if file.of is None or file.of in live)
    )
    written = for_each(
        table.store,
        lambda path: write_deletes(table, {path: places[path]}, live[path].place),
        [path for path in places if path in live],
    )
    change = FileChange(
        table.layout_id,
        added_deletes=written,
        removed_deletes=replaced,
        summary={OPERATION: f"deletes-{tip}"},
        expected_tip=tip,
        stored=confirmed(table.store, written),
    )
    commits.commit_files(ident, branch, change, what)


def to_replace(files: Sequence[NewFile], live: set[str]) -> list[NewFile]:
    """Choose the delete files to write again or to drop: all except a data file's only file.

    All deletes of a data file are written again together: vacuum would otherwise count only a part.
    If memory does not suffice, only shared delete files are chosen.
    """
    shared = [file for file in files if file.of is None]
    of: dict[str, list[NewFile]] = {}
    for file in files:
        if file.of is not None:
            of.setdefault(file.of, []).append(file)
    chosen: list[NewFile] = []
    rows = 0
    for file in sorted(shared, key=lambda each: each.rows):
        rows += file.rows
        if rows > MERGED_DELETES_ROWS and chosen:
            break
        chosen.append(file)
    for path, known in of.items():
        size = sum(file.rows for file in known)
        if path not in live:
            chosen += known
        elif (len(known) > 1 or shared) and rows + size <= MERGED_DELETES_ROWS:
            rows += size
            chosen += known
    return chosen


def list_deletes(ident: LakeIdent, branch: str) -> str:
    """SQL for the branch's delete files: path, size, deletes, and the data file if only one."""
    return sql_text(
        "SELECT file_path, file_size_in_bytes, record_count, referenced_data_file FROM",
        table_path(ident, "delete_files"),
        "VERSION AS OF",
        text(branch),
        "WHERE content = 1 AND file_format = 'PARQUET'",
    )


def list_data(ident: LakeIdent, branch: str) -> str:
    """SQL for the paths of the branch's data files."""
    return sql_text(
        "SELECT file_path FROM", table_path(ident, "data_files"), "VERSION AS OF", text(branch)
    )
