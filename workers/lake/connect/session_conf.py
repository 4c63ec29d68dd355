"""Spark's settings that a session has."""

from __future__ import annotations

from typing import Final, Protocol

CATALOG: Final = "lake"
_PREFIX: Final = f"spark.sql.catalog.{CATALOG}"

FIXED: Final[dict[str, str]] = {
    # A session that caches table metadata does not see another session's commits.
    f"{_PREFIX}.cache-enabled": "false",
    # PostgreSQL's names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    # timestamptz is an instant; the wall clock of the session must not enter into it.
    "spark.sql.session.timeZone": "UTC",
    # A column that we call TIMESTAMP is one with time zone.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Dates in staged files are those of today's calendar, also before 1582.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # An overflow or a bad cast is an error, never a NULL.
    "spark.sql.ansi.enabled": "true",
    # Else ${env:NAME} in a statement becomes the variable's value: anybody who can name a column on
    # the publisher would read the server's environment, passwords included, in the lake.
    "spark.sql.variable.substitute": "false",
    # Else a backslash at the end of a literal does what it says, and the rest is read as SQL.
    "spark.sql.parser.escapedStringLiterals": "false",
}


class LakeSettings(Protocol):
    """What is needed of ``config.guc.Settings``."""

    @property
    def local_relation_rows(self) -> int:
        """Rows up to which a change travels inside the plan."""

    @property
    def track_commit_timestamp(self) -> bool:
        """Whether it is to be known who wrote a row."""
