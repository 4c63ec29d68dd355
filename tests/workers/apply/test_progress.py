"""The flush position, and when it may be stored."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from tests.workers.looping import Loop
from workers.apply.progress import remember_flush
from workers.process.worker_exit import WorkerExit
from workers.publisher.interfaces import Row, SystemIdentity
from workers.publisher.standby_watch import StandbyWatch


class StandbyTwin:
    """Is on another timeline when it was asked so often after the first time."""

    def __init__(self, asked: int) -> None:
        self.left = asked + 1

    def identify_system(self) -> SystemIdentity:
        self.left -= 1
        return SystemIdentity("1", 1 if self.left >= 0 else 2, LSN(1000), "shop", 16384)

    @property
    def server_version(self) -> int:
        return 18

    def exec(self, sql: str) -> list[Row]:
        raise AssertionError(sql)

    def timeline_history(self, tli: int) -> str:
        raise AssertionError(tli)


def test_no_position_is_confirmed_after_a_promotion(loop: Loop) -> None:
    subid, watch = loop.world.sub.oid, StandbyWatch(StandbyTwin(1))
    remember_flush(loop.world.store, subid, LSN(700), watch)
    with pytest.raises(WorkerExit, match="timeline has changed"):
        remember_flush(loop.world.store, subid, LSN(800), watch)
    sub = loop.world.store.subscription(subid)
    assert sub is not None
    assert sub.max_flush_lsn == 700


def test_the_highest_position_confirmed_is_never_lowered(loop: Loop) -> None:
    subid = loop.world.sub.oid
    for lsn in (700, 600):
        remember_flush(loop.world.store, subid, LSN(lsn), loop.watch)
    sub = loop.world.store.subscription(subid)
    assert sub is not None
    assert sub.max_flush_lsn == 700
