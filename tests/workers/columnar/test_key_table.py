"""Rows by buckets of their number."""

from __future__ import annotations

import numpy as np

from workers.columnar.key_table import count_buckets, fill_buckets, probe

NUMBERS = np.array([0xC1, 0x20, 0xC1, 0x41], np.int64) << 56
"""As in the trace of the module, and a row in the second bucket."""


def test_rows_are_beside_the_rows_of_their_bucket() -> None:
    numbers = NUMBERS.copy()
    numbers.flags.writeable = False
    starts, places = np.zeros(5, np.int32), np.zeros(4, np.int32)
    count_buckets(numbers, 62, starts)
    assert starts.tolist() == [0, 1, 2, 2, 4]
    own = np.zeros(4, np.int64), np.zeros(4, np.int64), places
    fill_buckets(numbers, numbers, np.arange(4, dtype=np.int32), 62, starts.copy(), *own)
    assert places.tolist() == [1, 3, 0, 2]
    for array in (starts, places, *own):
        array.flags.writeable = False
    found = np.zeros(1, np.int64), np.zeros(1, np.int64)
    keys = numbers[:2]
    assert probe(keys, keys, starts, 62, own[0], own[1], places, *found) == 3, "two do not fit"
    assert [each.tolist() for each in found] == [[0], [0]]
