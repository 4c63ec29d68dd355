"""The lake for a command: the running family's server, or one of the command's own.

A server of its own is started only under the family lock, because two of them would share one
scratch folder; a launcher that is started meanwhile waits for the command to end.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from catalog.errcodes import ConnectionFailure
from catalog.store_sqlite import CatalogStore
from config.load import Config
from subscriber.family_lock import FamilyLock
from workers.bgworker import query_launcher

if TYPE_CHECKING:
    from workers.lake.destination import Destination, LakeIdent, LakeTable

LAUNCHER_LAKE_TIMEOUT: Final = 600.0
"""Seconds a command waits for the server that a launcher is starting; it may be fetching jars."""

_LOOK_UPS: Final = 4
"""Tables looked up at a time; each is a round trip of a tenth of a second."""

_POLL: Final = 0.1


class CommandLake:
    """Opened on first use, closed with the command."""

    def __init__(self, data_dir: Path, store: CatalogStore, config: Config, url: str | None = None):
        self._data_dir = data_dir
        self._store = store
        self._config = config
        self._url = url
        self._open = ExitStack()
        self._lock: FamilyLock | None = None
        self._destination: Destination | None = None

    def close(self) -> None:
        """Release the sessions, end the server if it is ours."""
        self._open.close()

    def url(self) -> str:
        """Where the lake is. Raises 08006 or 55000 when there is none to be had."""
        if self._url is None:
            self._url = self._config.spark.remote or self._of_launcher() or self._start()
        return self._url

    def destination(self) -> Destination:
        """The lake as the workers see it."""
        if self._destination is None:
            from workers.lake.destination import Identity
            from workers.lake.iceberg import IcebergDestination

            destination = IcebergDestination(
                self.url(),
                identity=Identity(subid=0, generation=0),
                staging_dir=self._data_dir / "staging" / "command",
                settings=self._config.settings,
                remember_session=lambda user_id, session_id: None,
            )
            self._open.callback(destination.close)
            self._destination = destination
        return self._destination

    def tables(self, idents: Sequence[LakeIdent]) -> list[LakeTable | None]:
        """What ``main`` holds of each table, several looked up at a time.

        An embedded lake that was never used holds none: then no server is started to say so.
        """
        lake_file = self._data_dir / "lake" / "catalog.db"
        embedded = not self._config.lake.catalog and self._config.spark.remote is None
        if embedded and not lake_file.exists():
            return [None for _ in idents]
        destination = self.destination()
        with ThreadPoolExecutor(_LOOK_UPS, thread_name_prefix="lake") as pool:
            return list(pool.map(destination.table, idents))

    def keep_launchers_out(self) -> FamilyLock:
        """Hold the family lock until ``close``; 55006 if somebody else does."""
        if self._lock is None:
            self._lock = FamilyLock.acquire(self._data_dir)
            self._open.callback(self._lock.release)
        return self._lock

    def _of_launcher(self) -> str | None:
        """The launcher's server; waits for one that is starting. None without a launcher."""
        deadline = time.monotonic() + LAUNCHER_LAKE_TIMEOUT
        while True:
            status = query_launcher(self._data_dir)
            if status is None or status.lake_url is not None:
                return None if status is None else status.lake_url
            if time.monotonic() > deadline:
                raise ConnectionFailure(
                    "the lake server is not running",
                    hint="See the log in the data directory.",
                )
            time.sleep(_POLL)

    def _start(self) -> str:
        """A server that lives as long as this command."""
        from workers.lake.server import LakeServer

        lock = self.keep_launchers_out()
        server = LakeServer.start(
            self._data_dir,
            memory=self._config.settings.lake_server_memory,
            catalog=self._config.lake.catalog,
            conf=self._config.spark.conf,
            pass_fds=[lock.fd],
        )
        self._open.callback(server.stop)
        return server.ready()
