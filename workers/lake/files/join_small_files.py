"""Join small data files without Spark, between two batches.

Why: every batch leaves a small data file. A reader of the table opens all files, and a file costs
5 ms. Spark's rewrite_data_files takes 0.3 s and more; the next batch waits, and the list of the
branch's files has to be read again afterwards.

How: the rows of the small files that are not deleted are read and written to a new file. A commit
replaces the small files by the new file. Delete files that concern only the replaced files go with
them. In further delete files the positions stay until the delete files are merged.

The joined files are still small beside a full file: at a hundred transactions a second, 1 MB every
five minutes, and every look-up opens all of them. So four files of similar size are joined too,
provided the result is not too many rows to join again. Files of a copy have more rows and stay.

Files of different partitions are never joined. Rows of a former partition spec go to the partitions
of the table's present spec.

In format 3 a row has a number, which may stand in the file or follow from the position. Spark joins
the files of format 3, and every file that this room cannot read.

Trace: files A, B and C have 3 rows each; the second row of B is deleted. D gets the remaining eight
rows, and a commit replaces A, B and C by D. If the worker dies before the commit, D is an orphan.
If the worker dies after the commit, the branch has D and is never published; ``main`` has A, B and
C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, takewhile

import pyarrow as pa

from config.limits import JOIN_STEP_FILES, JOINED_ROWS
from workers.freed_memory import give_back
from workers.lake.effects import FileSizes
from workers.lake.files.branch_commit import BranchCommits
from workers.lake.files.branch_files import Deletes, after_commit, unused_deletes
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.read_rows import Unreadable, iter_rows_at, read_together
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.write_rows import write_ahead
from workers.lake.interfaces.table_api import FileChange
from workers.lake.metadata.snapshots import OPERATION
from workers.lake.staged_rows import FileList, LiveFile, NewFile, Place
from workers.lake.storage.store import TableStore, confirmed, for_each, remove_all

Sized = tuple[LiveFile, int]
"""A data file and the file's size in bytes."""


def join_small(target: BranchCommits, sizes: FileSizes) -> tuple[int, int] | None:
    """Join the branch's small files, without deleted rows; None if Spark has to join them.

    No second writer may use the branch meanwhile. Adds a snapshot without a position, or none.
    Returns how many data files were replaced, and how many delete files the branch has beyond one
    for each data file.
    """
    live = target.list_files(compacting(target))
    if live.files is None:
        return None
    small = [
        each
        for of_one_place in by_place(live.files).values()
        for each in choose_small(target.files.store, of_one_place, sizes)
    ]
    return replace_files(target, live, small, "join") if small else (0, 0)


def compacting(target: BranchCommits) -> str:
    """What a rewrite of a branch's files is doing, for messages."""
    return f'compacting lake table "{target.ident}"'


def replace_files(
    target: BranchCommits, live: FileList, chosen: Sequence[Sized], why: str
) -> tuple[int, int] | None:
    """Replace files of the branch, of which ``live`` are all, by files without the deleted rows.

    Answers as ``join_small``. The summary of the snapshot says ``why``.
    """
    files, known = target.files, target.known
    written: list[NewFile] = []
    try:
        write_ahead(files, _living(files, chosen, target.dead), written.append)
    except BaseException as error:
        remove_all(files.store, [file.path for file in written])
        if isinstance(error, Unreadable | pa.ArrowException):
            return None
        raise
    finally:
        give_back()
    gone = {file.path for file, _ in chosen}
    dropped = unused_deletes(live.files or (), gone)
    change = FileChange(
        files.layout_id,
        added=written,
        removed=[NewFile(file.path, size, file.rows, place=file.place) for file, size in chosen],
        removed_deletes=dropped,
        summary={OPERATION: f"{why}-{live.tip}"},
        expected_tip=live.tip,
        stored=confirmed(files.store, written),
    )
    what = compacting(target)
    totals = target.commits.commit_files(target.ident, target.branch, change, what)
    known.deletes.drop(dropped)
    known.listed = after_commit(live, totals, written, Deletes(), target.dead, gone)
    if known.listed is None:
        known.forget()
    return len(chosen), totals.idle_deletes


def by_place(files: Iterable[LiveFile]) -> dict[Place | None, list[LiveFile]]:
    """The files of each partition."""
    found: dict[Place | None, list[LiveFile]] = {}
    for file in files:
        found.setdefault(file.place, []).append(file)
    return found


def choose_small(store: TableStore, files: Sequence[LiveFile], sizes: FileSizes) -> list[Sized]:
    """The small files to join, up to the size of a full file; empty if only a few are small."""
    return choose([sized(store, file) for file in files], sizes)


def sized(store: TableStore, file: LiveFile) -> Sized:
    """A file with the size, which the store is asked for if the table does not say."""
    return file, store.size(file.path) if file.size is None else file.size


def choose(known: Sequence[Sized], sizes: FileSizes) -> list[Sized]:
    """``choose_small`` for files of known size."""
    small = _choose_up_to(((file, size) for file, size in known if size < sizes.bar), sizes.whole)
    larger = _four_of_a_size(known, sizes)
    return [*small, *larger] if larger or len(small) >= sizes.few else []


def _four_of_a_size(known: Sequence[Sized], sizes: FileSizes) -> list[Sized]:
    """The files up to the largest size of which four files exist; empty if no size has four.

    Sizes grow by a factor of four from step to step.
    """
    most = JOINED_ROWS // JOIN_STEP_FILES
    light = [each for each in known if each[1] >= sizes.bar and each[0].rows <= most]
    steps = (sizes.bar * JOIN_STEP_FILES**n for n in count(1))
    bars = takewhile(lambda bar: 0 < bar <= sizes.whole // JOIN_STEP_FILES, steps)
    for bar in reversed(list(bars)):
        if sum(bar // JOIN_STEP_FILES <= size < bar for _, size in light) >= JOIN_STEP_FILES:
            below = ((file, size) for file, size in light if size < bar)
            return _choose_up_to(below, sizes.whole, JOINED_ROWS)
    return []


def _choose_up_to(of: Iterable[Sized], room: int, rows: int | None = None) -> list[Sized]:
    """Choose files up to ``room`` bytes and ``rows`` rows, files of few rows first."""
    chosen = []
    for file, size in sorted(of, key=lambda each: each[0].rows):
        if size <= room and (rows is None or file.rows <= rows):
            chosen.append((file, size))
            room -= size
            rows = None if rows is None else rows - file.rows
    return chosen


def _living(
    files: TableLayout, small: Sequence[Sized], dead: DeletedRowsCache
) -> Iterator[pa.RecordBatch]:
    """The rows that are not deleted, with the table's present columns.

    Small files of an object store are read several at a time.
    """
    if files.store.has_cheap_requests:
        for file, _ in small:
            yield from _living_of(files, dead, file)
        return
    for group in read_together(small):
        if len(group) == 1:  # perhaps a large one
            yield from _living_of(files, dead, group[0])
            continue
        for batches in for_each(
            files.store, lambda file: list(_living_of(files, dead, file)), group
        ):
            yield from batches


def _living_of(
    files: TableLayout, dead: DeletedRowsCache, file: LiveFile
) -> Iterator[pa.RecordBatch]:
    """The rows of a file that are not deleted."""
    living = dead.living(files.store, file)
    for part in iter_rows_at(files.store, file, living, list(files.schema)):
        for batch in part.to_batches():
            yield pa.RecordBatch.from_arrays(batch.columns, schema=files.schema)
