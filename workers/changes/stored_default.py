"""The value of older rows in a column with a default. Pure.

PostgreSQL computes the default once and keeps the value in the catalog (``attmissingval``), for all
rows from before the column. The value stays until the table is rewritten, whatever becomes of the
default. Each partition keeps a value, and an attached partition may have another one.

The text is the text of COPY, and is read as a copy reads a value of the column.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from workers.publisher.table_shape import ShapeColumn

if TYPE_CHECKING:
    import pyarrow as pa


class NotStored(Exception):  # noqa: N818 - a finding; the caller makes the error
    """The publisher has no single value for all rows, or the lake cannot hold the value."""


def stored_default(
    column: ShapeColumn,
    relations: Collection[int],
    type: pa.DataType,
    *,
    as_null: bool,
    clamp: bool = False,
) -> pa.Scalar[Any] | None:
    """The value for a lake column of ``type``; None for NULL. Raises ``NotStored``.

    ``relations`` have the rows, and must all have the value. ``as_null``: a value that the lake
    cannot hold is NULL. ``clamp``: a date or timestamp is the first or last one.
    """
    if column.stored is None or not set(relations) <= column.stored_in:
        raise NotStored
    import pyarrow as pa  # most commands need no arrays

    from workers.columnar.text_values import Unrepresentable, typed

    try:
        value = typed(pa.array([column.stored]), type, null_unrepresentable=as_null, clamp=clamp)[0]
    except Unrepresentable:
        raise NotStored from None
    return value if value.is_valid else None
