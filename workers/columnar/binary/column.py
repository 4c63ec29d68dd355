"""Turn a column of values in binary form into an Arrow array.

Common types are read directly (``direct``). Further types, and columns with an unusual value, are
first turned into text (``text``), and the text is read: so binary form and text form give equal
values and equal errors.

Trace: a column int4 with 7 and NULL goes through ``direct``. For a column date with ``infinity``
``direct`` gives up, ``text`` writes "infinity", and the text reader raises ``Unrepresentable``, as
for a stream in text form.
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
    clamp: bool = False,
) -> Array:
    """The values at ``loc`` as ``type``; ``root`` is the PostgreSQL type's node in ``table``.

    A length below zero is NULL. Raises ``Unrepresentable`` for a value that ``type`` cannot hold,
    (``clamp``: as in ``typed``),
    ``WrongValue`` for bytes that are no value of the PostgreSQL type, ``TooMuchText`` to ask for
    fewer rows at once.
    """
    kind = 0 if root < 0 else int(table[root, 0])
    array = direct(kind, type, buf, loc, length)
    if array is not None:
        return array
    strings = binary_texts(table, root, buf, loc, length)
    values: Array = typed(strings, type, null_unrepresentable=null_unrepresentable, clamp=clamp)
    return values
