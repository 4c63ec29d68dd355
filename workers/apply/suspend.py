"""``on_error: suspend``: an error of one table suspends the table, and the others go on.

PostgreSQL stops the whole subscription at an error of any table. With ``suspend`` the worker stores
in the table's catalog row that the table is suspended. From then on the gate drops the table's
changes (``workers.apply.gate``), and the transaction at fault is applied to the other tables.
Readers see the table as of the last transaction before. ``pgsub resume`` has the table copied
again.

The suspension is stored before any position that skips a change of the table. A trace: transaction
500 changes a and b, and b cannot hold a value::

    a and b written to branches   b fails: both branches are dropped, nothing is visible
    the catalog                   b: suspended at 500
    in_flight {a}; ff a
    the catalog                   origin 500, in_flight {}

A worker killed before the second line leaves nothing: the successor fails at 500 again. A worker
killed after the second line leaves a suspended b: the successor gets 500 again and drops b's part.

An error suspends only if the tables at fault are known (``ReplicationError.tables``), all of them
say ``suspend``, and a later try cannot help. A lost connection, a refused login, a full disk, a
dead or unfit lake server suspend nothing, and neither does a bug. A missing lake table suspends the
table only if another table of the subscription can be read: a wrong catalog lacks every table. The
table of logical messages is never suspended: no copy could bring the missed messages back.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Final

from catalog import remedies
from catalog.errcodes import (
    INTERNAL_ERROR,
    PROTOCOL_VIOLATION,
    Policy,
    ReplicationError,
    ReplicationGap,
    ServerUnfit,
    TableRewritten,
    policy,
)
from catalog.leaked_slot import LeakedSlot
from catalog.namespace import qualified_name
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubscriptionRel
from catalog.store_sqlite import CatalogStore
from workers.changes.failed_transaction import FailedChange
from workers.changes.key_conflict import KeyConflict
from workers.changes.relation_map import RelName
from workers.process import failpoints
from workers.process import log as worker_log

log = logging.getLogger(__name__)

SUSPEND: Final = "suspend"
_REFUSED_LOGIN: Final = "28"
"""A class of SQLSTATEs: the password or the role is at fault, never a table."""


def blame_tables(
    error: ReplicationError, change: FailedChange | None, rels: Mapping[RelName, SubscriptionRel]
) -> None:
    """Blame an error on the table of the change that failed, unless the tables are known."""
    if not error.tables and change is not None:
        found = rels.get((change.nspname, change.relname))
        error.tables = () if found is None else (found,)


def may_suspend(error: ReplicationError, sub: Subscription, default: str) -> bool:
    """Does an error suspend the tables at fault? ``default`` is ``default_on_error``."""
    if policy(error.code) is Policy.RETRY or error.code in (INTERNAL_ERROR, PROTOCOL_VIOLATION):
        return False
    if error.code.startswith(_REFUSED_LOGIN) or not error.tables:
        return False
    if isinstance(error, ReplicationGap | TableRewritten | ServerUnfit):
        return False
    return all(on_error(sub, rel, default) == SUSPEND for rel in error.tables)


def on_error(sub: Subscription, rel: SubscriptionRel, default: str) -> str:
    """What an error does to a table: ``stop`` or ``suspend``."""
    if rel.holds_messages:
        return "stop"
    options = sub.table_options(rel.nspname, rel.relname)
    return options.on_error or default


def suspend_tables(
    store: CatalogStore,
    sub: Subscription,
    error: ReplicationError,
    *,
    is_copy: bool,
    leaves: LeakedSlot | None = None,
) -> bool:
    """Store that the tables at fault are suspended, count the error, and log; False if none is.

    A table stays as it is if a command removed the table meanwhile, or had the table copied again.
    ``is_copy`` says that a sync worker failed, ``leaves`` is the slot that the worker leaves.
    """
    failpoints.reach(failpoints.SUSPENDING)
    stored: list[SubscriptionRel] = []
    with store.transaction():
        for rel in error.tables:
            now = store.rel(rel.srsubid, rel.srrelid)
            if now is None or now.epoch != rel.epoch:
                continue
            columns = {
                "suspend_time": time.time_ns() // 1000,
                "suspend_sqlstate": error.code,
                "suspend_error": error.primary,
                "suspend_lsn": error.end_lsn,
                "resuming": False,
            }
            stored.append(store.update_rel(rel.srsubid, rel.srrelid, **columns))
            store.forget_last_error(rel.srsubid, rel.srrelid)
        if stored and leaves is not None:
            store.put_leaked_slot(leaves)
        if stored:
            store.count_for_stats(sub.oid, **_counters(error, len(stored), is_copy=is_copy))
    failpoints.reach(failpoints.SUSPENDED)
    if stored:
        worker_log.report(error, subid=sub.oid, relid=stored[0].srrelid)
    for rel in stored:
        name = qualified_name(rel.nspname, rel.relname)
        log.warning(
            'action=suspended subid=%d relid=%d lsn=%s table "%s" is suspended: its changes are '
            "left out from here on",
            rel.srsubid,
            rel.srrelid,
            rel.suspend_lsn or InvalidXLogRecPtr,
            name,
            extra={"HINT": remedies.suspended(sub.subname, name)},
        )
    return bool(stored)


def _counters(error: ReplicationError, tables: int, *, is_copy: bool) -> dict[str, int]:
    counters = {"sync_error_count" if is_copy else "apply_error_count": 1}
    counters["suspension_count"] = tables
    if isinstance(error, KeyConflict):
        counters[error.conflict.column] = 1
    return counters
