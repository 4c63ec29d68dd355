"""A segment: a run of changes of one lake table, folded and staged.

The workers build segments and the lake applies them. Two parts of a segment call back into the
workers while the lake applies it: ``KeyLookup.decide`` and ``WholeRowLookup.decide``. The fold
needs the lake's answer (which keys, which rows are in the table?) and stages more rows when it has
that answer. No other call goes from the lake up to the workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from catalog.pg_lsn import LSN
from workers.lake.staged_rows import Staged
from workers.lake.table import SOURCE_COLUMN, LakeIdent, Stamp

if TYPE_CHECKING:
    import pyarrow as pa

Constants: TypeAlias = "tuple[tuple[str, pa.Scalar[Any]], ...]"
"""Columns of a lake table that have one value in many rows."""
Generated = tuple[tuple[str, str], ...]
"""Generated columns of a lake table, each with its expression: Spark SQL over other columns."""


@dataclass(frozen=True, slots=True)
class RowsOf:
    """Says that staged rows are whole rows of the table ``ident``: the lake computes no column.

    ``columns`` are the table's names of ``c0…``. ``source`` is the source of the rows in a shared
    table. ``copy_id`` becomes part of the names of a copy's files. With ``in_files`` few rows go to
    data files, too: no row gives no file.
    """

    ident: LakeIdent
    columns: tuple[str, ...]
    source: str = ""
    copy_id: str = ""
    in_files: bool = False


@dataclass(frozen=True, slots=True)
class WholeRowLookup:
    """Changes of a table matched by whole rows (REPLICA IDENTITY FULL, or no key).

    ``images`` holds the distinct old rows: ``image`` int64, ``n`` int32 (how many at most), then
    ``c0…`` in the order of ``Segment.columns``. The lake finds up to ``n`` equal rows (NULLs
    equal) on the branch and calls ``decide`` with a table of ``image`` int64, ``f`` string
    (``_file``) and ``p`` int64 (``_pos``). ``decide`` returns ``(positions, append)``: positions
    has ``f, p, op`` (int8, 0 = update, 1 = delete) and ``c0…``; append has ``c0…``.
    """

    images: Staged
    decide: Callable[[pa.Table], tuple[Staged | None, Staged | None]]


def no_keys_found(other_keys: int) -> pa.Table:
    """The argument of ``KeyLookup.decide`` if the table has none of the keys.

    ``other_keys`` is the number of ``KeyLookup.others``. The table is not made of Python values:
    that would import pandas, which takes a second.
    """
    import pyarrow as pa  # most commands need no arrays

    names = ["k", *(f"k{at}" for at in range(1, other_keys + 1))]
    return pa.Table.from_batches([], pa.schema([(name, pa.int64()) for name in names]))


@dataclass(frozen=True, slots=True)
class OtherKey:
    """Values that rows are given in ``columns``: ``k`` int64, then ``b0…``, each value once."""

    columns: tuple[str, ...]
    keys: Staged


@dataclass(frozen=True, slots=True)
class KeyLookup:
    """Changes whose effect depends on which of their keys are in the table.

    ``keys`` holds each key once: ``k`` int64, then ``b0…`` in the order of ``Segment.key``. The
    lake looks the keys up on the branch and calls ``decide`` with the ``k`` of each row that has
    one of them. ``decide`` returns the segment that the lake applies instead. ``decide`` may raise.

    With ``others`` the lake looks for rows that have any of the keys, and ``decide`` gets a line
    for each such row: ``k``, then ``k1``, ``k2`` … for the other keys, NULL for a key that the row
    does not have. ``keys`` is None for a segment without a key.
    """

    keys: Staged | None
    decide: Callable[[pa.Table], Segment]
    others: tuple[OtherKey, ...] = ()


UPDATE_LINE: Final = 0
DELETE_LINE: Final = 1
INSERT_LINE: Final = 2
"""The effect of a line of ``ChangesAhead.keys`` on the row with the key."""


@dataclass(frozen=True, slots=True)
class ChangesAhead:
    """Changes by key; data files hold the new rows before the commit.

    ``keys`` has a line for each change, in order: ``op`` int8 (``UPDATE_LINE`` …) and ``b0``, the
    key. Inserts come last. ``rows`` are whole rows of the table in the order of the lines, one for
    each insert and update.
    """

    keys: Staged
    rows: Staged


@dataclass(frozen=True, slots=True)
class Segment:
    """A run of changes of one lake table under one layout, folded; segments apply in order.

    ``columns`` names the published columns; staged columns are ``c0…`` in that order.
    ``merge``: ``op`` int8 (0 = update, 1 = delete), ``b0…`` the base key in the order of ``key``,
    ``c0…`` the new values, and for each column named in ``unchanged`` (an unchanged out-of-line
    value somewhere in the segment) a boolean ``m<i>``, true where the table's value stays.
    ``append``: ``c0…``. The merge comes before the append; ``truncate`` before both.
    A segment with a ``key_lookup`` has neither: the lake looks its keys up first.
    With a ``source`` (a shared table) the segment matches, deletes and truncates rows of the source
    alone, and new rows get the source. ``from_branch`` appends the source's rows of another branch.
    ``generated`` columns are not in ``columns``; the lake computes them for each row it writes.
    ``defaults`` are columns that only the lake has, each with a Spark expression for new rows;
    ``constants`` are columns with one value in all new rows, and are not in ``columns``.
    ``fill`` gives columns a single value in all rows that are there; nothing else is in the segment
    then. ``ahead`` are changes with new rows in files, in order; nothing else is in the segment.
    """

    columns: tuple[str, ...]
    key: tuple[str, ...] = ()
    truncate: bool = False
    merge: Staged | None = None
    unchanged: tuple[str, ...] = ()
    append: Staged | None = None
    row_lookup: WholeRowLookup | None = None
    key_lookup: KeyLookup | None = None
    defaults: tuple[tuple[str, str], ...] = ()
    generated: Generated = ()
    source: str = ""
    from_branch: str | None = None
    constants: Constants = ()
    fill: Constants = ()
    ahead: tuple[ChangesAhead, ...] = ()

    def unsent(self, table: Iterable[str]) -> list[str]:
        """The columns of a table whose values updates keep, in all rows or in some."""
        sent = set(self.columns) - set(self.unchanged)
        if self.source:
            sent.add(SOURCE_COLUMN)
        return [name for name in table if name not in sent]


@dataclass(frozen=True, slots=True)
class SourcePart:
    """A batch's part for one source of a shared table, or for a table of a single owner.

    Without ``stamp`` the segments are a slice of a transaction. ``base`` is the position that the
    source must have on the branch already; None in a table of a single owner.
    """

    segments: Sequence[Segment]
    stamp: Stamp | None
    base: LSN | None = None


def found_rows_schema() -> pa.Schema:
    """The schema of the argument of ``WholeRowLookup.decide``."""
    import pyarrow as pa  # most commands need no arrays

    found: list[tuple[str, pa.DataType]]
    found = [("image", pa.int64()), ("f", pa.string()), ("p", pa.int64())]
    return pa.schema(found)
