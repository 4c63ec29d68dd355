"""Comments of lake columns: clamped dates and timestamps, and dropped columns. Pure.

PostgreSQL has infinity, and years from 4714 BC to 294276; the lake ends with the year 9999. Under
``clamp`` a value before the first day of the lake type is the first value, a value behind the last
day is the last value, and the comment of the lake column says so: no reader takes the last moment
for a moment that somebody wrote. Every other value stays exact.

Columns of a key stay exact, too: two rows with the keys infinity and 20000-01-01 would be the same
row. A value of the key that does not fit is an error, as without ``clamp``. A column with such
values that comes to a key later has the table copied again. A trace::

    id, due      -infinity, 2026-01-01, 20000-01-01, infinity
    the lake     0001-01-01, 2026-01-01, 9999-12-31, 9999-12-31
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from catalog.pg_subscription import TableOptions
from workers.changes.cannot_follow import CannotFollow
from workers.lake.column_changes import DescribeColumn
from workers.lake.table import LakeColumn

if TYPE_CHECKING:
    import pyarrow as pa

CLAMP: Final = "clamp"
CLAMPED: Final = (
    "pgsub: infinity and values outside of the type are the first and the last value of the type"
)
"""The comment of a lake column with such values."""


def is_clamped(name: str, type: pa.DataType, options: TableOptions, key: Collection[str]) -> bool:
    """Has lake column ``name`` the first or last value for what lies outside of the type?

    ``key`` are the lake's names of the columns of the key.
    """
    return not is_exact(name, options, key) and _has_ends(type)


def is_exact(name: str, options: TableOptions, key: Collection[str]) -> bool:
    """Has lake column ``name`` the publisher's values only, of whatever type?"""
    return options.on_unrepresentable != CLAMP or _finds_rows(name, options, key)


def _finds_rows(name: str, options: TableOptions, key: Collection[str]) -> bool:
    declared = (options.lake_column(each) for columns in options.keys for each in columns)
    return name in key or name in declared


def _has_ends(type: Any) -> bool:
    import pyarrow as pa  # most commands need no arrays

    if pa.types.is_list(type) or pa.types.is_large_list(type):
        type = type.value_type
    return bool(pa.types.is_date32(type) or pa.types.is_timestamp(type))


def described(
    columns: Sequence[LakeColumn],
    published: Collection[str],
    options: TableOptions,
    key: Collection[str],
) -> tuple[LakeColumn, ...]:
    """The columns of a new lake table, with the comments; ``published`` are the lake's names."""
    return tuple(
        replace(each, doc=CLAMPED)
        if each.name in published and is_clamped(each.name, each.type, options, key)
        else each
        for each in columns
    )


def ended(
    columns: Sequence[LakeColumn], field_ids: Collection[int], when: str
) -> tuple[DescribeColumn, ...]:
    """The comments of kept columns whose column the publisher has dropped.

    An earlier comment stays in front: it is true of the older rows.
    """
    text = f"pgsub: dropped {when}, NULL since"
    return tuple(
        DescribeColumn(each.field_id, f"{each.doc}; {text}" if each.doc else text)
        for each in columns
        if each.field_id in field_ids
    )


def comments_to_make(
    columns: Sequence[LakeColumn],
    published: Collection[str],
    options: TableOptions,
    key: Collection[str],
) -> Iterator[DescribeColumn]:
    """The comments that the ``published`` columns lack, by the lake's names; a user's stays.

    No comment goes: the older rows may have the first or last value still. Raises ``CannotFollow``
    if such a column is to find rows: two rows may have the last value, and one is meant.
    """
    for each in columns:
        if each.name not in published:
            continue
        if each.doc == CLAMPED and _finds_rows(each.name, options, key):
            raise CannotFollow(
                f'Column "{each.name}" is of a key now, and the lake has the first or the last '
                "value of the type for some others."
            )
        clamped = is_clamped(each.name, each.type, options, key)
        if clamped and each.field_id and not each.doc:
            yield DescribeColumn(each.field_id, CLAMPED)


def comments_of_copy(
    columns: Sequence[LakeColumn], written: Collection[str], exact: Collection[str]
) -> Iterator[DescribeColumn]:
    """The comments that come and go with a copy of all rows; a user's stays.

    The copy fills the ``written`` columns, and the ``exact`` ones with the publisher's values only.
    """
    for each in columns:
        clamped = each.name in written and each.name not in exact and _has_ends(each.type)
        if clamped and not each.doc:
            yield DescribeColumn(each.field_id, CLAMPED)
        elif each.name in exact and each.doc == CLAMPED:
            yield DescribeColumn(each.field_id, "")
