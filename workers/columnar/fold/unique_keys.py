"""Which change of a segment first breaks a key that is declared unique, among several keys.

Rows are found by one key, the replica identity; others are only to stay unique. Whether a change
breaks one depends on what the table has and on every change before: a value may be free because
its row was deleted or moved away just now. So the lake is asked once for all rows that have one of
the segment's identities or one of the values it gives (``key_batches``), and the changes are then
applied one by one to those rows, with every key of each row in mind:

    keys (id), (b)     table (1, 10), (2, 20)     changes D 1, I (3, 10), U 3 (3, 20)
        asked: id 1 3, b 10 20     found: (1, 10), (2, 20), of which the second by b only
        D 1          frees id 1 and b 10
        I (3, 10)    gives both to a new row
        U 3          gives it b 20, which row 2 has: broken

A key with a NULL in it is none, as under a unique index. One of which an UPDATE sent nothing, since
its large values did not change, stays what it was. One of which it sent a part cannot be checked
(``UnsentKey``): the rest is in the table's row, which is found by keys that have to be whole.
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
_KEPT: Final = -2  # an UPDATE did not send the value again: the row's stays

# Cells of the kernel's state.
_CHANGE, _BROKEN = range(2)


class UnsentKey(FeatureNotSupported):
    """An UPDATE sent a part of a key (its number among those given), but not ``column``."""

    def __init__(self, key: int, column: str, change: int) -> None:
        super().__init__("a part of a key was not sent")
        self.key = key
        self.column = column
        self.change = change


class UniqueKeys:
    """The keys that the changes of a segment give to rows, besides the replica identity."""

    def __init__(
        self,
        changes: Changes,
        layout: Layout,
        keys: Sequence[Sequence[int]],
        identity: npt.NDArray[np.int32] | None,
    ) -> None:
        """``keys`` are ordinals; ``identity`` is ``Probed.key_of``, None where there is none.

        Raises ``UnsentKey``.
        """
        self._kind = changes.kind
        none = np.full((len(changes), 2), _NONE, np.int32)
        self._identity = none if identity is None else identity
        interned = [_intern(changes, layout, at, key) for at, key in enumerate(keys)]
        self._given = np.stack([codes for codes, _ in interned], axis=1)
        self.key_batches: list[pa.Table] = [table for _, table in interned]
        """For each key its values: ``k`` int64, ``b0…``."""

    def first_change(self, key: int, k: int) -> int:
        """The first change that names the value ``k`` of a key, the identity being key 0."""
        if not key:
            return int(np.flatnonzero((self._identity == k).any(axis=1))[0])
        return int(np.flatnonzero(self._given[:, key - 1] == k)[0])

    def first_broken(self, held: npt.NDArray[np.int64]) -> tuple[int, tuple[int, ...]] | None:
        """The first change that gives a row a key of another one, and which keys those are.

        ``held`` has a line for each row found: the numbers ``k`` of its identity and of its other
        keys, -1 for one the segment does not name. The identity is key 0, others count from 1.
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
    """The number of the key's value in each change's new row; the values."""
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
    unsent[:, changes.kind[given] == INSERT] = False  # it becomes NULL there, or is an error
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

    ``rows`` holds each row's value of each key, the first ``count`` are there already; ``owner``
    is which row has a value.
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
