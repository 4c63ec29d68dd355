"""Kernels for a hash table that is written once: rows by buckets of their number.

A row has two numbers, both made of the row's key (``numbers_of``): ``number`` chooses the bucket,
``check`` is made with another seed. Rows of one bucket are beside each other, ``starts`` has the
first row of each bucket. A search for few keys looks at few places of the table, so the table may
be a file that is mapped to memory.

Trace, with four buckets and numbers of eight bits (a bucket is the number's upper two bits)::

    row   number       bucket        starts  0 1 1 3
    0     11 000001    3             places  1, 2 0
    1     00 100000    0
    2     11 000001    3             a search for 11 000001 looks at places 1 and 2
"""

from __future__ import annotations

from typing import Any

import numpy as np

from workers.columnar.kernel import kernel


@kernel
def count_buckets(numbers: Any, shift: int, starts: Any) -> None:
    """Write the number of rows before each bucket; ``starts`` is as long as the buckets and one."""
    for row in range(len(numbers)):
        starts[np.int64(np.uint64(numbers[row]) >> np.uint64(shift)) + 1] += 1
    for bucket in range(1, len(starts)):
        starts[bucket] += starts[bucket - 1]


@kernel
def fill_buckets(
    numbers: Any,
    checks: Any,
    rows: Any,
    shift: int,
    ends: Any,
    own_numbers: Any,
    own_checks: Any,
    places: Any,
) -> None:
    """Write rows to their buckets. ``ends`` begins as ``starts``, and is written over."""
    for at in range(len(numbers)):
        bucket = np.int64(np.uint64(numbers[at]) >> np.uint64(shift))
        to = ends[bucket]
        ends[bucket] += 1
        own_numbers[to] = numbers[at]
        own_checks[to] = checks[at]
        places[to] = rows[at]


@kernel
def probe(
    keys: Any,
    key_checks: Any,
    starts: Any,
    shift: int,
    numbers: Any,
    checks: Any,
    places: Any,
    rows: Any,
    at: Any,
) -> Any:
    """Write the rows that have both numbers of a key to ``rows``, and the keys to ``at``.

    Returns the number of found rows. If they are more than fit, the result has to be asked for
    again.
    """
    count = 0
    for key in range(len(keys)):
        bucket = np.int64(np.uint64(keys[key]) >> np.uint64(shift))
        for to in range(starts[bucket], starts[bucket + 1]):
            if numbers[to] == keys[key] and checks[to] == key_checks[key]:
                if count < len(rows):
                    rows[count], at[count] = places[to], key
                count += 1
    return count
