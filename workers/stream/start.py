"""Start and end a replication stream: the connection, the spool and the receive thread.

Apply workers and sync workers run a stream each. The slot, the start position and the use of a
batch differ.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from catalog.errcodes import (
    OBJECT_IN_USE,
    OBJECT_NOT_IN_PREREQUISITE_STATE,
    UNDEFINED_OBJECT,
    ReplicationError,
    ReplicationGap,
)
from catalog.namespace import escape_identifier
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream as Streaming
from catalog.pg_subscription import Subscription
from catalog.remedies import after_a_gap
from config.guc import Settings
from config.limits import STREAMED_PIECE_BYTES
from config.quantities import format_duration, parse_duration
from workers.proto.message_rows import FIRST_WITH_MESSAGES
from workers.publisher.connection import WalReceiverConn
from workers.publisher.interfaces import QueryConn
from workers.publisher.replication_slots import RemoteSlot, fetch_slot
from workers.stream.receiver import ReceiveLimits, Receiver, ReceiveStats
from workers.stream.spool import Spool

log = logging.getLogger(__name__)

_SLOT_ERRORS: Final = (UNDEFINED_OBJECT, OBJECT_NOT_IN_PREREQUISITE_STATE, OBJECT_IN_USE)
"""Errors of START_REPLICATION that may mean a missing, an invalidated or a busy slot."""


_SMALL_PIECES: Final = (
    "SELECT pg_catalog.set_config(name, '{}kB', false) FROM pg_catalog.pg_settings "
    "WHERE name = 'logical_decoding_work_mem' AND source = 'default'"
)
"""Whoever set the publisher's memory, in a file, for a role or in ``connection``, keeps it."""


@dataclass(frozen=True, slots=True)
class Stream:
    """A running stream; ``receiver`` owns ``conn`` until ``end``."""

    conn: WalReceiverConn
    spool: Spool
    receiver: Receiver

    def reload(self, settings: Settings) -> None:
        """Apply changed settings in the middle of the stream."""
        self.spool.set_limits(
            memory_limit=settings.spool_memory, segment_bytes=settings.batch_max_bytes
        )
        wal_sender_timeout = self.receiver.limits.wal_sender_timeout
        self.receiver.set_limits(_limits(settings, wal_sender_timeout))

    def end(self) -> None:
        """Send the last feedback, end the thread, and discard the rest of the spool."""
        self.receiver.stop()
        self.spool.close()


def start_options(
    sub: Subscription,
    server_version: int,
    *,
    binary: bool = False,
    two_phase: bool = False,
    messages: bool = False,
) -> dict[str, str]:
    """START_REPLICATION's options, in the order of PostgreSQL's subscriber.

    ``two_phase`` turns the slot's property on, for good; without ``two_phase`` the property stays.
    ``messages`` asks for logical messages; PostgreSQL's subscriber never does. Then no transaction
    is sent while it runs: the publisher would send a message of a savepoint as one of the whole
    transaction, and nothing would tell that the savepoint was rolled back.

    Publishers before 14 know neither ``binary`` nor ``streaming``: their values arrive as text, and
    their transactions at the commit, as in PostgreSQL.
    """
    if server_version >= 16:
        proto = "4"
    elif server_version == 15:
        proto = "3"
    else:
        proto = "2" if server_version == 14 else "1"
    messages = messages and server_version >= FIRST_WITH_MESSAGES
    options = {"proto_version": proto}
    if server_version >= 14 and sub.substream is not Streaming.OFF and not messages:
        options["streaming"] = "on"
    if two_phase:
        options["two_phase"] = "on"
    if server_version >= 16 and sub.suborigin != "any":
        options["origin"] = sub.suborigin
    options["publication_names"] = ",".join(escape_identifier(name) for name in sub.subpublications)
    if binary:
        options["binary"] = "true"
    if messages:
        options["messages"] = "true"
    return options


def start_stream(
    conn: WalReceiverConn,
    sub: Subscription,
    slot: str,
    start: LSN,
    settings: Settings,
    spool_dir: Path,
    *,
    wake_main: Callable[[], None],
    report: Callable[[ReceiveStats], None],
    remember_flush: Callable[[LSN], None],
    binary: bool,
    two_phase: bool = False,
    messages: bool = False,
) -> Stream:
    """Run START_REPLICATION and start the receive thread."""
    wal_sender_timeout = parse_duration(conn.exec("SHOW wal_sender_timeout")[0][0] or "60s")
    options = start_options(
        sub, conn.server_version, binary=binary, two_phase=two_phase, messages=messages
    )
    if "streaming" in options:
        conn.exec(_SMALL_PIECES.format(STREAMED_PIECE_BYTES // 1024))
    conn.start_streaming(slot, start, options)
    spool = Spool(
        spool_dir, memory_limit=settings.spool_memory, segment_bytes=settings.batch_max_bytes
    )
    receiver = Receiver(
        conn,
        spool,
        _limits(settings, wal_sender_timeout),
        keys=f"subid={sub.oid} slot={slot}",
        start=start,
        messages="messages" in options,
        wake_main=wake_main,
        report=report,
        remember_flush=remember_flush,
    )
    receiver.start()
    log.info(
        "action=start_replication subid=%d slot=%s lsn=%s proto_version=%s streaming=%s "
        "messages=%s",
        sub.oid,
        slot,
        start,
        options["proto_version"],
        options.get("streaming", "off"),
        options.get("messages", "false"),
    )
    if sub.substream is not Streaming.OFF and "messages" in options:
        log.info(
            "action=streaming_off subid=%d a transaction is received at its commit, because "
            "messages_to or ddl_capture asks for logical messages",
            sub.oid,
        )
    return Stream(conn, spool, receiver)


def _limits(settings: Settings, wal_sender_timeout: float) -> ReceiveLimits:
    return ReceiveLimits(
        wal_receiver_timeout=settings.wal_receiver_timeout,
        wal_receiver_status_interval=settings.wal_receiver_status_interval,
        wal_sender_timeout=wal_sender_timeout,
        spool_max_size=settings.spool_max_size,
    )


@contextmanager
def starting_on_slot(
    conn: QueryConn, sub: Subscription, slot: str, retry_interval: float
) -> Iterator[None]:
    """Add the HINT with the remedy to an error about the subscription's slot.

    The slot is looked up, because the publisher's words may be in any language. The worker never
    creates the slot again: a new slot begins at the time of the creation, and all earlier changes
    would be lost silently. A lost slot is a ``ReplicationGap``.
    """
    try:
        yield
    except ReplicationError as error:
        if error.code not in _SLOT_ERRORS:
            raise
        try:
            found = fetch_slot(conn, slot)
            lost = found is None or found.invalidation is not None
        except ReplicationError:
            raise error from None  # report the first error
        if lost:
            raise _gap(sub, error) from None
        if error.code == OBJECT_IN_USE and found is not None:
            error.hint = _holder_hint(found, retry_interval)
        raise


def _gap(sub: Subscription, error: ReplicationError) -> ReplicationGap:
    return ReplicationGap(
        error.primary,
        detail=error.detail,
        hint=f"What was committed after {sub.max_flush_lsn} is lost to this subscription. "
        + after_a_gap(sub.subname),
        sqlstate=error.code,
    )


def _holder_hint(found: RemoteSlot, retry_interval: float) -> str:
    holder = f"process {found.active_pid}" if found.active_pid else "another process"
    return (
        f"The worker tries again every {format_duration(retry_interval)} "
        f"(wal_retrieve_retry_interval). The slot is held by {holder} of the publisher: a "
        "walsender that has not noticed the end of our last worker, which ends by itself, or "
        "another subscriber, which has to be stopped."
    )
