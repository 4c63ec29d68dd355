"""The launcher's loop."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from subscriber.launcher.loop import LauncherLoop
from tests.subscriber.launcher_family import Family, reported
from tests.waiting import wait_until


def test_a_second_signal_does_not_wait_for_a_stubborn_worker(family: Family) -> None:
    (subid,) = family.subscribe("stubborn")
    launcher = family.start()
    reported(family, subid, "phase", "stubborn")
    launcher.send_signal(signal.SIGINT)
    wait_until(lambda: family.status().phase == "stopping", 10, family.log)
    launcher.send_signal(signal.SIGINT)
    assert launcher.wait(10) == 0


class Lake:
    """A lake server of the launcher; ``replaced`` counts."""

    pid = 7

    def __init__(self, *, has_sessions: bool) -> None:
        self.has_sessions = has_sessions
        self.replaced = 0

    def replace(self, now: float) -> None:
        del now
        self.replaced += 1


@pytest.mark.parametrize("has_sessions", [True, False])
def test_whose_errors_replace_a_commit_service(has_sessions: bool) -> None:
    """A worker's word does. Errors of all subscriptions may be those of the user's server."""
    loop: Any = LauncherLoop.__new__(LauncherLoop)
    loop._lake = Lake(has_sessions=has_sessions)
    loop.replace_lake()
    assert loop._lake.replaced == 1
    loop.workers = SimpleNamespace(slots=SimpleNamespace(rows=list))
    loop._errors_of_lake = SimpleNamespace(poll=lambda *_: "all fail")
    assert loop._lake_errors(0.0) == ("all fail" if has_sessions else None)


def test_the_service_manager_hears_of_a_stop_whose_workers_end_at_once() -> None:
    """The workers may end between the signal and the next turn of a busy machine's launcher."""
    heard: list[str] = []
    loop: Any = LauncherLoop.__new__(LauncherLoop)
    loop.phase = "stopping"
    loop.workers = SimpleNamespace(reap=list, children={})
    loop._wake_up = SimpleNamespace(run_posted=lambda: None)
    loop._service_manager = SimpleNamespace(turn=lambda now, phase, read: heard.append(phase))
    loop.run(None)
    assert heard == ["stopping"]
