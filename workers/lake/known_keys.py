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
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from workers.columnar.key_numbers import KeyNumbers, Numbers

MOST: Final = 64 << 20
"""Bytes that a process remembers, of all tables."""
STALE: Final = 100
"""Look-ups behind which keys that none of them asked for make room for others. Not sooner: of a
table that is too large each file would take the place of the one that is asked for next."""
BLOCK: Final = 256
"""Rows that one least number is of."""
_TOGETHER: Final = 512
"""Blocks that are unpacked in one go."""
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
        for at in range(0, len(near), _TOGETHER):
            blocks = near[at : at + _TOGETHER]
            numbers = self.above[blocks].astype(np.int64) + self.least[blocks, np.newaxis]
            rows, of = keys.search(numbers.reshape(-1))
            places = blocks[rows // BLOCK] * BLOCK + rows % BLOCK
            there = places < self.rows  # the last block is filled up
            yield places[there] + self.start, of[there]


def pack(numbers: Numbers, start: int) -> Packed | None:
    """None where some are too far from each other."""
    blocks = -(-len(numbers) // BLOCK)
    filled = np.full(blocks * BLOCK, numbers[-1])
    filled[: len(numbers)] = numbers
    by_block = filled.reshape(blocks, BLOCK)
    least, greatest = by_block.min(axis=1), by_block.max(axis=1)
    span = int((greatest.view(np.uint64) - least.view(np.uint64)).max())
    for width in _WIDTHS:
        if span <= np.iinfo(width).max:
            above = (by_block - least[:, np.newaxis]).astype(width)
            return Packed(start, len(numbers), least, greatest, above)
    return None


@dataclass(slots=True)
class KnownKeys:
    """What is remembered, by what it is of."""

    most: int = MOST
    _known: OrderedDict[Hashable, tuple[int, Sequence[Packed]]] = field(default_factory=OrderedDict)
    _held: int = 0
    _look_ups: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def look_up(self) -> None:
        """One begins."""
        with self._lock:
            self._look_ups += 1

    def get(self, of: Hashable) -> Sequence[Packed] | None:
        """What is remembered of it, if it is."""
        with self._lock:
            if of not in self._known:
                return None
            _, packed = self._known.pop(of)
            self._known[of] = self._look_ups, packed
            return packed

    def has_room(self, rows: int) -> bool:
        """Whether so many more might be remembered."""
        with self._lock:
            return self._held + rows <= self.most or self._oldest_is_stale()

    def put(self, of: Hashable, packed: Sequence[Packed]) -> None:
        """Remember it, if there is room."""
        size = sum(each.size for each in packed)
        with self._lock:
            if of in self._known:
                return
            while self._held + size > self.most and self._oldest_is_stale():
                _, (_, gone) = self._known.popitem(last=False)
                self._held -= sum(each.size for each in gone)
            if self._held + size <= self.most:
                self._known[of] = self._look_ups, packed
                self._held += size

    def _oldest_is_stale(self) -> bool:
        for look_up, _ in self._known.values():
            return self._look_ups - look_up > STALE
        return False
