"""Fold a segment after a lookup: the table may already have a key that a change gives to a row.

The effect of a change depends on the segment's keys in the table. An INSERT may meet an existing
row with the key, and an UPDATE that changes a key may meet one, too. An UPDATE may miss its row,
and then gives the new key to no row. So the fold has two steps, as under REPLICA IDENTITY FULL:

1. ``key_batches`` names every key of the segment once; the lake looks the keys up on the branch.
2. ``resolve`` gets the found keys and applies the changes one by one to existing rows, as
   PostgreSQL would. The result is a ``Keyed``: every base row exists, and every given key is free.
   The cut between batches therefore makes no difference.

A key with an existing row is a conflict, or with ``overwrite`` the later row wins:

    table {1, 3}; I 1, U 1→2, U 3→2, I 1      looked up: 1 2 3      found: 1, 3
        I 1    finds row 1: a conflict, or an UPDATE of row 1 to all values of the new row
        U 1→2  moves row 1 to key 2
        U 3→2  finds row 1 at key 2: a conflict, or the end of row 1 (DELETE of base key 1)
        I 1    is born, because key 1 is free by now

Keys are compared by value, as in the lake: a stored row never has two keys (1.0 and 1.00). The fold
refuses no key change that PostgreSQL allows: PostgreSQL checks an index that finds rows, and so a
replica identity, row by row; a swap therefore goes through a third key. With a deferrable key,
which allows direct swaps, rows are matched by all columns and have no key.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import InternalError
from config.limits import CHUNK_ROWS
from workers.columnar.column_reader import Changes, ColumnReader, Layout, UnsentValue, kernel_error
from workers.columnar.fold.by_key import Keyed, unsent_columns
from workers.columnar.fold.key_table import MOST_CHANGES
from workers.columnar.fold.row_images import value_codes
from workers.columnar.kernel import kernel
from workers.columnar.tuples import DELETE, INSERT, KEY_MISSING, KEY_NULL

# Owners of a key besides rows of the segment.
_NOBODY: Final = -1
_TABLE: Final = -2  # a row that no change has touched up to now

_GONE: Final = -1

# Cells of the kernel's state.
_ROWS, _UPDATES, _DELETES, _CONFLICT = range(4)


def gives_keys(changes: Changes) -> bool:
    """True if a row may get a key, by an INSERT or by an UPDATE with an old key.

    If not, no row can meet an existing row, and no lookup is necessary.
    """
    inserted = changes.kind == INSERT
    moved = (changes.kind != DELETE) & (changes.old_off > 0)
    return bool((inserted | moved).any())


class Probed:
    """A segment with keys to look up; ``missing_*`` are known after ``resolve``."""

    def __init__(self, changes: Changes, layout: Layout) -> None:
        """Raises ``ProtocolViolation`` and ``UnrepresentableValue``, as all folds do."""
        if len(changes) >= MOST_CHANGES:
            raise InternalError("segment has too many changes")
        self._changes = changes
        self._layout = layout
        self.key_of, self._refs, self._keys = _intern_keys(changes, layout)
        """The numbers ``k`` of each change's old and new key, -1 without a key."""
        self.key_schema = self._keys.schema
        """``k`` int64, ``b0…`` the key."""
        self.missing_updates = 0
        self.missing_deletes = 0

    def key_batches(self, chunk_rows: int = CHUNK_ROWS) -> Iterator[pa.RecordBatch]:
        """The distinct keys to look up; ``k`` counts the keys."""
        yield from self._keys.to_batches(max_chunksize=chunk_rows)

    def first_change(self, key: int) -> int:
        """The first change that names the key ``k``."""
        return int(np.flatnonzero((self.key_of == key).any(axis=1))[0])

    def resolve(self, found: Any, *, overwrite: bool) -> Keyed:
        """Decide every change, given ``k`` of the existing keys. May be called again.

        Without ``overwrite`` the first change that gives a row an existing row's key is the
        ``conflict`` of the result; the result lacks this change and all later changes.
        """
        changes, refs = self._changes, self._refs
        owner = np.full(len(refs), _NOBODY, np.int32)
        owner[np.asarray(found, np.int64)] = _TABLE
        prev = np.full(len(changes), -1, np.int32)
        most = len(refs) + int(np.count_nonzero(changes.kind == INSERT))
        base, last = np.empty(most, np.int32), np.empty(most, np.int32)
        whole = np.empty(most, np.bool_)
        state = np.zeros(4, np.int64)
        state[_CONFLICT] = -1
        _apply(changes.kind, self.key_of, owner, overwrite, prev, (base, last, whole), state)
        rows = int(state[_ROWS])
        base, last, whole = base[:rows], last[:rows].astype(np.int64), whole[:rows]
        based, alive = base >= 0, last != _GONE
        final = np.where(alive, last * 2 + 1, -1)
        self._check_whole(prev, final[based & alive & whole])
        self.missing_updates, self.missing_deletes = int(state[_UPDATES]), int(state[_DELETES])
        return Keyed(
            changes=changes,
            layout=self._layout,
            prev=prev,
            base=refs[base[based]],
            final=final[based],
            born=final[~based & alive],
            unchanged=unsent_columns(changes, self._layout, prev, final[based & alive]),
            conflict=int(state[_CONFLICT]),
            missing_updates=self.missing_updates,
            missing_deletes=self.missing_deletes,
        )

    def _check_whole(self, prev: npt.NDArray[np.int32], refs: npt.NDArray[np.int64]) -> None:
        """A row that an INSERT overwrote takes all values from this INSERT on."""
        layout = self._layout
        if layout.null_unrepresentable or not unsent_columns(self._changes, layout, prev, refs):
            return
        types = {column.name: column.type for column in layout.columns}
        for at in range(len(refs)):
            for name in unsent_columns(self._changes, layout, prev, refs[at : at + 1]):
                raise UnsentValue(name, types[name], int(refs[at]) >> 1)


def _intern_keys(
    changes: Changes, layout: Layout
) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.int64], pa.Table]:
    """The number of each change's old and new key (-1: no key); a ref and the values per key."""
    given = np.flatnonzero(changes.kind != DELETE)
    left = np.flatnonzero((changes.kind != INSERT) & (changes.old_off > 0))
    refs = np.concatenate([given * 2 + 1, left * 2])
    columns = _key_columns(changes, layout, refs)
    codes = key_codes(columns)
    key_of = np.full((len(changes), 2), -1, np.int32)
    key_of[given, 1] = codes[: len(given)]
    key_of[left, 0] = codes[len(given) :]
    stays = (changes.kind != INSERT) & (changes.old_off == 0)
    key_of[stays, 0] = key_of[stays, 1]
    firsts, keys = distinct_keys(codes, columns)
    return key_of, refs[firsts], keys


def key_codes(columns: Sequence[Any]) -> npt.NDArray[np.int32]:
    """A number per row, equal for rows whose values the lake calls equal in all columns.

    The numbers count from 0 in the order of first appearance; no value is NULL.
    """
    codes = value_codes(columns[0])
    for column in columns[1:]:
        more = value_codes(column)
        pairs = codes.astype(np.int64) * (int(more.max(initial=0)) + 1) + more
        codes = value_codes(pa.chunked_array([pa.array(pairs)]))
    return codes


def distinct_keys(
    codes: npt.NDArray[np.int32], columns: Sequence[Any]
) -> tuple[npt.NDArray[np.int64], pa.Table]:
    """The first row of each key, and the keys: ``k`` int64, ``b0…``."""
    firsts = np.empty(int(codes.max(initial=-1)) + 1, np.int64)
    firsts[codes[::-1]] = np.arange(len(codes))[::-1]  # the last write wins: the first row
    keys: dict[str, Any] = {"k": pa.array(np.arange(len(firsts)))}
    keys |= {f"b{at}": column.take(pa.array(firsts)) for at, column in enumerate(columns)}
    return firsts, pa.table(keys)


def _key_columns(changes: Changes, layout: Layout, refs: npt.NDArray[np.int64]) -> list[Any]:
    """The key columns of the tuples ``refs``, as chunked arrays without NULL."""
    by_ordinal = {column.ordinal: column for column in layout.columns}
    reader = ColumnReader(changes, layout, [by_ordinal[ordinal] for ordinal in layout.key])
    types: list[Any] = [column.type for column in reader.columns]
    chunks: list[list[Any]] = [[] for _ in types]
    for part, arrays, missing in reader.chunks(refs):
        if missing is not None:
            row = int(np.flatnonzero(missing.any(axis=0))[0])
            raise kernel_error(KEY_MISSING, int(refs[part][row]) >> 1)
        for where, array in enumerate(arrays):
            if array.null_count:
                row = int(np.flatnonzero(array.is_null().to_numpy(zero_copy_only=False))[0])
                raise kernel_error(KEY_NULL, int(refs[part][row]) >> 1)
            chunks[where].append(array)
    return [pa.chunked_array(own, type) for own, type in zip(chunks, types, strict=True)]


@kernel
def _row(rows: Any, state: Any, base: int, last: int) -> Any:
    """Add a row: the key in the table (-1: born in the segment) and the last change."""
    row = state[_ROWS]
    rows[0][row], rows[1][row], rows[2][row] = base, last, False
    state[_ROWS] += 1
    return row


@kernel
def _apply(
    kind: Any, key_of: Any, owner: Any, overwrite: bool, prev: Any, rows: Any, state: Any
) -> None:
    """Apply the changes one by one; ``rows`` is (base key, last change, whole)."""
    _, last, whole = rows
    for change in range(len(kind)):
        old, new = key_of[change, 0], key_of[change, 1]
        row = np.int64(owner[new if kind[change] == INSERT else old])
        if row == _NOBODY and kind[change] != INSERT:
            state[_DELETES if kind[change] == DELETE else _UPDATES] += 1
            continue
        gives = kind[change] == INSERT or (kind[change] != DELETE and new != old)
        if gives and owner[new] != _NOBODY and not overwrite:
            state[_CONFLICT] = change
            return
        if row == _TABLE:
            row = _row(rows, state, new if kind[change] == INSERT else old, _GONE)
        elif row == _NOBODY:
            row = _row(rows, state, -1, change)
        if kind[change] == DELETE:
            last[row] = _GONE
            owner[old] = _NOBODY
            continue
        if kind[change] == INSERT:
            whole[row] = True
        else:
            prev[change] = last[row]
            owner[old] = _NOBODY
            loser = owner[new]
            if loser == _TABLE:
                _row(rows, state, new, _GONE)
            elif loser != _NOBODY:
                last[loser] = _GONE
        last[row] = change
        owner[new] = row
