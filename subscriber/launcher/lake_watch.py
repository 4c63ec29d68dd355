"""The launcher's watch of the embedded lake server: does the server answer, and is it healthy?

A process that runs is not a server that works. The server may be frozen, deadlocked, or out of
threads; the workers wait for the answer to a call, and a call may take hours. So a forked process
with a Spark session asks the server every ``lake_heartbeat_interval``
(``workers.lake.server.heartbeat``) and reports each answer to the launcher. The launcher itself
never asks: its loop may not wait, and the launcher loads no Spark. Without a report for
``lake_heartbeat_timeout`` the launcher kills the server. The workers' calls then fail as after a
crash, and the workers begin again with the next server.

Trace, interval 30 s, time-out 120 s::

      0  server 812 is up          the watching process is forked
      1  first answer              the clock starts again
     31  answer: 640 of 20000 descriptors, ...
     40  the server freezes        the next question waits
    151  no report for 120 s       812 is killed; the watching process ends with the server
    151  server 840 is starting

Only the time during which a watching process runs counts: without the process nobody has asked.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from catalog.errcodes import ReplicationError
from config.guc import Settings
from subscriber.launcher.lake_budget import Health
from workers.process import log as server_log
from workers.process.launcher_client import report_lake_alive

log = logging.getLogger(__name__)


class WatchingProcess(Protocol):
    """The process that asks the server."""

    @property
    def pid(self) -> int | None:
        """The process id, None while unknown."""

    def poll(self) -> int | None:
        """The exit status, None before the end."""

    def kill(self) -> None:
        """SIGKILL."""

    def wait(self) -> int:
        """Wait for the end; the exit status."""


class LakeWatch:
    """The watching process and the time of the last answer; the launcher's loop calls ``poll``.

    ``start`` forks the process; None: the server is not watched.
    """

    def __init__(self, start: Callable[[list[str]], WatchingProcess] | None) -> None:
        self.health = Health()
        self._start = start
        self._process: WatchingProcess | None = None
        self._lake_pid: int | None = None
        self._answered_at: float | None = None
        self._start_at = 0.0
        self._session_id = ""
        self._deadline: float | None = None

    def poll(
        self, now: float, url: str | None, lake_pid: int | None, settings: Settings
    ) -> str | None:
        """Start the process where there is none. The reason to kill the server, None without.

        ``url`` and ``lake_pid`` are None without a server of the launcher.
        """
        interval = settings.lake_heartbeat_interval
        if self._start is None or url is None or lake_pid is None or not interval:
            self.stop()
            return None
        if lake_pid != self._lake_pid:
            self.stop()
            self._lake_pid, self._session_id = lake_pid, str(uuid.uuid4())
        self._note_end(now, interval)
        if self._process is None:
            self._deadline = self._start_at
            if now >= self._start_at:
                words = [str(lake_pid), self._session_id, str(interval), url]
                self._process = self._start(words)
                self._deadline = None
            return None
        if self._answered_at is None and self._process.pid is not None:
            self._answered_at = now
        if self._answered_at is None:
            return None
        limit = max(settings.lake_heartbeat_timeout, 2 * interval)
        self._deadline = self._answered_at + limit
        if now < self._deadline:
            return None
        self.stop()
        return f"it has not answered for {limit:.0f} s"

    def take(self, lake_pid: int, health: Health, now: float) -> None:
        """Note an answer of the server; an answer of a former server does not count."""
        if lake_pid == self._lake_pid and self._process is not None:
            self._answered_at, self.health = now, health

    def next_deadline(self) -> float | None:
        """When the next ``poll`` is due; the start and the end of the process wake the loop."""
        return self._deadline

    def stop(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        self._answered_at = self._deadline = self._lake_pid = None
        self._start_at = 0.0
        self.health = Health()
        if process is not None:
            process.kill()
            process.wait()

    def _note_end(self, now: float, interval: float) -> None:
        """Start the clock anew after the end of the process."""
        if self._process is None or self._process.poll() is None:
            return
        self._process, self._answered_at = None, None
        self._start_at = now + interval


def main(argv: Sequence[str]) -> int:
    """Run in the forked process: data directory, the server's pid, session, interval, URL.

    Whatever error a question ends with, the question has no answer, and the process goes on: with
    the end of the process the launcher's clock would begin anew, each time.
    """
    from workers.lake.server.heartbeat import Heartbeat
    from workers.lake.server.lake_server import keep_output_small

    data_dir, pid, session_id, interval, url = argv
    server_log.setup("lake watch", Path(data_dir))
    scratch = Path(data_dir) / "lake" / "tmp"
    heartbeat = Heartbeat(url, int(pid), scratch, session_id)
    while True:
        try:
            if not report_lake_alive(Path(data_dir), int(pid), heartbeat.beat()):
                return 0
        except Exception as caught:
            error = server_log.unexpected(caught)
            level = logging.DEBUG if isinstance(caught, ReplicationError) else logging.WARNING
            log.log(level, "action=heartbeat sqlstate=%s %s", error.code, error.primary)
        keep_output_small(Path(data_dir))
        time.sleep(float(interval))
