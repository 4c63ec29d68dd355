"""Spark's and gRPC's exceptions as ReplicationErrors: one line, no row values, no Java stack.

A failed call has one of two outcomes:

* The server answered with an error. The operation has ended.
* No answer came (``RequiredProcessGone``). The operation may still be running, so the worker closes
  the session on the server before the next attempt (see ``session``).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, TypeVar

import grpc
from pyspark.errors import PySparkException
from pyspark.errors.exceptions.connect import SparkConnectGrpcException

from catalog import remedies
from catalog.errcodes import (
    CONNECTION_FAILURE,
    DISK_FULL,
    IO_ERROR,
    SYSTEM_ERROR,
    IoError,
    LakeBroken,
    ReplicationError,
    RequiredProcessGone,
    ServerUnfit,
)
from config.limits import COMMIT_ATTEMPTS
from workers.lake.connect.store_refusals import passing_failure, store_refusal
from workers.lake.copy_task import TASK_ERROR

Made = TypeVar("Made")

_NOT_FOUND: Final = ("TABLE_OR_VIEW_NOT_FOUND", "SCHEMA_NOT_FOUND")

_GONE: Final = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.UNAUTHENTICATED,
        grpc.StatusCode.RESOURCE_EXHAUSTED,
    }
)
_RELEASED: Final = re.compile(
    r"INVALID_HANDLE\.SESSION_CLOSED|OPERATION_CANCELED|INVALID_CURSOR\.DISCONNECTED"
)
"""The errors of a call when the session is released before the call, or during the call."""
_SESSION_OVER: Final = re.compile(
    r"INVALID_HANDLE\.(SESSION_CHANGED|SESSION_NOT_FOUND)"
    r"|server side session identifier|NO_ACTIVE_SESSION|[Cc]losed channel|[Cc]hannel closed"
)
_CAUSE: Final = re.compile(r"^(?:Caused by: )?([\w.$]+(?:Exception|Error)): ?(.*)$", re.M)
_DISK_FULL: Final = re.compile(r"No space left on device|Disk quota exceeded|SQLITE_FULL", re.I)
_NOT_WRITABLE: Final = re.compile(
    r"Permission denied|Read-only file system|SQLITE_READONLY|SQLITE_CANTOPEN|AccessDenied"
    r"|Mkdirs failed|Failed to open input stream|FileNotFoundException|NotFoundException"
    r"|ParentNotDirectoryException|Input/output error|SQLITE_IOERR|SQLITE_CORRUPT",
    re.I,
)
_CLOCK: Final = re.compile(
    r"Invalid update timestamp \d+: before (?:last|the latest) "
    r"|\[BUG\] Expected sorted (?:snapshot|previous metadata) log entries"
)
"""Iceberg refuses a commit that is a minute older than the table's last commit."""
_FILE_MISSING: Final = re.compile(
    r"\A(?!.*(?:Permission denied|AccessDenied)).*\b(?:File)?NotFoundException\b", re.S
)
_STAGED: Final = re.compile(r"/[0-9a-f]{32}\.parquet\b")
"""The name of a staged file (``staging``). Names of Iceberg's files have a different form."""
_BROKEN: Final = re.compile(
    r"^(?:\(|Caused by: )?java\.lang\.(UnsatisfiedLinkError\b|ExceptionInInitializerError\b"
    r"|NoClassDefFoundError(?=(?:\)|:) Could not initialize class )"
    r"|VirtualMachineError(?=(?:\)|:) Out of space in CodeCache))"
    # The error of the call, not of a task: gRPC's status UNKNOWN and the message alone.
    r"|StatusCode\.UNKNOWN\n\tdetails = \""
    r"(?:'\w[\w.\[\]]* [\w.$]+\(.*\)'|Could not initialize class |Out of space in CodeCache)",
    re.M,
)
"""A class whose initialisation failed, for example because the disk was full while the class
unpacked a library, or because the code cache was full. Java never initialises the class again, and
every call that needs the class fails until the server ends."""
_EXHAUSTED: Final = re.compile(
    r"^(?:\(|Caused by: )?java\.(?:io|nio|net)\.[\w.$]+(?:\)|:) .*\b(Too many open files)\b"
    r"|^(?:\(|Caused by: )?java\.lang\.OutOfMemoryError(?:\)|:)"
    r" (unable to create (?:new )?native thread)",
    re.M | re.I,
)
"""The server has used up its descriptors or threads. Java names a file that could not be opened
as not found, so this error looks like a lost file."""
_LACKS: Final = re.compile(
    r"^(?:\(|Caused by: )?[\w.]*\b(?:NoClassDefFoundError|ClassNotFoundException)(?:\)|:)"
    r" (?P<name>[\w./$]+)$"
    r"|^(?:\(|Caused by: )?[\w.]*\bUnsupportedFileSystemException(?:\)|:)"
    r' No FileSystem for scheme "?(?P<scheme>\w+)',
    re.M,
)
"""A jar is missing from the server's class path."""
_DATA: Final = re.compile(r"SQLSTATE: (22[0-9A-Z]{3}|P0001)\b")
"""A value that an expression of the configuration or a column refuses, or ``raise_error`` in an
expression. The message may quote the value."""
_COMMIT_CONFLICT: Final = re.compile(r"\bCommit(Failed|StateUnknown)Exception\b")
_GOES_BY: Final = (
    "Nothing is lost: it is tried again, after longer and longer pauses. The server's own log has "
    "the cause."
)
_SAFE: Final = ("org.apache.iceberg.", "java.io.", "java.nio.", "org.sqlite.", "java.sql.")
"""Packages with messages about files, tables and snapshots, never about rows."""


class LakeFailure(ReplicationError):  # noqa: N818 - as in RequiredProcessGone
    """An error with which the lake server answered a call.

    ``message`` is the server's whole text, for recognising a refusal. The text may quote rows, so
    nothing shows or logs it.
    """

    message: str = ""


class FileMissing(IoError):  # noqa: N818 - as in RequiredProcessGone
    """A file that the table's metadata names is missing, for example deleted by an expiry."""


class SessionClosed(RequiredProcessGone):
    """The session was closed from outside: by a successor, or by the server after a time-out."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Turn Spark's exceptions in the block into a ReplicationError about ``what``."""
    try:
        yield
    except ReplicationError:
        raise
    except (PySparkException, grpc.RpcError, AssertionError, ValueError) as error:
        raise as_replication_error(error, what) from None


def is_missing(error: ReplicationError) -> bool:
    """Does the error say that a table or a schema does not exist?"""
    return isinstance(error, LakeFailure) and any(word in error.message for word in _NOT_FOUND)


def is_commit_conflict(error: ReplicationError) -> bool:
    """Did another commit to the table come first, or is the commit's outcome unknown?"""
    return isinstance(error, LakeFailure) and _COMMIT_CONFLICT.search(error.message) is not None


def repeated(
    commit: Callable[[], Made], pauses: Iterable[float] = (0.0,) * (COMMIT_ATTEMPTS - 1)
) -> Made:
    """Repeat a commit if another commit came first, after ``pauses`` in seconds.

    Iceberg never repeats commits to branches.
    """
    for pause in pauses:
        try:
            return commit()
        except LakeFailure as error:
            if not is_commit_conflict(error):
                raise
        time.sleep(pause)
    return commit()


def as_replication_error(error: BaseException, what: str) -> ReplicationError:
    """The error on which a worker acts; ``detail`` is safe to show and to log."""
    text = f"{error}"
    trace = _server_trace(error)
    if TASK_ERROR in text or TASK_ERROR in trace:
        return _task_error(text if TASK_ERROR in text else trace)
    code = _grpc_status(error)
    both = f"{condition(error)}\n{text}\n{trace}"
    data = _DATA.search(both) if isinstance(error, PySparkException) else None
    if data and code not in _GONE:
        return _failure(what, _detail(error, text, trace), both, data.group(1))
    if _RELEASED.search(text):
        return SessionClosed(
            f"lost the lake server while {what}",
            detail="The server has closed the session for good.",
        )
    if code in _GONE or _SESSION_OVER.search(text) or isinstance(error, grpc.RpcError):
        return RequiredProcessGone(
            f"lost the lake server while {what}", detail=_connection_detail(error, text, code)
        )
    if broken := _BROKEN.search(text) or _BROKEN.search(trace):
        name = broken.group(1) or "LinkageError"
        return _broken(what, f"{name}: Java gave up on a class that it needs.")
    if exhausted := _EXHAUSTED.search(text) or _EXHAUSTED.search(trace):
        used_up = exhausted.group(1) or exhausted.group(2)
        return _broken(what, f"{used_up.capitalize()}.")
    if lacks := _LACKS.search(text) or _LACKS.search(trace):
        return ServerUnfit(
            f"the Spark server lacks a jar that it needs while {what}",
            detail=_lacking(lacks),
            hint='Put the jars that docs/scaling.md names ("A Spark cluster") on the class'
            " path of driver and executors, and start the server again.",
        )
    if _DISK_FULL.search(both):
        return IoError(f"no space left on the lake's storage while {what}", sqlstate=DISK_FULL)
    if _CLOCK.search(both):
        return IoError(
            f"the clock of the lake server's machine is behind while {what}",
            detail="The table's last commit is later than now, by more than a minute.",
            hint="Set the clock right, or wait until it has come to that time. If it was far"
            " ahead, drop the lake table and copy it again with pgsub refresh NAME --recopy TABLE.",
            sqlstate=SYSTEM_ERROR,
        )
    if _STAGED.search(both) and (
        condition(error) == "PATH_NOT_FOUND" or _NOT_WRITABLE.search(both)
    ):
        return IoError(
            f"the lake could not read staged rows while {what}",
            detail=_detail(error, text, trace),
            hint='Set "spark.staging" to a place that Spark\'s driver and executors see under the'
            " same name and may read: a shared folder, or s3://bucket/prefix.",
        )
    if (refusal := store_refusal(f"{text}\n{trace}", what)) is not None:
        return refusal
    if _FILE_MISSING.search(both):
        return FileMissing(
            f"{remedies.LAKE_STORAGE_FAILED} while {what}", detail=_detail(error, text, trace)
        )
    if _NOT_WRITABLE.search(both):
        return IoError(
            f"{remedies.LAKE_STORAGE_FAILED} while {what}", detail=_detail(error, text, trace)
        )
    passing = passing_failure(f"{text}\n{trace}", what)
    failure = _failure(what, _detail(error, text, trace), both, passing and IO_ERROR)
    if passing is not None:
        failure.primary, failure.hint = passing, _GOES_BY
    return failure


def _broken(what: str, detail: str) -> LakeBroken:
    return LakeBroken(
        f"the lake server cannot go on while {what}",
        detail=detail,
        hint="The launcher starts it again; a server of your own (spark.remote) you restart.",
    )


def _lacking(lacks: re.Match[str]) -> str:
    if lacks["scheme"]:
        return f'It has no file system for "{lacks["scheme"]}".'
    return f'It has no class "{lacks["name"].replace("/", ".")}".'


def _failure(what: str, detail: str, message: str, sqlstate: str | None = None) -> LakeFailure:
    failure = LakeFailure(f"{remedies.LAKE_FAILED} while {what}", detail=detail, sqlstate=sqlstate)
    failure.message = message
    return failure


def condition(error: BaseException) -> str:
    """Spark's error condition, as ``TABLE_OR_VIEW_NOT_FOUND``; empty for an error without one."""
    if isinstance(error, PySparkException):
        return str(error.getCondition() or "")
    return ""


def _server_trace(error: BaseException) -> str:
    return str(getattr(error, "_stacktrace", None) or "")


def _grpc_status(error: BaseException) -> grpc.StatusCode | None:
    if isinstance(error, SparkConnectGrpcException):
        status: grpc.StatusCode | None = getattr(error, "_grpc_status_code", None)
        return status
    if isinstance(error, grpc.RpcError):
        code = getattr(error, "code", None)
        return code() if callable(code) else grpc.StatusCode.UNAVAILABLE
    return None


def _connection_detail(error: BaseException, text: str, code: grpc.StatusCode | None) -> str:
    if match := _SESSION_OVER.search(text):
        return f"The server answered {match.group(0)}: the session was closed."
    return f"gRPC status {code.name if code else 'unknown'}."


def _detail(error: BaseException, text: str, trace: str) -> str:
    """The innermost cause; with the message only if the exception's package never quotes rows."""
    causes = [match.groups() for match in _CAUSE.finditer(trace)]
    for name, message in reversed(causes):
        if name.startswith(_SAFE) and message:
            return f"{name.rsplit('.', 1)[-1]}: {_one_line(message)}"
    named = re.match(r"\[([A-Z_.0-9]+)\]", text)
    if named and named.group(1).split(".")[0] in _PLANNING:
        return _one_line(text)
    names = [name.rsplit(".", 1)[-1] for name, _ in causes]
    words = ([named.group(1)] if named else []) + names[-2:]
    return (", caused by ".join(words) or type(error).__name__) + "."


_PLANNING: Final = frozenset(
    {
        "TABLE_OR_VIEW_NOT_FOUND",
        "UNRESOLVED_COLUMN",
        "INCOMPATIBLE_DATA_FOR_TABLE",
        "PARSE_SYNTAX_ERROR",
        "SCHEMA_NOT_FOUND",
        "UNSUPPORTED_FEATURE",
        "DATATYPE_MISMATCH",
        "INSERT_COLUMN_ARITY_MISMATCH",
        "UNRESOLVED_ROUTINE",
    }
)
"""Conditions that Spark finds while planning, before reading a row."""


def _one_line(text: str) -> str:
    line = " ".join(text.split("\n", 1)[0].split())
    return line if len(line) <= 300 else line[:297] + "..."


def _task_error(text: str) -> ReplicationError:
    """Read a copy task's error from the JSON."""
    start = text.index(TASK_ERROR) + len(TASK_ERROR)
    try:
        fields, _ = json.JSONDecoder().raw_decode(text[start:].lstrip())
        error = ReplicationError(
            str(fields["primary"]),
            detail=fields.get("detail"),
            hint=fields.get("hint"),
            sqlstate=str(fields["sqlstate"]),
        )
    except (ValueError, KeyError, TypeError):
        return ReplicationError("a copy task failed", detail="Its error could not be read.")
    # A task may run on a machine with different certificates, names and networks.
    unreached = error.code == CONNECTION_FAILURE and error.primary.startswith("could not connect")
    return remedies.connecting(error) if unreached else error
