"""A latch: any thread sets it, one thread waits for it. PostgreSQL's ``latch.c`` in a few lines.

A latch that is set stays set until the next wait. A wake-up between a look at the data and the wait
that follows is therefore never lost, and many wake-ups cost one turn.
"""

from __future__ import annotations

import threading


class Latch:
    """A flag to wait for. No signal handler may set it: the handler could interrupt ``wait``."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False

    def set(self) -> None:
        """Wake the thread that waits now, or the next one to wait."""
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, timeout: float) -> bool:
        """Wait up to ``timeout`` seconds and reset the latch; True if the latch was set."""
        with self._condition:
            self._condition.wait_for(lambda: self._is_set, timeout)
            was_set, self._is_set = self._is_set, False
        return was_set
