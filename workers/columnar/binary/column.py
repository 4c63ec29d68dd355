"""A column of values in binary form made an Arrow array.

Common types are read as they lie (``binary_direct``), the others, and whatever is unusual about a
value, by way of the text that the same value becomes: so either form brings the same values, and
the same errors.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from workers.columnar.binary.direct import direct
from workers.columnar.binary.text import binary_texts
from workers.columnar.text_array import Array
from workers.columnar.text_values import typed
from workers.columnar.tuples import Bytes


def binary_column(
    table: npt.NDArray[np.int64],
    root: int,
    type: pa.DataType,
    buf: Bytes,
    loc: npt.NDArray[np.int64],
    length: npt.NDArray[np.int32],
    *,
    null_unrepresentable: bool,
) -> Array:
    """The values at ``loc`` as ``type``; ``root`` is their PostgreSQL type's node in ``table``.

    A length below zero is NULL. Raises ``Unrepresentable`` for what the type cannot hold,
    ``WrongValue`` for what is no value of its own type, ``TooMuchText`` for fewer rows at once.
    """
    kind = 0 if root < 0 else int(table[root, 0])
    array = direct(kind, type, buf, loc, length)
    if array is not None:
        return array
    strings = binary_texts(table, root, buf, loc, length)
    values: Array = typed(strings, type, null_unrepresentable=null_unrepresentable)
    return values
