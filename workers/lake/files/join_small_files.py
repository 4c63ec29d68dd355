"""Writing small data files together without Spark, between two batches.

A batch leaves a file of some rows, and whoever reads the table opens all of them: 5 ms for each.
Spark's rewrite_data_files takes 0.3 s and more, in which the next batch waits, and what is known of
the branch's files is to be read again behind it. Here the living rows are read by their places, as
an update's are, and written to one file; one commit replaces the others. Files of deletes that
concern none but these go with them; in others their places go when those are next written together.

What comes of that is small, too, beside a whole file: at a hundred transactions a second 1 MB every
five minutes, and whoever looks for a row opens them all. So four files of one size are written
together as well, if they are of so few rows that four of them are not too many: those of a copy
stay as they are, though they may be no larger.

Rows are numbered in format 3, and a file of numbers is not the only one that tells them: those
tables are Spark's, and whatever is not read here.

Trace: files A, B, C of 3 rows each; B's second row is deleted. D gets the other eight; the commit
has D for A, B, C. The worker dies before it: D is nobody's and goes as an orphan. Behind it: the
branch has D, nobody publishes it, ``main`` has A, B, C.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import count, takewhile

import numpy as np
import pyarrow as pa

from config.limits import JOIN_STEP_FILES, JOINED_ROWS
from workers.lake.effects import FileSizes
from workers.lake.files.branch_files import BranchFiles, Deletes, after_commit
from workers.lake.files.data_files import write_rows
from workers.lake.files.deleted_rows import DeletedRowsCache
from workers.lake.files.read_rows import Unreadable, rows_of
from workers.lake.files.table_layout import TableLayout
from workers.lake.interfaces.table_api import FileChange, FileCommits
from workers.lake.metadata.snapshots import OPERATION
from workers.lake.staged_rows import FileList, LiveFile, NewFile
from workers.lake.storage.store import TableStore
from workers.lake.table import LakeIdent

Sized = tuple[LiveFile, int]
"""A data file and its bytes."""


def join_small(
    commits: FileCommits,
    ident: LakeIdent,
    branch: str,
    files: TableLayout,
    known: BranchFiles,
    dead: DeletedRowsCache,
    sizes: FileSizes,
) -> tuple[int, int] | None:
    """Make one file of the branch's small ones, without deleted rows; None where Spark has to.

    Nothing else may write to the branch meanwhile. Leaves a snapshot without a stamp, or none. How
    many data files went, and how many files of deletes there are then beyond one for each.
    """
    what = f'compacting lake table "{ident}"'
    live = known.live or commits.list_files(ident, branch, what)
    known.live = live
    if live.files is None:
        return None
    small = choose_small(files.store, live.files, sizes)
    if not small:
        return 0, 0
    written: list[NewFile] = []
    try:
        living = _living(files, [file for file, _ in small], dead)
        write_rows(files, living, written.append)
    except BaseException as error:
        for file in written:
            files.store.remove(file.path)
        if isinstance(error, Unreadable | pa.ArrowException):
            return None
        raise
    finally:
        pa.default_memory_pool().release_unused()
    gone = {file.path for file, _ in small}
    kept = [file for file in live.files if file.path not in gone]
    dropped = _of_none(live.files, kept)
    change = FileChange(
        files.shape,
        added=written,
        removed=[NewFile(file.path, size, file.rows) for file, size in small],
        removed_deletes=dropped,
        summary={OPERATION: f"join-{live.tip}"},
        expected_tip=live.tip,
    )
    totals = commits.commit_files(ident, branch, change, what)
    known.deletes.drop(dropped)
    known.live = after_commit(FileList(live.tip, tuple(kept)), totals, written, Deletes(), dead)
    if known.live is None:
        known.forget()
    return len(small), totals.idle_deletes


def choose_small(store: TableStore, files: Sequence[LiveFile], sizes: FileSizes) -> list[Sized]:
    """The small files with their sizes, as many as one file should hold; none if they are few."""
    return choose([(file, store.size(file.path)) for file in files], sizes)


def choose(known: Sequence[Sized], sizes: FileSizes) -> list[Sized]:
    """``choose_small`` of files whose sizes are known."""
    small = _as_many(((file, size) for file, size in known if size < sizes.bar), sizes.whole)
    larger = _four_of_a_size(known, sizes)
    return [*small, *larger] if larger or len(small) >= sizes.few else []


def _four_of_a_size(known: Sequence[Sized], sizes: FileSizes) -> list[Sized]:
    """Files of the highest step with enough of them, and of those below; none if none has."""
    most = JOINED_ROWS // JOIN_STEP_FILES
    light = [each for each in known if each[1] >= sizes.bar and each[0].rows <= most]
    steps = (sizes.bar * JOIN_STEP_FILES**n for n in count(1))
    bars = takewhile(lambda bar: 0 < bar <= sizes.whole // JOIN_STEP_FILES, steps)
    for bar in reversed(list(bars)):
        if sum(bar // JOIN_STEP_FILES <= size < bar for _, size in light) >= JOIN_STEP_FILES:
            below = ((file, size) for file, size in light if size < bar)
            return _as_many(below, sizes.whole, JOINED_ROWS)
    return []


def _as_many(of: Iterable[Sized], room: int, rows: int | None = None) -> list[Sized]:
    """As there is room for, those of few rows first."""
    chosen = []
    for file, size in sorted(of, key=lambda each: each[0].rows):
        if size <= room and (rows is None or file.rows <= rows):
            chosen.append((file, size))
            room -= size
            rows = None if rows is None else rows - file.rows
    return chosen


def _of_none(before: Sequence[LiveFile], kept: Sequence[LiveFile]) -> list[NewFile]:
    """The files of deletes that concern none of the data files that are kept.

    Iceberg drops some of them by itself, those that are older than all data files: so none may stay
    among those that are known.
    """
    still = {each.path for file in kept for each in file.deletes}
    known = {each.path: each for file in before for each in file.deletes}
    return [each for path, each in known.items() if path not in still]


def _living(
    files: TableLayout, small: Sequence[LiveFile], dead: DeletedRowsCache
) -> Iterator[pa.RecordBatch]:
    """The rows that are not deleted, as the table has its columns now."""
    for file in small:
        places = np.arange(file.rows)
        for part in rows_of(
            files.store, file, places[dead.living(files.store, file, places)], list(files.schema)
        ):
            for batch in part.to_batches():
                yield pa.RecordBatch.from_arrays(batch.columns, schema=files.schema)
