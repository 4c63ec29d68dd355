"""The end of a copy: whose row it is, when it is published, and whether its keys are new."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubscriptionRel
from config.guc import Settings
from tests.workers.copied_table import BRANCH, context, copied
from tests.workers.subscribed import EPOCH, Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent, Stamp
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.sync.copied_rows import CopiedRows
from workers.sync.worker import _store_syncdone

S_LSN = LSN(700)


class Link:
    def set_relstate(self, *words: Any) -> None: ...

    def wakeup(self, *words: Any) -> None: ...


def finish(world: Subscribed, rel: SubscriptionRel, dest: MemoryDestination) -> None:
    applier = world.worker(dest)
    applier.rels = {("public", "a"): rel}
    process = WorkerProcess(
        Path(), rel.srsubid, rel.srrelid, 1, world.store, cast("Any", Link()), Settings()
    )
    rows = CopiedRows(dest, rel, BRANCH, 0)
    _store_syncdone(context(process, world, dest), applier, rel, rows, (), S_LSN)


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


def test_state_s_is_stored_once_the_copy_is_on_the_disk(world: Subscribed) -> None:
    rel, dest = copied(world)
    finish(world, rel, dest)
    assert world.rel("a").srsubstate == "s"
    world.lake.power_cut()
    assert position(world) == Stamp("pg_16384", S_LSN, EPOCH, rel.floor)


def test_once_s_is_stored_nothing_is_to_be_copied_again(world: Subscribed) -> None:
    rel, dest = copied(world)
    rel = world.store.update_rel(rel.srsubid, rel.srrelid, recopy=True)
    world.store.put_last_error(LastError(rel.srsubid, rel.srrelid, 1, "08006", "lost"))
    finish(world, rel, dest)
    assert not world.rel("a").recopy
    assert world.store.last_errors() == []


def test_the_copy_of_a_table_that_came_back_is_nobody_s(world: Subscribed) -> None:
    """H-7: REFRESH took the table out and in again while it was copied."""
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


def test_a_copy_of_another_timeline_is_not_shown(world: Subscribed) -> None:
    rel, dest = copied(world)
    before = position(world)
    subid, made_on = rel.srsubid, world.sub
    world.store.update_subscription(subid, timeline=2)
    world.sub = made_on
    with pytest.raises(WorkerExit, match="was made on timeline None"):
        finish(world, rel, dest)
    assert position(world) == before
    assert world.rel("a").srsubstate == "d"


def test_a_copy_of_another_timeline_is_not_stored_as_s(world: Subscribed) -> None:
    """The apply worker stored the new timeline after the copy was shown: it is taken back."""
    rel, _ = copied(world)

    class Overtaken(MemoryDestination):
        def publish(self, ident: LakeIdent, branch: str, stamp: Stamp) -> int | None:
            shown = super().publish(ident, branch, stamp)
            world.store.update_subscription(rel.srsubid, timeline=2)
            return shown

    with pytest.raises(WorkerExit, match="was made on timeline None"):
        finish(world, rel, Overtaken(world.lake))
    stored = world.rel("a")
    assert (stored.srsubstate, stored.lake_lsn) == ("d", S_LSN), "the next attempt has to undo it"
