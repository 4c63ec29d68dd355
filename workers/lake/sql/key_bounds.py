"""Decide whether literal key bounds help a MERGE, and choose the bounds.

``t.id BETWEEN lo AND hi`` in the ON clause lets Iceberg skip all files with key ranges outside:
1.0 s instead of 3.4 s if a batch's keys lie close together. Bounds that exclude no file make
planning half as long again. So the key ranges of the table's files are read, at most once in a
while per table. Old ranges cost time, but never change the matched rows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from config.limits import KEY_BOUNDS_SECONDS, KEY_BOUNDS_TABLE_SHARE, SCANNED_TABLE_ROWS
from workers.lake.connect.session import LakeSession
from workers.lake.sql.find_rows import find_ranges
from workers.lake.sql.merge import Bound, KeyBounds
from workers.lake.staged_rows import Staged
from workers.lake.storage.staging import staged_columns
from workers.lake.table import LakeColumn, LakeIdent


@dataclass(slots=True)
class FileRanges:
    """The rows and the ends of the key range of every file (None if unknown)."""

    rows: list[int]
    low: list[Any]
    high: list[Any]

    def share(self, low: Bound, high: Bound) -> float:
        """The share of all rows in files that a key range touches."""
        total = touched = 0
        for rows, lowest, highest in zip(self.rows, self.low, self.high, strict=True):
            total += rows
            if lowest is None or highest is None or (lowest <= high and highest >= low):
                touched += rows
        return touched / total if total else 1.0


@dataclass(slots=True)
class KeyRanges:
    """The key ranges of a table's files, and the time of reading."""

    ident: LakeIdent
    columns: Sequence[LakeColumn]
    clock: Callable[[], float] = monotonic
    _read_at: float | None = None
    _ranges: dict[str, FileRanges] = field(default_factory=dict)

    def get(self, session: LakeSession, column: str) -> FileRanges | None:
        """The files' ranges of a key column on ``main``; None for a type without usable order."""
        if not any(c.name == column and boundable(c.type) for c in self.columns):
            return None
        now = self.clock()
        if self._read_at is None or now - self._read_at > KEY_BOUNDS_SECONDS:
            self._ranges.clear()
            self._read_at = now
        if column not in self._ranges:
            rows = session.query(
                find_ranges(self.ident, column),
                f'reading the key ranges of lake table "{self.ident}"',
            )
            self._ranges[column] = FileRanges(*_lists(rows))
        return self._ranges[column]


def _lists(rows: pa.Table) -> list[list[Any]]:
    return [column.to_pylist() for column in rows.columns]


def boundable(type: pa.DataType) -> bool:
    """Does the type have the same order in PostgreSQL, Arrow and Iceberg's file statistics?"""
    return bool(
        pa.types.is_int32(type)
        or pa.types.is_int64(type)
        or pa.types.is_date32(type)
        or pa.types.is_timestamp(type)
    )


def choose_bounds(
    session: LakeSession, ranges: KeyRanges, key: Sequence[str], staged: Staged
) -> KeyBounds | None:
    """Bounds on the first key column, or None if bounds exclude too little of the table."""
    known = ranges.get(session, key[0]) if key else None
    if known is None or sum(known.rows) < SCANNED_TABLE_ROWS:
        return None
    ends: Any = pc.min_max(staged_columns(staged, ["b0"])["b0"])
    low, high = ends["min"].as_py(), ends["max"].as_py()
    if low is None or known.share(low, high) > KEY_BOUNDS_TABLE_SHARE:
        return None
    return KeyBounds(key[0], low, high)
