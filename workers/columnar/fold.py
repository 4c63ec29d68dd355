"""Folding: what a run of changes does to a table, one entry per row and not per change.

Folding follows *rows*, not keys. Each row that the segment touches has a base key (the key it
had in the table before; none when it was born here), a final state (its last change, or gone) and
its chain of changes, in which values that were not sent again are found:

    base key, alive    merge: UPDATE matched on the base key, setting the key and what was sent
    base key, gone     merge: DELETE matched on the base key
    born here, alive   append
    born here, gone    nothing; its key is in ``left``

so that key changes, swaps (1 → -1, 2 → 1, -1 → 2) and chains are one set-based statement:

    U 1→-1, U 2→1, U -1→2      rows: (base 1, final key 2), (base 2, final key 1)

A row with a base key exists only if the table has it, which the fold cannot know: a base row that
is not matched changes nothing, as PostgreSQL logs update_missing and goes on. A key whose row is
known to be gone (deleted, or moved to another key) makes an UPDATE or DELETE of it a miss here.

A key that came by INSERT and was left again leaves no trace in the rows. Where the table may have
had that key before, PostgreSQL would have stopped at the INSERT, so ``left`` names such keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import InternalError
from workers.columnar.columns import (
    CHUNK_BYTES,
    CHUNK_ROWS,
    Array,
    Changes,
    ColumnReader,
    Layout,
    kernel_error,
    slot_of_ordinal,
)
from workers.columnar.kernel import kernel
from workers.columnar.keys import (
    MOST_CHANGES,
    find_key,
    new_table,
    place_key,
    same_row,
)
from workers.columnar.tuples import MISSING, OLD_MISSING, VALUE_MISSING, place_row, readonly

INSERT: Final = np.uint8(ord("I"))
DELETE: Final = np.uint8(ord("D"))

# Cells of a kernel's state.
_ERROR, _CHANGE, _ROWS, _UPDATES, _DELETES, _DUPLICATE, _POSSIBLE, _LEFT = range(8)


@dataclass(frozen=True, slots=True)
class Keyed:
    """A folded segment of a table with a key; read-only, its batches can be made again.

    ``duplicate_insert`` is the first change that gives a key to a second row although the first
    one was born in this segment and lives (-1: none): PostgreSQL would stop with insert_exists.
    The later row won. ``possible_duplicate`` is the first change that does so to a row which
    lives only if the table had it: the append must be probed. ``missing_updates`` and
    ``missing_deletes`` count changes of keys known to be gone. ``unchanged`` names columns that
    some merge row leaves as the table has them. ``left`` has the keys, each once, that a row was
    inserted with although the table may have had them before, and that it has not any more.
    """

    changes: Changes
    layout: Layout
    prev: npt.NDArray[np.int32]
    base: npt.NDArray[np.int64]  # refs of the base keys, one per merge row
    final: npt.NDArray[np.int64]  # refs of the final tuples, -1 = deleted
    born: npt.NDArray[np.int64]  # refs of the final tuples of appended rows
    unchanged: tuple[str, ...]
    duplicate_insert: int
    possible_duplicate: int
    missing_updates: int
    missing_deletes: int
    left: npt.NDArray[np.int64]  # refs of the inserted tuples

    @property
    def merge_rows(self) -> int:
        """How many rows ``merge_batches`` has in all."""
        return len(self.base)

    @property
    def append_rows(self) -> int:
        """How many rows ``append_batches`` has in all."""
        return len(self.born)

    @property
    def left_rows(self) -> int:
        """How many rows ``left_batches`` has in all."""
        return len(self.left)

    @property
    def left_schema(self) -> pa.Schema:
        """``b0…``, the key."""
        types = {column.ordinal: column.type for column in self.layout.columns}
        return pa.schema([(f"b{at}", types[ordinal]) for at, ordinal in enumerate(self.layout.key)])

    @property
    def merge_schema(self) -> pa.Schema:
        """``op`` int8 (0 update, 1 delete), ``b0…`` base key, ``c0…`` values, ``m<i>`` kept."""
        columns = self.layout.columns
        fields: list[Any] = [("op", pa.int8()), *self.left_schema]
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
        """Updates and deletes; raises ``UnrepresentableValue``. Every base key occurs once."""
        schema, keys = self.merge_schema, self._key_reader()
        values = ColumnReader(self.changes, self.layout, self.layout.columns, self.prev)
        kept = self._kept()
        for part, arrays, missing in values.chunks(self.final, chunk_rows, chunk_bytes):
            base = self.base[part]
            ((_, key_arrays, _),) = keys.chunks(base, len(base), np.iinfo(np.int64).max)
            columns: list[Array] = [pa.array((self.final[part] < 0).view(np.int8))]
            columns += key_arrays + arrays
            for where in kept:
                mask = missing[where] if missing is not None else np.zeros(len(base), np.bool_)
                columns.append(pa.array(mask))
            yield pa.RecordBatch.from_arrays(columns, schema=schema)

    def append_batches(
        self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """Rows born in the segment, in the order of their birth."""
        reader = ColumnReader(self.changes, self.layout, self.layout.columns, self.prev)
        yield from complete_batches(reader, self.born, self.append_schema, chunk_rows, chunk_bytes)

    def left_batches(
        self, chunk_rows: int = CHUNK_ROWS, chunk_bytes: int = CHUNK_BYTES
    ) -> Iterator[pa.RecordBatch]:
        """The keys of ``left``; raises ``UnrepresentableValue``."""
        for _, arrays, _ in self._key_reader().chunks(self.left, chunk_rows, chunk_bytes):
            yield pa.RecordBatch.from_arrays(arrays, schema=self.left_schema)

    def _key_reader(self) -> ColumnReader:
        by_ordinal = {column.ordinal: column for column in self.layout.columns}
        key = [by_ordinal[ordinal] for ordinal in self.layout.key]
        return ColumnReader(self.changes, self.layout, key)

    def _kept(self) -> list[int]:
        return [
            at for at, column in enumerate(self.layout.columns) if column.name in self.unchanged
        ]


def column_schema(layout: Layout) -> pa.Schema:
    """``c0…`` with the types of the layout's columns."""
    return pa.schema([(f"c{at}", column.type) for at, column in enumerate(layout.columns)])


def complete_batches(
    reader: ColumnReader,
    refs: npt.NDArray[np.int64],
    schema: pa.Schema,
    chunk_rows: int,
    chunk_bytes: int,
) -> Iterator[pa.RecordBatch]:
    """Batches of rows that must have every value; an unchanged one raises 08P01."""
    for part, arrays, missing in reader.chunks(refs, chunk_rows, chunk_bytes):
        if missing is not None:
            row = int(np.flatnonzero(missing.any(axis=0))[0])
            raise kernel_error(VALUE_MISSING, int(refs[part][row] >> 1))
        yield record_batch(arrays, schema, part.stop - part.start)


def record_batch(arrays: list[Array], schema: pa.Schema, rows: int) -> pa.RecordBatch:
    """A record batch; a table without columns keeps its number of rows."""
    if arrays:
        return pa.RecordBatch.from_arrays(arrays, schema=schema)
    empty: Any = pa.array([{}] * rows, pa.struct([]))
    return pa.RecordBatch.from_struct_array(empty)


def fold_keyed(changes: Changes, layout: Layout, *, check_inserts: bool = False) -> Keyed:
    """Fold a segment by the layout's key.

    A segment of inserts only is not hashed, unless ``check_inserts`` asks for
    ``duplicate_insert``; without a key nothing else is possible. Raises ``ProtocolViolation``
    for a key that is NULL or was not sent and for a tuple of another width.
    """
    count = len(changes)
    if count >= MOST_CHANGES:
        raise InternalError("segment has too many changes")
    inserts_only = not count or bool(np.all(changes.kind == INSERT))
    if not layout.key and not inserts_only:
        raise kernel_error(OLD_MISSING, int(np.flatnonzero(changes.kind != INSERT)[0]))
    if inserts_only and not (check_inserts and layout.key):
        none, nowhere = np.empty(0, np.int64), np.empty(0, np.int32)
        born = np.arange(count, dtype=np.int64) * 2 + 1
        return Keyed(changes, layout, nowhere, none, none, born, (), -1, -1, 0, 0, none)
    buf = readonly(changes.buf)
    tuples = (changes.old_kind, changes.old_off, changes.new_off)
    table = new_table(count + int(np.count_nonzero(changes.old_kind[changes.kind != DELETE])))
    prev, row_of, first, last, birth, left = (np.empty(count, np.int32) for _ in range(6))
    key = (slot_of_ordinal(layout, layout.key), max(layout.key))
    scratch = (np.empty((len(layout.key), 3), np.int64), np.empty((len(layout.key), 3), np.int32))
    state = np.zeros(8, np.int64)
    state[_DUPLICATE] = state[_POSSIBLE] = -1
    links = (prev, row_of, first, last, birth, left)
    _fold(buf, changes.kind, tuples, key, table, scratch, links, state)
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
        unchanged=_unchanged(changes, layout, prev, final[final >= 0]),
        duplicate_insert=int(state[_DUPLICATE]),
        possible_duplicate=int(state[_POSSIBLE]),
        missing_updates=int(state[_UPDATES]),
        missing_deletes=int(state[_DELETES]),
        left=left[: int(state[_LEFT])].astype(np.int64) * 2 + 1,
    )


def _unchanged(
    changes: Changes, layout: Layout, prev: npt.NDArray[np.int32], refs: npt.NDArray[np.int64]
) -> tuple[str, ...]:
    """Names of the columns that some row of ``refs`` was sent nowhere in the segment."""
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
    buf: Any, kind: Any, changes: Any, key: Any, table: Any, scratch: Any, links: Any, state: Any
) -> None:
    """Follow the rows through the changes.

    ``links`` is (prev and row of each change; base and last change of each row; the INSERT it came
    by with a key that the table may have, until it leaves that key, or -1; INSERTs so left).
    """
    for change in range(len(kind)):
        links[0][change] = links[1][change] = -1
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
def _row(links: Any, state: Any, base: int, last: int, birth: int) -> Any:
    """A new row: where its base key stands (-1: born here) and its last change (-1: gone)."""
    row = state[_ROWS]
    links[2][row], links[3][row], links[4][row] = base, last, birth
    state[_ROWS] += 1
    return row


@kernel
def _base_ref(changes: Any, change: Any) -> Any:
    """The tuple of an UPDATE or DELETE that holds the old key."""
    return change * 2 if changes[1][change] >= 0 else change * 2 + 1


@kernel
def _leave(links: Any, state: Any, row: Any) -> None:
    """A row is deleted or moves away from its key; the first time that may be worth a note."""
    birth = links[4][row]
    if birth >= 0:
        links[5][state[_LEFT]] = birth
        state[_LEFT] += 1
        links[4][row] = -1


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
    row = np.int64(-1)
    in_table = entry < 0  # whether the table may have the key from before
    if entry >= 0 and not entry & 1:
        owner = np.int64(links[1][entry >> 2])
        base = np.int64(links[2][owner])
        if base < 0:
            row = owner
            links[3][row] = change
            if state[_DUPLICATE] < 0:
                state[_DUPLICATE] = change
        else:
            place_key(buf, changes, _base_ref(changes, base), key, loc, length, 1)
            in_table = same_row(buf, loc, length, 0, 1)
            if state[_POSSIBLE] < 0:
                state[_POSSIBLE] = change
    if row < 0:
        row = _row(links, state, -1, change, change if in_table else -1)
    links[1][change] = row
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
        links[1][change] = _row(links, state, change, -1, -1)
        table[at, 0] = (change * 4 + 1) + 1
    elif entry & 1:
        state[_DELETES] += 1
    else:
        row = links[1][entry >> 2]
        links[1][change] = row
        links[3][row] = -1
        _leave(links, state, row)
        table[at, 0] = (entry | 1) + 1
    return 0


@kernel
def _update(
    buf: Any, change: int, changes: Any, key: Any, table: Any, scratch: Any, links: Any, state: Any
) -> Any:
    loc, length = scratch
    new = change * 2 + 1
    old = _base_ref(changes, change)
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
        row = _row(links, state, change, change, -1)
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
        _leave(links, state, row)
        at = find_key(buf, changes, key, table, loc, length, 2)
        entry = table[at, 0] - 1
        if entry >= 0 and not entry & 1:
            owner = links[1][entry >> 2]
            certain = links[2][owner] < 0 and links[2][row] < 0
            cell = _DUPLICATE if certain else _POSSIBLE
            if state[cell] < 0:
                state[cell] = change
        table[at, 0] = new * 2 + 1
    return 0
