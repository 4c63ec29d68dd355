"""Errors as PostgreSQL words them: primary, DETAIL, HINT, SQLSTATE, and where it happened.

One hierarchy, one class per SQLSTATE we raise, and one table, ``RETRY``, that says what a worker
does about a code: try again after ``wal_retrieve_retry_interval``, cut the batch and name the
transaction, or stop. Errors that come from elsewhere (the publisher, the lake) keep their own
SQLSTATE and go through the same table.
"""

# ruff: noqa: N818  # the classes bear PostgreSQL's names for their codes

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import ClassVar, Final


class ReplicationError(Exception):
    """Base of every error a user may see. Never carries a row value or a secret.

    ``primary`` starts in lower case and has no final stop; ``detail`` and ``hint`` are sentences.
    """

    sqlstate: ClassVar[str] = "XX000"

    def __init__(
        self,
        primary: str,
        *,
        detail: str | None = None,
        hint: str | None = None,
        sqlstate: str | None = None,
    ) -> None:
        super().__init__(primary)
        self.primary = primary
        self.detail = detail
        self.hint = hint
        self.code = sqlstate or type(self).sqlstate
        self.context: list[str] = []
        self.cursorpos: int | None = None  # the character of SQL text it is about, from 0
        self.excerpt: str | None = None  # that place as psql shows it: the line, and a caret
        self.source: str | None = None  # the file with the text, and the line

    def __str__(self) -> str:
        return self.primary

    def report(self) -> str:
        """The error as psql prints one: ``ERROR:  primary`` and the fields that are set."""
        place = f"pgsub:{self.source}: " if self.source else ""
        lines = [f"{place}ERROR:  {self.code}: {self.primary}"]
        if self.excerpt:
            lines.append(self.excerpt)
        if self.detail:
            lines.append(f"DETAIL:  {self.detail}")
        if self.hint:
            lines.append(f"HINT:  {self.hint}")
        lines.extend(f"CONTEXT:  {line}" for line in self.context)
        return "\n".join(lines)


class ProtocolViolation(ReplicationError):
    """The publisher sent bytes that are not the protocol."""

    sqlstate = "08P01"


class ConnectionFailure(ReplicationError):
    """The publisher or the lake server cannot be reached, or went away."""

    sqlstate = "08006"


class FamilyProcessGone(ConnectionFailure):
    """The lake server or the launcher went away: processes that a worker cannot be without.

    It is no error of what the worker does, as the end of a server is none of its backends'.
    """


class LakeBroken(FamilyProcessGone):
    """The lake server answers, and will fail whatever it is asked: it has to be started again."""


class InsufficientPrivilege(ReplicationError):
    """The role may not do this."""

    sqlstate = "42501"


class ProhibitedSqlStatementAttempted(ReplicationError):
    """A connection without the password it must have."""

    sqlstate = "2F003"


class SyntaxErrorOrAccess(ReplicationError):
    """Options that contradict each other, or are unknown (PostgreSQL's 42601)."""

    sqlstate = "42601"


class ObjectNotInPrerequisiteState(ReplicationError):
    """The object is not in the state this needs."""

    sqlstate = "55000"


class ReplicationGap(ObjectNotInPrerequisiteState):
    """What the publisher committed after our position cannot be had any more.

    Trying again does not bring it back: the worker is started again slowly, and a gap that stays
    the same is logged once. A missing slot keeps its 42704.
    """


class ObjectInUse(ReplicationError):
    """Another process holds it."""

    sqlstate = "55006"


class ActiveSqlTransaction(ReplicationError):
    """Cannot be done inside a transaction block."""

    sqlstate = "25001"


class ConfigurationLimitExceeded(ReplicationError):
    """A configured limit is reached."""

    sqlstate = "53400"


class UndefinedTable(ReplicationError):
    """No such table."""

    sqlstate = "42P01"


class DuplicateTable(ReplicationError):
    """The table exists."""

    sqlstate = "42P07"


class UndefinedObject(ReplicationError):
    """No such object."""

    sqlstate = "42704"


class DuplicateObject(ReplicationError):
    """The object exists."""

    sqlstate = "42710"


class DuplicateColumn(ReplicationError):
    """A column is named twice."""

    sqlstate = "42701"


class UndefinedColumn(ReplicationError):
    """No such column."""

    sqlstate = "42703"


class UniqueViolation(ReplicationError):
    """A row with this key is in the table (insert_exists) or a key is there twice."""

    sqlstate = "23505"


class InvalidTextRepresentation(ReplicationError):
    """Text that is not a value of its type."""

    sqlstate = "22P02"


class NumericValueOutOfRange(ReplicationError):
    """A value the lake column cannot hold (NaN in a decimal, infinity in a date)."""

    sqlstate = "22003"


class InvalidParameterValue(ReplicationError):
    """An option or setting outside its value set."""

    sqlstate = "22023"


class InvalidName(ReplicationError):
    """A name that cannot be used."""

    sqlstate = "42602"


class FeatureNotSupported(ReplicationError):
    """Parsed and understood, and not built."""

    sqlstate = "0A000"


class ConfigFileError(ReplicationError):
    """The YAML is wrong; ``primary`` names file, line and key."""

    sqlstate = "F0000"


class IoError(ReplicationError):
    """The disk or the lake's storage refused."""

    sqlstate = "58030"


class AdminShutdown(ReplicationError):
    """Told to stop."""

    sqlstate = "57P01"


class InternalError(ReplicationError):
    """A bug of ours."""

    sqlstate = "XX000"


class Policy(Enum):
    """What a worker does about an error."""

    RETRY = "retry"  # exit; the launcher starts it again after wal_retrieve_retry_interval
    DATA = "data"  # one transaction is at fault: cut the batch so that the error names it
    STOP = "stop"  # trying again cannot help; still retried slowly, as PostgreSQL does


RETRY: Final[dict[str, Policy]] = {
    "08": Policy.RETRY,  # connection exceptions
    "08P01": Policy.STOP,  # what the publisher sends is not the protocol, and will not be later
    "53": Policy.RETRY,  # insufficient resources: no free slot, disk full
    "57": Policy.RETRY,  # operator intervention: publisher restarting
    "58": Policy.RETRY,  # system errors of the storage
    "40": Policy.RETRY,  # serialization: main moved under us
    "55P03": Policy.RETRY,  # a lock that somebody who waits for a stronger one keeps from us
    "55006": Policy.RETRY,  # in use: a dead worker's walsender still holds the slot, say
    "22": Policy.DATA,  # data exceptions
    "23": Policy.DATA,  # integrity constraint violations
    "21": Policy.DATA,  # cardinality violation
    "P0001": Policy.DATA,  # raise_error of an expression of the configuration's
}
"""SQLSTATE class (or whole code) → policy; anything else is ``Policy.STOP``."""


def policy(sqlstate: str) -> Policy:
    """Look a SQLSTATE up in ``RETRY``, whole code first, then its class."""
    return RETRY.get(sqlstate) or RETRY.get(sqlstate[:2]) or Policy.STOP


@contextmanager
def error_context(line: str) -> Iterator[None]:
    """Add ``line`` to the CONTEXT of a ReplicationError that passes through."""
    try:
        yield
    except ReplicationError as error:
        error.context.append(line)
        raise
