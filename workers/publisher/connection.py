"""The connection to the publisher: the part of libpqwalreceiver, and the only transport.

A walsender connection (``replication=database``) takes the *simple* query protocol only. Every
statement is therefore text, and the caller quotes identifiers and literals (``catalog.namespace``).
The connection sends statements asynchronously and waits in short slices, so that a worker does not
hang in ``CREATE_REPLICATION_SLOT`` after SIGTERM.

One trace, a sync worker's connection (see ``docs/protocol.md``)::

    connect(conninfo, "pg_16406_sync_16399_…")       search_path and five timeouts are cleared
    command("BEGIN READ ONLY ISOLATION LEVEL REPEATABLE READ")
    create_slot(name, temporary=True, snapshot="use") → 0/19BDA20
    exec("SELECT …")                                  the table as the snapshot sees the table
    copy_out("COPY public.t (id) TO STDOUT …")        pieces of bytes
    command("COMMIT")
    start_streaming(name, 0/19BDA20, options)         COPY_BOTH; the receive thread takes over
    end_streaming()
"""

from __future__ import annotations

import math
import os
import select
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Final

import psycopg
from psycopg import pq

from catalog import remedies
from catalog.errcodes import (
    INTERNAL_ERROR,
    QUERY_CANCELED,
    UNDEFINED_OBJECT,
    AdminShutdown,
    ConnectionFailure,
    ProtocolViolation,
    ReplicationError,
)
from catalog.namespace import escape_identifier, quote_identifier
from catalog.pg_lsn import LSN
from config.limits import (
    RECEIVE_BUFFER_BYTES,
    STILL_WAITING_SECONDS,
    WAIT_NOTICE_SECONDS,
    WAIT_SLICE_SECONDS,
)
from workers.publisher.interfaces import Row, SystemIdentity

_DATABASE: Final = (
    "SELECT oid FROM pg_catalog.pg_database WHERE datname = pg_catalog.current_database()"
)


def _replication_literal(text: str) -> str:
    """Quote a literal for the replication grammar, which knows no E'…' and no backslash."""
    return "'" + text.replace("'", "''") + "'"


def _error(result: pq.abc.PGresult) -> ReplicationError:
    """The publisher's error, with the publisher's SQLSTATE."""

    def part(field: pq.DiagnosticField) -> str | None:
        value = result.error_field(field)
        return value.decode(errors="replace") if value else None

    primary = part(pq.DiagnosticField.MESSAGE_PRIMARY)
    if primary is None:
        return _lost(result.error_message.decode(errors="replace"))
    return ReplicationError(
        primary,
        detail=part(pq.DiagnosticField.MESSAGE_DETAIL),
        hint=part(pq.DiagnosticField.MESSAGE_HINT),
        sqlstate=part(pq.DiagnosticField.SQLSTATE) or INTERNAL_ERROR,
    )


def _lost(said: object) -> ConnectionFailure:
    """The error about a broken connection, in libpq's words."""
    detail = str(said).strip() or None
    return ConnectionFailure("lost the connection to the publisher", detail=detail)


def terminated_by_command() -> AdminShutdown:
    """The error that ends a worker after SIGTERM."""
    return AdminShutdown("terminating the worker due to administrator command")


class WalReceiverConn:
    """One connection to the publisher. Not thread safe: one thread at a time owns a connection.

    Any thread may call ``give_up``.
    """

    def __init__(self, pgconn: pq.abc.PGconn, interrupted: Callable[[], bool]) -> None:
        self.pgconn = pgconn
        self.server_version: int = pgconn.server_version // 10000
        self._interrupted = interrupted
        self._deadline: float | None = None
        self.patience: float | None = None
        """Seconds that a statement may take; None for a connection without a limit."""
        self._give_up = math.inf
        self.on_wait: Callable[[], None] | None = None
        """Called when a statement has waited for some seconds, and then once a minute."""
        self._on_wait_at = math.inf
        self._datoid: int | None = None
        self.stream_lost: BaseException | None = None
        """What ended the stream of this connection: a session beside it then ends, too."""

    @property
    def pgconn_ptr(self) -> int:
        """The address of libpq's PGconn, for the kernel that drains it."""
        pointer: int | None = getattr(self.pgconn, "pgconn_ptr", None)  # not in pq.abc
        if pointer is None:
            raise ConnectionFailure("the connection to the publisher is closed")
        return pointer

    def fileno(self) -> int:
        """The socket, for select."""
        return self.pgconn.socket

    def is_near(self) -> bool:
        """True if the connection goes through TCP to this machine; False if that is unknown."""
        if not self.pgconn.hostaddr:
            return False  # a Unix socket
        # The next statement reports a dead connection.
        with suppress(OSError, psycopg.Error), self._socket() as own:
            return bool(own.getsockname()[0] == own.getpeername()[0])
        return False

    def _socket(self) -> socket.socket:
        return socket.socket(fileno=os.dup(self.fileno()))

    def host(self) -> dict[str, str]:
        """Host, address and port that the connection reached, as conninfo parts."""
        parts = {
            "host": self.pgconn.host.decode(),
            "hostaddr": self.pgconn.hostaddr.decode(),
            "port": self.pgconn.port.decode(),
        }
        return {key: value for key, value in parts.items() if value}

    # -- statements ---------------------------------------------------------------------------

    def _wait_readable(self) -> None:
        while True:
            if self._interrupted():
                raise terminated_by_command()
            if self._deadline is not None and time.monotonic() > self._deadline:
                self._deadline = None
                self.pgconn.get_cancel().cancel()
            if self.on_wait is not None and time.monotonic() > self._on_wait_at:
                self._on_wait_at = time.monotonic() + STILL_WAITING_SECONDS
                self.on_wait()
            if time.monotonic() > self._give_up:
                raise ConnectionFailure("the publisher does not answer")
            ready, _, _ = select.select([self.pgconn.socket], [], [], WAIT_SLICE_SECONDS)
            if ready:
                self.pgconn.consume_input()
                return

    def _next_result(self) -> pq.abc.PGresult | None:
        try:
            while self.pgconn.is_busy():
                self._wait_readable()
            return self.pgconn.get_result()
        except ReplicationError:
            raise
        except Exception as error:
            raise _lost(error) from None

    def _run(self, sql: str) -> pq.abc.PGresult:
        """Send one statement and read all results; raise an error, or return the last result."""
        self._give_up = time.monotonic() + self.patience if self.patience else math.inf
        self._on_wait_at = time.monotonic() + WAIT_NOTICE_SECONDS
        try:
            self.pgconn.send_query(sql.encode())
        except Exception as error:
            raise _lost(error) from None
        last: pq.abc.PGresult | None = None
        failed: ReplicationError | None = None
        while (result := self._next_result()) is not None:
            last = result
            if result.status in (pq.ExecStatus.FATAL_ERROR, pq.ExecStatus.BAD_RESPONSE):
                failed = failed or _error(result)
            if result.status in (pq.ExecStatus.COPY_BOTH, pq.ExecStatus.COPY_OUT):
                break
        if failed is not None:
            raise failed
        if last is None:
            raise ProtocolViolation("the publisher answered nothing to a statement")
        return last

    def exec(self, sql: str) -> list[Row]:
        """Run a query; return the rows as text, NULL as None. Raises the publisher's error."""
        result = self._run(sql)
        return [
            tuple(
                value.decode() if (value := result.get_value(row, column)) is not None else None
                for column in range(result.nfields)
            )
            for row in range(result.ntuples)
        ]

    def command(self, sql: str) -> None:
        """Run a statement and ignore the result."""
        self._run(sql)

    def copy_out(self, sql: str) -> Iterator[memoryview]:
        """Run ``COPY … TO STDOUT``; yield pieces of whole rows, each valid until the next piece."""
        # Compiled kernels take half a second to import; a command that copies no table needs none.
        from workers.columnar.copy.libpq_rows import CopyFailed, copy_data

        result = self._run(sql)
        if result.status != pq.ExecStatus.COPY_OUT:
            raise ProtocolViolation("the publisher did not begin a COPY")
        try:
            for piece in copy_data(self.pgconn_ptr, self._wait_readable):
                if self._interrupted():  # with a fast publisher ``_wait_readable`` is never called
                    raise terminated_by_command()
                yield piece
        except (CopyFailed, psycopg.OperationalError):
            raise _lost(self.pgconn.get_error_message()) from None
        results = list(iter(self._next_result, None))
        for failed in (each for each in results if each.status == pq.ExecStatus.FATAL_ERROR):
            raise _error(failed)

    # -- replication commands -----------------------------------------------------------------

    def identify_system(self) -> SystemIdentity:
        """Run IDENTIFY_SYSTEM, and ask for the oid of the database."""
        systemid, tli, at, dbname = self.exec("IDENTIFY_SYSTEM")[0]
        if self._datoid is None:
            self._datoid = int(self.exec(_DATABASE)[0][0] or 0)
        position = LSN.parse(at or "0/0")
        return SystemIdentity(str(systemid), int(tli or 0), position, dbname or "", self._datoid)

    def timeline_history(self, tli: int) -> str:
        """Run TIMELINE_HISTORY; return the content of the timeline's history file."""
        result = self._run(f"TIMELINE_HISTORY {tli:d}")
        content = result.get_value(0, 1) if result.ntuples else None
        return (content or b"").decode(errors="replace")  # a reason may be in any encoding

    def create_slot(
        self,
        name: str,
        *,
        temporary: bool,
        snapshot: str,
        failover: bool = False,
        two_phase: bool = False,
        timeout: float | None = None,
    ) -> LSN:
        """Run CREATE_REPLICATION_SLOT with pgoutput; return the consistent point.

        ``snapshot`` is ``use`` (first command of a REPEATABLE READ transaction) or ``nothing``.
        ``timeout`` is for a standby, which waits for a record that only its primary can write:
        raises 55000 after ``timeout`` seconds, and leaves no slot behind. SIGTERM and Ctrl-C leave
        none either.
        """
        given = {"TWO_PHASE": two_phase, "FAILOVER": failover}
        options = [name for name, value in given.items() if value]  # a server may be too old
        if self.server_version >= 15:
            options.append(f"SNAPSHOT '{snapshot}'")
            tail = f"({', '.join(options)})"
        else:
            options.append("USE_SNAPSHOT" if snapshot == "use" else "NOEXPORT_SNAPSHOT")
            tail = " ".join(options)
        kind = "TEMPORARY LOGICAL" if temporary else "LOGICAL"
        command = f"CREATE_REPLICATION_SLOT {escape_identifier(name)} {kind} pgoutput {tail}"
        with self._cancelled_after(timeout, name):
            try:
                row = self.exec(command)[0]
            except (AdminShutdown, KeyboardInterrupt):
                # Without a cancel the publisher would go on and create a slot without an owner.
                with suppress(Exception):  # a lost connection ends the statement, too
                    self.pgconn.get_cancel().cancel()
                    while self.pgconn.get_result() is not None:
                        pass  # the connection is free for the next statement
                raise
        return LSN.parse(row[1] or "0/0")

    @contextmanager
    def _cancelled_after(self, seconds: float | None, slot: str) -> Iterator[None]:
        """Have the server cancel the statement after ``seconds``; None for no limit."""
        self._deadline = None if seconds is None else time.monotonic() + seconds
        try:
            yield
        except ReplicationError as error:
            if error.code == QUERY_CANCELED and seconds is not None and self._deadline is None:
                raise remedies.slot_on_standby(slot, seconds) from None
            raise
        finally:
            self._deadline = None

    def drop_slot(self, name: str, *, wait: bool = True, missing_ok: bool = False) -> None:
        """Run DROP_REPLICATION_SLOT."""
        try:
            self.command(f"DROP_REPLICATION_SLOT {quote_identifier(name)}{' WAIT' if wait else ''}")
        except ReplicationError as error:
            if not (missing_ok and error.code == UNDEFINED_OBJECT):
                raise

    def start_streaming(self, slot: str, start: LSN, options: Mapping[str, str]) -> None:
        """Run START_REPLICATION; afterwards the connection is in COPY_BOTH."""
        if self.is_near():
            with self._socket() as own:
                own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER_BYTES)
        words = ", ".join(
            f"{name} {_replication_literal(value)}" for name, value in options.items()
        )
        result = self._run(
            f"START_REPLICATION SLOT {escape_identifier(slot)} LOGICAL {start} ({words})"
        )
        if result.status != pq.ExecStatus.COPY_BOTH:
            raise ProtocolViolation("the publisher did not begin streaming")

    def send(self, data: bytes) -> None:
        """Queue one CopyData message and flush it to the socket."""
        try:
            self.pgconn.put_copy_data(data)
            while self.pgconn.flush():
                select.select([], [self.pgconn.socket], [], WAIT_SLICE_SECONDS)
        except Exception as error:
            raise _lost(error) from None

    def end_streaming(self) -> None:
        """Send and receive CopyDone; read on until the connection takes commands again."""
        try:
            self.pgconn.put_copy_end()
            self.pgconn.flush()
            while True:
                size, _ = self.pgconn.get_copy_data(1)
                if size < 0:
                    break
                if size == 0:
                    self._wait_readable()
            while self._next_result() is not None:
                pass
        except ReplicationError:
            raise
        except Exception as error:
            raise _lost(error) from None

    def stream_error(self) -> ReplicationError:
        """The error that ended the stream: the server's, or the connection's."""
        try:
            while (result := self.pgconn.get_result()) is not None:
                if result.status == pq.ExecStatus.FATAL_ERROR:
                    return _error(result)
        except Exception as error:
            return _lost(error)
        return ConnectionFailure("the publisher ended the stream")

    def give_up(self) -> None:
        """End the wait of another thread with 57P01; the connection is of no use from here on."""
        self._interrupted = lambda: True

    def close(self) -> None:
        """Close the socket; a temporary slot vanishes with the connection."""
        self.pgconn.finish()
