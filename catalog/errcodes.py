"""Errors as PostgreSQL words them: primary, DETAIL, HINT, SQLSTATE, and the place.

The errors form a single hierarchy, with a class per SQLSTATE that the product raises. The table
``RETRY`` gives a worker's answer to a code: try again after ``wal_retrieve_retry_interval``, cut
the batch and name the transaction, or stop. Errors of the publisher and of the lake keep their
SQLSTATE and go through the table too.
"""

# ruff: noqa: N818  # the classes bear PostgreSQL's names for their codes

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, Final

# -- SQLSTATEs by their PostgreSQL names -----------------------------------------------------------

UNABLE_TO_CONNECT: Final = "08001"
CONNECTION_FAILURE: Final = "08006"
PROTOCOL_VIOLATION: Final = "08P01"
FEATURE_NOT_SUPPORTED: Final = "0A000"
NUMERIC_VALUE_OUT_OF_RANGE: Final = "22003"
NULL_VALUE_NOT_ALLOWED: Final = "22004"
DATETIME_FIELD_OVERFLOW: Final = "22008"
CHARACTER_NOT_IN_REPERTOIRE: Final = "22021"
INVALID_PARAMETER_VALUE: Final = "22023"
INVALID_ESCAPE_SEQUENCE: Final = "22025"
INVALID_TEXT_REPRESENTATION: Final = "22P02"
INVALID_BINARY_REPRESENTATION: Final = "22P03"
BAD_COPY_FILE_FORMAT: Final = "22P04"
NOT_NULL_VIOLATION: Final = "23502"
UNIQUE_VIOLATION: Final = "23505"
ACTIVE_SQL_TRANSACTION: Final = "25001"
PROHIBITED_SQL_STATEMENT_ATTEMPTED: Final = "2F003"
SERIALIZATION_FAILURE: Final = "40001"
SYNTAX_ERROR_OR_ACCESS_RULE_VIOLATION: Final = "42000"
INSUFFICIENT_PRIVILEGE: Final = "42501"
SYNTAX_ERROR: Final = "42601"
INVALID_NAME: Final = "42602"
NAME_TOO_LONG: Final = "42622"
DUPLICATE_COLUMN: Final = "42701"
DATATYPE_MISMATCH: Final = "42804"
UNDEFINED_COLUMN: Final = "42703"
UNDEFINED_OBJECT: Final = "42704"
DUPLICATE_OBJECT: Final = "42710"
GROUPING_ERROR: Final = "42803"
WRONG_OBJECT_TYPE: Final = "42809"
CANNOT_COERCE: Final = "42846"
RESERVED_NAME: Final = "42939"
UNDEFINED_TABLE: Final = "42P01"
DUPLICATE_TABLE: Final = "42P07"
INVALID_OBJECT_DEFINITION: Final = "42P17"
WINDOWING_ERROR: Final = "42P20"
DISK_FULL: Final = "53100"
CONFIGURATION_LIMIT_EXCEEDED: Final = "53400"
PROGRAM_LIMIT_EXCEEDED: Final = "54000"
OBJECT_NOT_IN_PREREQUISITE_STATE: Final = "55000"
OBJECT_IN_USE: Final = "55006"
LOCK_NOT_AVAILABLE: Final = "55P03"
QUERY_CANCELED: Final = "57014"
ADMIN_SHUTDOWN: Final = "57P01"
SYSTEM_ERROR: Final = "58000"
IO_ERROR: Final = "58030"
UNDEFINED_FILE: Final = "58P01"
CONFIG_FILE_ERROR: Final = "F0000"
RAISE_EXCEPTION: Final = "P0001"
INTERNAL_ERROR: Final = "XX000"


# -- errors --------------------------------------------------------------------------------------


class ReplicationError(Exception):
    """Base of every error a user may see. Never carries a row value or a secret.

    ``primary`` starts in lower case and has no final stop; ``detail`` and ``hint`` are sentences.
    ``tables`` are the subscribed tables at fault, if the tables are known; ``end_lsn`` is the end
    of the transaction at fault.
    """

    sqlstate: ClassVar[str] = INTERNAL_ERROR

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
        self.cursorpos: int | None = None  # the position of the error in the SQL text, from 0
        self.excerpt: str | None = None  # the line with the error and a caret, as psql shows them
        self.source: str | None = None  # the file with the text, and the line
        self.tables: tuple[Any, ...] = ()  # rows of pg_subscription_rel, whose module imports this
        self.end_lsn: int | None = None

    def __str__(self) -> str:
        return self.primary

    def report(self) -> str:
        """The error as psql prints errors: ``ERROR:  primary`` and the fields with a value."""
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
    """The publisher sent bytes outside the protocol."""

    sqlstate = PROTOCOL_VIOLATION


class ConnectionFailure(ReplicationError):
    """The publisher or the lake server cannot be reached, or went away."""

    sqlstate = CONNECTION_FAILURE


class LakeUnreached(ConnectionFailure):
    """The lake's store or catalog cannot be reached; a worker that repeats the error waits."""

    sqlstate = UNABLE_TO_CONNECT


class RequiredProcessGone(ConnectionFailure):
    """The lake server or the launcher went away: no worker can go on without them.

    The worker's work is not at fault, just as the end of a server is no fault of the backends.
    """


class LakeBroken(RequiredProcessGone):
    """The lake server fails every request: the launcher has to restart the server."""


class InsufficientPrivilege(ReplicationError):
    """The role has no permission."""

    sqlstate = INSUFFICIENT_PRIVILEGE


class ProhibitedSqlStatementAttempted(ReplicationError):
    """A connection without the required password."""

    sqlstate = PROHIBITED_SQL_STATEMENT_ATTEMPTED


class SyntaxErrorOrAccess(ReplicationError):
    """Contradictory or unknown options (PostgreSQL's 42601)."""

    sqlstate = SYNTAX_ERROR


class ObjectNotInPrerequisiteState(ReplicationError):
    """The object is in a state that does not allow the command."""

    sqlstate = OBJECT_NOT_IN_PREREQUISITE_STATE


class ServerUnfit(ObjectNotInPrerequisiteState):
    """The lake server lacks something that every table needs: no table is at fault."""


class TwoLakes(ObjectNotInPrerequisiteState):
    """A commit service and the user's Spark server have different catalogs, or other stores."""


class ReplicationGap(ObjectNotInPrerequisiteState):
    """The publisher no longer has the changes after the subscription's position.

    Trying again does not bring the changes back: the launcher restarts the worker slowly, and logs
    an unchanged gap once. A missing slot keeps the code 42704.
    """


class TableRewritten(ObjectNotInPrerequisiteState):
    """The publisher rewrote a table at the start of the copy; the next attempt succeeds."""


class ColumnsChanged(ObjectNotInPrerequisiteState):
    """The publisher's columns, or values, are not those of the lake table.

    ``copies`` says that a new copy of the table helps.
    """

    copies: bool = True


class ObjectInUse(ReplicationError):
    """A different process holds the object."""

    sqlstate = OBJECT_IN_USE


class ActiveSqlTransaction(ReplicationError):
    """The command cannot run inside a transaction block."""

    sqlstate = ACTIVE_SQL_TRANSACTION


class ConfigurationLimitExceeded(ReplicationError):
    """A configured limit is reached."""

    sqlstate = CONFIGURATION_LIMIT_EXCEEDED


class UndefinedTable(ReplicationError):
    """The table does not exist."""

    sqlstate = UNDEFINED_TABLE


class DuplicateTable(ReplicationError):
    """The table exists."""

    sqlstate = DUPLICATE_TABLE


class UndefinedObject(ReplicationError):
    """The object does not exist."""

    sqlstate = UNDEFINED_OBJECT


class DuplicateObject(ReplicationError):
    """The object exists."""

    sqlstate = DUPLICATE_OBJECT


class DatatypeMismatch(ReplicationError):
    """A column's type does not fit the use of the column."""

    sqlstate = DATATYPE_MISMATCH


class CannotCoerce(ReplicationError):
    """Values of a type cannot have another type."""

    sqlstate = CANNOT_COERCE


class DuplicateColumn(ReplicationError):
    """A column is named twice."""

    sqlstate = DUPLICATE_COLUMN


class UndefinedColumn(ReplicationError):
    """The column does not exist."""

    sqlstate = UNDEFINED_COLUMN


class UniqueViolation(ReplicationError):
    """The table has a row with the key (insert_exists), or two rows with a key."""

    sqlstate = UNIQUE_VIOLATION


class SerializationFailure(ReplicationError):
    """Another writer changed a lake table beside a worker, and the worker's write had no effect.

    Nobody is at fault: the write is tried again, is not counted, and disables no subscription.
    """

    sqlstate = SERIALIZATION_FAILURE


class InvalidTextRepresentation(ReplicationError):
    """Text that is no value of the type."""

    sqlstate = INVALID_TEXT_REPRESENTATION


class NumericValueOutOfRange(ReplicationError):
    """A value the lake column cannot hold (NaN in a decimal, infinity in a date)."""

    sqlstate = NUMERIC_VALUE_OUT_OF_RANGE


class InvalidParameterValue(ReplicationError):
    """An option or setting outside the allowed values."""

    sqlstate = INVALID_PARAMETER_VALUE


class InvalidName(ReplicationError):
    """A name that cannot be used."""

    sqlstate = INVALID_NAME


class FeatureNotSupported(ReplicationError):
    """Parsed and understood, and not built."""

    sqlstate = FEATURE_NOT_SUPPORTED


class ConfigFileError(ReplicationError):
    """The YAML is wrong; ``primary`` names file, line and key."""

    sqlstate = CONFIG_FILE_ERROR


class IoError(ReplicationError):
    """The disk or the lake's storage refused."""

    sqlstate = IO_ERROR


class AdminShutdown(ReplicationError):
    """The process received the request to stop."""

    sqlstate = ADMIN_SHUTDOWN


class InternalError(ReplicationError):
    """A bug of the product."""

    sqlstate = INTERNAL_ERROR


class Policy(Enum):
    """A worker's answer to an error."""

    RETRY = "retry"  # exit; the launcher restarts the worker after wal_retrieve_retry_interval
    DATA = "data"  # a transaction is at fault: cut the batch, and the error names the transaction
    STOP = "stop"  # trying again cannot help; still retried slowly, as PostgreSQL does


RETRY: Final[dict[str, Policy]] = {
    "08": Policy.RETRY,  # connection exceptions
    PROTOCOL_VIOLATION: Policy.STOP,  # the publisher will not speak the protocol later
    "53": Policy.RETRY,  # insufficient resources: no free slot, disk full
    "57": Policy.RETRY,  # operator intervention: publisher restarting
    "58": Policy.RETRY,  # system errors of the storage
    "40": Policy.RETRY,  # serialization: a different writer moved main
    LOCK_NOT_AVAILABLE: Policy.RETRY,  # behind a session that waits for a stronger lock
    OBJECT_IN_USE: Policy.RETRY,  # perhaps a dead worker's walsender still holds the slot
    "22": Policy.DATA,  # data exceptions
    "23": Policy.DATA,  # integrity constraint violations
    "21": Policy.DATA,  # cardinality violation
    RAISE_EXCEPTION: Policy.DATA,  # raise_error in an expression of the configuration
}
"""SQLSTATE class (or whole code) → policy; anything else is ``Policy.STOP``."""


def policy(sqlstate: str) -> Policy:
    """Look a SQLSTATE up in ``RETRY``: first the whole code, then the class."""
    return RETRY.get(sqlstate) or RETRY.get(sqlstate[:2]) or Policy.STOP


@contextmanager
def error_context(line: str) -> Iterator[None]:
    """Add ``line`` to the CONTEXT of a ReplicationError from the body."""
    try:
        yield
    except ReplicationError as error:
        error.context.append(line)
        raise


@contextmanager
def at_fault(*tables: Any) -> Iterator[None]:
    """Blame a ReplicationError from the body on ``tables``, unless the tables are known.

    ``tables`` are rows of ``pg_subscription_rel``.
    """
    try:
        yield
    except ReplicationError as error:
        error.tables = error.tables or tables
        raise


def internal_error(error: BaseException) -> InternalError:
    """The error for an exception that is a bug: the type and the place, without values."""
    where, trace = "?", error.__traceback__
    while trace is not None:
        code = trace.tb_frame.f_code
        where = f"{Path(code.co_filename).name}:{trace.tb_lineno} in {code.co_name}"
        trace = trace.tb_next
    return InternalError(f"unexpected {type(error).__name__} at {where}")
