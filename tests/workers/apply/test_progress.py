"""The flush position, and when it may be stored."""

from __future__ import annotations

from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.pg_lsn import LSN
from tests.workers.looping import Loop
from tests.workers.standby_twin import StandbyTwin
from workers.apply.progress import remember_flush, report_atomic_publish
from workers.lake.memory.destination import MemoryDestination
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


class Link:
    """What a worker reports."""

    def __init__(self) -> None:
        self.reported: list[dict[str, Any]] = []

    def report(self, **values: Any) -> None:
        self.reported.append(values)


class OneCall(MemoryDestination):
    publishes_together = True


class Silent(MemoryDestination):
    @property
    def publishes_together(self) -> bool:
        raise ConnectionFailure("lost the lake server")


@pytest.mark.parametrize(
    ("dest", "reported"),
    [(OneCall(), [True]), (MemoryDestination(), [False]), (Silent(), [])],
    ids=["one call", "table by table", "not known"],
)
def test_whether_batches_become_visible_at_one_moment_is_reported(
    dest: MemoryDestination, reported: list[bool]
) -> None:
    """A lake that does not answer ends no worker that has nothing to do."""
    link: Any = Link()
    report_atomic_publish(link, dest)
    assert link.reported == [{"atomic_publish": each} for each in reported]
