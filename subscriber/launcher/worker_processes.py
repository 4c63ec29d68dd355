"""The launcher's children: a process for each worker slot in use, started, stopped and reaped.

A slot is free again only when its process is reaped, so a successor never runs beside it. Every
stop names a tenant, and a tenant's kill time lives with its process: neither can hit whoever gets
the slot next.
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
from subscriber.launcher.fork_server import STATUS, ForkedWorker
from subscriber.launcher.socket_server import Client
from workers.process.log import CONSOLE_ENV
from workers.process.worker_slots import LogicalRepWorker, Tenant, WorkerSlots, WorkerType

log = logging.getLogger(__name__)

KIND_NAMES: Final = {
    WorkerType.APPLY: "logical replication apply worker",
    WorkerType.TABLESYNC: "logical replication table synchronization worker",
}

WorkerArgv = Callable[[Path, LogicalRepWorker], Sequence[str]]


class WorkerProcess(Protocol):
    """A child as ``subprocess.Popen`` shows it."""

    @property
    def pid(self) -> int | None:
        """The process id, None while it is not known."""

    def poll(self) -> int | None:
        """The exit status, negative for a signal; None while it runs."""

    def wait(self) -> int:
        """Until it has ended."""

    def send_signal(self, sig: int, /) -> None:
        """Nothing if it has ended."""

    def kill(self) -> None:
        """SIGKILL."""


def worker_words(data_dir: Path, row: LogicalRepWorker) -> list[str]:
    """What a worker is told: numbers and a path, nothing secret."""
    return [
        row.type.value,
        *("--data-dir", str(data_dir)),
        *("--subid", str(row.subid), "--relid", str(row.relid)),
        *("--slot", str(row.slot), "--generation", str(row.generation)),
    ]


@dataclass(slots=True)
class Child:
    """A worker's process. Times are of the monotonic clock.

    ``announced``: its pid is known. Only from there on is it to attach in time: the fork server
    may have had to load first.
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
    """A worker that is gone; ``on_purpose``: its successor need not wait."""

    row: LogicalRepWorker
    status: int
    on_purpose: bool


class WorkerProcesses:
    """Slots and processes together; the launcher's main thread uses them."""

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
        self.children: dict[Tenant, Child] = {}
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
        """``logicalrep_worker_launch``; None if no slot is free or no process can be made.

        Must run in the main thread: the kernel's death signal follows the thread that forked.
        The process may not be there yet on return; it is announced in the log when it is.
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
        """Put the process into its slot and into the log, once, when it is known."""
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
        """A process without a slot that writes status tables and ends; the caller's to watch."""
        return self._fork([STATUS, str(self._data_dir), *words])

    def _fork(self, words: Sequence[str]) -> ForkedWorker:
        return ForkedWorker(
            words,
            log_fd=self._log_fd,
            console_fd=self._console_fd,
            pass_fds=self._pass_fds,
            on_change=self._on_change,
        )

    def _spawn(self, row: LogicalRepWorker) -> WorkerProcess:
        """Fork a worker; a test's own command is started as a program."""
        if self._argv is None:
            return self._fork(worker_words(self._data_dir, row))
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
            start_new_session=True,  # a terminal's Ctrl-C is ours to hand on
        )

    def attach(self, tenant: Tenant, client: Client, catalog_seq: int) -> LogicalRepWorker | None:
        """A worker reports for its slot; None if the slot is not waiting for it."""
        child = self.children.get(tenant)
        if child is None or child.attached:
            return None
        self._announce(child)
        child.attached, child.client, child.catalog_seen = True, client, catalog_seq
        client.tenant = tenant
        # A relstate of an earlier tenant must never be taken for an answer to this one.
        return self.slots.update(tenant, attached=True, relstate=None, relstate_lsn=None)

    def tenant_of(self, slot: int, generation: int) -> Tenant | None:
        """Who has a slot now, if it is of that generation."""
        for row in self.slots.rows():
            if (row.slot, row.generation) == (slot, generation):
                return row.tenant
        return None

    def wake(self, subid: int, relid: int | None = None, *, but: Tenant | None = None) -> bool:
        """Set the latch of a worker, or of all of a subscription's; whether there was one."""
        rows = [row for row in self.slots.of(subid) if relid is None or row.relid == relid]
        for row in rows:
            client = self.children[row.tenant].client
            if client is not None and row.tenant != but:
                client.push("wakeup")
        return bool(rows)

    def tell_lake(self, url: str | None) -> None:
        """Where the lake server is now, None while there is none, to everybody."""
        for child in self.children.values():
            if child.client is not None:
                child.client.push("lake", url=url)

    def stop(self, tenant: Tenant, *, grace: float = WORKER_STOP_SECONDS) -> None:
        """SIGTERM now, SIGKILL after ``grace`` seconds; nothing if the tenant is gone."""
        child = self.children.get(tenant)
        if child is None or (child.stopping and grace):
            return
        child.stopping = True
        child.kill_at = time.monotonic() + grace
        child.process.send_signal(signal.SIGTERM if grace else signal.SIGKILL)

    def hung_up(self, client: Client) -> None:
        """A worker's socket ended: it is about to be reaped, or will be made to end."""
        child = self.children.get(client.tenant) if client.tenant else None
        if child is not None and child.client is client:
            child.client = None
            deadline = time.monotonic() + WORKER_STOP_SECONDS
            child.kill_at = min(child.kill_at or deadline, deadline)

    def reap(self) -> list[Exited]:
        """Free the slots of workers that have ended, and end those that are overdue."""
        now = time.monotonic()
        gone = []
        for child in list(self.children.values()):
            self._announce(child)
            status = child.process.poll()
            if status is not None:
                gone.append(self._bury(child, status))
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
        """When ``reap`` has something to do that no signal tells."""
        times = []
        for child in self.children.values():
            if child.kill_at is not None:
                times.append(child.kill_at)
            elif child.attach_by is not None and not child.attached:
                times.append(child.attach_by)
        return min(times, default=None)

    def _bury(self, child: Child, status: int) -> Exited:
        row = self.slots.release(child.tenant)
        if row is None:
            raise InternalError("a worker's slot was released before its process ended")
        del self.children[child.tenant]
        if child.client is not None:
            child.client.close()
        if status and not child.stopping:
            log.info(
                "action=worker_exit subid=%d relid=%d pid=%s %s %s",
                *(row.subid, row.relid, row.pid, KIND_NAMES[row.type], _how(status)),
            )
        on_purpose = child.stopping or (status == 0 and child.attached)
        return Exited(row, status, on_purpose)


def _how(status: int) -> str:
    if status > 0:
        return f"exited with exit code {status}"
    return f"was terminated by signal {-status}: {signal.strsignal(-status)}"
