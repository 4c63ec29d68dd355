"""``pgsub wait``: wait until all tables of a subscription are ready and durable up to a position.

The durable position is the apply worker's last confirmation to the publisher, not the origin: a
transaction without changes for the subscription moves no origin, but is confirmed.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from catalog import remedies
from catalog.errcodes import (
    QUERY_CANCELED,
    UNDEFINED_OBJECT,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.namespace import qualified_name
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SubRelState
from catalog.store_sqlite import CatalogStore
from config.limits import WAIT_POLL_SECONDS
from workers.process.launcher_client import LauncherStatus
from workers.publisher.interfaces import ReplicationConn


def publisher_position(conn: ReplicationConn) -> LSN:
    """The publisher's current WAL position: every commit so far ends at or before the position."""
    rows = conn.exec(
        "SELECT CASE WHEN pg_catalog.pg_is_in_recovery() "
        "THEN pg_catalog.pg_last_wal_replay_lsn() ELSE pg_catalog.pg_current_wal_lsn() END"
    )
    return LSN.parse(rows[0][0] or "0/0")


def wait_for_catchup(
    name: str,
    store: CatalogStore,
    launcher: Callable[[], LauncherStatus | None],
    position: Callable[[Subscription], LSN],
    *,
    timeout: float | None = None,
    pause: Callable[[float], None] = time.sleep,
) -> LSN:
    """Wait; the position waited for.

    ``position`` is called once. Raises 42704 for an unknown subscription, 55000 at once if the
    subscription can never catch up (no launcher, disabled, a suspended table), 57014 after
    ``timeout`` seconds.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    while store.subscription_by_name(name) is None and _is_starting(launcher()):
        pause(WAIT_POLL_SECONDS)  # "up" creates the subscription once the lake answers
    _running(name, store, launcher)
    target = position(_existing(name, store))
    while True:
        sub, status = _running(name, store, launcher)
        _check_none_suspended(sub, store)
        behind = unready(sub, store)
        flushed = flush_position(sub, status)
        if not behind and flushed >= target:
            return target
        if deadline is not None and time.monotonic() >= deadline:
            tables = f" Tables not ready: {', '.join(behind)}." if behind else ""
            raise ReplicationError(
                f'timed out waiting for subscription "{name}" to reach {target}',
                detail=f"It is durable up to {flushed}.{tables}",
                hint="pgsub status and the log in the data directory show what it is doing.",
                sqlstate=QUERY_CANCELED,
            )
        pause(WAIT_POLL_SECONDS)


def _is_starting(status: LauncherStatus | None) -> bool:
    return status is not None and status.phase == "starting"


def _check_none_suspended(sub: Subscription, store: CatalogStore) -> None:
    """Raise 55000 if a suspended table is not being copied again: it never catches up."""
    for rel in store.rels(sub.oid):
        if rel.awaits_resume:
            name = qualified_name(rel.nspname, rel.relname)
            raise ObjectNotInPrerequisiteState(
                f'table "{name}" of subscription "{sub.subname}" is suspended',
                detail=f"The error was {rel.suspend_sqlstate}: {rel.suspend_error}.",
                hint=remedies.suspended(sub.subname, name),
            )


def unready(sub: Subscription, store: CatalogStore) -> list[str]:
    """The tables in other states than ``r``, with the states."""
    return [
        f"{rel.nspname}.{rel.relname} ({rel.srsubstate})"
        for rel in store.rels(sub.oid)
        if rel.srsubstate is not SubRelState.READY
    ]


def flush_position(sub: Subscription, status: LauncherStatus) -> LSN:
    """The apply worker's last confirmation to the publisher; 0/0 without an apply worker."""
    for worker in status.workers:
        if (worker.subid, worker.relid) == (sub.oid, 0):
            return worker.flush_lsn
    return InvalidXLogRecPtr


def _existing(name: str, store: CatalogStore) -> Subscription:
    sub = store.subscription_by_name(name)
    if sub is None:
        raise ReplicationError(f'subscription "{name}" does not exist', sqlstate=UNDEFINED_OBJECT)
    return sub


def _running(
    name: str, store: CatalogStore, launcher: Callable[[], LauncherStatus | None]
) -> tuple[Subscription, LauncherStatus]:
    """The subscription and the launcher's status; 55000 if waiting is useless."""
    sub = _existing(name, store)
    if sub.subcreate is not SubCreate.READY or not sub.subenabled:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" is not enabled', hint=f"Run pgsub enable {name}."
        )
    status = launcher()
    if status is None:
        raise ObjectNotInPrerequisiteState(
            "no launcher is running on this data directory",
            hint="Start one with pgsub run or pgsub up; name another with --data-dir.",
        )
    return sub, status
