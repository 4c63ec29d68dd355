"""``on_error: suspend`` in a sync worker: a copy that fails for a reason of the table.

Without ``suspend`` a failing copy is tried again for ever, as in PostgreSQL. With ``suspend`` the
table is suspended in the state that the table has, and gets no sync worker until ``pgsub resume``.
``main`` stays as readers know it. In both cases the branch and the files of the failed copy are
removed at once: the next attempt may be far away.

The steps of a copy that concern the table only blame their errors on the table
(``catalog.errcodes.at_fault``). An error of the other steps, for example of the slot's creation,
suspends nothing.

A copy whose table got other columns meanwhile is made again at once, and suspends nothing
(``workers.sync.copied_columns``). A finished copy (``f``) is replaced as by ``pgsub resume``,
unless only the lake may have some of the table's rows: then the error stays. A table larger than
``auto_recopy_max_bytes`` is suspended in each case: nobody asked for a second copy.

A temporary slot ends with the worker's connection. A permanent slot would hold back WAL for as long
as the table is suspended. So the slot is dropped on a new connection, and the transaction of the
suspension lists the slot as leaked until then. The origin stays, as a record of the slot.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress

from catalog.errcodes import ReplicationError, RequiredProcessGone
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import Subscription, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.recopy import mark_for_recopy
from workers.apply.copy_again import may_copy, tell_size
from workers.apply.suspend import may_suspend, suspend_tables
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.publisher.connect import connect_publisher
from workers.publisher.sync_slot import drop_sync_slot
from workers.publisher.table_shape import fetch_size
from workers.sync.attempt import undo_published_attempt
from workers.sync.copied_columns import CopyOutdated

log = logging.getLogger(__name__)


@contextmanager
def suspending(
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel, dest: Destination
) -> Iterator[None]:
    """Suspend the table after an error of the body for a reason of the table, and end the worker.

    The body has closed its connections to the publisher by then.
    """
    try:
        yield
    except ReplicationError as error:
        is_outdated = isinstance(error, CopyOutdated)
        too_large = is_outdated and _is_too_large(process, sub, rel, error)
        if is_outdated and not too_large and _copy_again(process, sub, rel, dest, error):
            raise WorkerExit("the table is copied again with its present columns") from error
        if not (too_large or may_suspend(error, sub, process.settings.default_on_error)):
            if not isinstance(error, RequiredProcessGone):  # a lake that is gone removes nothing
                _remove_copy(process, rel, dest, sub)
            raise
        left = _permanent_slot(process, sub, rel)
        if not suspend_tables(process.store, sub, error, is_copy=True, leaves=left):
            # The next attempt drops a permanent slot first.
            raise WorkerExit("the table is copied anew") from error
        _remove_copy(process, rel, dest, sub)
        if left is not None:
            _drop_slot(process, sub, left)
        raise WorkerExit("the table is suspended") from error


def _is_too_large(
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel, error: ReplicationError
) -> bool:
    """May the table not be copied a second time by itself? The error tells the size then.

    A publisher that does not answer fails the next attempt, too.
    """
    now, limit = process.store.rel(sub.oid, rel.srrelid), process.settings.auto_recopy_max_bytes
    if now is None or not now.remote_relid:
        return False
    name = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    with (
        suppress(ReplicationError),
        closing(connect_publisher(sub, name, process.interrupted)) as conn,
    ):
        size = fetch_size(conn, now.remote_relid)
        if size > limit:
            tell_size(sub, now, error, size, limit)
            return True
    return False


def _copy_again(
    process: WorkerProcess,
    sub: Subscription,
    rel: SubscriptionRel,
    dest: Destination,
    error: ReplicationError,
) -> bool:
    """Let the next attempt copy the table with its present columns; False if none may.

    An unfinished copy is always made again, so only its branch and files go.
    """
    now = process.store.rel(sub.oid, rel.srrelid)
    if now is not None and now.srsubstate is SubRelState.FINISHEDCOPY:
        if not may_copy(now, sub.table_options(now.nspname, now.relname)):
            return False
        mark_for_recopy(sub, [now], process.store)
    _remove_copy(process, rel, dest, sub)
    log.warning(
        "action=copy_again subid=%d relid=%d %s; it is copied again with its present columns",
        *(sub.oid, rel.srrelid, error.primary),
    )
    return True


def _permanent_slot(
    process: WorkerProcess, sub: Subscription, rel: SubscriptionRel
) -> LeakedSlot | None:
    """The table's permanent slot; None if the slot ended with the connection."""
    if process.store.origin_by_name(origin_name(sub.oid, rel.srrelid)) is None:
        return None
    name = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    return leaked_slot(sub, name, "its table is suspended")


def _remove_copy(
    process: WorkerProcess, rel: SubscriptionRel, dest: Destination, sub: Subscription
) -> None:
    """Remove the branch and the files of a copy that was not about to be published.

    The next attempt does the same first, so an error changes nothing: the first error is told.
    """
    now = process.store.rel(sub.oid, rel.srrelid)
    if now is None or now.srsubstate is not SubRelState.DATASYNC:
        return
    with suppress(ReplicationError):
        lake = dest.table(LakeIdent(now.lake_schema, now.lake_table))
        if lake is not None and now.lake_lsn == InvalidXLogRecPtr:
            undo_published_attempt(sub, now, lake, dest, process.store)


def _drop_slot(process: WorkerProcess, sub: Subscription, left: LeakedSlot) -> None:
    """Drop a permanent slot; if the drop fails, the slot stays listed as leaked."""
    try:
        with closing(connect_publisher(sub, left.slot_name, process.interrupted)) as conn:
            drop_sync_slot(conn, left.slot_name)
    except ReplicationError as error:
        log.warning(
            "action=leaked_slot subid=%d sqlstate=%s %s; the next command drops it",
            sub.oid,
            error.code,
            left.stays,
        )
        return
    process.store.forget_leaked_slot_of_server(left)
