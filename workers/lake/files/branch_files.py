"""What this process knows of a branch that it alone writes to, so as not to ask for it each time.

To list a snapshot's files takes reading its manifests, up to a hundred of them; behind a commit of
ours the files are those before, and what was committed. It is believed as long as the snapshot is
the one of that commit: whoever looks rows up says which snapshot it was, and the next commit is
refused where the branch is at another. A branch that anything failed on is used no more; what is
known goes with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace

from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.merge_delete_files import DeleteFiles
from workers.lake.files.position_deletes import NO_POSITIONS, RowPositions
from workers.lake.interfaces.table_api import FileTotals
from workers.lake.staged_rows import FileList, LiveFile, NewFile


@dataclass(slots=True)
class BranchFiles:
    """The small files of deletes that were committed, and the files of the tip, if known."""

    deletes: DeleteFiles = field(default_factory=DeleteFiles)
    live: FileList | None = None

    def forget(self) -> None:
        """Somebody else has written to the branch: Spark, for this batch."""
        self.deletes.forget()
        self.live = None


@dataclass(frozen=True, slots=True)
class Deletes:
    """What a commit deletes: the ``places`` of rows, the ``files`` that say so, each with the data
    files it concerns, and the files of deletes that these replace."""

    places: RowPositions = field(default_factory=dict)
    files: Sequence[tuple[NewFile, Collection[str]]] = ()
    replaced: Sequence[NewFile] = ()


def after_commit(
    live: FileList | None,
    totals: FileTotals,
    rows: Sequence[NewFile],
    deletes: Deletes,
    dead: DeletedRowsCache,
) -> FileList | None:
    """The branch's files behind a commit of files of rows and of deletes; None where those before
    it are not known. ``dead`` is told of what it deleted."""
    if live is None or live.files is None or totals.parent != live.tip:
        return None
    if not deletes.places.keys() <= {file.path for file in live.files}:
        return None
    gone = {(file.path, file.vector) for file in deletes.replaced}
    files = []
    for file in live.files:
        kept = [each for each in file.deletes if (each.path, each.vector) not in gone]
        kept += [new for new, concerned in deletes.files if file.path in concerned]
        now = replace(file, deletes=tuple(kept))
        if now != file:
            dead.deleted(file, now, deletes.places.get(file.path, NO_POSITIONS))
        files.append(now)
    return FileList(totals.tip, (*files, *(LiveFile(file.path, file.rows) for file in rows)))
