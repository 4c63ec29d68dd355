"""A table of ``Subscribed`` in ``d``, with the copy on a branch, and the context of its worker."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.subscribed import Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.process.worker_process import WorkerProcess
from workers.publisher.connection import WalReceiverConn
from workers.publisher.standby_watch import StandbyWatch
from workers.sync.context import SyncContext

BRANCH = "pgsub_1_1_1"


def copied(world: Subscribed) -> tuple[SubscriptionRel, MemoryDestination]:
    """Table a in d, its copy on a branch."""
    rel = world.rel("a")
    world.store.delete_rel(rel.srsubid, rel.srrelid)
    world.store.insert_rel(replace(rel, srsubstate=SubRelState.INIT, srsublsn=None))
    world.store.set_rel_state(
        rel.srsubid, rel.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC
    )
    rel = world.rel("a")
    dest = MemoryDestination(world.lake)
    dest.create_branch(LakeIdent("public", "a"), BRANCH)
    return rel, dest


def context(process: WorkerProcess, world: Subscribed, dest: MemoryDestination) -> SyncContext:
    """Of a worker whose connection is not used."""
    conn = cast("WalReceiverConn", None)
    return SyncContext(process, conn, StandbyWatch(None), "", world.sub, dest)
