"""The connections of an apply worker or a sync worker to the publisher.

A worker has up to four connections. The first connection receives the stream. On a standby, a
second connection watches the timeline. A third connection is open for a moment when the worker
asks a question during the stream. With a table whose text may change without an event, a fourth
connection stays open: the worker asks before each batch.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

from catalog.pg_subscription import Subscription
from workers.apply.catalog_watch import CatalogWatch
from workers.apply.copy_again import CopyAgain
from workers.apply.follow_schema import SchemaFollower
from workers.apply.name_watch import NameWatch
from workers.apply.table_checks import TableChecks
from workers.apply.text_watch import TextWatch
from workers.process.worker_process import WorkerProcess
from workers.proto.message_rows import FIRST_WITH_MESSAGES
from workers.publisher.connect import connect_publisher
from workers.publisher.connection import WalReceiverConn
from workers.publisher.password_required import check_connected, check_conninfo
from workers.publisher.second_connection import (
    KeptSession,
    ask_delimiters,
    ask_identities,
    ask_names,
    ask_relids,
    ask_shape,
    ask_size,
    fetch_published,
)
from workers.publisher.standby_watch import StandbyWatch, watch_standby
from workers.publisher.table_shape import TableShape, fetch_triggers
from workers.tables.rename_watch import RenameWatch
from workers.tables.writer import LakeWriter

log = logging.getLogger(__name__)


@contextmanager
def connected_publisher(
    process: WorkerProcess, sub: Subscription, application_name: str
) -> Iterator[tuple[WalReceiverConn, StandbyWatch]]:
    """Connect as the subscription says, and close every connection at the end of the block.

    The watch begins before the caller identifies the server, so a timeline that changes in between
    is seen.
    """
    settings = process.settings
    check_conninfo(sub, settings)
    conn = connect_publisher(sub, application_name, process.interrupted)
    watching: WalReceiverConn | None = None
    try:
        check_connected(conn, sub, settings)
        patience = settings.wal_receiver_timeout
        watch, watching = watch_standby(conn, sub, process.interrupted, patience)
        yield conn, watch
    finally:
        conn.close()
        if watching is not None:
            watching.close()


def ddl_key(process: WorkerProcess, sub: Subscription, conn: WalReceiverConn) -> str:
    """The key of triggers that tell of changed tables; "" without triggers.

    Log and ``status`` tell if there are triggers.
    """
    if not process.settings.ddl_capture:
        process.store.put_ddl_capture(sub.oid, None)
        return ""
    found = fetch_triggers(conn) if conn.server_version >= FIRST_WITH_MESSAGES else None
    process.store.put_ddl_capture(sub.oid, found[0] if found else "")
    if found:
        log.info("action=ddl_capture subid=%d event triggers tell of changed tables", sub.oid)
        return found[1]
    log.warning(
        "action=ddl_not_captured subid=%d event triggers of the publisher are missing, or the role "
        "may not read their key; the publisher is asked at each change of a table",
        sub.oid,
        extra={"HINT": f"pgsub ddl-capture install {sub.subname} --execute makes them."},
    )
    return ""


def table_checks(process: WorkerProcess, sub: Subscription, conn: WalReceiverConn) -> TableChecks:
    """The checks of tables, with questions to the publisher while ``conn`` streams."""
    return TableChecks(
        partial(fetch_published, sub, conn, process.interrupted),
        partial(ask_identities, sub, conn, process.interrupted),
        partial(ask_delimiters, sub, conn, process.interrupted),
    )


@contextmanager
def catalog_watch(
    process: WorkerProcess,
    sub: Subscription,
    conn: WalReceiverConn,
    shapes: list[TableShape],
    *,
    told: bool,
) -> Iterator[CatalogWatch]:
    """The comparisons of names and types, with questions while ``conn`` streams.

    ``shapes`` are those that the follower of columns has asked for.
    """
    session = KeptSession(sub, conn, process.interrupted)
    try:
        yield CatalogWatch(
            NameWatch(process.store, partial(ask_relids, sub, conn, process.interrupted)),
            TextWatch(
                process.store,
                session,
                told=told,
                on_attach=lambda: process.settings.on_attach,
                shapes=shapes,
            ),
        )
    finally:
        session.close()


def rename_watch(
    process: WorkerProcess, sub: Subscription, conn: WalReceiverConn, *, copies: bool = False
) -> RenameWatch:
    """What follows changed names, with questions to the publisher while ``conn`` streams."""
    return RenameWatch(
        process.store,
        partial(ask_names, sub, conn, process.interrupted),
        partial(ask_relids, sub, conn, process.interrupted),
        partial(fetch_published, sub, conn, process.interrupted),
        lambda: process.settings,
        copies=copies,
    )


def schema_follower(
    process: WorkerProcess,
    sub: Subscription,
    conn: WalReceiverConn,
    writer: LakeWriter,
    shapes: list[TableShape],
) -> SchemaFollower:
    """What follows changed columns, with questions to the publisher while ``conn`` streams.

    The answers are added to ``shapes``.
    """

    def ask(relid: int) -> TableShape | None:
        shape = ask_shape(sub, conn, process.interrupted, relid)
        if shape is not None:
            shapes.append(shape)
        return shape

    copies = CopyAgain(process.store, partial(ask_size, sub, conn, process.interrupted))
    return SchemaFollower(process.store, writer, ask, lambda: process.settings, copies)
