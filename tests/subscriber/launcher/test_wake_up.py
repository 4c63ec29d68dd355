"""Signals and other threads wake the launcher's loop."""

from __future__ import annotations

import os
import selectors
import signal
import threading

from subscriber.launcher.wake_up import WakeUp


def test_signals_and_posted_calls_end_the_wait() -> None:
    before = signal.getsignal(signal.SIGHUP)
    wake_up, seen, called = WakeUp(), list[bytes](), list[str]()
    with selectors.DefaultSelector() as selector:
        wake_up.catch_signals(selector, seen.append)
        os.kill(os.getpid(), signal.SIGHUP)
        [(key, mask)] = selector.select(10)
        key.data(mask)
        assert seen == [bytes([signal.SIGHUP])]
        thread = threading.Thread(target=wake_up.post, args=[lambda: called.append("posted")])
        thread.start()
        [(key, mask)] = selector.select(10)
        key.data(mask)
        thread.join()
        wake_up.run_posted()
        assert (seen[1], called) == (b"\0", ["posted"])
        wake_up.close()
    assert signal.getsignal(signal.SIGHUP) is before


def test_a_kick_after_the_end_is_ignored() -> None:
    wake_up = WakeUp()
    wake_up.close()
    wake_up.kick()
