"""Finds a subscription's row for a command, and waits for the subscription's workers."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Final

from catalog.errcodes import ObjectInUse, ObjectNotInPrerequisiteState, UndefinedObject
from catalog.pg_lsn import InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SYNCED, Setter, SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.limits import WORKER_EXIT_POLL_SECONDS, WORKER_EXIT_SECONDS
from subscriber.commands.context import CommandContext
from workers.publisher.password_required import check_privilege


def must_have(name: str, context: CommandContext) -> Subscription:
    """The subscription's row, 42704 if missing."""
    sub = context.store.subscription_by_name(name)
    if sub is None:
        raise UndefinedObject(f'subscription "{name}" does not exist')
    return sub


def must_be_ready(name: str, context: CommandContext) -> Subscription:
    """The subscription's row for a change; 55000 after an unfinished CREATE or DROP."""
    sub = must_have(name, context)
    check_privilege(sub.subpasswordrequired, context.settings)
    if sub.subcreate is not SubCreate.READY:
        raise ObjectNotInPrerequisiteState(
            f'subscription "{name}" is only half {_HALF[sub.subcreate]}',
            hint=f"Run pgsub drop {name}, or create it again.",
        )
    return sub


_HALF: Final = {SubCreate.CREATING: "created", SubCreate.DROPPING: "dropped"}


def wait_for_workers(sub: Subscription, context: CommandContext) -> None:
    """Wait for the end of all workers, at the next batch boundary; 55006 if too late."""
    deadline = time.monotonic() + WORKER_EXIT_SECONDS
    while True:
        pids = [worker.pid for worker in context.workers() if worker.subid == sub.oid]
        if not pids:
            return
        if time.monotonic() > deadline:
            raise ObjectInUse(
                f'workers of subscription "{sub.subname}" do not end',
                detail=f"Processes: {', '.join(map(str, pids))}.",
                hint="Look into the log for what they are waiting for, then try again.",
            )
        time.sleep(WORKER_EXIT_POLL_SECONDS)


def mark_for_recopy(
    sub: Subscription,
    chosen: Sequence[SubscriptionRel],
    store: CatalogStore,
    *,
    anew: bool = False,
) -> list[int]:
    """Mark the tables to be copied again; the oids of tables with a running copy.

    A table in ``d`` stays in ``d``: the next sync worker takes back the published part of the copy.
    A table in ``f`` begins again at ``i``; the origin stays, as a record of the slot to be dropped.
    A suspended table stays suspended until the copy is complete.

    In ``d`` the column ``lake_lsn`` tells the next attempt that a publication may be in flight
    (``workers.sync.attempt``). With ``anew`` no position has a meaning any more.
    """
    copying = []
    with store.transaction():
        for rel in _present_rows(sub, chosen, store):
            in_flight = rel.srsubstate is SubRelState.DATASYNC
            if rel.srsubstate in (*SYNCED, SubRelState.FINISHEDCOPY):
                store.set_rel_state(
                    sub.oid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS
                )
            if rel.srsubstate in (SubRelState.DATASYNC, SubRelState.FINISHEDCOPY):
                copying.append(rel.srrelid)
            store.update_rel(
                sub.oid,
                rel.srrelid,
                recopy=True,
                epoch=str(uuid.uuid4()),
                lake_lsn=rel.lake_lsn if in_flight and not anew else InvalidXLogRecPtr,
                copied=False,
                other_relid=None,
                resuming=rel.suspended,
            )
            store.forget_last_error(sub.oid, rel.srrelid)
            store.forget_maintenance_errors(sub.oid, rel.srrelid)
    return copying


def mark_to_try_again(
    sub: Subscription, chosen: Sequence[SubscriptionRel], store: CatalogStore
) -> None:
    """Let the first copy of suspended tables be tried again; the copy keeps its kind.

    State and copy id stay, so the next attempt takes back what the failed attempt published. A
    first copy adds to the rows of an adopted lake table: replacing the rows would destroy rows
    that only the lake has.
    """
    with store.transaction():
        for rel in _present_rows(sub, chosen, store):
            store.update_rel(sub.oid, rel.srrelid, resuming=True)
            store.forget_last_error(sub.oid, rel.srrelid)


def _present_rows(
    sub: Subscription, chosen: Sequence[SubscriptionRel], store: CatalogStore
) -> Iterator[SubscriptionRel]:
    """The rows as of the present transaction; a refresh may have removed some."""
    for rel in chosen:
        now = store.rel(sub.oid, rel.srrelid)
        if now is not None:
            yield now
