"""The flush position, and when it may be stored."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from tests.workers.looping import Loop
from tests.workers.standby_twin import StandbyTwin
from workers.apply.progress import remember_flush
from workers.process.worker_exit import WorkerExit
from workers.publisher.standby_watch import StandbyWatch


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
