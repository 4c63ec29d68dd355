"""Rows on their way to the lake, and files on their way to be a table's."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class Shape:
    """What of a table's metadata decides how its files are written: which table it is, the numbers
    of its columns' schema and of its partitions, and Iceberg's format version."""

    uuid: str
    schema_id: int
    spec_id: int
    format_version: int


@dataclass(frozen=True, slots=True)
class NewFile:
    """A file that a commit is to make one of the table's.

    ``path`` is its name in the metadata, ``rows`` how many rows, or deletes, it holds. One of
    deletes says which data file they are ``of``, if of one, and of a ``vector`` where in the file
    it begins and how many bytes it has. ``unbounded`` are the field ids of columns whose least and
    greatest value its footer does not tell.
    """

    path: str
    size: int
    rows: int
    of: str | None = None
    unbounded: tuple[int, ...] = ()
    vector: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class LiveFile:
    """A data file of a snapshot, the files of deletes that concern it, and in format 3 the number
    of its first row."""

    path: str
    rows: int
    deletes: tuple[NewFile, ...] = ()
    first_row_id: int | None = None


@dataclass(frozen=True, slots=True)
class Live:
    """A branch's snapshot ``tip`` and its data files; None where those are better read by Spark."""

    tip: int
    files: tuple[LiveFile, ...] | None


@dataclass(slots=True)
class OwnFiles:
    """Files of rows that lie in the table's folder. Once ``given`` to a commit, whatever became of
    that, they may be the table's; until then they are ours to remove. ``shape`` is the table's that
    they were written for."""

    files: tuple[NewFile, ...]
    shape: Shape
    given: bool = False


@dataclass(frozen=True, slots=True)
class Staged:
    """Rows on their way to the lake: a small Arrow table, Parquet files that were staged, or files
    that need only become the table's."""

    rows: int
    table: pa.Table | None = None
    paths: tuple[str, ...] = ()
    own: OwnFiles | None = None
