"""Remember the keys of a data file while a look-up reads the file.

``remember`` chooses the place and the form. The place is the disk for files that are large and
expensive to read again: hashes, or an object store; else the memory. The form is packed numbers,
or hashes. A file is remembered whole or not at all.

Trace: a look-up reads the key column of a file of an object store with 3 M rows, 131,072 rows at a
time. Each time the entry's file gets a part. The entry counts once the last row is read; if a row
group is skipped, the entry is removed.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import pyarrow as pa

from config.limits import ALWAYS_READ_ROWS, HASHED_KEY_BYTES
from workers.columnar.key_search import Numbers
from workers.lake.files.keys.hashed_keys import Hashing
from workers.lake.files.keys.key_cache import KeyCache, Part, pack
from workers.lake.files.keys.key_files import NewKeyFile

_HASHING: Final = threading.BoundedSemaphore(os.cpu_count() or 1)
"""So many threads hash keys, and have a finished part in memory beside the rows of the part. More
threads read files at a time, and wait for requests."""


class NewEntry(Protocol):
    """An entry that is collected."""

    @property
    def is_open(self) -> bool:
        """Is the entry still collected?"""

    def add(self, columns: Sequence[pa.Array[Any]], numbers: Numbers, start: int) -> None:
        """Take the keys of rows from position ``start`` on."""

    def skip(self) -> None:
        """Rows are missing: nothing is remembered."""


@dataclass(slots=True)
class _Entry:
    """``hashing`` is None for packed keys; ``file`` is None in memory."""

    cache: KeyCache
    of: Hashable
    hashing: Hashing | None
    file: NewKeyFile | None
    is_open: bool = True
    _parts: list[Part] = field(default_factory=list)
    _size: int = 0
    _has_part: bool = False

    def add(self, columns: Sequence[pa.Array[Any]], numbers: Numbers, start: int) -> None:
        if not self.is_open:
            return
        if self.hashing is not None:
            with _HASHING:
                for part in self.hashing.add(columns, numbers, start):
                    self._keep(part)
            return
        packed = None if columns[0].null_count else pack(numbers, start)
        if packed is None:
            self._refuse()
        else:
            self._keep(packed)

    def _keep(self, part: Part) -> None:
        self._has_part = True
        if self.file is not None:
            self.file.add(part.arrays())
            return
        self._size += part.size
        self._parts.append(part)
        if self._size > self.cache.max_bytes:
            self._refuse()

    def _refuse(self) -> None:
        """The keys cannot be packed, or are too many: no later look-up tries again."""
        self.skip()
        self.cache.put(self.of, None)

    def skip(self) -> None:
        self.is_open = False
        self._parts = []
        if self.file is not None:
            self.file.discard()

    def store(self) -> None:
        """All rows were read."""
        if self.is_open and self.hashing is not None:
            with _HASHING:
                for part in self.hashing.end():
                    self._keep(part)
        if not self.is_open:
            return
        if self.file is None or not self._has_part:
            # Without a part no row has a key, or the piece has no row group: memory suffices.
            self.cache.put(self.of, self._parts)
        elif self.file.finish():
            self.cache.load(self.of)


class _NoEntry:
    is_open = False

    def add(self, columns: Sequence[pa.Array[Any]], numbers: Numbers, start: int) -> None:
        pass

    def skip(self) -> None:
        pass


@contextmanager
def remember(
    cache: KeyCache | None, of: Hashable, rows: int, *, hashed: bool, has_cheap_requests: bool
) -> Iterator[NewEntry]:
    """Collect an entry for a file, or a piece of a file, with so many rows.

    Without an error in between the entry is stored.
    """
    entry = None
    if cache is not None:
        large = rows > ALWAYS_READ_ROWS and (hashed or not has_cheap_requests)
        entry = _entry(cache, of, rows * HASHED_KEY_BYTES if hashed else rows, hashed, large)
    if entry is None:
        yield _NoEntry()
        return
    try:
        yield entry
        entry.store()
    except BaseException:
        entry.skip()
        raise


def _entry(cache: KeyCache, of: Hashable, size: int, hashed: bool, large: bool) -> _Entry | None:
    hashing = Hashing(cache.secret) if hashed else None
    if large and cache.files is not None and not cache.refuses(of):
        file = cache.files.new(of, size)
        if file is not None:
            return _Entry(cache, of, hashing, file)
    return _Entry(cache, of, hashing, None) if cache.takes(of, size) else None
