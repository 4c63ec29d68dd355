"""The launcher's loop."""

from __future__ import annotations

import signal

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
