"""Keep a worker's sessions known to the server, however long a call runs.

A server closes a session without a request for ``defaultSessionTimeout``, an hour by default, and
stops the call that runs in the session. A running call is no request: a copy of two hours never
ended. So a thread sends a small request in every session of the worker, now and then, beside the
call. The server's setting then does not matter.

A session that the worker has not used for half an hour gets no request: the worker will not use
the session again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol

from config.limits import SESSION_TOUCH_SECONDS


class Touched(Protocol):
    """A session of the worker (``LakeSession``)."""

    def touch(self) -> None:
        """Send a small request; no error matters."""


class KeepAlive:
    """The thread, which starts with the first session."""

    def __init__(self, sessions: Callable[[], Iterable[Touched]]) -> None:
        self._sessions = sessions
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, once."""
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="keep alive", daemon=True)
                self._thread.start()

    def end(self) -> None:
        """End the thread."""
        with self._lock:
            self._ended.set()

    def _run(self) -> None:
        while not self._ended.wait(SESSION_TOUCH_SECONDS):
            for session in self._sessions():
                session.touch()
