"""A lake table's name, columns and position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from catalog.pg_lsn import LSN

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True, order=True)
class LakeIdent:
    """A lake table ``lake.<schema>.<table>``; both names verbatim, never quoted here."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


MAIN: Final = "main"
"""The branch that readers see."""
BRANCH_PREFIX: Final = "pgsub_"
"""Begins the name of every branch of pgsub; branches with other names stay untouched."""
SHARED: Final = "shared"
"""The owner of a lake table that several sources write to."""
SOURCE_COLUMN: Final = "_pgsub_source"
"""A shared lake table's column for the source of a row; NULL for rows of other writers."""


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column of a lake table; ``type`` decides how the publisher's text is read.

    ``field_id`` is Iceberg's id of the column, 0 if it is not known. ``partition_fields`` are the
    names of the partition fields that are made from the column, in any spec of the table; ``sorts``
    says that the sort order reads the column. ``doc`` is the comment.
    """

    name: str
    type: pa.DataType
    nullable: bool = True
    field_id: int = field(default=0, compare=False)
    partition_fields: tuple[str, ...] = field(default=(), compare=False)
    sorts: bool = field(default=False, compare=False)
    doc: str = field(default="", compare=False)

    @property
    def in_layout(self) -> bool:
        """Are partitions or the sort order made from the column? Then the column has to stay."""
        return self.sorts or bool(self.partition_fields)


@dataclass(frozen=True, slots=True)
class Stamp:
    """A position in the publisher's WAL, as the last snapshot of a batch carries the position.

    ``origin`` is the replication origin's name, ``lsn`` the end LSN of the last transaction in
    the table, ``epoch`` the copy id: LSNs of different copy ids cannot be compared. ``floor`` is
    the copy position: transactions up to that end LSN never belong to the table, because the copy
    has their rows. ``source`` names the source in a shared table, and is empty in other tables.
    """

    origin: str
    lsn: LSN
    epoch: str
    floor: LSN
    source: str = ""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table on ``main``. ``stamp`` is the stamp of the newest ancestor that carries one.

    ``sources`` are the stamps of a shared table's sources, by source. ``records`` is the number of
    rows in the table's files, deleted rows included: 0 for an empty table, None if unknown.
    ``snapshots`` are the commit times of all kept snapshots of all refs, by the lake's clock in
    Unix time, in order; empty for a table that was just created. ``files`` is the number of data
    files.
    ``written_by_others`` are the sources for which another writer added rows since the copy;
    a table of a single owner is listed as ``""``.
    ``publisher_columns`` is a text that a worker keeps in the table: the publisher's columns, and
    the lake columns of them (``workers.changes.remembered_columns``).
    """

    ident: LakeIdent
    columns: tuple[LakeColumn, ...]
    owner: str | None
    snapshot_id: int | None
    stamp: Stamp | None
    sources: Mapping[str, Stamp] = field(default_factory=dict)
    records: int | None = None
    snapshots: Sequence[float] = field(default=(), compare=False)
    files: int = 0
    written_by_others: frozenset[str] = frozenset()
    publisher_columns: str = ""

    def position(self, source: str = "") -> Stamp | None:
        """The stamp of one source of a shared table, or the table's own."""
        return self.sources.get(source) if source else self.stamp


@dataclass(frozen=True, slots=True)
class Identity:
    """The subscription whose worker writes to the lake, for the names of its commits."""

    subid: int
