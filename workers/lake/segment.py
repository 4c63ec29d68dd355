"""A segment: changes of one table that are applied in one go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from workers.lake.staged_rows import Staged
from workers.lake.table import LakeIdent

Generated = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class RowsOf:
    """What is staged are whole rows of a table: nothing is to be computed for them.

    ``columns`` are what ``c0…`` are called there, ``source`` whose they are in a shared table.
    """

    ident: LakeIdent
    columns: tuple[str, ...]
    source: str = ""


@dataclass(frozen=True, slots=True)
class FullSegment:
    """Changes of a table matched by whole rows (REPLICA IDENTITY FULL, or no key).

    ``images`` holds the distinct old rows: ``image`` int64, ``n`` int32 (how many at most), then
    ``c0…`` in the order of ``Segment.columns``. The lake finds up to ``n`` equal rows (NULLs
    equal) on the branch and calls ``resolve`` with what it found: ``image`` int64, ``f`` string
    (``_file``), ``p`` int64 (``_pos``). ``resolve`` answers ``(positions, append)``: positions
    has ``f, p, op`` (int8, 0 = update, 1 = delete) and ``c0…``; append has ``c0…``.
    """

    images: Staged
    resolve: Callable[[pa.Table], tuple[Staged | None, Staged | None]]


# Not from arrays: making one of Python values imports pandas, a second for every command.
NO_KEY_FOUND: Final = pa.Table.from_batches([], pa.schema({"k": pa.int64()}))


def nothing_found(others: int) -> pa.Table:
    """What a ``KeyProbe`` with so many other keys is told when none is there."""
    names = ["k", *(f"k{at}" for at in range(1, others + 1))]
    return pa.Table.from_batches([], pa.schema([(name, pa.int64()) for name in names]))


@dataclass(frozen=True, slots=True)
class OtherKey:
    """Values that rows are given in ``columns``: ``k`` int64, then ``b0…``, each value once."""

    columns: tuple[str, ...]
    keys: Staged


@dataclass(frozen=True, slots=True)
class KeyProbe:
    """Changes whose effect depends on which of their keys are in the table.

    ``keys`` holds each key once: ``k`` int64, then ``b0…`` in the order of ``Segment.key``. The
    lake looks for them on the branch and calls ``resolve`` with the ``k`` it found, once per row;
    the segment that ``resolve`` answers is applied instead. ``resolve`` may raise.

    With ``others`` it looks for rows that have any of the keys, and ``resolve`` gets a line for
    each: ``k``, then ``k1``, ``k2`` … for the other keys, NULL for one that is not among them.
    ``keys`` is None where the segment has no key.
    """

    keys: Staged | None
    resolve: Callable[[pa.Table], Segment]
    others: tuple[OtherKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of changes of one lake table under one layout, folded; segments apply in order.

    ``columns`` names the published columns; staged columns are ``c0…`` in that order.
    ``merge``: ``op`` int8 (0 = update, 1 = delete), ``b0…`` the base key in the order of ``key``,
    ``c0…`` the new values, and for each column named in ``unchanged`` (an unchanged out-of-line
    value somewhere in the segment) a boolean ``m<i>``, true where the table's value stays.
    ``append``: ``c0…``. The merge comes before the append; ``truncate`` before both.
    A segment with a ``probe`` has neither: its keys are looked for first.
    With a ``source`` (a shared table) only that source's rows are matched, deleted and emptied,
    and new rows are its own. ``from_branch`` appends that source's rows of another branch.
    What is ``generated`` is none of ``columns`` and is computed for each row that is written.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    truncate: bool = False
    merge: Staged | None = None
    unchanged: tuple[str, ...] = ()
    append: Staged | None = None
    full: FullSegment | None = None
    probe: KeyProbe | None = None
    defaults: tuple[tuple[str, str], ...] = ()  # lake-only column → Spark expression
    generated: Generated = ()
    source: str = ""
    from_branch: str | None = None


_FOUND: Final[list[tuple[str, pa.DataType]]] = [
    ("image", pa.int64()),
    ("f", pa.string()),
    ("p", pa.int64()),
]
FOUND: Final = pa.schema(_FOUND)
