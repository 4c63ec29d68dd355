"""Write the text of values in binary form, a column at a time."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from config.limits import TEXT_ARRAY_BYTES
from workers.columnar.binary.containers import RANGE, put_value
from workers.columnar.binary.scalars import put_scalar
from workers.columnar.kernel import inner_kernel, kernel
from workers.columnar.text_values import Unrepresentable
from workers.columnar.tuples import BINARY_VALUE, NO_ROOM, Bytes, measure

_LONGEST: Final = 0x7FFFFFFF  # the limit of Arrow's offsets
_TOO_LONG: Final = 103  # a code in addition to those of ``tuples``

_DONE, _WRONG = range(2)


class TooMuchText(Exception):  # noqa: N818 - no error: fewer rows are to be taken at once
    """A column's text reached the limit after ``rows`` rows, at least one."""

    def __init__(self, rows: int) -> None:
        super().__init__(rows)
        self.rows = rows


class WrongValue(Exception):  # noqa: N818 - a finding; the caller makes the error
    """The bytes at ``index`` are no value of the type; ``code`` is the reason. Carries no value."""

    def __init__(self, code: int, index: int) -> None:
        super().__init__(f"value {index} is wrong: {code}")
        self.code = code
        self.index = index


def binary_texts(
    table: npt.NDArray[np.int64],
    root: int,
    buf: Bytes,
    loc: npt.NDArray[np.int64],
    length: npt.NDArray[np.int32],
) -> pa.StringArray:
    """The values at ``loc`` as text; ``root`` is the type's node in ``table``.

    Raises ``TooMuchText`` if only the first rows fit, ``WrongValue``, ``Unrepresentable``.
    """
    rows = len(loc)
    offsets, valid = np.zeros(rows + 1, np.int32), np.zeros((rows + 7) // 8, np.uint8)
    nulls = measure(length, offsets, valid)
    out = np.empty(4096 + 2 * int(offsets[-1]), np.uint8)
    state = np.zeros(2, np.int64)
    column = (table, root, loc, length)
    while _put_texts(column, buf, out, offsets, TEXT_ARRAY_BYTES, state) == NO_ROOM:
        used = int(offsets[state[_DONE]])
        grown = np.empty(2 * len(out), np.uint8)
        grown[:used] = out[:used]
        out = grown
    done, wrong = int(state[_DONE]), int(state[_WRONG])
    if wrong == _TOO_LONG:
        raise Unrepresentable(done)
    if wrong:
        raise WrongValue(wrong, done)
    if done < rows:
        raise TooMuchText(done)
    py_buffer: Any = pa.py_buffer
    data = py_buffer(out[: offsets[-1]])
    bits = py_buffer(valid) if nulls else None
    return pa.StringArray.from_buffers(rows, py_buffer(offsets), data, bits, nulls)


@kernel
def _put_texts(column: Any, buf: Any, out: Any, offsets: Any, most: int, state: Any) -> Any:
    """Write a column's values as text, from row ``state[_DONE]`` on, up to ``most`` bytes.

    Returns 0, or ``NO_ROOM`` to ask for a call with more room.
    """
    table, root, loc, length = column
    while state[_DONE] < len(loc):
        row = state[_DONE]
        begin: Any = np.int64(offsets[row])
        if begin > most:
            return 0
        end = begin
        if length[row] >= 0:
            end = _put(table, root, buf, loc[row], length[row], out, begin)
        if end == -NO_ROOM:
            return NO_ROOM
        if end < 0 or end > _LONGEST:
            state[_WRONG] = -end if end < 0 else _TOO_LONG
            return 0
        offsets[row + 1] = end
        state[_DONE] = row + 1
    return 0


@inner_kernel
def _put(table: Any, root: int, buf: Any, pos: int, size: int, out: Any, at: int) -> Any:
    """Write the text of a value; return the end, or minus an error code."""
    if root < 0:
        return -BINARY_VALUE
    kind = table[root, 0]
    if kind < RANGE:
        return put_scalar(kind, buf, pos, size, out, at)
    return put_value(table, root, buf, pos, size, out, at)
