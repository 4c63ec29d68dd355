"""The end of a copy: whose row it is, and whether its keys are believed."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.subscribed import EPOCH, Subscribed
from workers.exits import WorkerExit
from workers.lake.destination import LakeIdent, Stamp
from workers.lake.memory import MemoryDestination
from workers.process import WorkerProcess
from workers.tablesync import _store_syncdone

BRANCH = "pgsub_1_1_1"
S_LSN = LSN(700)


class Link:
    def set_relstate(self, *words: Any) -> None: ...

    def wakeup(self, *words: Any) -> None: ...


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


def finish(world: Subscribed, rel: SubscriptionRel, dest: MemoryDestination) -> None:
    applier = world.worker(dest)
    applier.rels = {("public", "a"): rel}
    process = cast("WorkerProcess", SimpleNamespace(store=world.store, link=Link()))
    _store_syncdone(process, applier, rel, dest, BRANCH, S_LSN)


def position(world: Subscribed) -> Stamp | None:
    lake = MemoryDestination(world.lake).table(LakeIdent("public", "a"))
    assert lake is not None
    return lake.stamp


def test_a_copy_is_shown_and_then_stored_as_s(world: Subscribed) -> None:
    rel, dest = copied(world)
    finish(world, rel, dest)
    stored = world.rel("a")
    assert (stored.srsubstate, stored.srsublsn, stored.copied) == ("s", S_LSN, True)
    assert position(world) == Stamp("pg_16384", S_LSN, EPOCH, rel.floor)


def test_the_copy_of_a_table_that_came_back_is_nobody_s(world: Subscribed) -> None:
    rel, dest = copied(world)
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="another")
    before = position(world)
    with pytest.raises(WorkerExit):
        finish(world, rel, dest)
    assert position(world) == before
    assert world.rel("a").srsubstate == "d"


def test_what_was_found_of_the_publication_meanwhile_stays(world: Subscribed) -> None:
    rel, dest = copied(world)
    world.store.update_rel(rel.srsubid, rel.srrelid, copied=False, fingerprint="i---- @2")
    finish(world, rel, dest)
    assert (world.rel("a").copied, world.rel("a").fingerprint) == (False, "i---- @2")
