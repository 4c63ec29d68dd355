"""The keys of a data file as hashes, for keys that are no numbers: texts, decimals, columns.

A key has two hashes of 64 bits, of the key's bytes. The first is the number that look-ups use
(``numbers_of``). The second has the secret of the data directory (``secret_hash``). Equal hashes
are taken for equal keys, and the table's key column is not read again. Two different keys have
equal hashes with a chance of 1 in 2^128; for a billion rows and a billion searched keys the chance
is 1 in 10^20. A writer of rows cannot look for such keys without the secret.

A row takes 20 bytes. Rows with a NULL in the key have no entry.

Trace: a file has the keys 'x' (row 0), NULL (row 1) and 'y' (row 2). A search for 'y' finds row 2,
a search for 'z' finds nothing, and the file is not opened.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from config.limits import HASHED_AT_ONCE_ROWS
from workers.columnar.key_search import Numbers
from workers.columnar.key_table import count_buckets, fill_buckets, probe
from workers.columnar.secret_hash import secret_numbers_of
from workers.lake.files.keys.key_files import Arrays, MappedArrays

_ROWS_A_BUCKET: Final = 4


@dataclass(frozen=True, slots=True)
class SearchedHashes:
    """The searched keys in the order of their first hash; ``at`` is the number of the key."""

    numbers: Numbers
    checks: Numbers
    at: Numbers

    @classmethod
    def of(cls, columns: Sequence[pa.Array[Any]], numbers: Numbers, secret: int) -> SearchedHashes:
        """``numbers`` are the first hashes of the key columns."""
        order = np.argsort(numbers.view(np.uint64))
        return cls(_fixed(numbers[order]), _fixed(secret_numbers_of(columns, secret)[order]), order)


@dataclass(frozen=True, slots=True)
class HashedKeys:
    """The hashes of consecutive rows of a file, in buckets of the first hash.

    ``start`` is the position of the first row; ``places`` count from there.
    """

    start: int
    starts: npt.NDArray[np.int32]
    numbers: Numbers
    checks: Numbers
    places: npt.NDArray[np.int32]
    mapped: MappedArrays | None = None

    @property
    def size(self) -> int:
        """The size in bytes."""
        return sum(each.nbytes for each in self.arrays().values())

    def arrays(self) -> Arrays:
        """What ``from_arrays`` takes."""
        return {
            "start": np.array([self.start]),
            "starts": self.starts,
            "numbers": self.numbers,
            "checks": self.checks,
            "places": self.places,
        }

    @classmethod
    def from_arrays(cls, arrays: Arrays) -> HashedKeys:
        """The inverse of ``arrays``."""
        return cls(
            int(arrays["start"][0]),
            arrays["starts"],
            arrays["numbers"],
            arrays["checks"],
            arrays["places"],
            arrays if isinstance(arrays, MappedArrays) else None,
        )

    def search(self, keys: SearchedHashes) -> tuple[Numbers, Numbers]:
        """The positions of the rows with a searched key, and the number of the key."""
        shift = 64 - (len(self.starts) - 1).bit_length() + 1
        room = len(keys.numbers)
        while True:
            rows, at = np.empty(room, np.int64), np.empty(room, np.int64)
            own = (self.starts, shift, self.numbers, self.checks, self.places)
            count = probe(keys.numbers, keys.checks, *own, rows, at)
            if count <= room:
                return rows[:count] + self.start, keys.at[at[:count]]
            room = count


def hash_rows(
    start: int, offsets: npt.NDArray[np.int32], numbers: Numbers, checks: Numbers
) -> HashedKeys:
    """Put rows into buckets. ``offsets`` ascend, and count from ``start``; one row at least."""
    width = max(1, (len(offsets) // _ROWS_A_BUCKET).bit_length())
    starts = np.zeros((1 << width) + 1, np.int32)
    count_buckets(numbers, 64 - width, starts)
    own_numbers, own_checks = np.empty(len(offsets), np.int64), np.empty(len(offsets), np.int64)
    places = np.empty(len(offsets), np.int32)
    fill_buckets(
        numbers, checks, offsets, 64 - width, starts.copy(), own_numbers, own_checks, places
    )
    return HashedKeys(start, *map(_fixed, (starts, own_numbers, own_checks, places)))


@dataclass(slots=True)
class Hashing:
    """Collects the keys of a file's rows in order, some at a time.

    A part's keys are written into the arrays that it is made of, not gathered as a list.
    """

    secret: int
    _held: _Held | None = None

    def add(
        self, columns: Sequence[pa.Array[Any]], numbers: Numbers, start: int
    ) -> Iterator[HashedKeys]:
        """Take rows from position ``start`` on; yield what is enough for a part."""
        checks = secret_numbers_of(columns, self.secret)
        rows = np.arange(start, start + len(numbers))
        nulls = [column for column in columns if column.null_count]
        if nulls:
            known = np.ones(len(numbers), np.bool_)
            for column in nulls:
                known &= column.is_valid().to_numpy(zero_copy_only=False)
            rows, numbers, checks = rows[known], numbers[known], checks[known]
        at = 0
        while at < len(rows):
            if self._held is None:
                self._held = _Held(int(rows[at]), HASHED_AT_ONCE_ROWS)
            at += self._held.take(rows[at:], numbers[at:], checks[at:])
            if self._held.is_full:
                yield from self.end()

    def end(self) -> Iterator[HashedKeys]:
        """Yield the rest."""
        held, self._held = self._held, None
        if held is not None:
            made = held.in_buckets()
            del held  # whoever takes the part may write it, and has memory of his own
            yield made


class _Held:
    """At most ``most`` rows for a part; the first has position ``start``."""

    def __init__(self, start: int, most: int) -> None:
        self._start = start
        self._count = 0
        self._places = np.empty(most, np.int32)
        self._numbers, self._checks = np.empty(most, np.int64), np.empty(most, np.int64)

    @property
    def is_full(self) -> bool:
        """Is there no room for another row?"""
        return self._count == len(self._places)

    def take(self, rows: Numbers, numbers: Numbers, checks: Numbers) -> int:
        """Take the first rows; returns how many."""
        count = min(len(rows), len(self._places) - self._count)
        own = slice(self._count, self._count + count)
        self._places[own] = rows[:count] - self._start
        self._numbers[own], self._checks[own] = numbers[:count], checks[:count]
        self._count += count
        return count

    def in_buckets(self) -> HashedKeys:
        """The rows as a part."""
        numbers, checks = self._numbers[: self._count], self._checks[: self._count]
        places = self._places[: self._count]
        return hash_rows(self._start, places, _fixed(numbers), _fixed(checks))


def _fixed(array: Any) -> Any:
    """A read-only array: kernels are compiled for those, as an array of a file is one."""
    array.flags.writeable = False
    return array
