"""Put values side by side as an Arrow string array, from which typed columns are made."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.columnar.tuples import Bytes, gather, measure

Array: TypeAlias = "pa.Array[Any]"


def text_array(
    buf: Bytes, loc: npt.NDArray[np.int64], length: npt.NDArray[np.int32]
) -> pa.StringArray:
    """The values at ``loc`` as a string array; a negative ``length`` is NULL.

    The bytes are not checked for UTF-8. The sum of the lengths must stay below 2 GiB.
    """
    rows = len(length)
    offsets = np.empty(rows + 1, np.int32)
    valid = np.zeros((rows + 7) // 8, np.uint8)
    nulls = measure(length, offsets, valid)
    data = np.empty(int(offsets[-1]), np.uint8)
    gather(buf, loc, length, offsets, data)
    py_buffer: Any = pa.py_buffer
    bits = py_buffer(valid) if nulls else None
    return pa.StringArray.from_buffers(rows, py_buffer(offsets), py_buffer(data), bits, nulls)
