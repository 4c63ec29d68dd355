"""Wakes the launcher's loop: on signals, and on calls that a thread hands to the main thread.

Signals and calls arrive as bytes on one pipe, and the loop's selector waits for the pipe.
"""

from __future__ import annotations

import os
import selectors
import signal
from collections import deque
from collections.abc import Callable
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)


class WakeUp:
    """The pipe. ``kick`` and ``post`` may be called from any thread, everything else from main."""

    def __init__(self) -> None:
        self._read_fd, self._write_fd = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._posted: deque[Callable[[], None]] = deque()
        self._old_handlers: dict[int, Any] = {}

    def catch_signals(
        self, selector: selectors.BaseSelector, on_bytes: Callable[[bytes], None]
    ) -> None:
        """From now on signals wake the loop; ``on_bytes`` gets the numbers, 0 for a kick."""
        selector.register(
            self._read_fd,
            selectors.EVENT_READ,
            lambda _mask: on_bytes(os.read(self._read_fd, 2**16)),
        )
        self._old_handlers = {
            number: signal.signal(number, _noticed_by_wakeup_fd) for number in _SIGNALS
        }
        signal.set_wakeup_fd(self._write_fd, warn_on_full_buffer=False)

    def kick(self) -> None:
        """Wake the loop."""
        try:
            os.write(self._write_fd, b"\0")
        except OSError:
            return  # full: the loop wakes anyway; closed: the loop has ended

    def post(self, call: Callable[[], None]) -> None:
        """Have the main thread make a call in the loop's next turn."""
        self._posted.append(call)
        self.kick()

    def run_posted(self) -> None:
        """Make the calls that were posted."""
        while self._posted:
            self._posted.popleft()()

    def close(self) -> None:
        """Restore the signal handlers and close the pipe."""
        signal.set_wakeup_fd(-1)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        os.close(self._read_fd)
        os.close(self._write_fd)


def _noticed_by_wakeup_fd(_number: int, _frame: object) -> None:
    """Do nothing: Python writes a signal's number to the pipe only if the signal has a handler."""
