"""Bytes are copied to exactly their place, inside a kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from numba import njit

from workers.columnar.copy_bytes import copy_bytes

Bytes = npt.NDArray[np.uint8]


def _copy(target: Any, at: int, source: Any, pos: int, size: int) -> None:
    copy_bytes(target, at, source, pos, size)


jit: Any = njit
copy: Any = jit(_copy)


@pytest.mark.parametrize("size", [0, 1, 7, 64, 200])
@pytest.mark.parametrize(("at", "pos"), [(0, 0), (3, 0), (0, 5), (56, 56)])
def test_only_the_given_bytes_are_copied(at: int, pos: int, size: int) -> None:
    source = np.arange(256, dtype=np.uint8)
    source.flags.writeable = False
    target = np.full(256, 99, np.uint8)
    wanted = target.copy()
    wanted[at : at + size] = source[pos : pos + size]
    copy(target, at, source, pos, size)
    assert target.tolist() == wanted.tolist()


def test_a_slice_of_an_array_begins_at_its_own_first_byte() -> None:
    source, target = np.arange(20, dtype=np.uint8), np.zeros(20, np.uint8)
    copy(target[10:], 2, source[5:], 1, 3)
    assert target.tolist() == [0] * 12 + [6, 7, 8] + [0] * 5
