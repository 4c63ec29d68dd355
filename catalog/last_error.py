"""What last ended a worker of a subscription with an error: ours, PostgreSQL has only the log."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LastError:
    """An error that stands until a worker in the same place gets on with its work.

    ``relid`` is 0 for the apply worker, ``since`` is in microseconds since 1970.
    """

    subid: int
    relid: int
    since: int
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None

    def says(self, other: LastError | None) -> bool:
        """Whether the other one says the same, whenever it did."""
        return other is not None and (self.sqlstate, self.message, self.detail, self.hint) == (
            other.sqlstate,
            other.message,
            other.detail,
            other.hint,
        )
