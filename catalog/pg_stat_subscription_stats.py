"""``pg_stat_subscription_stats``: counts of the errors and conflicts of a subscription."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


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


@dataclass(frozen=True, slots=True)
class SubscriptionStats:
    """A row's counters, PostgreSQL 18's columns in PostgreSQL's order, without ``subname``.

    ``stats_reset`` is in microseconds since 1970, None before the first reset. Then comes pgsub's
    column: ``suspension_count`` counts the errors that suspended a table.
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
