"""Small batches of a partitioned table: a partition's new rows take in the last small file's rows.

Why: a small batch has few rows of many partitions, and leaves a data file in each. 100 changes a
second of rows of 90 days left 30 data files and 40 delete files a second. Compaction did not keep
up: a query opened a thousand files and took 11 s.

How: writing a file of a few hundred rows costs as much as writing a file of one row. So the batch
writes the rows of the last small file again, together with the new rows, and the commit replaces
the file. A partition has one such file, whatever the number of batches. The rows are in memory
(``held_rows``); rows deleted since are left out, by earlier batches and by the batch itself. Delete
files that concern only replaced files go too.

A file that has become large stays, and the partition gets a new file. Batches that only add rows
replace nothing: the commit is an append, which readers of new rows can follow.

Trace: file ``a`` of Monday holds rows 1, 2 and 3; an earlier batch deleted row 1 with delete file
``d``. A batch updates row 2, and row 9 of Monday's large file ``m``. File ``b`` holds 3 and the new
2 and 9; a new delete file holds the position of row 9 in ``m`` alone; ``a`` and ``d`` go. If the
worker dies before the commit, the new files are orphans, and the branch has ``a``, ``d`` and ``m``.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import chain

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from config.limits import SMALL_BATCH_ROWS
from config.monitor_limits import SMALL_BATCH_BYTES
from workers.lake.files.branch_commit import BranchCommits, CommitParts
from workers.lake.files.find_rows import entry_of, is_found_here
from workers.lake.files.held_rows import HeldFile
from workers.lake.files.keys.key_cache import KeyCache
from workers.lake.files.keys.written_keys import store_keys
from workers.lake.files.partition_values import in_order, split
from workers.lake.files.partitioned_files import write_placed
from workers.lake.files.position_deletes import NO_POSITIONS, RowPositions, merge_positions
from workers.lake.files.read_rows import Unreadable
from workers.lake.files.table_layout import TableLayout
from workers.lake.staged_rows import LiveFile


def gather(target: BranchCommits, parts: CommitParts, tip: int | None) -> None:
    """Gather the rows of a small batch by partition, with the rows of the small files before.

    The rows of a larger batch stay as they are. In format 3 rows have numbers, which nobody knows
    here: nothing is gathered. ``tip`` is the snapshot in which the batch has looked rows up, None
    without a look-up.
    """
    files, known = target.files, target.known.listed
    if not parts.batches or not files.has_places or files.has_vectors:
        return
    _place_rows(files, parts)
    if tip is not None and known is not None and known.files is not None and known.tip == tip:
        _take_in(target, parts, known.files)
    for place, rows in parts.placed.items():
        parts.placed[place] = in_order(files.order, files.schema, rows)


def _place_rows(files: TableLayout, parts: CommitParts) -> None:
    rows = chain.from_iterable(parts.batches)
    gathered: list[pa.RecordBatch] = []
    count = size = 0
    for batch in rows:
        gathered.append(batch)
        count, size = count + batch.num_rows, size + batch.nbytes
        if count > SMALL_BATCH_ROWS or size > SMALL_BATCH_BYTES:
            parts.batches = [chain(gathered, rows)]
            return
    parts.batches = []
    if count:
        for batch in pa.Table.from_batches(gathered).combine_chunks().to_batches():
            for place, mine in split(files.spec, files.schema, batch):
                more = pa.Table.from_batches([mine])
                parts.placed[place] = _both(parts.placed.get(place), more)


def _take_in(target: BranchCommits, parts: CommitParts, listed: Sequence[LiveFile]) -> None:
    """Add the living rows of held files to the placed rows; the commit removes the files."""
    live = {file.path: file for file in listed}
    positions = merge_positions(parts.deleted)
    parts.deleted = [positions]
    for place, rows in parts.placed.items():
        held = target.known.rows.of(place)
        file = None if held is None else live.get(held.file.path)
        if held is None or file is None or not _fits(held, rows):
            continue
        living = _living(target, file, positions)
        if living is not None:
            parts.placed[place] = _both(held.rows.filter(pa.array(living)), rows)
            parts.removed.append(held.file)


def write_small(files: TableLayout, parts: CommitParts, cache: KeyCache) -> None:
    """Write the placed rows. The cache takes the rows' keys for later look-ups."""
    ready = len(parts.files)
    write_placed(files, parts.placed, parts.files.append)
    parts.small = {file.place: file for file in parts.files[ready:] if file.place is not None}
    for place, file in parts.small.items():
        for key in parts.keys:
            store_keys(cache, files, key, file, parts.placed[place])


def drop_keys(files: TableLayout, parts: CommitParts, cache: KeyCache) -> None:
    """Drop the keys of the files that a commit has removed: they would take others' room."""
    for key in filter(partial(is_found_here, files), parts.keys):
        fields = [files.schema.field(name) for name in key]
        for file in parts.removed:
            cache.drop(entry_of(file.path, file.rows, fields))


def _fits(held: HeldFile, rows: pa.Table) -> bool:
    """May the held rows be written again? After a change of columns they may not."""
    return bool(held.rows.schema.equals(rows.schema, check_metadata=True))


def _living(
    target: BranchCommits, file: LiveFile, positions: RowPositions
) -> npt.NDArray[np.bool_] | None:
    """Which rows of a file neither an earlier batch nor this one deletes; None if not known."""
    try:
        living = target.dead.live_mask(target.files.store, file, np.arange(file.rows))
    except Unreadable:
        return None
    living[positions.get(file.path, NO_POSITIONS)] = False
    return living


def _both(first: pa.Table | None, second: pa.Table) -> pa.Table:
    return second if first is None else pa.concat_tables([first, second]).combine_chunks()
