"""Read a table by COPY in binary form into Arrow batches.

A kernel notes the places of the values of whole rows; then each column becomes an array
(``binary.column``).

Spark's executors use this module if it is installed; otherwise executors copy text (``copy_task``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import BAD_COPY_FILE_FORMAT, NUMERIC_VALUE_OUT_OF_RANGE, ReplicationError
from config.limits import CHUNK_ROWS, CHUNK_VALUES, COPY_BLOCK_BYTES
from workers.columnar.binary.column import binary_column
from workers.columnar.binary.containers import NODE_CELLS
from workers.columnar.binary.text import TooMuchText, WrongValue
from workers.columnar.column_reader import kernel_error
from workers.columnar.fold.by_key import record_batch
from workers.columnar.kernel import kernel
from workers.columnar.text_array import Array
from workers.columnar.text_values import Unrepresentable
from workers.columnar.tuples import NULL, Bytes, be16, be32, readonly

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER: Final = len(_SIGNATURE) + 8
_CRITICAL_FLAGS: Final = 0xFFFF0000

_ABSENT: Final = 0xFFFFFFFF
_TRAILER: Final = 0xFFFF

# The kernel's reports besides errors of values; below the codes of ``tuples``.
_FIELD_COUNT, _FIELD_SIZE = 101, 102
_ERRORS: Final = {
    _FIELD_COUNT: "a row of the COPY has another number of fields than columns were asked for",
    _FIELD_SIZE: "invalid field size",
}

_HINT: Final = (
    "If its type was altered just now, nothing is to be done: the copy starts again by itself. "
    "Else leave the column out with a column list of the publication."
)

_POS, _ROWS, _ENDED, _ERROR = range(4)

_Chunk = bytes | bytearray | memoryview

PlainNodes = tuple[Sequence[Sequence[int]], Sequence[int]]
"""``binary.forms.Nodes`` as lists: lists can travel to an executor without these modules."""


class ErrorMaker(Protocol):
    """Makes the error to raise, from SQLSTATE, primary message, DETAIL and HINT."""

    def __call__(
        self, sqlstate: str, primary: str, detail: str | None = None, hint: str | None = None
    ) -> Exception:
        """The error."""


class BinaryCopyReader:
    """Turns COPY data into batches; ``columns`` are (name, type) in the COPY's order."""

    def __init__(
        self,
        columns: Sequence[tuple[str, pa.DataType]],
        nodes: PlainNodes,
        null_unrepresentable: bool,
        relation: str,
        error: ErrorMaker,
        clamped: Collection[str] = (),
        block: int = COPY_BLOCK_BYTES,
    ) -> None:
        table, roots = nodes
        self._table = np.array(table, np.int64).reshape(-1, NODE_CELLS)
        self._roots = list(roots)
        self._columns = list(columns)
        self._nullable = null_unrepresentable
        self._clamped = frozenset(clamped)
        self._schema = pa.schema([(f"c{at}", type) for at, (_, type) in enumerate(columns)])
        self._relation = relation
        rows = max(1, min(CHUNK_ROWS, CHUNK_VALUES // max(1, len(columns))))
        self._loc = np.empty((len(columns), rows), np.int64)
        self._length = np.empty((len(columns), rows), np.int32)
        self._error = error
        self._block = block

    def batches(self, chunks: Iterable[_Chunk]) -> Iterator[pa.RecordBatch]:
        """Yield a batch for about ``block`` bytes each. ``chunks`` may be cut anywhere."""
        data, begun = bytearray(), False
        state = np.zeros(4, np.int64)
        for chunk in chunks:
            if begun and not data and len(chunk) >= self._block:  # without copying the chunk
                yield from self._parse(chunk, state)
                data += chunk[state[_POS] :]
                continue
            data += chunk
            if not begun and len(data) >= _HEADER:
                data, begun = self._after_header(data), True
            if len(data) >= self._block and begun:
                yield from self._parse(data, state)
                data = data[state[_POS] :]
        if not begun:
            raise self._bad(BAD_COPY_FILE_FORMAT, "COPY file signature not recognized")
        while not state[_ENDED]:
            yield from self._parse(data, state)
            data = data[state[_POS] :]
            if not state[_POS]:
                raise self._bad(BAD_COPY_FILE_FORMAT, "unexpected EOF in COPY data")
        if data:
            raise self._bad(BAD_COPY_FILE_FORMAT, "received copy data after EOF marker")

    def _after_header(self, data: bytearray) -> bytearray:
        if data[: len(_SIGNATURE)] != _SIGNATURE:
            raise self._bad(BAD_COPY_FILE_FORMAT, "COPY file signature not recognized")
        flags = int.from_bytes(data[len(_SIGNATURE) : len(_SIGNATURE) + 4], "big")
        extension = int.from_bytes(data[len(_SIGNATURE) + 4 : _HEADER], "big")
        if flags & _CRITICAL_FLAGS or extension:
            raise self._bad(BAD_COPY_FILE_FORMAT, "unrecognized critical flags in COPY file header")
        return data[_HEADER:]

    def _parse(self, data: _Chunk, state: Any) -> Iterator[pa.RecordBatch]:
        """The whole rows at the start; ``state`` has their end, and whether the COPY ended."""
        buf = readonly(np.frombuffer(data, np.uint8))
        state[_POS], state[_ROWS] = 0, 1
        while state[_ROWS]:
            state[_ROWS] = 0
            _place_rows(buf, self._loc, self._length, state)
            if state[_ERROR]:
                raise self._value_error(int(state[_ERROR]))
            if state[_ROWS]:
                yield from self._batches(buf, 0, int(state[_ROWS]))

    def _batches(self, buf: Bytes, begin: int, end: int) -> Iterator[pa.RecordBatch]:
        """The placed rows; in several batches if the text is much larger than the binary form."""
        rows = slice(begin, end)
        try:
            arrays = [
                self._array(buf, at, self._loc[at, rows], self._length[at, rows])
                for at in range(len(self._columns))
            ]
        except TooMuchText as much:
            middle = begin + much.rows
        else:
            yield record_batch(arrays, self._schema, end - begin)
            return
        yield from self._batches(buf, begin, middle)
        yield from self._batches(buf, middle, end)

    def _array(
        self, buf: Bytes, at: int, loc: npt.NDArray[np.int64], length: npt.NDArray[np.int32]
    ) -> Array:
        name, type = self._columns[at]
        root, nullable = self._roots[at], self._nullable
        try:
            values = (self._table, root, type, buf, loc, length)
            clamp = name in self._clamped
            return binary_column(*values, null_unrepresentable=nullable, clamp=clamp)
        except WrongValue as wrong:
            raise self._value_error(wrong.code) from None
        except Unrepresentable:
            raise self._error(
                NUMERIC_VALUE_OUT_OF_RANGE,
                f'column "{name}" of lake table "{self._relation}" cannot hold a value that'
                " the publisher sent",
                f"The column's type in the lake is {type}.",
                "Declare on_unrepresentable: null or text for the table, or clamp for dates and"
                " timestamps; or correct the value on the publisher.",
            ) from None

    def _value_error(self, code: int) -> Exception:
        if code in _ERRORS:
            return self._bad(BAD_COPY_FILE_FORMAT, _ERRORS[code])
        error: ReplicationError = kernel_error(code, 0)
        return self._bad(error.code, error.primary, _HINT if error.hint else None)

    def _bad(self, sqlstate: str, primary: str, hint: str | None = None) -> Exception:
        detail = f'It was met in the COPY of table "{self._relation}".'
        return self._error(sqlstate, primary, detail, hint)


@kernel
def _place_rows(buf: Any, loc: Any, length: Any, state: Any) -> None:
    """Note the places of the values of the next rows, while rows are whole and have room."""
    ncols, most = loc.shape
    end = len(buf)
    while state[_ENDED] == 0 and state[_ROWS] < most:
        pos, row = state[_POS], state[_ROWS]
        if end - pos < 2:
            return
        count = be16(buf, pos)
        pos += 2
        if count == _TRAILER:
            state[_POS], state[_ENDED] = pos, 1
            return
        if count != ncols:
            state[_ERROR] = _FIELD_COUNT
            return
        for column in range(count):
            if end - pos < 4:
                return
            size = be32(buf, pos)
            pos += 4
            if size == _ABSENT:
                loc[column, row], length[column, row] = -1, NULL
                continue
            if size > 0x7FFFFFFF:
                state[_ERROR] = _FIELD_SIZE
                return
            if size > end - pos:
                return
            loc[column, row], length[column, row] = pos, size
            pos += size
        state[_ROWS] += 1
        state[_POS] = pos
