"""The launcher's worker processes: started, stopped and reaped.

A worker slot is free again only after the process is reaped: a successor never runs beside the old
process. A stop names a tenant, and the time of a kill is stored with the process: neither can hit
the next tenant of the slot.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol

from catalog.errcodes import InternalError
from config.limits import KILL_AGAIN_SECONDS, WORKER_STOP_SECONDS
from subscriber.launcher.fork_server import (
    MODULE,
    PROBE,
    PYTHON,
    STATUS,
    WATCH,
    ForkedWorker,
)
from subscriber.launcher.socket_server import Client
from subscriber.launcher.work_totals import WorkTotals
from workers.process.log import CONSOLE_ENV
from workers.process.worker_slots import LogicalRepWorker, Tenant, WorkerSlots, WorkerType

log = logging.getLogger(__name__)

KIND_NAMES: Final = {
    WorkerType.APPLY: "logical replication apply worker",
    WorkerType.TABLESYNC: "logical replication table synchronization worker",
}

WorkerArgv = Callable[[Path, LogicalRepWorker], Sequence[str]]


class WorkerProcess(Protocol):
    """A child process with the methods of ``subprocess.Popen``."""

    @property
    def pid(self) -> int | None:
        """The process id, None while unknown."""

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None before the end."""

    def wait(self) -> int:
        """Wait for the end; the exit status."""

    def send_signal(self, sig: int, /) -> None:
        """Send a signal; after the end do nothing."""

    def kill(self) -> None:
        """SIGKILL."""


def worker_arguments(data_dir: Path, row: LogicalRepWorker) -> list[str]:
    """A worker's command line: numbers and a path, no secret."""
    return [
        row.type.value,
        *("--data-dir", str(data_dir)),
        *("--subid", str(row.subid), "--relid", str(row.relid)),
        *("--slot", str(row.slot), "--generation", str(row.generation)),
    ]


@dataclass(slots=True)
class Child:
    """A worker's process. Times are of the monotonic clock.

    ``announced``: the pid is known. The time to attach counts from there on: the fork server may
    have had to load first.
    """

    tenant: Tenant
    process: WorkerProcess
    attach_timeout: float
    client: Client | None = None
    announced: bool = False
    attach_by: float | None = None
    attached: bool = False
    stopping: bool = False
    kill_at: float | None = None
    catalog_seen: int = 0


@dataclass(frozen=True, slots=True)
class Exited:
    """A worker's end; ``on_purpose``: the successor need not wait."""

    row: LogicalRepWorker
    status: int
    on_purpose: bool


class WorkerProcesses:
    """The worker slots and processes; for the launcher's main thread only."""

    def __init__(
        self,
        data_dir: Path,
        size: int,
        argv: WorkerArgv | None,
        pass_fds: Sequence[int],
        console_fd: int | None,
        log_fd: int,
        on_change: Callable[[], None],
        attach_timeout: float,
    ) -> None:
        self.slots = WorkerSlots(size)
        self.totals = WorkTotals()
        self.children: dict[Tenant, Child] = {}
        self._pythons: list[ForkedWorker] = []
        self._data_dir = data_dir
        self._argv = argv
        self._pass_fds = tuple(pass_fds)
        self._console_fd = console_fd
        self._log_fd = log_fd
        self._on_change = on_change
        self._attach_timeout = attach_timeout

    def launch(
        self, subid: int, relid: int, generation: int, wal_receiver_timeout: float
    ) -> LogicalRepWorker | None:
        """``logicalrep_worker_launch``; None if no slot is free or no process can start.

        Call from the main thread: the kernel ties a child's death signal to the forking thread.
        The process may start after the return; the log announces the start.
        """
        row = self.slots.claim(subid, relid, generation, time.time_ns() // 1000)
        if row is None:
            return None
        try:
            process = self._spawn(row)
        except OSError as error:
            self.slots.release(row.tenant)
            log.warning(
                "action=worker_start subid=%d relid=%d could not start worker process: %s",
                subid,
                relid,
                error.strerror,
            )
            return None
        timeout = max(wal_receiver_timeout, self._attach_timeout)
        child = self.children[row.tenant] = Child(row.tenant, process, timeout)
        self._announce(child)
        return row

    def _announce(self, child: Child) -> None:
        """Put a known pid into the slot and into the log, once."""
        if child.announced or child.process.pid is None:
            return
        child.announced = True
        child.attach_by = time.monotonic() + child.attach_timeout
        row = self.slots.update(child.tenant, pid=child.process.pid)
        if row is not None:
            log.info(
                "action=worker_start subid=%d relid=%d slot=%d generation=%d pid=%d %s has started",
                *(row.subid, row.relid, row.slot, row.generation, row.pid, KIND_NAMES[row.type]),
            )

    def fork_status_writer(self, words: Sequence[str]) -> ForkedWorker:
        """Start a process without a slot to write status tables; the caller watches the process."""
        return self._fork([STATUS, str(self._data_dir), *words])

    def fork_lake_watch(self, words: Sequence[str]) -> ForkedWorker:
        """Start a process without a slot to watch the lake server; the caller ends the process."""
        return self._fork([WATCH, str(self._data_dir), *words])

    def fork_catalog_probe(self, words: Sequence[str]) -> ForkedWorker:
        """Start a process without a slot to probe the catalog; the caller watches the process."""
        return self._fork([PROBE, str(self._data_dir), *words])

    def fork_module(self, module: str, words: Sequence[str]) -> ForkedWorker:
        """Start a process without a slot that runs a module; the caller watches the process."""
        return self._fork([MODULE, module, str(self._data_dir), *words])

    def fork_spark_python(self, path: str) -> bool:
        """Start Spark's Python, which connects to a socket, and ends with the lake server.

        The process does not hold the lock of the data directory. False while an earlier one is not
        forked yet: the fork server is loading, or stands still.
        """
        self._pythons = [each for each in self._pythons if each.poll() is None]
        if any(each.pid is None for each in self._pythons):
            return False
        self._pythons.append(self._fork([PYTHON, path], pass_fds=()))
        return True

    def end_spark_python(self) -> None:
        """End what the end of the lake server has not ended; one that stands still, for example."""
        for each in self._pythons:
            if each.pid is not None:
                each.kill()
                each.wait()

    def _fork(self, words: Sequence[str], pass_fds: Sequence[int] | None = None) -> ForkedWorker:
        return ForkedWorker(
            words,
            log_fd=self._log_fd,
            console_fd=self._console_fd,
            pass_fds=self._pass_fds if pass_fds is None else pass_fds,
            on_change=self._on_change,
        )

    def _spawn(self, row: LogicalRepWorker) -> WorkerProcess:
        """Fork a worker; a command of a test is started as a program."""
        if self._argv is None:
            return self._fork(worker_arguments(self._data_dir, row))
        env, fds = dict(os.environ), self._pass_fds
        if self._console_fd is not None:
            env[CONSOLE_ENV] = str(self._console_fd)
            fds += (self._console_fd,)
        return subprocess.Popen(
            self._argv(self._data_dir, row),
            stdin=subprocess.DEVNULL,
            stdout=self._log_fd,
            stderr=self._log_fd,
            env=env,
            pass_fds=fds,
            start_new_session=True,  # a terminal's Ctrl-C reaches the launcher alone
        )

    def attach(self, tenant: Tenant, client: Client, catalog_seq: int) -> LogicalRepWorker | None:
        """Attach a worker to its slot; None if the slot is not waiting for the worker."""
        child = self.children.get(tenant)
        if child is None or child.attached:
            return None
        self._announce(child)
        child.attached, child.client, child.catalog_seen = True, client, catalog_seq
        client.tenant = tenant
        # The relstate of an earlier tenant must never pass for an answer to the new tenant.
        return self.slots.update(tenant, attached=True, relstate=None, relstate_lsn=None)

    def are_copying(self) -> bool:
        """Does a worker copy a table now?"""
        return any(row.is_copying for row in self.slots.rows())

    def tenant_of(self, slot: int, generation: int) -> Tenant | None:
        """The tenant of a slot, if of the given generation."""
        for row in self.slots.rows():
            if (row.slot, row.generation) == (slot, generation):
                return row.tenant
        return None

    def wake(self, subid: int, relid: int | None = None, *, but: Tenant | None = None) -> bool:
        """Set the latch of a worker, or of a subscription's workers; False without a worker."""
        rows = [row for row in self.slots.of(subid) if relid is None or row.relid == relid]
        for row in rows:
            client = self.children[row.tenant].client
            if client is not None and row.tenant != but:
                client.push("wakeup")
        return bool(rows)

    def announce_lake(self, url: str | None) -> None:
        """Send the lake server's URL to all workers; None while the lake is down."""
        for child in self.children.values():
            if child.client is not None:
                child.client.push("lake", url=url)

    def stop(self, tenant: Tenant, *, grace: float = WORKER_STOP_SECONDS) -> None:
        """Send SIGTERM now and SIGKILL after ``grace`` seconds, unless the tenant is gone."""
        child = self.children.get(tenant)
        if child is None or (child.stopping and grace):
            return
        child.stopping = True
        child.kill_at = time.monotonic() + grace
        child.process.send_signal(signal.SIGTERM if grace else signal.SIGKILL)

    def lose_client(self, client: Client) -> None:
        """A worker's connection has ended: the worker ends by itself, or is killed later."""
        child = self.children.get(client.tenant) if client.tenant else None
        if child is not None and child.client is client:
            child.client = None
            deadline = time.monotonic() + WORKER_STOP_SECONDS
            child.kill_at = min(child.kill_at or deadline, deadline)

    def reap(self) -> list[Exited]:
        """Free the slots of ended workers, and kill overdue workers."""
        now = time.monotonic()
        gone = []
        for child in list(self.children.values()):
            self._announce(child)
            status = child.process.poll()
            if status is not None:
                gone.append(self._release(child, status))
            elif child.kill_at is not None and child.kill_at <= now:
                child.process.kill()
                child.kill_at = now + KILL_AGAIN_SECONDS
            elif not child.attached and child.attach_by is not None and child.attach_by <= now:
                log.warning(
                    "action=worker_kill subid=%d pid=%s worker has not attached in time",
                    *(child.tenant[1], child.process.pid),
                )
                child.process.kill()
                child.kill_at = now + KILL_AGAIN_SECONDS
        return gone

    def next_deadline(self) -> float | None:
        """When the next ``reap`` is due without a signal."""
        times = []
        for child in self.children.values():
            if child.kill_at is not None:
                times.append(child.kill_at)
            elif child.attach_by is not None and not child.attached:
                times.append(child.attach_by)
        return min(times, default=None)

    def _release(self, child: Child, status: int) -> Exited:
        row = self.slots.release(child.tenant)
        if row is None:
            raise InternalError("a worker's slot was released before its process ended")
        del self.children[child.tenant]
        self.totals.take_end(row, failed=bool(status) and not child.stopping)
        if child.client is not None:
            child.client.close()
        if status and not child.stopping:
            log.info(
                "action=worker_exit subid=%d relid=%d pid=%s %s %s",
                *(row.subid, row.relid, row.pid, KIND_NAMES[row.type], _exit_description(status)),
            )
        on_purpose = child.stopping or (status == 0 and child.attached)
        return Exited(row, status, on_purpose)


def _exit_description(status: int) -> str:
    if status > 0:
        return f"exited with exit code {status}"
    return f"was terminated by signal {-status}: {signal.strsignal(-status)}"
