"""Find the first change of a segment that breaks a unique key, for tables with several keys.

Rows are found by one key, the replica identity; further keys only have to stay unique. Whether a
change breaks a key depends on the table and on every change before: a key value may be free because
an earlier change deleted or moved the row. So the lake looks up, once, all rows with an identity or
with a given key value of the segment (``key_batches``). The changes are then applied one by one to
the found rows, with all keys of each row:

    keys (id), (b)     table (1, 10), (2, 20)     changes D 1, I (3, 10), U 3 (3, 20)
        looked up: id 1 3, b 10 20     found: (1, 10), (2, 20), the second row only by b
        D 1          frees id 1 and b 10
        I (3, 10)    gives id 3 and b 10 to a new row
        U 3          gives b 20 to row 3, but row 2 has b 20: broken

A key that contains a NULL is not checked, as under a unique index. A key whose large values did not
change, and of which an UPDATE therefore sent no column, stays unchanged. A key of which an UPDATE
sent a part cannot be checked (``UnsentKey``): the rest is in the table's row, and the lookup needs
whole keys.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import FeatureNotSupported
from workers.columnar.column_reader import Changes, ColumnReader, Layout
from workers.columnar.fold.after_lookup import distinct_keys, key_codes
from workers.columnar.kernel import kernel
from workers.columnar.tuples import DELETE, INSERT

_NONE: Final = -1
_KEPT: Final = -2  # an UPDATE did not send the value again: the row keeps the value

# Cells of the kernel's state.
_CHANGE, _BROKEN = range(2)


class UnsentKey(FeatureNotSupported):
    """An UPDATE sent a part of a key (``key`` is the key's number), but not ``column``."""

    def __init__(self, key: int, column: str, change: int) -> None:
        super().__init__("a part of a key was not sent")
        self.key = key
        self.column = column
        self.change = change


class UniqueKeys:
    """The keys, besides the replica identity, that a segment's changes give to rows."""

    def __init__(
        self,
        changes: Changes,
        layout: Layout,
        keys: Sequence[Sequence[int]],
        identity: npt.NDArray[np.int32] | None,
    ) -> None:
        """``keys`` are ordinals; ``identity`` is ``Probed.key_of``, None without an identity.

        Raises ``UnsentKey``.
        """
        self._kind = changes.kind
        none = np.full((len(changes), 2), _NONE, np.int32)
        self._identity = none if identity is None else identity
        interned = [_intern(changes, layout, at, key) for at, key in enumerate(keys)]
        self._given = np.stack([codes for codes, _ in interned], axis=1)
        self.key_batches: list[pa.Table] = [table for _, table in interned]
        """The values of each key: ``k`` int64, ``b0…``."""

    def first_change(self, key: int, k: int) -> int:
        """The first change with the value ``k`` of a key; the identity is key 0."""
        if not key:
            return int(np.flatnonzero((self._identity == k).any(axis=1))[0])
        return int(np.flatnonzero(self._given[:, key - 1] == k)[0])

    def first_broken(self, held: npt.NDArray[np.int64]) -> tuple[int, tuple[int, ...]] | None:
        """The first change that gives a row an existing row's key, and the broken keys.

        ``held`` has a line for each found row: the numbers ``k`` of the identity and of the further
        keys, -1 for a key that is not in the segment. The identity is key 0, further keys count
        from 1.
        """
        inserts = int(np.count_nonzero(self._kind == INSERT))
        spaces = 1 + self._given.shape[1]
        rows = np.full((len(held) + inserts, spaces), _NONE, np.int32)
        rows[: len(held)] = held
        values = [int(self._identity.max(initial=-1)), *self._given.max(axis=0, initial=-1)]
        owner = np.full((spaces, max(values) + 1), _NONE, np.int32)
        state = np.zeros(2, np.int64)
        state[_CHANGE] = -1
        _apply(self._kind, self._identity, self._given, rows, len(held), owner, state)
        if state[_CHANGE] < 0:
            return None
        broken = tuple(at for at in range(spaces) if int(state[_BROKEN]) >> at & 1)
        return int(state[_CHANGE]), broken


def _intern(
    changes: Changes, layout: Layout, number: int, key: Sequence[int]
) -> tuple[npt.NDArray[np.int32], pa.Table]:
    """The number of the key value in each change's new row, and the values."""
    given = np.flatnonzero(changes.kind != DELETE)
    refs = given * 2 + 1
    by_ordinal = {column.ordinal: column for column in layout.columns}
    reader = ColumnReader(changes, layout, [by_ordinal[ordinal] for ordinal in key])
    types: list[Any] = [column.type for column in reader.columns]
    chunks: list[list[Any]] = [[] for _ in types]
    unsent = np.zeros((len(key), len(refs)), np.bool_)
    for part, arrays, missing in reader.chunks(refs):
        if missing is not None:
            unsent[:, part.start : part.start + missing.shape[1]] = missing
        for where, array in enumerate(arrays):
            chunks[where].append(array)
    columns: list[Any] = [
        pa.chunked_array(own, type) for own, type in zip(chunks, types, strict=True)
    ]
    unsent[:, changes.kind[given] == INSERT] = False  # becomes NULL in the lake, or is an error
    kept = unsent.all(axis=0)
    nulls = np.stack([column.is_null().to_numpy() for column in columns])
    partly = np.flatnonzero(unsent.any(axis=0) & ~kept & ~(nulls & ~unsent).any(axis=0))
    if len(partly):
        first = int(partly[0])
        name = reader.columns[int(np.flatnonzero(unsent[:, first])[0])].name
        raise UnsentKey(number, name, int(given[first]))
    whole = np.flatnonzero(~nulls.any(axis=0))
    at: Any = pa.array(whole)
    columns = [column.take(at) for column in columns]
    codes = key_codes(columns)
    of = np.full(len(changes), _NONE, np.int32)
    of[given[kept]] = _KEPT
    of[given[whole]] = codes
    return of, distinct_keys(codes, columns)[1]


@kernel
def _apply(
    kind: Any, identity: Any, given: Any, rows: Any, count: int, owner: Any, state: Any
) -> None:
    """Apply the changes one by one until one breaks a key.

    ``rows`` holds the key values of each row; the first ``count`` rows exist already. ``owner``
    maps a key value to its row.
    """
    spaces = rows.shape[1]
    for row in range(count):
        for at in range(spaces):
            if rows[row, at] >= 0:
                owner[at, rows[row, at]] = row
    for change in range(len(kind)):
        row = count
        if kind[change] != INSERT:
            row = owner[0, identity[change, 0]]
            if row < 0:
                continue
        broken = 0
        for at in range(spaces):
            value = identity[change, 1] if at == 0 else given[change, at - 1]
            if kind[change] != DELETE and value >= 0 and owner[at, value] not in (_NONE, row):
                broken |= 1 << at
        if broken:
            state[_CHANGE], state[_BROKEN] = change, broken
            return
        if kind[change] == INSERT:
            count += 1
        for at in range(spaces):
            value = identity[change, 1] if at == 0 else given[change, at - 1]
            if kind[change] == DELETE:
                value = _NONE
            if value == _KEPT:
                continue
            if rows[row, at] >= 0:
                owner[at, rows[row, at]] = _NONE
            rows[row, at] = value
            if value >= 0:
                owner[at, value] = row
