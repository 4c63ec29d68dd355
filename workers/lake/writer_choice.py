"""The writer of a lake table's rows: the configuration's word, the choice, the reason.

``files``: a worker writes Parquet files and delete files, and Iceberg's Java API commits the files.
``spark``: every row goes through Spark, as a DataFrame or a MERGE. ``auto`` chooses files where a
worker can write the table's files. ``files`` in the configuration is an error where a worker
cannot, and the error has the reason.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from catalog.errcodes import FeatureNotSupported
from catalog.pg_subscription import TableOptions

AUTO: Final = "auto"
FILES: Final = "files"
SPARK: Final = "spark"

NO_GATEWAY: Final = (
    "The lake server is a Spark server of yours (spark.remote) without a commit service."
)
BY_WISH: Final = "The configuration says so."
ANOTHER_TABLE: Final = "Another table that is written to the lake table has this writer."
POSSIBLE: Final = "A worker can write the table's files."
BESIDE: Final = (
    "A worker can write the table's files; your Spark server (spark.remote) does what is large."
)


@dataclass(frozen=True, slots=True)
class WriterChoice:
    """``asked`` is the configuration's word; ``reason`` is a sentence."""

    asked: str
    writer: str
    reason: str


@dataclass(frozen=True, slots=True)
class Unwritable:
    """Why a worker cannot write the files of a table: a sentence."""

    reason: str


def choose(
    asked: str, refusal: str | None, table: object, possible: str = POSSIBLE
) -> WriterChoice:
    """The writer of a table. ``refusal`` is why a worker cannot write the table's files, if so.

    ``possible`` is the reason for files that nobody has asked for.

    Raises 0A000 if the configuration asks for files that a worker cannot write.
    """
    if asked == SPARK:
        return WriterChoice(asked, SPARK, BY_WISH)
    if refusal is None:
        return WriterChoice(asked, FILES, BY_WISH if asked == FILES else possible)
    if asked == FILES:
        raise no_files(table, refusal)
    return WriterChoice(asked, SPARK, refusal)


def computed_column(options: TableOptions) -> str | None:
    """Why Spark has to write rows of the table, whatever the table: the lake computes columns."""
    for key, columns in (("generated", options.generated), ("defaults", options.defaults)):
        if columns:
            return f'Spark computes column "{columns[0][0]}" ({key}).'
    return None


def no_files(table: object, reason: str) -> FeatureNotSupported:
    """The error of ``writer: files`` where a worker cannot write the files."""
    return FeatureNotSupported(
        f'lake table "{table}" cannot have the writer "files"',
        detail=reason,
        hint="Say writer: auto or writer: spark in the configuration, for the table or for the "
        "lake.",
    )
