"""The Spark settings of every session."""

from __future__ import annotations

import os
from typing import Final, Protocol

CATALOG: Final = "lake"
CATALOG_PREFIX: Final = f"spark.sql.catalog.{CATALOG}"
CACHE_ENABLED: Final = f"{CATALOG_PREFIX}.cache-enabled"

FIXED: Final[dict[str, str]] = {
    # A session that caches table metadata does not see another session's commits.
    CACHE_ENABLED: "false",
    # PostgreSQL's names are case-sensitive.
    "spark.sql.caseSensitive": "true",
    # timestamptz is an instant: the session's wall clock must not change the value.
    "spark.sql.session.timeZone": "UTC",
    # TIMESTAMP in our statements means a timestamp with time zone.
    "spark.sql.timestampType": "TIMESTAMP_LTZ",
    # Dates in staged files are of today's calendar, also before 1582.
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    # An overflow or a bad cast is an error, never a NULL.
    "spark.sql.ansi.enabled": "true",
    # Otherwise ${env:NAME} in a statement becomes the variable's value. A user who can name a
    # column on the publisher would read the server's environment, with passwords, in the lake.
    "spark.sql.variable.substitute": "false",
    # Otherwise a backslash at the end of a literal is no escape, and Spark reads the rest as SQL.
    "spark.sql.parser.escapedStringLiterals": "false",
    # A session keeps its last plans under the numbers that the client gave them, and a kept plan
    # remembers the rules that changed nothing. A later process that takes the session over begins
    # with the same numbers: a query of a table that was missing once would never find the table.
    "spark.connect.session.planCache.enabled": "false",
}
"""Keys that a user cannot change. Every session of a worker sets the keys too, also on a server of
the user: a session has a separate catalog, which reads the keys at the first use."""


def processors() -> int:
    """The number of processors that the process, and the embedded server beside it, may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


class LakeSettings(Protocol):
    """The settings of ``config.guc.Settings`` that the lake's rooms read."""

    @property
    def local_relation_rows(self) -> int:
        """The most rows that travel to Spark inside the plan."""

    @property
    def key_cache(self) -> int:
        """The most bytes of the keys of data files on the disk; 0: none."""

    @property
    def track_commit_timestamp(self) -> bool:
        """Is the origin of each row to be found, for conflict detection?"""
