"""``pg_stat_subscription_stats``: counts of the errors and conflicts of a subscription."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

from catalog.sqlite_file import CatalogFile


class ConflictType(StrEnum):
    """PostgreSQL 18's conflicts in the order of the columns."""

    INSERT_EXISTS = "insert_exists"
    UPDATE_ORIGIN_DIFFERS = "update_origin_differs"
    UPDATE_EXISTS = "update_exists"
    UPDATE_MISSING = "update_missing"
    DELETE_ORIGIN_DIFFERS = "delete_origin_differs"
    DELETE_MISSING = "delete_missing"
    MULTIPLE_UNIQUE_CONFLICTS = "multiple_unique_conflicts"

    @property
    def column(self) -> str:
        """The name of the counter."""
        return f"confl_{self}"


class ColumnChangeKind(StrEnum):
    """What happened to a column of the publisher; a column that is not published any more left."""

    ADD = "add"
    RENAME = "rename"
    RETYPE = "retype"
    LEAVE = "leave"

    @property
    def column(self) -> str:
        """The name of the counter."""
        return f"column_{self}_count"


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A row's counters, PostgreSQL 18's columns in PostgreSQL's order, without ``subname``.

    ``stats_reset`` is in microseconds since 1970, None before the first reset. Then come
    pgsub's columns: ``suspension_count`` counts the errors that suspended a table, and
    ``schema_change_count`` the changes of a table's columns that the lake followed. The last
    counters say what happened to columns in these changes (``ColumnChangeKind``).
    """

    subid: int
    apply_error_count: int = 0
    sync_error_count: int = 0
    confl_insert_exists: int = 0
    confl_update_origin_differs: int = 0
    confl_update_exists: int = 0
    confl_update_missing: int = 0
    confl_delete_origin_differs: int = 0
    confl_delete_missing: int = 0
    confl_multiple_unique_conflicts: int = 0
    stats_reset: int | None = None
    suspension_count: int = 0
    schema_change_count: int = 0
    column_add_count: int = 0
    column_rename_count: int = 0
    column_retype_count: int = 0
    column_leave_count: int = 0


class StatisticsFile(CatalogFile):
    """The counters of all subscriptions."""

    def subscription_stats(self, subid: int) -> SubscriptionStats:
        """The counters of a subscription; zeros without a subscription."""
        found = self._one(
            "subscription_stats", lambda row: SubscriptionStats(**dict(row)), subid=subid
        )
        return found or SubscriptionStats(subid)

    def count_for_stats(self, subid: int, **counters: int) -> None:
        """Add to the counters of a subscription, if the row exists."""
        self._write(
            "add_subscription_stats", dataclasses.asdict(SubscriptionStats(subid, **counters))
        )

    def reset_subscription_stats(self, subid: int, stats_reset: int) -> None:
        """``pg_stat_reset_subscription_stats``: count from zero again."""
        self._write("reset_subscription_stats", {"subid": subid, "stats_reset": stats_reset})
