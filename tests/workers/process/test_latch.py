"""A latch: set from any thread, reset by the wait that it ends."""

from __future__ import annotations

from tests.workers.process.launcher_peer import in_thread
from workers.process.latch import Latch


def test_a_latch_that_is_set_is_not_waited_for_and_then_reset() -> None:
    latch = Latch()
    latch.set()
    latch.set()
    assert latch.wait(0)
    assert not latch.wait(0)


def test_a_latch_wakes_a_waiting_thread() -> None:
    latch = Latch()
    thread, results = in_thread(lambda: latch.wait(30))
    latch.set()
    thread.join()
    assert results == [True]
