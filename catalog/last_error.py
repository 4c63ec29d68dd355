"""The last error that ended a worker of a subscription. PostgreSQL has only the log."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace

from catalog.sqlite_file import CatalogFile


@dataclass(frozen=True, slots=True)
class LastError:
    """An error that is shown until a later worker of the table or subscription makes progress.

    ``relid`` is 0 for the apply worker. ``failures`` counts the workers in turn that ended with the
    error. ``since`` and ``next_attempt`` are in microseconds since 1970; ``next_attempt`` is None
    until the wait for the next worker is known.
    """

    subid: int
    relid: int
    since: int
    sqlstate: str
    message: str
    detail: str | None = None
    hint: str | None = None
    failures: int = 1
    next_attempt: int | None = None

    def is_repeated_by(self, other: LastError) -> bool:
        """Whether the errors say the same; their details may name different places."""
        return (self.sqlstate, self.message) == (other.sqlstate, other.message)

    def after(self, before: LastError) -> LastError:
        """The error as it is stored after the predecessor's: a repetition counts on."""
        failures = before.failures + 1 if before.is_repeated_by(self) else 1
        since = before.since if before.is_same_error(self) else self.since
        return replace(self, failures=failures, since=since)

    def is_same_error(self, other: LastError | None) -> bool:
        """Whether two errors differ in nothing but the time."""
        return other is not None and (self.sqlstate, self.message, self.detail, self.hint) == (
            other.sqlstate,
            other.message,
            other.detail,
            other.hint,
        )


class LastErrors(CatalogFile):
    """The stored errors, at most one for each worker of a subscription."""

    def put_last_error(self, error: LastError) -> None:
        """Remember the error that ended a worker, instead of the former error."""
        self._write("put_last_error", asdict(error))

    def put_next_attempt(self, subid: int, relid: int, next_attempt: int) -> None:
        """Store when the next worker starts, if a worker's error is stored."""
        values = {"subid": subid, "relid": relid, "next_attempt": next_attempt}
        self._write("put_next_attempt", values)

    def last_error(self, subid: int, relid: int) -> LastError | None:
        """The error that ended the last worker, unless a later worker made progress."""
        found = (error for error in self.last_errors() if error.subid == subid)
        return next((error for error in found if error.relid == relid), None)

    def last_errors(self) -> list[LastError]:
        """The errors that ended workers, without later progress."""
        return self._all("last_errors", lambda row: LastError(**dict(row)))

    def forget_last_error(self, subid: int, relid: int) -> None:
        """Forget the error: a worker made progress."""
        self._write("forget_last_error", {"subid": subid, "relid": relid})
