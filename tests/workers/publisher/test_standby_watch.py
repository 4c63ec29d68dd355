"""A publisher that is a standby: asked for its timeline again and again."""

from __future__ import annotations

from typing import Any, cast

import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from tests.workers.publisher.scripted import ScriptedPublisher
from workers.process.worker_exit import WorkerExit
from workers.publisher import standby_watch
from workers.publisher.interfaces import SystemIdentity
from workers.publisher.standby_watch import StandbyWatch, watch_standby

SUB = Subscription("mysub", "host=a,b", ("pub",))


class Standby(ScriptedPublisher):
    """Answers with these timelines, one after the other."""

    def __init__(self, *timelines: int) -> None:
        super().__init__(18, {"pg_is_in_recovery": [("t",)]})
        self.timelines = list(timelines)
        self.patience: float | None = None

    def identify_system(self) -> SystemIdentity:
        return SystemIdentity("1", self.timelines.pop(0), LSN(1000), "shop", 16384)

    def timeline_history(self, tli: int) -> str:
        raise AssertionError(tli)

    def host(self) -> dict[str, str]:
        return {"host": "b"}


def test_a_publisher_that_is_no_standby_is_not_asked() -> None:
    StandbyWatch(None).check()
    conn = ScriptedPublisher(18, {"pg_is_in_recovery": [("f",)]})
    watch, own = watch_standby(cast("Any", conn), SUB, lambda: False, 30.0)
    watch.check()
    assert own is None
    assert len(conn.asked) == 1


def test_a_standby_is_watched_on_a_connection_to_the_same_host(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second, connected = Standby(3, 3), []

    def connect(sub: Subscription, *_: Any) -> Standby:
        connected.append(sub.subconninfo)
        return second

    monkeypatch.setattr(standby_watch, "connect_publisher", connect)
    watch, own = watch_standby(cast("Any", Standby()), SUB, lambda: False, 30.0)
    watch.check()
    assert own is cast("Any", second)
    assert connected == ["host=b"]
    assert (second.patience, second.timelines) == (30.0, [])


def test_a_timeline_that_changes_ends_the_worker() -> None:
    watch = StandbyWatch(Standby(3, 3, 4))
    watch.check()
    with pytest.raises(WorkerExit, match="timeline has changed"):
        watch.check()
