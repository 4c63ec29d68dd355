"""The lake for a command: the launcher's server, or a server for the command alone.

A command starts a server only under the data directory's lock, because two servers would share a
scratch folder. A launcher started meanwhile waits for the command's end.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.store_sqlite import CatalogStore
from config.lake import conf_here, embedded_catalog_file, has_commit_service, hint_beside
from config.limits import (
    LAKE_ANSWER_SECONDS,
    LAKE_FIRST_START_SECONDS,
    LAKE_RESTART_SECONDS,
    LAKE_WAIT_POLL_SECONDS,
    LOOK_UP_AT_ONCE_TABLES,
    WAIT_NOTICE_SECONDS,
)
from config.load import Config, from_stored
from subscriber.launcher.data_directory_lock import DataDirectoryLock
from workers.lake.connect.lake_url import COMMIT_SERVICE, url_parameter, with_commit_service
from workers.lake.server.server_conf import check_lake_folder
from workers.process.launcher_client import query_launcher

if TYPE_CHECKING:
    from workers.lake.table import LakeIdent
from workers.lake.destination import Destination
from workers.lake.table import LakeTable


class CommandLake:
    """The lake, opened on first use, closed with the command; ``on_wait`` announces a wait."""

    def __init__(
        self,
        data_dir: Path,
        store: CatalogStore,
        config: Config,
        url: str | None = None,
        *,
        on_wait: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_wait = on_wait
        self._data_dir = data_dir
        self._store = store
        self._config = config
        self._url = url
        self._open = ExitStack()
        self._lock: DataDirectoryLock | None = None
        self._destination: Destination | None = None
        self._probed = False
        self._no_files: str | None = None

    def close(self) -> None:
        """Release the sessions; end a server started by the command."""
        self._open.close()

    def url(self) -> str:
        """The lake's URL. Raises 08006 or 55000 without a lake."""
        if self._url is None:
            self._url = self._config.spark.remote or self._launcher_url() or self._start()
        return self._url

    def answering_url(self) -> str:
        """``url``, after an answer of the server: later requests may take any time.

        Raises 08006 without an answer. A dying server still has a URL for a moment.
        """
        url, deadline = self.url(), time.monotonic() + LAKE_ANSWER_SECONDS
        while (error := _ping(url)) is not None:
            remote = self._config.spark.remote is not None
            if remote or time.monotonic() > deadline:
                raise ConnectionFailure(
                    "the lake server does not answer",
                    detail=error.detail,
                    hint=_REMOTE_HINT if remote else _EMBEDDED_HINT,
                )
            if self._lock is None:
                self._url = None  # the launcher may have a new server by now
            time.sleep(LAKE_WAIT_POLL_SECONDS)
            url = self.url()
        return url

    def _url_of_workers(self) -> str:
        """``answering_url`` as workers have it: with the gateway of a commit service, if any.

        A query needs none, and starts none.
        """
        if not self._has_gateway and has_commit_service(self._config.lake, self._config.spark):
            self._url = self._launcher_url() or self._start()
        return self.answering_url()

    @property
    def _has_gateway(self) -> bool:
        return self._url is not None and url_parameter(self._url, COMMIT_SERVICE) is not None

    def destination(self) -> Destination:
        """The lake with the workers' settings; the command's file does not count."""
        if self._destination is None:
            from workers.lake.iceberg.destination import IcebergDestination
            from workers.lake.table import Identity

            in_force = from_stored(self._store.settings())
            destination = IcebergDestination(
                self._url_of_workers(),
                identity=Identity(subid=0),
                staging_dir=self._data_dir / "staging" / "command",
                settings=in_force.settings,
                format_version=in_force.lake.format_version,
                writer=in_force.lake.writer,
                remember_session=lambda user_id, session_id: None,
                catalog_file=embedded_catalog_file(self._data_dir),
            )
            self._open.callback(destination.close)
            self._destination = destination
        return self._destination

    def tables(self, idents: Sequence[LakeIdent]) -> list[LakeTable | None]:
        """Every table as of ``main``, None if missing; several are read at a time.

        A never used embedded lake has no tables: then no server is started.
        """
        lake_file = embedded_catalog_file(self._data_dir)
        if self._is_default() and not lake_file.exists():
            check_lake_folder(lake_file.parent)
            return [None for _ in idents]
        destination = self.destination()
        with ThreadPoolExecutor(LOOK_UP_AT_ONCE_TABLES, thread_name_prefix="lake") as pool:
            return list(pool.map(destination.table, idents))

    def probe(self) -> str | None:
        """Probe the lake's catalog once; 0A000 if the catalog cannot keep rows exact.

        The embedded lake's SQLite file is not probed: its promises are tested. Returns why workers
        could not write the files of new tables, None if they can.
        """
        if not (self._is_default() or self._probed):
            from workers.lake.iceberg.catalog_probe import probe_catalog

            self._no_files = probe_catalog(self._url_of_workers())
            self._probed = True
        return self._no_files

    def expect_copy(self, is_large: Callable[[], bool]) -> None:
        """Start what the copy of a large table needs, in the background.

        Nothing is started for the embedded lake's SQLite file: no command waits for that server.
        And nothing in a server of the command's own, which copies nothing.
        """
        if self._is_default() or not is_large():
            return
        destination = self.destination()
        if self._lock is None:
            destination.expect_copy()

    def _is_default(self) -> bool:
        """Is the lake the embedded one, on the data directory's disk?

        The configuration in force counts too: a command's file may say nothing of the lake.
        """
        both = (self._config, from_stored(self._store.settings()))
        return not any(each.lake.catalog or each.spark.remote for each in both)

    def keep_launchers_out(self) -> DataDirectoryLock:
        """Hold the data directory's lock until ``close``; 55006 if another process has the lock."""
        if self._lock is None:
            self._lock = DataDirectoryLock.acquire(
                self._data_dir,
                on_wait=lambda holders: self._on_wait(f"waiting for {holders} to end"),
            )
            self._open.callback(self._lock.release)
        return self._lock

    def _launcher_url(self) -> str | None:
        """The launcher's server; waits for a starting server. None without a launcher."""
        begin = time.monotonic()
        noticed = False
        while True:
            status = query_launcher(self._data_dir)
            if status is None:
                return None
            if status.lake_url is not None and status.phase != "stopping":
                return status.lake_url
            waited = time.monotonic() - begin
            if waited > (
                LAKE_FIRST_START_SECONDS if status.phase == "starting" else LAKE_RESTART_SECONDS
            ):
                raise ConnectionFailure(
                    "the lake server is not running",
                    detail=f"The launcher with PID {status.pid} has had none for {waited:.0f} s.",
                    hint=_EMBEDDED_HINT,
                )
            if waited > WAIT_NOTICE_SECONDS and not noticed:
                noticed = True
                self._on_wait("waiting for the launcher's lake server to start")
            time.sleep(LAKE_WAIT_POLL_SECONDS)

    def _start(self) -> str:
        """Start a server for the duration of the command."""
        lock, remote = self.keep_launchers_out(), self._config.spark.remote
        if remote is None:
            return self._start_server(lock)
        try:
            return with_commit_service(remote, self._start_server(lock))
        except ReplicationError as error:
            error.hint = hint_beside(error.hint)
            raise

    def _start_server(self, lock: DataDirectoryLock) -> str:
        from workers.lake.server.lake_server import LakeServer
        from workers.lake.server.set_back import set_embedded_tables_back

        if not self._config.lake.catalog:
            set_embedded_tables_back(self._data_dir)
        server = LakeServer.start(
            self._data_dir,
            memory=self._config.settings.lake_server_memory,
            catalog=self._config.lake.catalog,
            conf=conf_here(self._config.spark),
            pass_fds=[lock.fd],
        )
        self._open.callback(server.stop)
        return server.ready()


_EMBEDDED_HINT: Final = "See log/pgsub.log and log/lake-server.log in the data directory."
_REMOTE_HINT: Final = "spark.remote of the configuration names it: is it right, and does it run?"


def _ping(url: str) -> ConnectionFailure | None:
    """Send a harmless request; the error if no answer comes within seconds."""
    from workers.lake.connect.sessions import Sessions

    session = ("pgsub", str(uuid.uuid4()))
    try:
        Sessions(url, session[0], lambda user_id, session_id: None).release([session])
    except ConnectionFailure as error:
        return error
    return None
