"""Fold a run of changes to their effect on a table: an entry per row, not per change.

Folding follows *rows*, not keys. Each row that the segment touches has a base key (the key before
the segment; a row born in the segment has none), a final state (the last change, or gone) and a
chain of changes; unsent values are found in the chain:

    base key, alive    merge: UPDATE matched on the base key, setting the key and what was sent
    base key, gone     merge: DELETE matched on the base key
    born here, alive   append
    born here, gone    nothing

So key changes, swaps (1 → -1, 2 → 1, -1 → 2) and chains are a single set-based statement:

    U 1→-1, U 2→1, U -1→2      rows: (base 1, final key 2), (base 2, final key 1)

Most changes share a key with no further change of the segment. These changes are found first, by
hashes alone (``key_table.mark_alone``), and need no chain.

The fold cannot know whether the table has a row with the base key: a base row without a match
changes nothing, as PostgreSQL logs update_missing and goes on. If the segment deleted a row, or
moved the row to a new key, an UPDATE or DELETE of the old key counts as missing.

This fold is complete if the table equals the publisher's: changed rows exist, and given keys are
free. For a table that may differ, ``after_lookup`` looks the keys up first.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import InternalError
from config.limits import CHUNK_BYTES, CHUNK_ROWS
from workers.columnar.column_reader import (
    Changes,
    ColumnReader,
    Layout,
    Refs,
    kernel_error,
    slot_of_ordinal,
)
from workers.columnar.fold.key_table import (
    MOST_CHANGES,
    find_key,
    mark_alone,
    new_table,
    place_key,
    same_row,
)
from workers.columnar.kernel import kernel
from workers.columnar.text_array import Array
from workers.columnar.tuples import (
    DELETE,
    INSERT,
    MISSING,
    OLD_MISSING,
    are_whole,
    place_row,
    readonly,
)

# Numbers of the kernels. A ref is 2 * change for the change's old tuple, and 2 * change + 1 for the
# new tuple. A cell of the key table is 0 (empty) or 1 + entry. An entry is 2 * ref + gone: ref has
# the key's bytes, gone is 1 if no row has the key any more. The links: the change before a change
# of the same row, the row of a change, and the first and the last change of a row.

# Cells of a kernel's state.
_ERROR, _CHANGE, _ROWS, _UPDATES, _DELETES, _CONFLICT = range(6)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A folded segment of a table with a key; read-only, so its batches can be made more than once.

    ``conflict`` is the first change that gives a key to a second row (-1: no conflict). Without a
    lookup the first row may be missing in the table; then ``after_lookup`` decides the segment's
    effect. ``missing_updates`` and ``missing_deletes`` count changes of keys without a row.
    ``unchanged`` names columns whose value a merge row leaves unchanged in the table.
    """

    changes: Changes
    layout: Layout
    prev: npt.NDArray[np.int32]
    base: npt.NDArray[np.int64]  # refs of the base keys, one per merge row
    final: npt.NDArray[np.int64]  # refs of the final tuples, -1 = deleted
    born: Refs  # refs of the final tuples of appended rows
    unchanged: tuple[str, ...]
    conflict: int
    missing_updates: int
    missing_deletes: int

    @property
    def merge_rows(self) -> int:
        """The number of rows in all ``merge_batches``."""
        return len(self.base)

    @property
    def append_rows(self) -> int:
        """The number of rows in all ``append_batches``."""
        return len(self.born)

    @property
    def merge_schema(self) -> pa.Schema:
        """``op`` int8 (0 update, 1 delete), ``b0…`` base key, ``c0…`` values, ``m<i>`` unsent."""
        columns = self.layout.columns
        types = {column.ordinal: column.type for column in columns}
        fields: list[Any] = [("op", pa.int8())]
        fields += [(f"b{at}", types[ordinal]) for at, ordinal in enumerate(self.layout.key)]
        fields += [(f"c{at}", column.type) for at, column in enumerate(columns)]
        fields += [(f"m{at}", pa.bool_()) for at in self._kept()]
        return pa.schema(fields)

    @property
    def append_schema(self) -> pa.Schema:
        """``c0…`` in the order of the layout's columns."""
        return column_schema(self.layout)

    def merge_batches(
        self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Updates and deletes, with distinct base keys; raises ``UnrepresentableValue``."""
        layout, schema = self.layout, self.merge_schema
        by_ordinal = {column.ordinal: column for column in layout.columns}
        keys = ColumnReader(self.changes, layout, [by_ordinal[key] for key in layout.key])
        values = ColumnReader(self.changes, layout, layout.columns, self.prev)
        kept = self._kept()
        for part, arrays, missing in values.chunks(self.final, chunk_rows, chunk_bytes):
            gone, base = self.final[part] < 0, self.base[part]
            masks = np.zeros((len(arrays), len(base)), np.bool_) if missing is None else missing
            for own, key_arrays, _ in keys.chunks(base, len(base)):
                rows = own.stop - own.start
                columns: list[Array] = [pa.array(gone[own].view(np.int8)), *key_arrays]
                columns += [array.slice(own.start, rows) for array in arrays]
                columns += [pa.array(masks[where, own]) for where in kept]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def append_batches(
        self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Rows born in the segment, in order."""
        reader = ColumnReader(self.changes, self.layout, self.layout.columns, self.prev)
        yield from complete_batches(reader, self.born, self.append_schema, chunk_rows, chunk_bytes)

    def _kept(self) -> list[int]:
        return [
            at for at, column in enumerate(self.layout.columns) if column.name in self.unchanged
        ]


def column_schema(layout: Layout) -> pa.Schema:
    """``c0…`` with the types of the layout's columns."""
    return pa.schema([(f"c{at}", column.type) for at, column in enumerate(layout.columns)])


def complete_batches(
    reader: ColumnReader,
    refs: Refs,
    schema: pa.Schema,
    chunk_rows: int,
    chunk_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Batches of rows that must have every value; an unsent value becomes NULL or an error.

    Raises ``UnsentValue`` if the layout does not turn unrepresentable values into NULL.
    """
    for part, arrays, missing in reader.chunks(refs, chunk_rows, chunk_bytes):
        if missing is not None:
            reader.check_unsent(missing, refs[part])
        yield record_batch(arrays, schema, part.stop - part.start)


def record_batch(arrays: list[Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A record batch; a table without columns keeps the number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    empty: Any = pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(empty)


def fold_keyed(changes: Changes, layout: Layout) -> Keyed:
    """Fold a segment by the layout's key.

    A segment of inserts only is not hashed; a table without a key can have only inserts. Raises
    ``ProtocolViolation`` for a key that is NULL or unsent, and for a tuple of a wrong width.
    """
    count = len(changes)
    if count >= MOST_CHANGES:
        raise InternalError("segment has too many changes")
    inserts_only = not count or bool(np.all(changes.kind == INSERT))
    if not layout.key and not inserts_only:
        raise kernel_error(OLD_MISSING, int(np.flatnonzero(changes.kind != INSERT)[0]))
    if inserts_only:
        none, nowhere = np.empty(0, np.int64), np.empty(0, np.int32)
        born = range(1, 2 * count, 2)
        return Keyed(changes, layout, nowhere, none, none, born, (), -1, 0, 0)
    buf = readonly(changes.buf)
    tuples = (changes.old_kind, changes.old_off, changes.new_off)
    key = (slot_of_ordinal(layout, layout.key), max(layout.key))
    scratch = (np.empty((len(layout.key), 3), np.int64), np.empty((len(layout.key), 3), np.int32))
    state = np.zeros(6, np.int64)
    state[_CONFLICT] = -1
    alone = np.zeros(count, np.bool_)
    mark_alone(buf, tuples, key, new_table(_keys(changes, ~alone)), *scratch, alone)
    prev, row_of, first, last = (np.empty(count, np.int32) for _ in range(4))
    table = new_table(_keys(changes, ~alone))
    links = (prev, row_of, first, last)
    _fold(buf, changes.kind, alone, tuples, key, table, scratch, links, state)
    if state[_ERROR]:
        raise kernel_error(int(state[_ERROR]), int(state[_CHANGE]))
    rows = int(state[_ROWS])
    first, last = first[:rows], last[:rows]
    based, alive = first >= 0, last >= 0
    bases = first[based].astype(np.int64)
    finals = last[based].astype(np.int64)
    final = np.where(finals < 0, -1, finals * 2 + 1)
    return Keyed(
        changes=changes,
        layout=layout,
        prev=prev,
        base=bases * 2 + (changes.old_kind[bases] == 0),
        final=final,
        born=last[~based & alive].astype(np.int64) * 2 + 1,
        unchanged=unsent_columns(changes, layout, prev, final[final >= 0]),
        conflict=int(state[_CONFLICT]),
        missing_updates=int(state[_UPDATES]),
        missing_deletes=int(state[_DELETES]),
    )


def _keys(changes: Changes, which: npt.NDArray[np.bool_]) -> int:
    """An upper limit of the number of keys in the changes."""
    moved = changes.old_kind[which & (changes.kind != DELETE)]
    return int(np.count_nonzero(which)) + int(np.count_nonzero(moved))


def unsent_columns(
    changes: Changes, layout: Layout, prev: npt.NDArray[np.int32], refs: npt.NDArray[np.int64]
) -> tuple[str, ...]:
    """Names of the columns without a value in the segment for at least one row of ``refs``.

    ``refs`` are new tuples.
    """
    if are_whole(readonly(changes.buf), changes.new_off, refs, layout.ncols):
        return ()
    reader = ColumnReader(changes, layout, layout.columns, prev)
    flags = np.zeros(len(layout.columns), np.bool_)
    state = np.zeros(2, np.int64)
    _scan(readonly(changes.buf), reader.arrays, prev, refs, reader.slots, flags, state)
    if state[0]:
        raise kernel_error(int(state[0]), int(state[1]))
    return tuple(column.name for column, flag in zip(layout.columns, flags, strict=True) if flag)


@kernel
def _scan(buf: Any, changes: Any, prev: Any, refs: Any, slots: Any, flags: Any, state: Any) -> None:
    loc = np.empty((len(flags), 1), np.int64)
    length = np.empty((len(flags), 1), np.int32)
    for ref in refs:
        missing = place_row(buf, changes, prev, ref, slots, loc, length, 0)
        if missing < 0:
            state[0], state[1] = -missing, ref >> 1
            return
        if missing > 0:
            for where in range(len(flags)):
                if length[where, 0] == MISSING:
                    flags[where] = True


@kernel
def _fold(
    buf: Any,
    kind: Any,
    alone: Any,
    changes: Any,
    key: Any,
    table: Any,
    scratch: Any,
    links: Any,
    state: Any,
) -> None:
    """Follow the rows through the changes; ``links`` is (prev, row_of, first, last)."""
    prev, row_of, first, last = links
    for change in range(len(kind)):
        prev[change] = row_of[change] = -1
        if alone[change]:
            row = row_of[change] = state[_ROWS]
            first[row] = -1 if kind[change] == INSERT else change
            last[row] = -1 if kind[change] == DELETE else change
            state[_ROWS] += 1
            continue
        if kind[change] == INSERT:
            error = _insert(buf, change, changes, key, table, scratch, links, state)
        elif kind[change] == DELETE:
            error = _delete(buf, change, changes, key, table, scratch, links, state)
        else:
            error = _update(buf, change, changes, key, table, scratch, links, state)
        if error:
            state[_ERROR], state[_CHANGE] = error, change
            return


@kernel
def _row(links: Any, state: Any, base: int, last: int) -> Any:
    """Add a row: the change with its base key (-1: born here), and its last change (-1: gone)."""
    row = state[_ROWS]
    links[2][row], links[3][row] = base, last
    state[_ROWS] += 1
    return row


@kernel
def _insert(
    buf: Any, change: int, changes: Any, key: Any, table: Any, scratch: Any, links: Any, state: Any
) -> Any:
    loc, length = scratch
    error = place_key(buf, changes, change * 2 + 1, key, loc, length, 0)
    if error:
        return error
    at = find_key(buf, changes, key, table, loc, length, 0)
    entry = table[at, 0] - 1
    if entry >= 0 and not entry & 1 and state[_CONFLICT] < 0:
        state[_CONFLICT] = change
    links[1][change] = _row(links, state, -1, change)
    table[at, 0] = (change * 4 + 2) + 1
    return 0


@kernel
def _delete(
    buf: Any, change: int, changes: Any, key: Any, table: Any, scratch: Any, links: Any, state: Any
) -> Any:
    loc, length = scratch
    error = place_key(buf, changes, change * 2, key, loc, length, 0)
    if error:
        return error
    at = find_key(buf, changes, key, table, loc, length, 0)
    entry = table[at, 0] - 1
    if entry < 0:
        links[1][change] = _row(links, state, change, -1)
        table[at, 0] = (change * 4 + 1) + 1
    elif entry & 1:
        state[_DELETES] += 1
    else:
        row = links[1][entry >> 2]
        links[1][change] = row
        links[3][row] = -1
        table[at, 0] = (entry | 1) + 1
    return 0


@kernel
def _update(
    buf: Any, change: int, changes: Any, key: Any, table: Any, scratch: Any, links: Any, state: Any
) -> Any:
    loc, length = scratch
    new = change * 2 + 1
    old = change * 2 if changes[1][change] > 0 else new
    error = place_key(buf, changes, old, key, loc, length, 0)
    if error:
        return error
    moved = False
    if old != new:
        error = place_key(buf, changes, new, key, loc, length, 2)
        if error:
            return error
        moved = not same_row(buf, loc, length, 0, 2)
    at = find_key(buf, changes, key, table, loc, length, 0)
    entry = table[at, 0] - 1
    row = np.int64(-1)
    if entry < 0:
        row = _row(links, state, change, change)
        entry = np.int32(old << 1)
    elif entry & 1:
        state[_UPDATES] += 1
        return 0
    else:
        row = np.int64(links[1][entry >> 2])
        links[0][change] = links[3][row]
        links[3][row] = change
    links[1][change] = row
    table[at, 0] = (entry | 1 if moved else entry) + 1
    if moved:
        at = find_key(buf, changes, key, table, loc, length, 2)
        entry = table[at, 0] - 1
        if entry >= 0 and not entry & 1 and state[_CONFLICT] < 0:
            state[_CONFLICT] = change
        table[at, 0] = new * 2 + 1
    return 0
