"""Read connection strings, and connect to a publisher."""

from __future__ import annotations

import math
import select
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from psycopg import pq
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from catalog import remedies
from catalog.errcodes import ConnectionFailure, ReplicationError, SyntaxErrorOrAccess
from catalog.pg_subscription import Subscription
from config.limits import (
    CONNECT_SECONDS,
    KEEPALIVE_IDLE_SECONDS,
    KEEPALIVE_INTERVAL_SECONDS,
    KEEPALIVE_PROBES,
    UNACKNOWLEDGED_SECONDS,
    WAIT_SLICE_SECONDS,
)
from workers.publisher.connection import WalReceiverConn, terminated_by_command
from workers.publisher.password_command import subscription_password


def connect_publisher(
    sub: Subscription, appname: str, interrupted: Callable[[], bool], *, replication: bool = True
) -> WalReceiverConn:
    """Connect to a subscription's publisher: to a walsender, or with an ordinary session."""
    return connect(
        sub.subconninfo,
        appname,
        passfile=sub.passfile,
        password=subscription_password(sub, interrupted),
        replication=replication,
        interrupted=interrupted,
    )


def with_host_of(sub: Subscription, conn: WalReceiverConn) -> Subscription:
    """The subscription with the host of ``conn``; a connection string may name several hosts."""
    there = {**parse_conninfo(sub.subconninfo), **conn.host()}
    there.pop("target_session_attrs", None)
    return replace(sub, subconninfo=join_conninfo(there))


def connect_beside(
    sub: Subscription, streaming: WalReceiverConn, interrupted: Callable[[], bool]
) -> WalReceiverConn:
    """Open an ordinary session on the host that ``streaming`` reached.

    Whoever waits in the session gets the error that ends the stream. A frozen publisher answers no
    question and drops no connection. The receive thread notices, by ``wal_receiver_timeout``, but
    not while reading is paused. Therefore each question also has a limit of its own.
    """

    def is_over() -> bool:
        if streaming.stream_lost is not None:
            raise streaming.stream_lost
        return interrupted()

    there = with_host_of(sub, streaming)
    conn = connect_publisher(there, sub.subname, is_over, replication=False)
    conn.patience = CONNECT_SECONDS
    return conn


_SESSION_OPTIONS: Final = (
    "-c datestyle=ISO -c intervalstyle=postgres -c extra_float_digits=3 -c timezone=UTC "
    "-c bytea_output=hex "
    f"-c tcp_keepalives_idle={KEEPALIVE_IDLE_SECONDS} "
    f"-c tcp_keepalives_interval={KEEPALIVE_INTERVAL_SECONDS} "
    f"-c tcp_keepalives_count={KEEPALIVE_PROBES}"
)

_LIVENESS: Final = {
    "keepalives_idle": str(KEEPALIVE_IDLE_SECONDS),
    "keepalives_interval": str(KEEPALIVE_INTERVAL_SECONDS),
    "keepalives_count": str(KEEPALIVE_PROBES),
    "tcp_user_timeout": str(1000 * UNACKNOWLEDGED_SECONDS),
}
"""libpq's defaults are the kernel's: a publisher that vanishes under a COPY or a query would be
waited for more than two hours. A connection string may set other values."""

CLEAR_SEARCH_PATH: Final = "SELECT pg_catalog.set_config('search_path', '', false)"
ZERO_TIMEOUTS: Final = (
    "SELECT count(pg_catalog.set_config(name, '0', false)) FROM pg_catalog.pg_settings "
    "WHERE name IN ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', "
    "'idle_session_timeout', 'transaction_timeout')"
)


def parse_conninfo(conninfo: str) -> dict[str, str]:
    """Split a libpq conninfo string or URI into its parts; raises 42601 for any other text."""
    try:
        parts = conninfo_to_dict(conninfo)
    except Exception as error:
        raise SyntaxErrorOrAccess(
            "invalid connection string syntax", detail=str(error).strip().splitlines()[0]
        ) from None
    return {key: str(value) for key, value in parts.items() if value is not None}


def join_conninfo(parts: Mapping[str, str]) -> str:
    """Join parts to a conninfo string: the inverse of ``parse_conninfo``."""
    return make_conninfo("", **parts)


def full_conninfo(
    conninfo: str,
    appname: str,
    *,
    passfile: str | None = None,
    password: str | None = None,
    replication: bool = True,
) -> str:
    """The connection string for libpq: the user's parts, and those that a subscriber needs."""
    parts = {**_LIVENESS, **parse_conninfo(conninfo)}
    options = " ".join(part for part in (parts.get("options"), _SESSION_OPTIONS) if part)
    parts.update(client_encoding="UTF8", options=options)
    parts.setdefault("fallback_application_name", appname)
    parts.setdefault("connect_timeout", str(CONNECT_SECONDS))
    if passfile is not None:  # an empty password stops PGPASSWORD from winning
        parts.update(passfile=passfile, password="")
    if password is not None:
        parts["password"] = password
    if replication:
        parts["replication"] = "database"
    return make_conninfo("", **parts)


def connect(
    conninfo: str,
    appname: str,
    *,
    passfile: str | None = None,
    password: str | None = None,
    replication: bool = True,
    interrupted: Callable[[], bool] | None = None,
) -> WalReceiverConn:
    """Open a connection; clear the settings that a role or a database may have put on the session.

    Raises 08006 with libpq's message, which never contains the password.
    """
    dsn = full_conninfo(
        conninfo, appname, passfile=passfile, password=password, replication=replication
    )
    pgconn = _establish(dsn, interrupted or (lambda: False))
    if pgconn.status != pq.ConnStatus.OK:
        message = pgconn.error_message.decode(errors="replace").strip()
        pgconn.finish()
        error = ConnectionFailure("could not connect to the publisher", detail=message)
        raise remedies.connecting(error)
    conn = WalReceiverConn(pgconn, interrupted or (lambda: False))
    try:
        conn.exec(CLEAR_SEARCH_PATH)
        conn.exec(ZERO_TIMEOUTS)
    except BaseException:
        conn.close()
        raise
    return conn


def _establish(dsn: str, interrupted: Callable[[], bool]) -> pq.abc.PGconn:
    """Connect by ``PQconnectPoll``, so that SIGTERM and the worker's other threads get their turn.

    Raises 08006 after ``connect_timeout``: in this mode the caller has to measure the time. With
    several hosts each host has the whole time-out, and only libpq can go on to the next host: one
    blocking call tries all of them.
    """
    parts = parse_conninfo(dsn)
    places = [parts.get(name, "") for name in ("host", "hostaddr", "port")]
    limit = parts["connect_timeout"].strip()
    if not any(places[:2]) or any("," in place for place in places) or not limit.isdecimal():
        return pq.PGconn.connect(dsn.encode())
    deadline = time.monotonic() + max(int(limit), 2) if int(limit) else math.inf
    pgconn = pq.PGconn.connect_start(dsn.encode())
    wait = pq.PollingStatus.WRITING
    while pgconn.status != pq.ConnStatus.BAD:
        if not _ready(pgconn, wait, interrupted, deadline):
            continue
        wait = pq.PollingStatus(pgconn.connect_poll())
        if wait in (pq.PollingStatus.OK, pq.PollingStatus.FAILED):
            break
    return pgconn


def _ready(
    pgconn: pq.abc.PGconn,
    wait: pq.PollingStatus,
    interrupted: Callable[[], bool],
    deadline: float,
) -> bool:
    """Wait one slice for the socket; true if the socket is ready.

    Ends the attempt, and raises, after SIGTERM and at the deadline.
    """
    error: ReplicationError | None = None
    if interrupted():
        error = terminated_by_command()
    elif time.monotonic() > deadline:
        where = f'server at "{pgconn.host.decode()}", port {pgconn.port.decode()}'
        said = f"connection to {where} failed: timeout expired"
        error = remedies.connecting(
            ConnectionFailure("could not connect to the publisher", detail=said)
        )
    if error is not None:
        pgconn.finish()
        raise error
    sockets = [pgconn.socket]
    reading = wait == pq.PollingStatus.READING
    ready = select.select(
        sockets if reading else [], [] if reading else sockets, [], WAIT_SLICE_SECONDS
    )
    return bool(ready[0] or ready[1])
