"""Vacuum without Spark, between two batches: write files again without their deleted rows.

Why: Spark takes 6 to 13 s to write a table of 3 M rows again beside a backlog, and 200 MB more
memory. The worker knows the deleted rows of every file, and has them in memory.

How: the files with the largest share of deleted rows are chosen, up to a number of bytes. The rows
that are not deleted go to new files, and a commit replaces the files (``replace_files``). The next
vacuum takes the next files. Spark vacuums where this room cannot read a file, where the first file
alone is larger than that number of bytes, and in format 3, where a row has a number. Where no file
has enough deleted rows, the deletes are of files that are gone: Spark's vacuum drops such deletes.

Trace: ``a`` has 100 rows and 60 are deleted, ``b`` has 100 and 30 are deleted, ``c`` has 100 and
none is. With a share of 0.1 and room for one file, ``a`` is replaced by a file of 40 rows. The next
turn takes ``b``. If the worker dies before the commit, the new file is an orphan.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from workers.lake.effects import FileSizes
from workers.lake.files.branch_commit import BranchCommits
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.join_small_files import Sized, compacting, replace_files, sized
from workers.lake.files.read_rows import Unreadable
from workers.lake.staged_rows import LiveFile
from workers.lake.storage.store import TableStore, for_each


def vacuum(target: BranchCommits, sizes: FileSizes, share: float) -> tuple[int, int] | None:
    """Write files again of whose rows at least ``share`` are deleted; None if Spark has to vacuum.

    Else as ``join_small``.
    """
    live = target.list_files(compacting(target))
    try:
        chosen = choose(target.files.store, live.files or (), target.dead, sizes.at_once, share)
    except Unreadable:
        return None
    return replace_files(target, live, chosen, "vacuum") if chosen else None


def choose(
    store: TableStore, files: Sequence[LiveFile], dead: DeletedRowsCache, room: int, share: float
) -> list[Sized]:
    """The files with the most deleted rows up to ``room`` bytes; none if the first is larger."""
    perhaps = [file for file in files if file.rows and _most_deleted(file) >= share * file.rows]
    shares = for_each(store, partial(_deleted_share, store, dead), perhaps)
    due = [each for each in zip(shares, perhaps, strict=True) if each[0] and each[0] >= share]
    chosen: list[Sized] = []
    for _, file in sorted(due, key=lambda found: -found[0]):
        each = sized(store, file)
        if each[1] > room:
            break
        chosen.append(each)
        room -= each[1]
    return chosen


def _most_deleted(file: LiveFile) -> int:
    """A number that the deleted rows do not exceed, without reading a delete file."""
    return sum(each.rows for each in file.deletes)


def _deleted_share(store: TableStore, dead: DeletedRowsCache, file: LiveFile) -> float:
    return dead.deleted(store, file) / file.rows
