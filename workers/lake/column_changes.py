"""Changes of a lake table's columns, as the publisher's table changes. Pure.

A column is named by Iceberg's *field id*: the id stays for ever, under every name, so a change that
is made twice has the effect of one. ``AddColumn`` alone has a name, and no effect where the name is
taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from workers.lake.table import LakeColumn

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class AddColumn:
    """A new column at the end; NULL in all rows that are there."""

    name: str
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class RenameColumn:
    """Another name for a column; the values stay."""

    field_id: int
    name: str


@dataclass(frozen=True, slots=True)
class WidenColumn:
    """A wider type: int to long, float to double, a decimal of more digits before the point."""

    field_id: int
    type: pa.DataType


@dataclass(frozen=True, slots=True)
class DropColumn:
    """No reader of the present table sees the column any more."""

    field_id: int


@dataclass(frozen=True, slots=True)
class DescribeColumn:
    """Another comment of a column; readers with DESCRIBE see the comment. Empty: none."""

    field_id: int
    text: str


ColumnChange = AddColumn | RenameColumn | WidenColumn | DropColumn | DescribeColumn

Remember = Callable[[Sequence[LakeColumn]], str]
"""Returns the text for the table (``LakeTable.publisher_columns``) from the changed columns."""


def is_wider(type: pa.DataType, than: pa.DataType) -> bool:
    """Does a column of ``type`` hold every value of a column of type ``than``?

    These are the changes of a type that Iceberg makes without a new file.
    """
    import pyarrow as pa

    if pa.types.is_decimal128(type) and pa.types.is_decimal128(than):
        return bool(type.scale == than.scale and type.precision > than.precision)
    return (than, type) in ((pa.int32(), pa.int64()), (pa.float32(), pa.float64()))
