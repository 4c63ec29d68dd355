"""A session stays known to the server for as long as a call runs in the session."""

from __future__ import annotations

from queue import SimpleQueue

import pytest

from tests.waiting import wait_until
from workers.lake.connect import keep_alive
from workers.lake.connect.keep_alive import KeepAlive


class Session:
    def __init__(self) -> None:
        self.touches: SimpleQueue[None] = SimpleQueue()

    def touch(self) -> None:
        self.touches.put(None)


def test_every_session_is_touched_again_and_again_until_the_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(keep_alive, "SESSION_TOUCH_SECONDS", 0.001)
    known = [Session()]
    kept = KeepAlive(lambda: list(known))
    kept.start()
    kept.start()
    known.append(Session())
    for each in known:
        for _ in range(3):
            each.touches.get(timeout=10)
    kept.end()
    thread = kept._thread
    assert thread is not None
    wait_until(lambda: not thread.is_alive(), 10, "the thread ends")
    kept.start()
    assert kept._thread is thread
