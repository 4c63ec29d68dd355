"""A lake table's name, columns and position."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa

from catalog.pg_lsn import LSN


@dataclass(frozen=True, slots=True, order=True)
class LakeIdent:
    """A lake table ``lake.<schema>.<table>``; both names verbatim, never quoted here."""

    schema: str
    table: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.table}"


BRANCH_PREFIX: Final = "pgsub_"

SHARED: Final = "shared"

SOURCE_COLUMN: Final = "_pgsub_source"


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column as the lake has it; ``type`` decides how the publisher's text is read."""

    name: str
    type: pa.DataType
    nullable: bool = True


@dataclass(frozen=True, slots=True)
class Stamp:
    """What the last snapshot of a batch carries: whose position it is and how far it goes.

    ``origin`` is the replication origin's name, ``lsn`` the end LSN of the last transaction in
    the table, ``epoch`` the uuid inside which that LSN means something, ``floor`` the end LSN up
    to which transactions never belong to this table (the copy's consistent point). ``source`` is
    empty but in a shared table, where it says which of the sources this is the position of.
    """

    origin: str
    lsn: LSN
    epoch: str
    floor: LSN
    source: str = ""


@dataclass(frozen=True, slots=True)
class LakeTable:
    """A table as ``main`` shows it now. ``stamp`` is the newest ancestor's that carries one.

    ``sources`` are the stamps of a shared table's sources, by source. ``records`` is how many rows
    its files hold, deleted ones included: 0 says that it is empty; None, that it is not known.
    ``snapshots`` are those it keeps, of whatever ref: when each was committed, by the lake's clock
    in Unix time, in order; empty where the table was just made. ``files`` is the number of data
    files.
    ``written_by_others``: the sources that somebody else added rows beside since we have theirs;
    ``""`` stands for a table of one owner.
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

    def position(self, source: str = "") -> Stamp | None:
        """The stamp of one source of a shared table, or the table's own."""
        return self.sources.get(source) if source else self.stamp


@dataclass(frozen=True, slots=True)
class Identity:
    """Who writes: the names a fence needs. ``generation`` is never used twice."""

    subid: int
    generation: int
    relid: int = 0  # 0 = apply worker
    branch: str = field(default="")


MAIN: Final = "main"
