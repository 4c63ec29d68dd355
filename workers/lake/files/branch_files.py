"""The files of a branch, remembered between batches.

Listing a snapshot's files means reading up to a hundred manifests. But only one process writes to a
branch. After a commit of this process the branch has the files from before the commit and the
committed files. So the list is computed, not read.

The list is valid for a single snapshot. A look-up of rows notes the snapshot of the list, and the
next commit is refused if the branch is at a different snapshot. After any failure the branch is
abandoned, and the list with the branch.

Trace: the branch is at snapshot 7 with the files ``a`` and ``b``. A commit adds ``c`` and deletes a
row of ``a`` with the delete file ``d``. Snapshot 8, with parent 7, has ``a`` with ``d``, ``b`` and
``c``. With any other parent than 7 the list is dropped.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.held_rows import HeldRows
from workers.lake.files.merge_delete_files import DeleteFiles
from workers.lake.files.position_deletes import NO_POSITIONS, RowPositions
from workers.lake.interfaces.table_api import FileTotals
from workers.lake.staged_rows import FileList, LiveFile, NewFile


@dataclass(slots=True)
class BranchFiles:
    """A branch's small delete files, held rows, and the list of all files if known."""

    deletes: DeleteFiles = field(default_factory=DeleteFiles)
    rows: HeldRows = field(default_factory=HeldRows)
    listed: FileList | None = None

    def forget(self) -> None:
        """Drop the list: Spark has written to the branch, for this batch."""
        self.deletes.forget()
        self.rows.forget()
        self.listed = None


@dataclass(frozen=True, slots=True)
class Deletes:
    """The deletes of a commit.

    ``places`` are the deleted rows. ``files`` are the new delete files, each with the paths of the
    data files concerned. ``replaced`` are the former delete files that the new ones replace.
    ``contents`` are the positions in the new delete files, by path; vectors have none.
    """

    places: RowPositions = field(default_factory=dict)
    files: Sequence[tuple[NewFile, Collection[str]]] = ()
    replaced: Sequence[NewFile] = ()
    contents: Mapping[str, RowPositions] = field(default_factory=dict)


def unused_deletes(before: Sequence[LiveFile], gone: Collection[str]) -> list[NewFile]:
    """The delete files that concern only the data files ``gone``.

    Iceberg drops delete files that are older than all data files by itself. So the list of the
    branch's delete files must not keep any.
    """
    used = {each.path for file in before if file.path not in gone for each in file.deletes}
    listed = {each.path: each for file in before for each in file.deletes}
    return [each for path, each in listed.items() if path not in used]


def after_commit(
    live: FileList | None,
    totals: FileTotals,
    rows: Sequence[NewFile],
    deletes: Deletes,
    dead: DeletedRowsCache,
    removed: Collection[str] = (),
) -> FileList | None:
    """The branch's files after a commit; None if the files before the commit are unknown.

    Adds the deleted rows to the cache ``dead``. ``removed`` are data files that the commit removes.
    """
    dead.forget(removed)
    if live is None or live.files is None or totals.parent != live.tip:
        return None
    if not deletes.places.keys() <= {file.path for file in live.files}:
        return None
    gone = {(file.path, file.vector) for file in deletes.replaced}
    files = []
    for file in live.files:
        if file.path in removed:
            continue
        kept = [each for each in file.deletes if (each.path, each.vector) not in gone]
        kept += [new for new, concerned in deletes.files if file.path in concerned]
        now = replace(file, deletes=tuple(kept))
        if now != file:
            dead.add_deleted(file, now, deletes.places.get(file.path, NO_POSITIONS))
        files.append(now)
    new = (LiveFile(file.path, file.rows, place=file.place, size=file.size) for file in rows)
    return FileList(totals.tip, (*files, *new))
