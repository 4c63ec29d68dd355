"""Turn places in a buffer into Arrow columns, a bounded chunk at a time.

``Layout`` maps the columns of the Relation message in force to columns of the lake table.
``Changes`` is a run of row changes under one layout. ``ColumnReader`` turns refs (see ``tuples``)
into typed Arrow arrays. A chunk ends at a number of rows or a number of source bytes, whichever
comes first: neither a wide table nor a large value makes a chunk large. A chunk has at least one
row, and a value may have the gigabyte that PostgreSQL allows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import (
    DATETIME_FIELD_OVERFLOW,
    INVALID_BINARY_REPRESENTATION,
    FeatureNotSupported,
    InternalError,
    NumericValueOutOfRange,
    ProtocolViolation,
    ReplicationError,
)
from config.limits import CHUNK_BYTES, CHUNK_ROWS, CHUNK_VALUES
from workers.columnar.binary.column import binary_column
from workers.columnar.binary.forms import Nodes
from workers.columnar.binary.text import TooMuchText, WrongValue
from workers.columnar.masks import Mask
from workers.columnar.text_array import Array, text_array
from workers.columnar.text_values import Unrepresentable, typed
from workers.columnar.tuples import (
    BINARY_VALUE,
    INCORRECT,
    INSUFFICIENT,
    KEY_MISSING,
    KEY_NULL,
    MISSING,
    OLD_MISSING,
    OUT_OF_RANGE,
    VALUE_MISSING,
    WRONG_COUNT,
    Bytes,
    first_in_other_form,
    place_rows,
    readonly,
)

Refs: TypeAlias = "npt.NDArray[np.int64] | range"
"""Refs as an array, or as a range of new tuples: eight bytes less for each inserted row."""

BINARY_HINT: Final = "Set binary = false for the subscription: values then arrive as text."

_ERRORS: Final = {
    WRONG_COUNT: "tuple's column count does not match the relation message in force",
    KEY_MISSING: "replica identity column has no value in the message",
    OLD_MISSING: "publisher did not send the old row that the replica identity calls for",
    VALUE_MISSING: "unchanged value in a row that was sent for the first time",
    INSUFFICIENT: "insufficient data left in message",
}
_VALUE_ERRORS: Final = {
    INCORRECT: (INVALID_BINARY_REPRESENTATION, "incorrect binary data format"),
    OUT_OF_RANGE: (DATETIME_FIELD_OVERFLOW, "date/time field value out of range"),
}


class UnrepresentableValue(NumericValueOutOfRange):
    """A value that the lake column cannot hold: 22003, with column, type and change index."""

    def __init__(self, column: str, type: pa.DataType, change: int) -> None:
        super().__init__(f'value of column "{column}" cannot be represented in the lake')
        self.column = column
        self.type = type
        self.change = change


class UnsentValue(UnrepresentableValue):
    """A row is new in the lake, and the publisher left out a value as unchanged.

    pgoutput sends an UPDATE that brings a row into the row filter as an INSERT, but does not read
    a large unchanged value that is stored out of line.
    """


class UnreadableValue(ReplicationError):  # noqa: N818 - named as PostgreSQL's conditions are
    """Bytes that are no value of the column's type; carries the index of the change."""

    def __init__(self, error: ReplicationError, change: int) -> None:
        super().__init__(error.primary, detail=error.detail, hint=error.hint, sqlstate=error.code)
        self.change = change


class NullKey(ProtocolViolation):
    """A key column is NULL; carries the index of the change."""

    def __init__(self, detail: str, change: int) -> None:
        super().__init__("null value in replica identity column", detail=detail)
        self.change = change


@dataclass(frozen=True, slots=True)
class MappedColumn:
    """A published column and its lake column; ``ordinal`` counts from 0 in the R message.

    With ``mask`` the lake column has the hashes of the values' text. With ``clamp`` a date or
    timestamp outside of the lake type is the type's first or last value.
    """

    name: str
    ordinal: int
    type: pa.DataType
    mask: Mask | None = None
    clamp: bool = False


@dataclass(frozen=True, slots=True)
class Layout:
    """The map from tuples of ``ncols`` columns to lake columns; ``key`` are mapped ordinals.

    With ``null_unrepresentable`` a value that the lake cannot hold becomes NULL, except in the key.
    """

    ncols: int
    key: tuple[int, ...]
    columns: tuple[MappedColumn, ...]
    null_unrepresentable: bool = False

    def __post_init__(self) -> None:
        ordinals = [column.ordinal for column in self.columns]
        if len(set(ordinals)) != len(ordinals) or not set(self.key) <= set(ordinals):
            raise InternalError("layout maps a column twice or leaves a key column out")
        if any(not 0 <= ordinal < self.ncols for ordinal in ordinals):
            raise InternalError("layout maps a column outside the relation")


@dataclass(frozen=True, slots=True)
class Changes:
    """Row changes in commit order under one layout: the arrays of ``Frame``, cut to a segment.

    With ``nodes`` the values of columns with a node are in binary form (see ``in_form``); all
    further values are text.
    """

    buf: Bytes
    kind: npt.NDArray[np.uint8]
    old_kind: npt.NDArray[np.uint8]
    old_off: npt.NDArray[np.int64]
    new_off: npt.NDArray[np.int64]
    txn: npt.NDArray[np.int32]
    unsent: npt.NDArray[np.uint16]
    nodes: Nodes | None = None

    def __len__(self) -> int:
        return len(self.kind)


def kernel_error(code: int, change: int) -> ReplicationError:
    """The error that a kernel reported for a change; quotes no values."""
    detail = f"It was met at change {change} of the segment."
    if code == BINARY_VALUE:
        return FeatureNotSupported(
            "cannot read a value in binary format", detail=detail, hint=BINARY_HINT
        )
    if code in _VALUE_ERRORS:
        sqlstate, primary = _VALUE_ERRORS[code]
        return ReplicationError(primary, detail=detail, hint=BINARY_HINT, sqlstate=sqlstate)
    if code == KEY_NULL:
        return NullKey(detail, change)
    return ProtocolViolation(_ERRORS[code], detail=detail)


def in_form(changes: Changes, nodes: Nodes | None) -> Changes:
    """``changes`` with the nodes that read binary values; None for a stream of text.

    A column has one form: binary with a node, text without. Raises ``UnreadableValue`` for a value
    in the wrong form. Values of an old tuple after the relation's last column are ignored.
    """
    roots = np.empty(0, np.int64) if nodes is None else nodes.roots
    wrong = int(
        first_in_other_form(
            readonly(changes.buf), changes.old_off, changes.new_off, roots, nodes is not None
        )
    )
    if wrong >= 0:
        raise UnreadableValue(kernel_error(BINARY_VALUE, wrong), wrong)
    return replace(changes, nodes=nodes)


def root_of(nodes: Nodes | None, ordinal: int) -> int:
    """The node of a column; -1 for text."""
    if nodes is None or ordinal >= len(nodes.roots):
        return -1
    return int(nodes.roots[ordinal])


def slot_of_ordinal(layout: Layout, ordinals: Sequence[int]) -> npt.NDArray[np.int64]:
    """The index in ``ordinals`` of each column of the relation, or -1."""
    slot = np.full(layout.ncols, -1, np.int64)
    slot[list(ordinals)] = np.arange(len(ordinals))
    return slot


class ColumnReader:
    """Reads some columns of the rows of refs, as typed Arrow arrays.

    ``prev`` has the row's previous change in the segment for each change (or is empty): unsent
    values are found there.
    """

    def __init__(
        self,
        changes: Changes,
        layout: Layout,
        columns: Sequence[MappedColumn],
        prev: npt.NDArray[np.int32] | None = None,
    ) -> None:
        self._changes = changes
        self._buf = readonly(changes.buf)
        self.columns = tuple(columns)
        self._key = [column.ordinal in layout.key for column in self.columns]
        self._nullable = [layout.null_unrepresentable and not key for key in self._key]
        self._nodes = changes.nodes
        self._prev = np.empty(0, np.int32) if prev is None else prev
        self.arrays = (changes.old_kind, changes.old_off, changes.new_off)
        self.slots = (
            slot_of_ordinal(layout, [column.ordinal for column in self.columns]),
            np.ones(len(self.columns), np.bool_),
            np.array(self._key, np.bool_),
        )

    def chunks(
        self, refs: Refs, rows: int = CHUNK_ROWS, size: int = CHUNK_BYTES
    ) -> Iterator[tuple[slice, list[Array], npt.NDArray[np.bool_] | None]]:
        """Read typed columns of ``refs`` chunk by chunk: the refs, the arrays, the missing values.

        The third item has the shape (columns, rows) and marks values that are nowhere in the
        segment (NULL in the arrays); None if no value is missing. Raises ``UnrepresentableValue``.
        """
        width = max(1, len(self.columns))
        rows = max(1, min(rows, CHUNK_VALUES // width, len(refs)))
        loc = np.empty((width, rows), np.int64)
        length = np.empty((width, rows), np.int32)
        begin = 0
        while begin < len(refs):
            part = _numbers(refs[begin : begin + rows])
            state = np.zeros(3, np.int64)
            done = place_rows(
                self._buf, self.arrays, self._prev, part, self.slots, loc, length, size, state
            )
            if state[0]:
                raise kernel_error(int(state[0]), int(part[state[1]] >> 1))
            missing = None
            if state[2]:
                missing = length[:, :done] == MISSING
            for own, arrays in self._arrays(part[:done], loc[:, :done], length[:, :done]):
                place = slice(begin + own.start, begin + own.stop)
                yield place, arrays, None if missing is None else missing[:, own]
            begin += done

    def check_unsent(self, missing: npt.NDArray[np.bool_], refs: Refs) -> None:
        """Raise ``UnsentValue`` for the first missing value that may not become NULL."""
        for row in np.flatnonzero(missing.any(axis=0)).tolist():
            for where in np.flatnonzero(missing[:, row]).tolist():
                if not self._nullable[where]:
                    column = self.columns[where]
                    raise UnsentValue(column.name, column.type, int(refs[row]) >> 1)

    def _arrays(
        self,
        refs: npt.NDArray[np.int64],
        loc: npt.NDArray[np.int64],
        length: npt.NDArray[np.int32],
    ) -> Iterator[tuple[slice, list[Array]]]:
        """The columns of placed rows; in several pieces if the text is much larger."""
        pieces = [slice(0, len(refs))]
        while pieces:
            own = pieces.pop()
            try:
                arrays = [
                    self._column(where, refs[own], loc[where, own], length[where, own])
                    for where in range(len(self.columns))
                ]
            except TooMuchText as much:
                middle = own.start + much.rows
                pieces += [slice(middle, own.stop), slice(own.start, middle)]
                continue
            yield own, arrays

    def _column(
        self,
        where: int,
        refs: npt.NDArray[np.int64],
        loc: npt.NDArray[np.int64],
        length: npt.NDArray[np.int32],
    ) -> Array:
        column = self.columns[where]
        root = root_of(self._nodes, column.ordinal)
        nullable = self._nullable[where]
        try:
            values: Array
            if root >= 0 and self._nodes is not None:
                rest = (column.type, self._buf, loc, length)
                values = binary_column(
                    self._nodes.table,
                    root,
                    *rest,
                    null_unrepresentable=nullable,
                    clamp=column.clamp,
                )
            else:
                strings = text_array(self._buf, loc, length)
                values = typed(
                    strings, column.type, null_unrepresentable=nullable, clamp=column.clamp
                )
        except Unrepresentable as bad:
            change = self._source(int(refs[bad.index]), int(loc[bad.index]))
            raise UnrepresentableValue(column.name, column.type, change) from None
        except WrongValue as wrong:
            change = self._source(int(refs[wrong.index]), int(loc[wrong.index]))
            raise UnreadableValue(kernel_error(wrong.code, change), change) from None
        return values if column.mask is None else column.mask.hashed(values)

    def _source(self, ref: int, loc: int) -> int:
        """Find the change of the row of ``ref`` with the byte at ``loc`` in its message."""
        _, old_off, new_off = self.arrays
        change = source = ref >> 1
        nearest = 0
        while change >= 0:
            for off in (int(old_off[change]), int(new_off[change])):
                if nearest < off <= loc:
                    nearest, source = off, change
            change = int(self._prev[change]) if len(self._prev) else -1
        return source


def _numbers(refs: Refs) -> npt.NDArray[np.int64]:
    if isinstance(refs, range):
        return np.arange(refs.start, refs.stop, refs.step, dtype=np.int64)
    return refs
