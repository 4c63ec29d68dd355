"""Finds a subscription's row for a command, and waits for the subscription's workers."""

from __future__ import annotations

import time
from typing import Final

from catalog.errcodes import ObjectInUse, ObjectNotInPrerequisiteState, UndefinedObject
from catalog.pg_subscription import SubCreate, Subscription
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
