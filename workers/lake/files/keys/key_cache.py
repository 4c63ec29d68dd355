"""A cache of the keys of data files, packed. A file never changes, so an entry stays valid.

Why: decoding the key column of 10 M rows takes 0.15 s of a core, and 1,000 changes of random rows
need the whole column. Opening a small file takes longer than searching the file.

How: keys are packed in blocks of 256 rows. A block has a least and a greatest key, and for each row
the distance from the least key in one, two or four bytes: the fewest bytes that suffice for all
blocks that are packed together. Rows that were copied in the order of their key take one or two
bytes. A search unpacks only the blocks that may contain a key.

Only columns that are numbers themselves are packed (``is_own_number``). Other keys are remembered
as hashes (``hashed_keys``), which take 20 bytes a row. Hashes of large files, and packed keys of
large files of an object store, are on the local disk (``key_files``): a restart finds them there.

Trace: a block has the keys 1000, 1003 and 1255. The least key is 1000, the greatest 1255, the
distances 0, 3 and 255 take a byte each. A search for 900 skips the block; a search for 1003 unpacks
the block.
"""

from __future__ import annotations

import secrets
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
    KEY_FILE_NOTED_SECONDS,
    UNPACK_AT_ONCE_BLOCKS,
)
from workers.columnar.key_search import KeyNumbers, Numbers
from workers.columnar.secret_hash import SECRET_BITS
from workers.lake.files.keys.hashed_keys import HashedKeys
from workers.lake.files.keys.key_files import Arrays, KeyFiles, MappedArrays

_WIDTHS: Final = (np.uint8, np.uint16, np.uint32)


@dataclass(frozen=True, slots=True)
class Packed:
    """Keys of consecutive rows of a file. The first row has position ``start``."""

    start: int
    rows: int
    least: Numbers
    greatest: Numbers
    above: npt.NDArray[Any]
    mapped: MappedArrays | None = None

    @property
    def size(self) -> int:
        """The size in bytes."""
        return self.least.nbytes + self.greatest.nbytes + self.above.nbytes

    def arrays(self) -> Arrays:
        """What ``from_arrays`` takes."""
        return {
            "start": np.array([self.start, self.rows]),
            "least": self.least,
            "greatest": self.greatest,
            "above": self.above.reshape(-1),
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> Packed:
        """The inverse of ``arrays``."""
        start, rows = arrays["start"].tolist()
        above = arrays["above"].reshape(-1, KEY_BLOCK_ROWS)
        mapped = arrays if isinstance(arrays, MappedArrays) else None
        return cls(start, rows, arrays["least"], arrays["greatest"], above, mapped)

    def search(self, keys: KeyNumbers, ascending: Numbers) -> Iterator[tuple[Numbers, Numbers]]:
        """Yield the positions of rows with a searched key, and the number of the key.

        ``ascending`` holds the searched keys in order.
        """
        first = np.searchsorted(ascending, self.least, "left")
        behind = np.searchsorted(ascending, self.greatest, "right")
        near = np.flatnonzero(first < behind)
        for at in range(0, len(near), UNPACK_AT_ONCE_BLOCKS):
            blocks = near[at : at + UNPACK_AT_ONCE_BLOCKS]
            numbers = self.above[blocks].astype(np.int64) + self.least[blocks, np.newaxis]
            rows, of = keys.search(numbers.reshape(-1))
            places = blocks[rows // KEY_BLOCK_ROWS] * KEY_BLOCK_ROWS + rows % KEY_BLOCK_ROWS
            there = places < self.rows  # the last block is padded
            yield places[there] + self.start, of[there]


def pack(numbers: Numbers, start: int) -> Packed | None:
    """Pack keys; None if a distance in a block takes more than four bytes."""
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


Part = Packed | HashedKeys
"""Keys of consecutive rows of a file."""


@dataclass(slots=True)
class KeyCache:
    """Keys by file and piece. An entry None says: the keys cannot be packed.

    Without ``files`` all keys are in memory. ``secret`` is that of the second hash of keys. Entries
    of ``files`` are mapped: they take no memory of the cache, and none is refused, because to map
    one means to read all of it for the checksum. Without a use for a while they are dropped.
    """

    max_bytes: int = KEY_CACHE_BYTES
    clock: Callable[[], float] = time.monotonic
    files: KeyFiles | None = None
    secret: int = field(default_factory=lambda: secrets.randbits(SECRET_BITS))
    _entries: OrderedDict[Hashable, _Entry] = field(default_factory=OrderedDict)
    _mapped: OrderedDict[Hashable, _Mapped] = field(default_factory=OrderedDict)
    _bytes: int = 0
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        if self.files is not None:
            self.secret = self.files.secret

    def get(self, of: Hashable) -> Sequence[Part] | None:
        """The keys; None if missing, or if the keys cannot be packed."""
        with self._lock:
            if of in self._entries:
                entry = self._entries.pop(of)
                self._entries[of] = replace(entry, used_at=self.clock())
                return entry.parts
            mapped = self._get_mapped(of)
        return self.load(of) if mapped is None else mapped

    def _get_mapped(self, of: Hashable) -> Sequence[Part] | None:
        now = self.clock()
        while self._mapped:
            oldest, entry = next(iter(self._mapped.items()))
            if now - entry.used_at <= KEY_CACHE_IDLE_SECONDS:
                break
            del self._mapped[oldest]  # the file may be gone, and takes room as long as it is mapped
        found = self._mapped.pop(of, None)
        if found is None or self.files is None:
            return None
        noted_at = found.noted_at
        if now - noted_at >= KEY_FILE_NOTED_SECONDS:
            if not self.files.use(of):
                return None
            noted_at = now
        self._mapped[of] = _Mapped(now, noted_at, found.parts)
        return found.parts

    def load(self, of: Hashable) -> Sequence[Part] | None:
        """The keys in the file of an entry."""
        arrays = None if self.files is None else self.files.load(of)
        if arrays is None:
            return None
        parts = [(HashedKeys if "starts" in each else Packed).from_arrays(each) for each in arrays]
        with self._lock:
            now = self.clock()
            self._mapped[of] = _Mapped(now, now, parts)
        return parts

    def refuses(self, of: Hashable) -> bool:
        """Can the keys not be packed, as an earlier look-up found?"""
        with self._lock:
            return of in self._entries and self._entries[of].parts is None

    def takes(self, of: Hashable, size: int) -> bool:
        """Is packing worth while? The cache has room and no entry for ``of`` yet."""
        with self._lock:
            if of in self._entries or size > self.max_bytes:
                return False
            return self._bytes + size <= self.max_bytes or self._oldest_is_stale()

    def put(self, of: Hashable, parts: Sequence[Part] | None) -> None:
        """Store an entry if the cache has room. ``parts`` is None if the keys cannot be packed."""
        size = KEY_CACHE_ENTRY_BYTES + sum(each.size for each in parts or ())
        with self._lock:
            if of in self._entries or size > self.max_bytes:
                return
            while self._bytes + size > self.max_bytes and self._oldest_is_stale():
                self._bytes -= self._entries.popitem(last=False)[1].size
            if self._bytes + size <= self.max_bytes:
                self._entries[of] = _Entry(self.clock(), size, parts)
                self._bytes += size

    def drop(self, of: Hashable) -> None:
        """Forget a file that left the table; no other batch will ask for the file."""
        with self._lock:
            entry = self._entries.pop(of, None)
            self._bytes -= 0 if entry is None else entry.size

    def _oldest_is_stale(self) -> bool:
        for entry in self._entries.values():
            return self.clock() - entry.used_at > KEY_CACHE_IDLE_SECONDS
        return False


@dataclass(frozen=True, slots=True)
class _Entry:
    used_at: float
    size: int
    parts: Sequence[Part] | None


@dataclass(frozen=True, slots=True)
class _Mapped:
    """``noted_at`` is the time at which the use was last noted on the disk."""

    used_at: float
    noted_at: float
    parts: Sequence[Part]
