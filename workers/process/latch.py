"""A latch: somebody sets it, one thread waits for it. PostgreSQL's ``latch.c`` in a few lines.

Setting a set latch does nothing more, so a wake-up is never lost between a look at the world and
the wait that follows, and many wake-ups cost one turn.
"""

from __future__ import annotations

import threading
from collections.abc import Callable


class Latch:
    """Set from any thread; never from a Python signal handler, which could interrupt ``wait``."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False
        self._callbacks: list[Callable[[], None]] = []

    def set(self) -> None:
        """Wake whoever waits now or next, and run the callbacks."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()
            callbacks = list(self._callbacks)
        for callback in callbacks:
            callback()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds; whether the latch was set. It is reset on return."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_set, timeout)
            was_set, self._is_set = self._is_set, False
        return was_set

    def on_set(self, callback: Callable[[], None]) -> None:
        """Also call this at every ``set``, in the setter's thread: for waits on a descriptor.

        It must not block. A latch that is set already calls it at once.
        """
        with self._condition:
            self._callbacks.append(callback)
            pending = self._is_set
        if pending:
            callback()
