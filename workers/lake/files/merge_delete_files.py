"""How the files of deletes are kept few, for each of them is opened by whoever reads.

A batch leaves one file with the places of the rows it has deleted, in whatever data files they are.
To write all earlier places again with them, as a MERGE does, costs more the more rows are deleted;
so every so often the next file takes the small ones before it in. Such a file concerns every
reader of the table. Upkeep writes them anew, a file for each data file, which a vacuum can go by;
and the deletes of data files that are gone go then, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from config.limits import BATCH_DELETE_FILES, LARGE_DELETE_FILE_ROWS, MERGED_DELETES_ROWS
from workers.lake.connect.session import LakeSession
from workers.lake.files.position_deletes import RowPositions, read_deletes, together, write_deletes
from workers.lake.files.table_layout import TableLayout
from workers.lake.interfaces.table_api import FileChange, FileCommits
from workers.lake.metadata.snapshots import OPERATION
from workers.lake.sql.statements import sql_text, table_path, text
from workers.lake.staged_rows import NewFile
from workers.lake.storage.store import TableStore
from workers.lake.table import LakeIdent


@dataclass(slots=True)
class DeleteFiles:
    """The small files of deletes that this process has committed to a branch.

    A branch that anything failed on is used no more, and what was deleted there is not: this goes
    with it.
    """

    small: list[NewFile] = field(default_factory=list)

    def full(self) -> list[NewFile]:
        """Those that the next one is to replace."""
        return list(self.small) if len(self.small) >= BATCH_DELETE_FILES else []

    def forget(self) -> None:
        """Somebody else has written to the branch, and may have replaced them."""
        self.small.clear()

    def drop(self, gone: Sequence[NewFile]) -> None:
        """These are no files of the branch any more."""
        paths = {each.path for each in gone}
        self.small = [file for file in self.small if file.path not in paths]

    def add(self, file: NewFile, replaced: Sequence[NewFile]) -> None:
        """It is committed, and has replaced others."""
        if replaced:
            self.small.clear()
        if file.rows < LARGE_DELETE_FILE_ROWS:
            self.small.append(file)


def read_all(store: TableStore, files: Iterable[NewFile]) -> RowPositions:
    """All places that files hold."""
    return together(read_deletes(store, file.path) for file in files)


def merge_deletes(
    commits: FileCommits, session: LakeSession, ident: LakeIdent, branch: str, table: TableLayout
) -> None:
    """Make one file of all deletes that a data file of the branch has; drop those of no file.

    Nothing else may write to the branch meanwhile. Leaves a snapshot without a stamp, or none.
    """
    what = f'writing the deletes of lake table "{ident}" together'
    tip = commits.tip(ident, branch, what)
    found = session.query(list_deletes(ident, branch), what)
    columns = zip(*(column.to_pylist() for column in found.columns), strict=True)
    files = [NewFile(*each) for each in columns]
    live: set[Any] = set(session.query(list_data(ident, branch), what).column(0).to_pylist())
    replaced = to_replace(files, live)
    if not replaced:
        return
    places = read_all(
        table.store, (file for file in replaced if file.of is None or file.of in live)
    )
    change = FileChange(
        table.shape,
        added_deletes=[
            write_deletes(table, {path: each}) for path, each in places.items() if path in live
        ],
        removed_deletes=replaced,
        summary={OPERATION: f"deletes-{tip}"},
        expected_tip=tip,
    )
    commits.commit_files(ident, branch, change, what)


def to_replace(files: Sequence[NewFile], live: set[str]) -> list[NewFile]:
    """The files of deletes to write anew, or to drop: all but those that are alone.

    What a data file has is written anew as a whole, or a vacuum would count a part of it; more
    than there is memory for, the files of no data file in particular alone.
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
    """The branch's files of positions: path, size, rows, and the data file they are of, if one."""
    return sql_text(
        "SELECT file_path, file_size_in_bytes, record_count, referenced_data_file FROM",
        table_path(ident, "delete_files"),
        "VERSION AS OF",
        text(branch),
        "WHERE content = 1 AND file_format = 'PARQUET'",
    )


def list_data(ident: LakeIdent, branch: str) -> str:
    """The branch's data files."""
    return sql_text(
        "SELECT file_path FROM", table_path(ident, "data_files"), "VERSION AS OF", text(branch)
    )
