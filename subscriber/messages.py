"""Notices, warnings and errors on standard error, printed like psql's.

The exit status is 2 for a mistake in the configuration file, found before any connection is opened.
The command line itself reports mistakes in arguments with the same status. Every other error ends
with 1. No traceback is ever shown. An unexpected error names the place in the code, never a value.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TextIO

from catalog import remedies
from catalog.errcodes import (
    QUERY_CANCELED,
    ConfigFileError,
    IoError,
    ReplicationError,
    internal_error,
)
from catalog.namespace import printable

EXIT_ERROR = 1
EXIT_USAGE = 2


@dataclass(frozen=True, slots=True)
class Notice:
    """A message after which the command goes on; ``severity`` is NOTICE or WARNING."""

    severity: str
    primary: str
    detail: str | None = None
    hint: str | None = None


def notice(primary: str, *, detail: str | None = None, hint: str | None = None) -> Notice:
    """A NOTICE."""
    return Notice("NOTICE", primary, detail, hint)


def warning(primary: str, *, detail: str | None = None, hint: str | None = None) -> Notice:
    """A WARNING."""
    return Notice("WARNING", primary, detail, hint)


def print_notice(message: Notice, stream: TextIO | None = None) -> None:
    """Print a message; a missing detail or hint has no line."""
    lines = [f"{message.severity}:  {message.primary}"]
    if message.detail:
        lines.append(f"DETAIL:  {message.detail}")
    if message.hint:
        lines.append(f"HINT:  {message.hint}")
    _print("\n".join(lines), stream)


def print_error(error: BaseException, stream: TextIO | None = None) -> int:
    """Print the error that ended a command; the exit status."""
    known = remedies.disk(as_replication_error(error))
    _print(known.report(), stream)
    return EXIT_USAGE if isinstance(known, ConfigFileError) else EXIT_ERROR


def as_replication_error(error: BaseException) -> ReplicationError:
    """Turn any exception into an error for the user."""
    if isinstance(error, ReplicationError):
        return error
    if isinstance(error, KeyboardInterrupt):
        return ReplicationError("canceling command due to user request", sqlstate=QUERY_CANCELED)
    if isinstance(error, OSError):
        place = f' "{error.filename}"' if error.filename else ""
        return IoError(f"could not access file{place}: {error.strerror or type(error).__name__}")
    return internal_error(error)


def _print(text: str, stream: TextIO | None) -> None:
    print(printable(text), file=stream or sys.stderr, flush=True)
