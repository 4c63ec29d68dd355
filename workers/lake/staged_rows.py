"""Rows that are staged for a commit, and the files that a commit adds to a table."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from config.monitor_limits import CONFIRMED_FILE_SECONDS

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True, slots=True)
class LayoutId:
    """The part of a table's metadata that decides how its files are written.

    ``uuid`` names the table, ``schema_id`` and ``spec_id`` number the schema of its columns and its
    partitioning, ``format_version`` is Iceberg's.
    """

    uuid: str
    schema_id: int
    spec_id: int
    format_version: int


@dataclass(frozen=True, slots=True)
class Place:
    """Where a file of a partitioned table belongs: the partition spec, and the partition.

    ``values`` is a JSON object of single values by the field id of the spec, without NULLs.
    """

    spec_id: int
    values: str


@dataclass(frozen=True, slots=True)
class NewFile:
    """A data file or delete file that a commit adds to the table.

    ``path`` is its name in the metadata, ``rows`` the number of rows, or of deletes, in it.
    A delete file for a single data file names it in ``of``. A deletion vector has in ``vector`` its
    offset and its length in bytes inside the file. ``unbounded`` holds the field ids of columns
    without least and greatest value in the file's footer. ``place`` is None in a table that never
    had partitions. ``footer`` is the footer of a data file in a store whose requests are dear, as a
    Parquet file of its own: the commit then need not read the footer. Empty for other files.
    """

    path: str
    size: int
    rows: int
    of: str | None = None
    unbounded: tuple[int, ...] = ()
    vector: tuple[int, int] | None = None
    place: Place | None = None
    footer: bytes = field(default=b"", repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a snapshot and the delete files that apply to it.

    ``first_row_id`` is the number of its first row, in tables of format 3. ``place`` is as in
    ``NewFile``. ``size`` is in bytes, None if not known.
    """

    path: str
    rows: int
    deletes: tuple[NewFile, ...] = ()
    first_row_id: int | None = None
    place: Place | None = None
    size: int | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class FileList:
    """A branch's snapshot ``tip`` and its data files.

    ``files`` is None if there are too many to list, or if only Spark can read them.
    """

    tip: int
    files: tuple[LiveFile, ...] | None


@dataclass(slots=True)
class OwnFiles:
    """Data files that this process wrote to the table's folder, in the layout ``layout_id``.

    From the moment a commit is asked to add them they are ``committed``: whatever became of the
    commit, they may belong to the table. Until then this process removes them with ``remove``, by
    their paths. With ``takes_deletes`` the files keep the order of the staged rows, and a commit
    may delete rows by position. ``since`` is the monotonic time, in seconds, at which the writing
    began; 0 if nobody knows the time.
    """

    files: tuple[NewFile, ...]
    layout_id: LayoutId
    remove: Callable[[Collection[str]], None] = field(repr=False, compare=False)
    committed: bool = False
    takes_deletes: bool = False
    since: float = field(default=0.0, compare=False)

    def may_be_gone(self, now: float) -> bool:
        """Are the files so old that a commit asks the store for each file?

        ``now`` is the monotonic time in seconds.
        """
        return now - self.since > CONFIRMED_FILE_SECONDS


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows staged for the lake: a small Arrow table, staged Parquet files, or data files.

    Exactly one of ``table``, ``paths`` and ``own`` is set.
    """

    rows: int
    table: pa.Table | None = None
    paths: tuple[str, ...] = ()
    own: OwnFiles | None = None


def joined_files(first: Staged | None, second: Staged) -> Staged | None:
    """The data files of both as one; None if either has others, or another layout."""
    if first is None or first.own is None or second.own is None:
        return None
    one, other = first.own, second.own
    if one.layout_id != other.layout_id or one.committed or other.committed:
        return None
    takes_deletes = one.takes_deletes and other.takes_deletes
    files = one.files + other.files
    since = min(one.since, other.since)
    own = OwnFiles(files, one.layout_id, one.remove, takes_deletes=takes_deletes, since=since)
    return Staged(first.rows + second.rows, own=own)
