"""Reading a table by COPY in binary form: rows become tuples of text, and those Arrow batches.

A row of ``COPY … (FORMAT binary)`` has what a tuple of the replication stream has, a count and
each value behind its length, so it is rewritten like one (``binary_rows``) and read like one.

Spark's executors use this module where it is installed; where not, they copy text (``copy_task``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from catalog.errcodes import ReplicationError
from workers.columnar.binary_nested import NODE_CELLS
from workers.columnar.binary_rows import Room, put_binary
from workers.columnar.columns import (
    Changes,
    ColumnReader,
    Layout,
    MappedColumn,
    UnrepresentableValue,
    kernel_error,
)
from workers.columnar.fold import record_batch
from workers.columnar.kernel import kernel
from workers.columnar.tuples import NO_ROOM, be16, be32, readonly

BLOCK: Final = 4 << 20
"""Bytes of COPY data that become one batch."""

_SIGNATURE: Final = b"PGCOPY\n\xff\r\n\0"
_HEADER: Final = len(_SIGNATURE) + 8
_CRITICAL_FLAGS: Final = 0xFFFF0000

_N: Final = np.uint8(ord("n"))
_INSERT: Final = np.uint8(ord("I"))
_ABSENT: Final = 0xFFFFFFFF
_TRAILER: Final = 0xFFFF

# What a kernel reports besides an error of a value; below the codes of ``tuples``.
_FIELD_COUNT, _FIELD_SIZE = 101, 102
_ERRORS: Final = {
    _FIELD_COUNT: "a row of the COPY has another number of fields than columns were asked for",
    _FIELD_SIZE: "invalid field size",
}

_POS, _AT, _ROWS, _ENDED, _ERROR = range(5)

PlainNodes = tuple[Sequence[Sequence[int]], Sequence[int]]
"""``binary_catalog.Nodes`` as lists, which reach an executor that does not have these modules."""


class ErrorMaker(Protocol):
    """Makes the error to raise: SQLSTATE, primary message, DETAIL, HINT."""

    def __call__(
        self, sqlstate: str, primary: str, detail: str | None = None, hint: str | None = None
    ) -> Exception:
        """The error."""


class BinaryCopyReader:
    """COPY data to batches; ``columns`` are (name, type) in the COPY's order."""

    def __init__(
        self,
        columns: Sequence[tuple[str, pa.DataType]],
        nodes: PlainNodes,
        null_unrepresentable: bool,
        relation: str,
        error: ErrorMaker,
        block: int = BLOCK,
    ) -> None:
        table, roots = nodes
        self._nodes = (
            np.array(table, np.int64).reshape(-1, NODE_CELLS),
            np.array(roots, np.int64),
        )
        mapped = [MappedColumn(name, at, type) for at, (name, type) in enumerate(columns)]
        self._layout = Layout(len(columns), (), tuple(mapped), null_unrepresentable)
        self._schema = pa.schema([(f"c{at}", type) for at, (_, type) in enumerate(columns)])
        self._relation = relation
        self._error = error
        self._block = block

    def batches(self, chunks: Iterable[bytes | bytearray]) -> Iterator[pa.RecordBatch]:
        """A batch for every ``block`` bytes or so. ``chunks`` may be cut anywhere."""
        data, begun, ended = bytearray(), False, False
        for chunk in chunks:
            data += chunk
            if not begun and len(data) >= _HEADER:
                data, begun = self._after_header(data), True
            if len(data) >= self._block and begun:
                taken, ended, batches = self._parse(data)
                yield from batches
                data = data[taken:]
        if not begun:
            raise self._bad("22P04", "COPY file signature not recognized")
        while not ended:
            taken, ended, batches = self._parse(data)
            yield from batches
            data = data[taken:]
            if not taken and not ended:
                raise self._bad("22P04", "unexpected EOF in COPY data")
        if data:
            raise self._bad("22P04", "received copy data after EOF marker")

    def _after_header(self, data: bytearray) -> bytearray:
        if data[: len(_SIGNATURE)] != _SIGNATURE:
            raise self._bad("22P04", "COPY file signature not recognized")
        flags = int.from_bytes(data[len(_SIGNATURE) : len(_SIGNATURE) + 4], "big")
        extension = int.from_bytes(data[len(_SIGNATURE) + 4 : _HEADER], "big")
        if flags & _CRITICAL_FLAGS or extension:
            raise self._bad("22P04", "unrecognized critical flags in COPY file header")
        return data[_HEADER:]

    def _parse(self, data: bytearray) -> tuple[int, bool, list[pa.RecordBatch]]:
        """The whole rows at the start: how many bytes they are, whether it was the end, rows."""
        buf = readonly(np.frombuffer(data, np.uint8))
        width = 2 + 4 * self._layout.ncols
        places = np.empty(len(data) // width + 1, np.int64)
        state = np.zeros(5, np.int64)
        room = Room(4096 + 2 * len(data))
        while _copy_rows(buf, self._nodes, room.buf, places, state) == NO_ROOM:
            room.grow(int(state[_AT]))
        if state[_ERROR]:
            raise self._value_error(int(state[_ERROR]))
        rows = places[: state[_ROWS]]
        return int(state[_POS]), bool(state[_ENDED]), self._typed(room, rows)

    def _typed(self, room: Room, places: npt.NDArray[np.int64]) -> list[pa.RecordBatch]:
        count = len(places)
        nowhere = np.full(count, -1, np.int64)
        changes = Changes(
            buf=room.buf,
            kind=np.full(count, _INSERT, np.uint8),
            old_kind=np.zeros(count, np.uint8),
            old_off=nowhere,
            new_off=places,
            txn=np.zeros(count, np.int32),
        )
        reader = ColumnReader(changes, self._layout, self._layout.columns)
        refs = np.arange(count, dtype=np.int64) * 2 + 1
        try:
            return [
                record_batch(arrays, self._schema, part.stop - part.start)
                for part, arrays, _ in reader.chunks(refs)
            ]
        except UnrepresentableValue as bad:
            raise self._error(
                "22003",
                f'column "{bad.column}" of lake table "{self._relation}" cannot hold a value that'
                " the publisher sent",
                f"The column's type in the lake is {bad.type}.",
                "Declare on_unrepresentable: null or text for the table, or correct the value on"
                " the publisher.",
            ) from None

    def _value_error(self, code: int) -> Exception:
        if code in _ERRORS:
            return self._bad("22P04", _ERRORS[code])
        error: ReplicationError = kernel_error(code, 0)
        return self._bad(error.code, error.primary, error.hint)

    def _bad(self, sqlstate: str, primary: str, hint: str | None = None) -> Exception:
        detail = f'It was met in the COPY of table "{self._relation}".'
        return self._error(sqlstate, primary, detail, hint)


@kernel
def _copy_rows(buf: Any, nodes: Any, out: Any, places: Any, state: Any) -> Any:
    """Rewrite rows as long as they are whole; 0, or ``NO_ROOM`` to be called with more of it."""
    table, roots = nodes
    end = len(buf)
    while state[_ENDED] == 0:
        pos, at = state[_POS], state[_AT]
        if end - pos < 2:
            return 0
        count = be16(buf, pos)
        if count == _TRAILER:
            state[_POS], state[_ENDED] = pos + 2, 1
            return 0
        if count != len(roots):
            state[_ERROR] = _FIELD_COUNT
            return 0
        if at + 2 > len(out):
            return NO_ROOM
        out[at], out[at + 1] = buf[pos], buf[pos + 1]
        pos, at = pos + 2, at + 2
        for column in range(count):
            if end - pos < 4:
                return 0
            size = be32(buf, pos)
            pos += 4
            if at + 5 > len(out):
                return NO_ROOM
            if size == _ABSENT:
                out[at] = _N
                at += 1
                continue
            if size > 0x7FFFFFFF:
                state[_ERROR] = _FIELD_SIZE
                return 0
            if size > end - pos:
                return 0
            at = put_binary(table, roots[column], buf, pos, size, out, at)
            if at < 0:
                if at == -NO_ROOM:
                    return NO_ROOM
                state[_ERROR] = -at
                return 0
            pos += size
        places[state[_ROWS]] = state[_AT]
        state[_ROWS] += 1
        state[_POS], state[_AT] = pos, at
    return 0
