"""A finished copy waits for the apply worker's answer."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.subscribed import Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.process.worker_exit import WorkerExit
from workers.process.worker_process import WorkerProcess
from workers.sync.catch_up import wait_for_catchup

BRANCH = "pgsub_1_1_1"
W_LSN, C_LSN = LSN(500), LSN(600)


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
