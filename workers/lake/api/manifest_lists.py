"""Read the list of manifests of a snapshot ahead of the commit that follows the snapshot.

Iceberg keeps the list with the object of the snapshot, for as long as the object of the table is
kept. Only the first who asks pays: in a store two requests, one behind the other. Nothing waits for
the threads that ask ahead, and a commit that comes earlier reads the list as well.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from typing import Any

from py4j.protocol import Py4JError

from config.monitor_limits import MANIFEST_LIST_THREADS


class ManifestLists:
    """Threads that read lists, from the first list on; a worker ends without them."""

    def __init__(self) -> None:
        self._asked: queue.SimpleQueue[tuple[Any, int]] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []

    def read(self, table: Any, snapshot_id: int) -> None:
        """Have the list of a snapshot read, which is in the known state of Iceberg's ``table``."""
        self._asked.put((table, snapshot_id))
        if len(self._threads) < MANIFEST_LIST_THREADS:
            thread = threading.Thread(target=self._run, name="manifest list", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _run(self) -> None:
        while True:
            table, snapshot_id = self._asked.get()
            # The commit meets the same error, and tells of the error.
            with contextlib.suppress(Py4JError, OSError):
                snapshot = table.operations().current().snapshot(snapshot_id)
                if snapshot is not None:
                    snapshot.allManifests(table.io())
            del table
