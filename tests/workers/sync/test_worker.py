"""The end of a copy: who answers it, whose row it is, and whether its keys are believed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from config.guc import Settings
from tests.workers.subscribed import EPOCH, Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.segment import Segment
from workers.lake.table import LakeIdent, Stamp
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.publisher.connection import WalReceiverConn
from workers.publisher.standby_watch import StandbyWatch
from workers.sync.attempt import begin_attempt
from workers.sync.catch_up import wait_for_catchup
from workers.sync.context import SyncContext
from workers.sync.worker import _store_syncdone

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
    process = WorkerProcess(
        Path(), rel.srsubid, rel.srrelid, 1, world.store, cast("Any", Link()), Settings()
    )
    _store_syncdone(context(process, world, dest), applier, rel, BRANCH, S_LSN)


def context(process: WorkerProcess, world: Subscribed, dest: MemoryDestination) -> SyncContext:
    """Of a worker whose connection is not used."""
    conn = cast("WalReceiverConn", None)
    return SyncContext(process, conn, StandbyWatch(None), "", world.sub, dest)


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


def test_once_s_is_stored_nothing_is_to_be_copied_again(world: Subscribed) -> None:
    rel, dest = copied(world)
    rel = world.store.update_rel(rel.srsubid, rel.srrelid, recopy=True)
    world.store.put_last_error(LastError(rel.srsubid, rel.srrelid, 1, "08006", "lost"))
    finish(world, rel, dest)
    assert not world.rel("a").recopy
    assert world.store.last_errors() == []


def begin(world: Subscribed, rel: SubscriptionRel, dest: MemoryDestination) -> SubscriptionRel:
    """What the next sync worker does first."""
    process = cast("WorkerProcess", SimpleNamespace(store=world.store))
    return begin_attempt(context(process, world, dest), rel)


def test_a_copy_in_the_place_of_another_is_taken_back_as_a_first_one_is(world: Subscribed) -> None:
    """Killed between the fast-forward and s: the old rows are there again, then it goes on."""
    world.put("a", (1, 1), (2, 2))
    rel, dest = copied(world)
    rel = world.store.update_rel(
        rel.srsubid,
        rel.srrelid,
        recopy=True,
        base_snapshot=world.lake.tables[LakeIdent("public", "a")].refs["main"],
    )
    dest.drop_branches(LakeIdent("public", "a"))
    dest.create_branch(LakeIdent("public", "a"), BRANCH)
    stamp = Stamp("pg_16384", S_LSN, EPOCH, rel.floor)
    emptied = Segment(columns=("id", "v"), truncate=True)
    dest.write(LakeIdent("public", "a"), BRANCH, [emptied], stamp)
    dest.publish(LakeIdent("public", "a"), BRANCH, stamp)
    assert world.rows("a") == []
    again = begin(world, rel, dest)
    assert world.rows("a") == [(1, 1), (2, 2)]
    assert again.recopy
    assert again.epoch != EPOCH


def test_who_begins_goes_by_what_the_catalog_says_then(world: Subscribed) -> None:
    """The command came after the worker had read the row, and before it stored d."""
    rel, dest = copied(world)
    world.store.update_rel(rel.srsubid, rel.srrelid, recopy=True, epoch="the command's")
    assert begin(world, rel, dest).recopy


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
    assert (stored.srsubstate, stored.lake_lsn) == ("d", rel.lake_lsn)


W_LSN, C_LSN = LSN(500), LSN(600)


class WaitingLink:
    """The launcher, as a sync worker in w sees it: one turn after the other of ``turns``.

    A turn says whether an apply worker streams (None: there is none) and, if it has answered, its
    position; a turn that is a function is called and seen as the one before it.
    """

    def __init__(self, turns: list[Any]) -> None:
        self._turns = iter(turns)
        self._now: tuple[bool | None, LSN | None] = next(self._turns)
        self.set: list[tuple[SubRelState, LSN | None]] = []
        self.woken = 0
        self.latch = self

    def set_relstate(self, subid: int, relid: int, state: SubRelState, lsn: LSN | None) -> None:
        self.set.append((state, lsn))

    def catalog_change(self) -> int | None:
        return None

    def acknowledge_catalog(self, change: int | None) -> None: ...

    def find(self, subid: int, relid: int) -> Any:
        alive, answer = self._now
        if not relid:
            return SimpleNamespace(last_recv_time=alive) if alive is not None else None
        state = SubRelState.SYNCWAIT if answer is None else SubRelState.CATCHUP
        return SimpleNamespace(relstate=state, relstate_lsn=answer or W_LSN)

    def wakeup(self, subid: int, relid: int) -> None:
        self.woken += 1

    def wait(self, seconds: float) -> None:
        turn = next(self._turns)
        if callable(turn):
            turn()
        else:
            self._now = turn


def wait_in_w(
    world: Subscribed, turns: list[Any], timeout: float = 3600.0
) -> tuple[LSN, WaitingLink]:
    rel, _ = copied(world)
    sub = world.store.subscription(rel.srsubid)
    assert sub is not None
    link = WaitingLink(turns)
    process = SimpleNamespace(
        store=world.store,
        link=link,
        interrupted=lambda: False,
        settings=SimpleNamespace(sync_handover_timeout=timeout, wal_retrieve_retry_interval=0.0),
    )
    return wait_for_catchup(cast("WorkerProcess", process), sub, rel, W_LSN), link


def test_the_apply_worker_answers(world: Subscribed) -> None:
    answered, link = wait_in_w(world, [(True, None), (True, None), (True, C_LSN)])
    assert answered == C_LSN
    assert link.set == [(SubRelState.SYNCWAIT, W_LSN)]
    assert link.woken == 2


def test_a_copy_that_is_done_outlives_the_apply_worker(world: Subscribed) -> None:
    turns = [(True, None), (None, None), (None, None), (True, None), (True, C_LSN)]
    answered, link = wait_in_w(world, turns)
    assert answered == C_LSN
    assert link.set == [(SubRelState.SYNCWAIT, W_LSN)], "its slot still says w"


def test_a_copy_that_is_done_does_not_wait_for_ever(world: Subscribed) -> None:
    with pytest.raises(WorkerExit, match="no apply worker has come"):
        wait_in_w(world, [(True, None), *[(None, None)] * 3], timeout=0.0)


def test_an_apply_worker_that_does_not_stream_does_not_count(world: Subscribed) -> None:
    with pytest.raises(WorkerExit, match="no apply worker has come"):
        wait_in_w(world, [(True, None), *[(False, None), (None, None)] * 3], timeout=0.0)


def test_time_alone_is_counted_anew_after_an_apply_worker_came(world: Subscribed) -> None:
    turns = [*[(None, None), (True, None)] * 3, (True, C_LSN)]
    assert wait_in_w(world, turns, timeout=0.0)[0] == C_LSN


@pytest.mark.parametrize(
    "change",
    [
        {"subenabled": False},
        {"subpublications": ("other",)},
        {"suborigin": "none"},
        {"timeline": 2},  # an apply worker followed a standby that took over
        {"sysid": "2"},  # a gap was accepted
    ],
)
def test_a_copy_that_is_done_ends_with_its_subscription(
    world: Subscribed, change: dict[str, Any]
) -> None:
    """H-5: a command does not wait for a table in w."""
    subid = world.rel("a").srsubid

    def alter() -> None:
        world.store.update_subscription(subid, **change)

    with pytest.raises(WorkerExit, match=r"was disabled|has changed|was made on"):
        wait_in_w(world, [(None, None), alter, (True, C_LSN)])
