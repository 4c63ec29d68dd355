"""The last error that ended a worker of a subscription. PostgreSQL has only the log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastError:
    """An error that is shown until a later worker of the table or subscription makes progress.

    ``relid`` is 0 for the apply worker, ``since`` is in microseconds since 1970.
    """

    subid: int
    relid: int
    since: int
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None

    def is_repeated_by(self, other: LastError) -> bool:
        """Whether the errors say the same; their details may name different places."""
        return (self.sqlstate, self.message) == (other.sqlstate, other.message)

    def is_same_error(self, other: LastError | None) -> bool:
        """Whether two errors differ in nothing but the time."""
        return other is not None and (self.sqlstate, self.message, self.detail, self.hint) == (
            other.sqlstate,
            other.message,
            other.detail,
            other.hint,
        )
