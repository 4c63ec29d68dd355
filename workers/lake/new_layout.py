"""The layout of a lake table that pgsub makes: partitions, sort order, folder, properties.

An existing table keeps the layout that the table has.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from catalog.errcodes import DatatypeMismatch, UndefinedColumn
from catalog.pg_subscription import TableOptions
from catalog.table_layout import LayoutField, partition_field, sort_field
from workers.lake.table import LakeColumn, LakeIdent

if TYPE_CHECKING:
    import pyarrow as pa

_BUCKETED: Final = (
    "is_integer",
    "is_decimal128",
    "is_date32",
    "is_timestamp",
    "is_string",
    "is_large_string",
    "is_binary",
    "is_large_binary",
)
_TRUNCATED: Final = tuple(each for each in _BUCKETED if each not in ("is_date32", "is_timestamp"))
_KEPT: Final = (*_BUCKETED, "is_boolean")
_DATED: Final = ("is_date32", "is_timestamp")
_POSSIBLE: Final[Mapping[str, Sequence[str]]] = {
    "identity": _KEPT,
    "void": _KEPT,
    "bucket": _BUCKETED,
    "truncate": _TRUNCATED,
    "year": _DATED,
    "month": _DATED,
    "day": _DATED,
    "hour": ("is_timestamp",),
}
"""Transform → the functions of ``pyarrow.types`` for the types that the transform takes."""


def can_transform(transform: str, type: pa.DataType) -> bool:
    """Is the transform defined for values of the type? Floats have no partitions here."""
    import pyarrow as pa  # the launcher knows layouts, and has no arrays

    return any(getattr(pa.types, is_type)(type) for is_type in _POSSIBLE[transform])


@dataclass(frozen=True, slots=True)
class NewLayout:
    """``location`` is the table's folder, None for a folder below the warehouse.

    ``writer`` is the configuration's word for the table; None means ``lake.writer``.
    """

    partition_by: tuple[LayoutField, ...] = ()
    sort_by: tuple[LayoutField, ...] = ()
    location: str | None = None
    properties: tuple[tuple[str, str], ...] = ()
    writer: str | None = None


PLAIN: Final = NewLayout()
"""No partitions, no order, no special folder or property."""


@dataclass(frozen=True, slots=True)
class NewTable:
    """A new table, besides the columns. ``relid`` is part of the name of the folder.

    ``publisher_columns``: see ``LakeTable``. ``is_merged``: Spark writes the rows, by MERGE.
    ``branch`` begins at the table's first snapshot; empty for no branch.
    """

    owner: str
    relid: int
    format_version: int
    layout: NewLayout = PLAIN
    publisher_columns: str = ""
    is_merged: bool = False
    branch: str = ""


def layout_of(options: TableOptions) -> NewLayout:
    """The layout that the configuration of a published table asks for."""
    return NewLayout(
        tuple(map(partition_field, options.partition_by)),
        tuple(map(sort_field, options.sort_by)),
        options.location,
        options.properties,
        options.writer,
    )


def check_layout(
    layout: NewLayout,
    columns: Sequence[LakeColumn],
    ident: LakeIdent,
    *,
    later: Collection[str] = (),
) -> None:
    """Raise 42703 for a missing column, 42804 for a column of a type without the transform.

    ``later`` are columns of the table with types that are not known yet.
    """
    types = {column.name: column.type for column in columns}
    for option, fields in (("partition_by", layout.partition_by), ("sort_by", layout.sort_by)):
        for field in fields:
            if field.column in later:
                continue
            if field.column not in types:
                raise UndefinedColumn(
                    f'column "{field.column}" in {option} of lake table "{ident}" does not exist',
                    hint="Name a lake column of the table in the configuration.",
                )
            if not can_transform(field.transform, types[field.column]):
                raise DatatypeMismatch(
                    f'column "{field.column}" in {option} of lake table "{ident}" cannot be used '
                    f"with {field.transform}",
                    detail=f"The lake column is of type {types[field.column]}.",
                    hint="Choose a different column or transform in the configuration.",
                )
