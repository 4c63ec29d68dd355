"""Apply changes whose new rows are in data files already: the keys are looked up at the commit.

The parts of a transaction (``ChangesAhead``) wrote the last row of every changed key of the part.
Only the look-up tells which rows exist. So all keys of several parts are looked up together, and
deletes do the rest: of the rows that the changes replace, in the table or in a file of an earlier
part, and of new rows for which no row exists (update_missing).

Trace: part 1 updates keys 1 and 9, part 2 updates key 1 and deletes key 2. The table has 1 and 2::

    line        key   the row exists   deleted
    0 update    1     yes              the table's row 1, and row 0 of part 1's file (line 2)
    1 update    9     no               row 1 of part 1's file
    2 update    1     yes
    3 delete    2     yes              the table's row 2
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import InternalError
from workers.columnar.key_search import KeyNumbers, Numbers, numbers_of
from workers.lake.effects import Counts
from workers.lake.files.position_deletes import RowPositions
from workers.lake.segment import DELETE_LINE, INSERT_LINE, UPDATE_LINE, ChangesAhead
from workers.lake.staged_rows import OwnFiles
from workers.lake.storage.staging import staged_columns

Ops = npt.NDArray[np.int8]
Bools = npt.NDArray[np.bool_]


class NotAhead(Exception):  # noqa: N818 - no error: the changes are applied without the files
    """The changes cannot be applied by deletes alone."""


@dataclass(frozen=True, slots=True)
class Lines:
    """The lines of several parts, in order: ``op``, the key, and the first line with the key."""

    op: Ops
    keys: pa.Array[Any]
    first: Numbers

    def to_look_up(self) -> pa.Table:
        """Each key once, as ``RowLookup`` takes keys; ``k`` is the key's first line."""
        lines = np.arange(len(self.op))
        firsts = self.first == lines
        if firsts.all():
            return pa.table({"k": pa.array(lines), "b0": self.keys})
        own = pa.array(lines[firsts])
        return pa.table({"k": own, "b0": self.keys.take(own)})


@dataclass(frozen=True, slots=True)
class Decided:
    """What the lines do: the numbers of rows, and which new rows are deleted, by new row."""

    counts: Counts
    dead: Bools


def lines_of(ahead: Sequence[ChangesAhead]) -> Lines:
    """Read the lines of several parts."""
    read = pa.concat_tables([staged_columns(each.keys, ["op", "b0"]) for each in ahead])
    op, keys = (read[name].combine_chunks() for name in ("op", "b0"))
    numbers = numbers_of([keys])
    known = KeyNumbers(numbers)
    first = np.arange(len(numbers)) if known.distinct else known.search(numbers)[1]
    return Lines(op.to_numpy(), keys, first)


def decide(lines: Lines, found: Numbers) -> Decided:
    """Follow the lines of each key; ``found`` are the first lines of the keys in the table.

    Raises ``NotAhead`` if two rows have a key, or would have: the error is raised elsewhere.
    """
    op = lines.op
    in_table = np.zeros(len(op), np.bool_)
    in_table[found] = True
    if np.count_nonzero(in_table) < len(found):
        raise NotAhead
    exists, replaced = _walk(lines, in_table)
    if (exists & (op == INSERT_LINE)).any():
        raise NotAhead
    updates, deletes = op == UPDATE_LINE, op == DELETE_LINE
    dead = replaced | (updates & ~exists)
    counts = Counts(
        appended=int((op == INSERT_LINE).sum()),
        merged=int((exists & ~(op == INSERT_LINE)).sum()),
        update_missing=int((updates & ~exists).sum()),
        delete_missing=int((deletes & ~exists).sum()),
    )
    return Decided(counts, dead[~deletes])


def _walk(lines: Lines, in_table: Bools) -> tuple[Bools, Bools]:
    """For each line: has a row the key before the line, and does a later line follow for the key?

    An update leaves the answer as before, an insert and a delete give the answer.
    """
    op, first = lines.op, lines.first
    exists, followed = in_table[first], np.zeros(len(op), np.bool_)
    repeated = np.bincount(first, minlength=len(op))[first] > 1
    if not repeated.any():
        return exists, followed
    of = np.flatnonzero(repeated)
    of = of[np.argsort(first[of], kind="stable")]  # key by key, each in the order of the lines
    begins = np.ones(len(of), np.bool_)
    begins[1:] = first[of[1:]] != first[of[:-1]]
    before = np.concatenate([[np.int8(UPDATE_LINE)], op[of[:-1]]])  # the line before, if any
    is_told = begins | (before != UPDATE_LINE)
    told = np.where(begins, exists[of], before == INSERT_LINE)
    last = np.maximum.accumulate(np.where(is_told, np.arange(len(of)), 0))
    exists[of] = told[last]
    followed[of[:-1]] = ~begins[1:]
    return exists, followed


def dead_rows(ahead: Sequence[ChangesAhead], dead: Bools) -> RowPositions:
    """The positions of deleted new rows in the files of the parts."""
    if not dead.any():
        return {}
    at = 0
    found: dict[str, Numbers] = {}
    for file in chain.from_iterable(own_of(each).files for each in ahead):
        positions = np.flatnonzero(dead[at : at + file.rows])
        if len(positions):
            found[file.path] = positions
        at += file.rows
    return found


def own_of(ahead: ChangesAhead) -> OwnFiles:
    """The data files of a part."""
    if ahead.rows.own is None:
        raise InternalError("changes ahead of the commit have no files")
    return ahead.rows.own


def in_groups(ahead: Sequence[ChangesAhead], most: int) -> Iterator[tuple[ChangesAhead, ...]]:
    """Parts with ``most`` lines together, or a single part with more."""
    group: list[ChangesAhead] = []
    lines = 0
    for each in ahead:
        if group and lines + each.keys.rows > most:
            yield tuple(group)
            group, lines = [], 0
        group.append(each)
        lines += each.keys.rows
    if group:
        yield tuple(group)
