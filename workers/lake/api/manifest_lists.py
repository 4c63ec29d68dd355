"""Read the list of manifests of a snapshot ahead of the commit that follows the snapshot.

Iceberg keeps the list with the object of the snapshot, for as long as the object of the table is
kept. Only the first who asks pays: in a store two requests, one behind the other. Nothing waits for
the threads that ask ahead, and a commit that comes earlier reads the list as well.

The threads get the snapshot and the access to the store, and never the table: with most catalogs a
table that two threads ask would take an older state for the newest.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any

from config.limits import LOADED_AT_ONCE_TABLES
from config.monitor_limits import MANIFEST_LIST_THREADS


class ManifestLists:
    """Threads that read lists, from the first list on; a worker ends without them."""

    def __init__(self) -> None:
        self._asked: queue.Queue[tuple[Any, Any]] = queue.Queue(LOADED_AT_ONCE_TABLES)
        self._threads: list[threading.Thread] = []

    def read(self, snapshot: Any, io: Any) -> None:
        """Have the list of Iceberg's ``snapshot`` read from the store behind ``io``.

        No failure: with too many lists to read, or without a further thread, the commit reads.
        """
        with contextlib.suppress(queue.Full, RuntimeError):
            self._asked.put_nowait((snapshot, io))
            if len(self._threads) < MANIFEST_LIST_THREADS:
                thread = threading.Thread(target=self._run, name="manifest list", daemon=True)
                thread.start()
                self._threads.append(thread)

    def _run(self) -> None:
        while True:
            _read(*self._asked.get())


def _read(snapshot: Any, io: Any) -> None:
    """Read a list; the commit meets the same error, and tells of the error."""
    with contextlib.suppress(Exception):
        snapshot.allManifests(io)
