"""The launcher's lake server: started early, watched, and started again after a crash.

With ``spark.remote`` the launcher starts no server, or the commit service: a lake server of its own
beside the user's. The workers' URL then is the URL of the user's server with the gateway of the
commit service, and there is a URL while the commit service is up. Whether the user's server is up
the workers find out.

``poll`` is called from the launcher's loop and never blocks. Slow preparations (finding Java,
fetching jars once) run in a thread. The main thread starts the process: the kernel ties the death
signal of a child to the starting thread.

A server may die while it starts: out of memory, killed, a slow machine. Each failed start doubles
the wait for the next. A launcher with subscriptions never gives up: a server worked here before,
and the rows wait at the publisher. Without a subscription the first start gives up, after
``LAKE_FIRST_START_ATTEMPTS``: the installation is new, and the user has to hear of the cause.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from catalog.errcodes import ConnectionFailure, InternalError, ReplicationError
from config.guc import Settings
from config.lake import LakeConfig, SparkConfig, conf_here, hint_beside
from config.limits import (
    LAKE_FIRST_START_ATTEMPTS,
    LAKE_REPLACE_FIRST_SECONDS,
    LAKE_REPLACE_LONGEST_SECONDS,
    LAKE_RESTART_LONGEST_SECONDS,
    LAKE_SERVER_READY_SECONDS,
    LAKE_SERVER_STOP_SECONDS,
    LAKE_START_POLL_SECONDS,
)
from workers.lake.connect.lake_url import with_commit_service
from workers.lake.server.jars import resolved_jars
from workers.lake.server.java import find_java
from workers.lake.server.lake_server import LakeServer
from workers.lake.server.set_back import set_embedded_tables_back

log = logging.getLogger(__name__)


class ChildProcess(Protocol):
    """The part of ``subprocess.Popen`` in use here."""

    pid: int

    def poll(self) -> int | None:
        """The exit status, None before the end."""

    def kill(self) -> None:
        """End the process at once."""


class RunningLake(Protocol):
    """A started server (``LakeServer``)."""

    @property
    def process(self) -> ChildProcess:
        """The server's process."""

    def poll_ready(self) -> str | None:
        """The URL once the server listens; raises 08006 after the server's end."""

    def stop(self, timeout: float = LAKE_SERVER_STOP_SECONDS) -> None:
        """End the server."""


class LakeStarter(Protocol):
    """Starts a server; the tests have a starter without Java."""

    def prepare(self) -> None:
        """Slow preparations; runs in a thread."""

    def start(self, pass_fds: Sequence[int]) -> RunningLake:
        """Start the process and return at once; runs in the main thread."""


@dataclass(frozen=True, slots=True)
class EmbeddedLake:
    """The starter of the real server."""

    data_dir: Path
    lake: LakeConfig
    spark: SparkConfig
    settings: Settings

    def prepare(self) -> None:
        """Set torn tables back; find Java and the jars, which are downloaded the first time."""
        if not self.lake.catalog:
            set_embedded_tables_back(self.data_dir)
        resolved_jars(find_java(), conf_here(self.spark), self.lake.catalog)

    def start(self, pass_fds: Sequence[int]) -> RunningLake:
        """Start the JVM."""
        return LakeServer.start(
            self.data_dir,
            memory=self.settings.lake_server_memory,
            catalog=self.lake.catalog,
            conf=conf_here(self.spark),
            pass_fds=pass_fds,
        )


class LakeEvent(Enum):
    """A change found by ``poll``."""

    UP = "up"
    DOWN = "down"


class LakeChild:
    """The launcher's lake server, or the URL of a remote server (``remote``), or both.

    ``url`` is None while no server accepts connections. ``own_url`` is that of the launcher's own
    server. A thread calls ``wake`` when a ``poll`` is due. ``keeps_trying``: no number of deaths of
    a first server is an error. ``commit_service``: a server of the launcher runs beside ``remote``.
    """

    def __init__(
        self,
        starter: LakeStarter,
        remote: str | None,
        pass_fds: Sequence[int],
        wake: Callable[[], None],
        *,
        keeps_trying: bool = False,
        commit_service: bool = False,
    ) -> None:
        self._keeps_trying = keeps_trying
        self._starts_none = remote is not None and not commit_service
        self.url: str | None = None
        self.own_url: str | None = None
        self.retry_interval = 5.0
        self.starts = 0
        self._starter = starter
        self._remote = remote
        self._pass_fds = tuple(pass_fds)
        self._wake = wake
        self._prepared: threading.Event | None = None
        self._error: ReplicationError | None = None
        self._server: RunningLake | None = None
        self._started_at = 0.0
        self._start_at: float | None = None
        self._was_up = False
        self._failed_starts = 0
        self._young = LAKE_REPLACE_FIRST_SECONDS

    @property
    def pid(self) -> int | None:
        """The server's process id, None without a server."""
        return None if self._server is None else self._server.process.pid

    def begin(self) -> None:
        """Begin with the preparations."""
        if not self._starts_none:
            self._prepare()

    @property
    def has_sessions(self) -> bool:
        """Are the workers' Spark sessions on the launcher's server, and end with the server?"""
        return self._remote is None

    def poll(self, now: float) -> LakeEvent | None:
        """Check the server, and start a server when due.

        Raises an error of the preparations before the first start (no Java, no jars), and, unless
        ``keeps_trying``, the error of a first server that died at every attempt. Other errors are
        logged, and ``poll`` tries again.
        """
        if self._starts_none:
            if self.url is not None:
                return None
            self.url = self._remote
            return LakeEvent.UP
        try:
            return self._step(now)
        except ReplicationError as error:
            if self._remote is not None:
                error.hint = hint_beside(error.hint)
            was_started = self._server is not None
            self.stop()
            self._failed_starts += 1
            goes_on = self._keeps_trying or self._failed_starts < LAKE_FIRST_START_ATTEMPTS
            if not self._was_up and not (was_started and goes_on):
                raise
            wait = min(
                self.retry_interval * 2 ** (self._failed_starts - 1), LAKE_RESTART_LONGEST_SECONDS
            )
            log.warning(
                "action=lake_failed sqlstate=%s attempt=%d %s; the next start is in %.0f s",
                error.code,
                self._failed_starts,
                error.primary,
                wait,
                extra={"DETAIL": error.detail, "HINT": error.hint},
            )
            self._start_at = now + wait
            return None

    def next_deadline(self, now: float) -> float | None:
        """When the next ``poll`` is due without a signal."""
        if self._server is not None and self.url is None:
            return now + LAKE_START_POLL_SECONDS
        return self._start_at

    def may_be_replaced(self, now: float) -> bool:
        """Is there a server that is old enough?"""
        return bool(self.url) and self._server is not None and now - self._started_at > self._young

    def replace(self, now: float, why: str = "a worker found it broken") -> None:
        """End a server that cannot go on; ``poll`` starts the next as after a crash.

        A young server stays. A lasting cause, perhaps in one table, must not take the server from
        all tables for ever.
        """
        if not self.may_be_replaced(now):
            return
        age = now - self._started_at
        self._young = min(
            2 * (LAKE_REPLACE_FIRST_SECONDS if age > LAKE_REPLACE_LONGEST_SECONDS else self._young),
            LAKE_REPLACE_LONGEST_SECONDS,
        )
        self.kill(why)

    def kill(self, why: str) -> None:
        """End the server at once, at any age; ``poll`` starts the next."""
        if self._server is not None:
            log.warning("action=lake_broken pid=%d lake server is started again: %s", self.pid, why)
            self._server.process.kill()

    def stop(self) -> None:
        """End the server, if any, and wait for the end."""
        if self._server is not None:
            self._server.stop()
        self._server, self.url, self.own_url = None, None, None

    def _step(self, now: float) -> LakeEvent | None:
        if self._server is not None:
            return self._watch(self._server, now)
        if self._prepared is not None:
            if not self._prepared.is_set():
                return None
            self._prepared = None
            if self._error is not None:
                raise self._error
            self._server = self._starter.start(self._pass_fds)
            self._started_at = time.monotonic()
            self.starts += 1
            log.info("action=lake_start pid=%d lake server is starting", self.pid)
        elif self._start_at is not None and now >= self._start_at:
            self._start_at = None
            self._prepare()
        return None

    def _watch(self, server: RunningLake, now: float) -> LakeEvent | None:
        if self.url is None:
            self.own_url = server.poll_ready()
            if self.own_url is None:
                if now - self._started_at > LAKE_SERVER_READY_SECONDS:
                    raise ConnectionFailure(
                        f"the lake server did not start within {LAKE_SERVER_READY_SECONDS:.0f} s"
                    )
                return None
            self.url = self._url_of_workers(self.own_url)
            self._was_up = True
            self._failed_starts = 0
            log.info("action=lake_up pid=%d lake server accepts connections", self.pid)
            return LakeEvent.UP
        status = server.process.poll()
        if status is None:
            return None
        log.warning("action=lake_exit pid=%d lake server ended with status %d", self.pid, status)
        lived = now - self._started_at
        self.stop()
        self._start_at = now if lived > self.retry_interval else now + self.retry_interval
        return LakeEvent.DOWN

    def _url_of_workers(self, own: str) -> str:
        return own if self._remote is None else with_commit_service(self._remote, own)

    def _prepare(self) -> None:
        self._error = None
        self._prepared = threading.Event()
        threading.Thread(
            target=self._run_prepare, args=[self._prepared], name="lake", daemon=True
        ).start()

    def _run_prepare(self, prepared: threading.Event) -> None:
        try:
            self._starter.prepare()
        except ReplicationError as error:
            self._error = error
        except Exception as error:
            self._error = InternalError(f"unexpected {type(error).__name__} before the lake starts")
        prepared.set()
        self._wake()
