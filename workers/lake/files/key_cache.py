"""The keys of files that were looked through, packed: a file never changes.

To unpack the key column of 10 M rows takes 0.15 s of a core, and 1,000 changes of random rows need
all of it; to open a small file takes longer than to look through it. What is remembered is the
least and the greatest number of each 256 rows, and how far each is above the least, in one, two or
four bytes: the fewest that all of so many rows need. Rows that were copied in the order of their
key take one or two, and only those of them are unpacked among which one of the keys may be.

Columns that are their own numbers alone (``is_own_number``), and no hashes: those need eight bytes.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from config.limits import (
    KEY_BLOCK_ROWS,
    KEY_CACHE_BYTES,
    KEY_CACHE_ENTRY_BYTES,
    KEY_CACHE_IDLE_SECONDS,
    UNPACK_AT_ONCE_BLOCKS,
)
from workers.columnar.key_search import KeyNumbers, Numbers

_WIDTHS: Final = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True)
class Packed:
    """Numbers of some rows of a file, the first of which is at ``start``."""

    start: int
    rows: int
    least: Numbers
    greatest: Numbers
    above: npt.NDArray[Any]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.least.nbytes + self.greatest.nbytes + self.above.nbytes

    def search(self, keys: KeyNumbers, ascending: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """The positions of rows that have one of the keys, and which key that is.

        ``ascending`` are the keys' numbers.
        """
        first = np.searchsorted(ascending, self.least, "left")
        behind = np.searchsorted(ascending, self.greatest, "right")
        near = np.flatnonzero(first < behind)
        for at in range(0, len(near), UNPACK_AT_ONCE_BLOCKS):
            blocks = near[at : at + UNPACK_AT_ONCE_BLOCKS]
            numbers = self.above[blocks].astype(np.int64) + self.least[blocks, np.newaxis]
            rows, of = keys.search(numbers.reshape(-1))
            places = blocks[rows // KEY_BLOCK_ROWS] * KEY_BLOCK_ROWS + rows % KEY_BLOCK_ROWS
            there = places < self.rows  # the last block is filled up
            yield places[there] + self.start, of[there]


def pack(numbers: Numbers, start: int) -> Packed | None:
    """None where some are too far from each other."""
    blocks = -(-len(numbers) // KEY_BLOCK_ROWS)
    filled = np.full(blocks * KEY_BLOCK_ROWS, numbers[-1])
    filled[: len(numbers)] = numbers
    by_block = filled.reshape(blocks, KEY_BLOCK_ROWS)
    least, greatest = by_block.min(axis=1), by_block.max(axis=1)
    span = int((greatest.view(np.uint64) - least.view(np.uint64)).max())
    for width in _WIDTHS:
        if span <= np.iinfo(width).max:
            above = (by_block - least[:, np.newaxis]).astype(width)
            return Packed(start, len(numbers), least, greatest, above)
    return None


@dataclass(slots=True)
class KeyCache:
    """What is remembered, by what it is of; of what cannot be packed, that."""

    most: int = KEY_CACHE_BYTES
    clock: Callable[[], float] = time.monotonic
    _known: OrderedDict[Hashable, _Entry] = field(default_factory=OrderedDict)
    _held: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def get(self, of: Hashable) -> Sequence[Packed] | None:
        """What is remembered of it, if it is."""
        with self._lock:
            if of not in self._known:
                return None
            entry = self._known.pop(of)
            self._known[of] = replace(entry, asked=self.clock())
            return entry.packed

    def takes(self, of: Hashable, rows: int) -> bool:
        """Whether so many rows of it may be worth packing, as far as can be told before."""
        with self._lock:
            if of in self._known or rows > self.most:
                return False
            return self._held + rows <= self.most or self._oldest_is_stale()

    def put(self, of: Hashable, packed: Sequence[Packed] | None) -> None:
        """Remember it, if there is room; None: that it cannot be packed."""
        size = KEY_CACHE_ENTRY_BYTES + sum(each.size for each in packed or ())
        with self._lock:
            if of in self._known or size > self.most:
                return
            while self._held + size > self.most and self._oldest_is_stale():
                self._held -= self._known.popitem(last=False)[1].size
            if self._held + size <= self.most:
                self._known[of] = _Entry(self.clock(), size, packed)
                self._held += size

    def _oldest_is_stale(self) -> bool:
        for entry in self._known.values():
            return self.clock() - entry.asked > KEY_CACHE_IDLE_SECONDS
        return False


@dataclass(frozen=True, slots=True)
class _Entry:
    asked: float
    size: int
    packed: Sequence[Packed] | None
