"""One thing after the other, at a steady pace, from a thread of its own."""

from __future__ import annotations

import threading
import time


class Steady:
    """Calls ``one`` again and again until ``end``, or ``wanted`` times; ``made`` counts the calls.

    After a slow call the next calls come without a pause, until the pace is met again.
    """

    def __init__(self, name: str, pause: float, wanted: float = float("inf")) -> None:
        self.made = 0
        self.error: BaseException | None = None
        self._pause = pause
        self._wanted = wanted
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def one(self) -> None:
        """The thing; ``made`` is the number of those before."""
        raise NotImplementedError

    def begin(self) -> None:
        """Start the thread."""
        self._thread.start()

    def end(self) -> None:
        """The last call has returned when this returns; raises what went wrong."""
        self._ended.set()
        self._thread.join()
        if self.error is not None:
            raise self.error

    def _run(self) -> None:
        due = time.monotonic()
        try:
            while self.made < self._wanted:
                if self._ended.wait(max(0.0, due - time.monotonic())):
                    return
                self.one()
                self.made += 1
                due += self._pause
        except BaseException as error:
            self.error = error
