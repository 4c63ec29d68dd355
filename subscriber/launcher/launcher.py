"""The launcher: it sees to it that every enabled subscription has its apply worker.

PostgreSQL's ``ApplyLauncherMain``, and its postmaster: the launcher owns the data directory (the
family lock), the worker slots, and all processes. One loop in the main thread waits for the local
socket, for signals and for the next time that something is due; nothing in it blocks.

One turn:

1. Signals. SIGTERM and SIGINT end the family, SIGHUP reads the configuration again, SIGCHLD only
   wakes the loop. A second SIGTERM or SIGINT does not wait for anybody.
2. Processes that ended are reaped; their slots are free from here on. The other workers of the
   subscription are woken: an apply worker may wait for its sync worker and the other way round.
   After an exit on purpose (status 0, or because it was told to stop) the subscription's start
   time is forgotten, after an error it stays.
3. The lake server: starting, up, or dead and due again.
4. The catalog, if anything gave a reason to look: ``decide`` says whom to launch and stop.

A worked trace, with ``wal_retrieve_retry_interval`` = 5 s; subscription a fails at once, b is
altered::

    0.0  a and b enabled        launch a, b; start times a = b = 0.0
    0.4  a exits with 1         a is due at 5.0
    2.0  b exits with 0         (it read the altered row) start time of b forgotten: launch b now
    5.0  a is due               start time a = 5.0; launch a

Each subscription waits for its own start time only, and a reason to look that comes while the loop
does something else is found in its next turn: there is no wait in which it could be lost.

At the end: workers first (SIGTERM, and SIGKILL after ``STOP_GRACE``), while their requests are
still answered; then the lake server, which the last commits need; then the lock.
"""

from __future__ import annotations

import logging
import os
import selectors
import signal
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from catalog.errcodes import InternalError, ReplicationError
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from config.limits import CATALOG_POLL, GAP_RETRY_INTERVAL
from config.load import Config, from_stored
from subscriber.launcher.data_directory_lock import FAMILY_WAIT, FamilyLock
from subscriber.launcher.fork_server import begin_loading
from subscriber.launcher.lake_process import EmbeddedLake, LakeChild, LakeEvent, LakeStarter
from subscriber.launcher.passfile import sweep_passfiles
from subscriber.launcher.requests import Requests
from subscriber.launcher.socket_server import Client, LocalServer
from subscriber.launcher.worker_processes import ATTACH_TIMEOUT, Exited, WorkerArgv, WorkerProcesses
from subscriber.status.lake_tables import StatusTables, changed_views
from workers.process import log as server_log
from workers.process.launcher_socket import (
    LockInfo,
    make_socket_path,
    read_lock_file,
    remove_socket,
)
from workers.process.worker_exit import EXIT_GAP
from workers.process.worker_slots import SyncRefusal, WorkerType, decide, is_wanted, refuse_sync

log = logging.getLogger(__name__)

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD)

ApplyFile = Callable[[str], None]
"""Brings the catalog in line with the configuration file; gets the lake's URL."""


def ApplyLauncherMain(  # noqa: N802 (PostgreSQL's name)
    data_dir: Path,
    *,
    config: Config | None = None,
    apply_file: ApplyFile | None = None,
    on_running: Callable[[], None] | None = None,
) -> int:
    """Run the launcher in the foreground until it is told to stop; the exit status.

    ``config`` is stored in the catalog once the data directory is ours; None: what is stored
    counts. ``apply_file`` runs in a thread when the lake is up, and again at SIGHUP; if it raises
    the first time, that is logged, the family ends and the status is 1. ``on_running`` is called
    in the main thread when all that is done. Raises 55006 for a second launcher. Call it from the
    main thread.
    """
    return Launcher(data_dir, config=config, apply_file=apply_file, on_running=on_running).run()


class Launcher:
    """One run of the launcher; what follows ``on_running`` is for the tests."""

    def __init__(
        self,
        data_dir: Path,
        *,
        config: Config | None = None,
        apply_file: ApplyFile | None = None,
        on_running: Callable[[], None] | None = None,
        lake_starter: LakeStarter | None = None,
        argv: WorkerArgv | None = None,
        family_wait: float = FAMILY_WAIT,
        attach_timeout: float = ATTACH_TIMEOUT,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self.phase = "starting"
        self.start_time = time.time_ns() // 1000
        self._config = config
        self._apply_file = apply_file
        self._on_running = on_running
        self._lake_starter = lake_starter
        self._argv = argv
        self._family_wait = family_wait
        self._attach_timeout = attach_timeout
        self._status = 0
        self._last_start_times: dict[int, float] = {}
        self._subscriptions: list[Subscription] = []
        self._next_look: float = 0.0
        self._applying = False
        self._apply_again = False
        self._impatient = False
        self._posted: deque[Callable[[], None]] = deque()

    # -- life ----------------------------------------------------------------------------------

    def run(self) -> int:
        """Take the lock, run, leave nothing behind; the exit status."""
        server_log.setup("launcher", self.data_dir)
        lock = FamilyLock.acquire(
            self.data_dir,
            wait=self._family_wait,
            on_wait=lambda whom: log.info("action=lock_wait waiting for %s to end", whom),
        )
        try:
            with selectors.DefaultSelector() as self._selector:
                self._open(lock)
                try:
                    self._loop()
                finally:
                    self._close(lock)
        finally:
            lock.release()
        return self._status

    def _open(self, lock: FamilyLock) -> None:
        previous = read_lock_file(self.data_dir)
        if previous is not None:
            remove_socket(previous.socket, self.data_dir)
        self._store = CatalogStore.open(self.data_dir)
        if self._config is not None:
            self._store.put_settings(self._config.stored())
        self._config = from_stored(self._store.settings())
        used = {sub.passfile for sub in self._store.subscriptions()}
        used |= {slot.passfile for slot in self._store.leaked_slots()}
        sweep_passfiles(self.data_dir, used)
        self._settings = self._config.settings
        self._console = _duplicate_stderr()
        self._log_fd = server_log.open_log_file(self.data_dir)
        self.workers = WorkerProcesses(
            self.data_dir,
            self._settings.max_logical_replication_workers,
            self._argv,
            pass_fds=[lock.fd],
            console_fd=self._console,
            log_fd=self._log_fd,
            on_change=self._kick,
            attach_timeout=self._attach_timeout,
        )
        if self._argv is None:
            begin_loading()
        self._status_tables = StatusTables(
            lambda: changed_views(self._store, self.workers.slots.rows(), self.data_dir),
            self.workers.fork_status_writer,
            time.monotonic(),
        )
        self._requests = Requests(self)
        self._socket = make_socket_path(self.data_dir)
        self._server = LocalServer(self._selector, self._socket, self._requests.take, self._hung_up)
        lock.describe(LockInfo.own(self._socket, self.start_time))
        self._catch_signals()
        starter = self._lake_starter or EmbeddedLake(
            self.data_dir, self._config.lake, self._config.spark, self._settings
        )
        remote = self._config.spark.remote
        self._lake = LakeChild(starter, remote, [lock.fd], self._kick)
        self._lake.begin()
        log.info("action=start launcher started; data directory %s", self.data_dir)

    def _close(self, lock: FamilyLock) -> None:
        """After a normal end nothing is left to stop; after an error of ours everything is."""
        for child in list(self.workers.children.values()):
            child.process.kill()
            child.process.wait()
        self._status_tables.stop()
        self._requests.settle()
        self._lake.stop()
        self._server.close()
        remove_socket(self._socket, self.data_dir)
        lock.describe(None)
        self._store.close()
        signal.set_wakeup_fd(-1)
        for number, handler in self._old_handlers.items():
            signal.signal(number, handler)
        for fd in (self._wake_r, self._wake_w, self._console, self._log_fd):
            if fd is not None:
                os.close(fd)
        log.info("action=stop launcher stopped; data directory %s", self.data_dir)

    def _hung_up(self, client: Client) -> None:
        self.workers.hung_up(client)
        self._requests.let_go(client)

    def _catch_signals(self) -> None:
        """Signals arrive as bytes on the pipe that wakes the loop."""
        self._wake_r, self._wake_w = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)
        self._selector.register(self._wake_r, selectors.EVENT_READ, self._take_signals)
        self._old_handlers: dict[int, Any] = {
            number: signal.signal(number, _noticed_by_wakeup_fd) for number in _SIGNALS
        }
        signal.set_wakeup_fd(self._wake_w, warn_on_full_buffer=False)

    def _kick(self) -> None:
        try:
            os.write(self._wake_w, b"\0")
        except OSError:
            return  # full: the loop wakes anyway; closed: there is no loop any more

    def _post(self, call: Callable[[], None]) -> None:
        """Have the main thread call this; for the other threads."""
        self._posted.append(call)
        self._kick()

    # -- the loop ------------------------------------------------------------------------------

    def _loop(self) -> None:
        while True:
            while self._posted:
                self._posted.popleft()()
            for exited in self.workers.reap():
                self._take_exit(exited)
            if self.phase == "stopping":
                if not self.workers.children:
                    return
            else:
                self._watch_lake()
            if self.phase != "stopping" and time.monotonic() >= self._next_look:
                self._look()
            if self.phase == "running":
                self._status_tables.poll(
                    time.monotonic(), self._settings.status_tables_interval, self._lake.url
                )
            self._requests.settle()
            for key, mask in self._selector.select(self._pause()):
                key.data(mask)

    def _pause(self) -> float:
        """Seconds until something is due that no event tells."""
        now = time.monotonic()
        due = [self.workers.next_deadline(), self._requests.next_deadline()]
        if self.phase != "stopping":
            due += [self._next_look, self._lake.next_deadline(now)]
        if self.phase == "running":
            due.append(self._status_tables.next_deadline(self._settings.status_tables_interval))
        times = [moment for moment in due if moment is not None]
        return max(min(times, default=now + CATALOG_POLL) - now, 0.0)

    def _take_signals(self, _mask: int) -> None:
        numbers = os.read(self._wake_r, 2**16)
        if signal.SIGHUP in numbers and self.phase != "stopping":
            self._reload()
        asked = sum(numbers.count(number) for number in (signal.SIGTERM, signal.SIGINT))
        if not asked:
            return
        if self.phase == "stopping" or asked > 1:
            self._impatient = True
        self.begin_stop()

    def begin_stop(self) -> None:
        """End the family; called again, hurry if a signal asked for that."""
        if self.phase != "stopping":
            self.phase = "stopping"
            log.info("action=shutdown shutting down")
        for tenant in list(self.workers.children):
            if self._impatient:
                self.workers.stop(tenant, grace=0)
            else:
                self.workers.stop(tenant)

    def _fail(self, error: ReplicationError) -> None:
        server_log.report(error)
        self._status = 1
        self.begin_stop()

    # -- workers -------------------------------------------------------------------------------

    def look_at_catalog(self) -> None:
        """Read pg_subscription in this turn."""
        self._next_look = 0.0

    def forget_start_time(self, subid: int) -> None:
        """``ApplyLauncherForgetWorkerStartTime``."""
        self._last_start_times.pop(subid, None)
        self.look_at_catalog()

    def _look(self) -> None:
        """Steps L1 to L3: compare the catalog with the slots and act."""
        now = time.monotonic()
        try:
            stored = self._store.subscriptions()
        except ReplicationError as error:
            log.warning("action=look sqlstate=%s %s", error.code, error.primary)
            self._next_look = now + CATALOG_POLL
            return
        held = self._requests.held
        self._subscriptions = [sub for sub in stored if sub.oid not in held]
        for subid in set(self._last_start_times) - {sub.oid for sub in stored if is_wanted(sub)}:
            del self._last_start_times[subid]
        actions = decide(
            self._subscriptions, self.workers.slots.rows(), self._last_start_times, now,
            self._settings,
        )  # fmt: skip
        for row in actions.stop:
            self.workers.stop(row.tenant)
        for subid in (*actions.launch, *actions.no_slot):
            self._last_start_times[subid] = now
        for subid in actions.launch:
            self._launch(subid, 0)
        if actions.no_slot:
            _warn_out_of_slots()
        wake = CATALOG_POLL if actions.wake is None else min(actions.wake, CATALOG_POLL)
        if actions.launch:
            wake = min(wake, self._settings.wal_retrieve_retry_interval)
        self._next_look = now + wake

    def launch_sync(self, subid: int, relid: int) -> str | None:
        """Start a table's sync worker; the refusal, None if it was started."""
        if self.phase == "stopping":
            return SyncRefusal.NOT_WANTED.value
        refusal = refuse_sync(
            subid, relid, self._subscriptions, self.workers.slots.rows(), self._settings
        )
        if refusal is SyncRefusal.NO_SLOT:
            _warn_out_of_slots()
        if refusal is not None:
            return refusal.value
        return None if self._launch(subid, relid) else SyncRefusal.NO_SLOT.value

    def _launch(self, subid: int, relid: int) -> bool:
        try:
            generation = self._store.next_generation(subid)
        except ReplicationError as error:  # dropped meanwhile, or the disk is full
            log.warning("action=worker_start subid=%d sqlstate=%s %s", subid, error.code, error)
            return False
        timeout = self._settings.wal_receiver_timeout
        return self.workers.launch(subid, relid, generation, timeout) is not None

    def _take_exit(self, exited: Exited) -> None:
        row = exited.row
        if row.type is WorkerType.APPLY and exited.on_purpose:
            self._last_start_times.pop(row.subid, None)
        elif row.type is WorkerType.APPLY and exited.status == EXIT_GAP:
            interval = self._settings.wal_retrieve_retry_interval
            later = max(GAP_RETRY_INTERVAL - interval, 0.0)
            self._last_start_times[row.subid] = time.monotonic() + later
        self.workers.wake(row.subid)
        self.look_at_catalog()

    # -- the lake and the configuration file ---------------------------------------------------

    @property
    def lake_url(self) -> str | None:
        """Where the lake is, None while it is down."""
        return self._lake.url

    @property
    def staging(self) -> str | None:
        """``spark.staging`` as it was at the start: what Spark sees goes with ``spark.remote``."""
        return self._config.spark.staging if self._config else None

    @property
    def lake_pid(self) -> int | None:
        """The lake server's process."""
        return self._lake.pid

    def replace_lake(self) -> None:
        """End a lake server that cannot go on; another one follows."""
        self._lake.replace(time.monotonic())

    def _watch_lake(self) -> None:
        self._lake.retry_interval = self._settings.wal_retrieve_retry_interval
        try:
            event = self._lake.poll(time.monotonic())
        except ReplicationError as error:
            self._fail(error)
            return
        if event is None:
            return
        if event is LakeEvent.UP and self.lake_pid is not None:
            with suppress(ReplicationError):  # of a full disk, say; an old session costs some time
                self._store.forget_idle_spark_sessions()
        self.workers.tell_lake(self._lake.url)
        starting = self.phase == "starting"
        if event is LakeEvent.UP and starting and self._apply_file is None:
            self._begin_running()
        elif event is LakeEvent.UP and self._apply_file and (starting or self._apply_again):
            self._start_apply_file(self._apply_file)

    def _reload(self) -> None:
        log.info("action=reload received SIGHUP, reloading configuration")
        for child in self.workers.children.values():
            if child.attached:
                child.process.send_signal(signal.SIGHUP)
        if self._apply_file is None:
            self._reread_settings()
        elif self._applying or self.phase == "starting":
            self._apply_again = self._applying
        else:
            self._start_apply_file(self._apply_file)

    def _start_apply_file(self, apply_file: ApplyFile) -> None:
        url = self._lake.url
        if url is None:
            self._apply_again = True  # when the lake is up again
            return
        self._applying, self._apply_again = True, False

        def run() -> None:
            error: ReplicationError | None = None
            try:
                apply_file(url)
            except ReplicationError as raised:
                error = raised
            except Exception as raised:
                error = InternalError(f"unexpected {type(raised).__name__} in the configuration")
            self._post(lambda: self._applied(error))

        threading.Thread(target=run, name="configuration", daemon=True).start()

    def _applied(self, error: ReplicationError | None) -> None:
        self._applying = False
        if self.phase == "stopping":
            return
        if error is not None and self.phase == "starting":
            self._fail(error)
            return
        if error is not None:
            server_log.report(error, action="reload")
        self._reread_settings()
        if self.phase == "starting":
            self._begin_running()
        if self._apply_again and self._apply_file is not None:
            self._start_apply_file(self._apply_file)

    def _begin_running(self) -> None:
        self.phase = "running"
        log.info("action=ready lake and subscriptions are ready")
        if self._on_running is not None:
            self._on_running()

    def _reread_settings(self) -> None:
        new = from_stored(self._store.settings())
        fixed = self._settings.max_logical_replication_workers
        if new.settings.max_logical_replication_workers != fixed:
            _warn_needs_restart("max_logical_replication_workers")
        old = self._config
        if old is not None and (new.lake.catalog, new.spark) != (old.lake.catalog, old.spark):
            _warn_needs_restart("lake.catalog and spark")
        kept = {"max_logical_replication_workers": fixed}
        self._settings = new.settings.model_copy(update=kept)
        self.look_at_catalog()


def _warn_out_of_slots() -> None:
    log.warning(
        "action=no_slot out of logical replication worker slots",
        extra={"HINT": 'You might need to increase "max_logical_replication_workers".'},
    )


def _warn_needs_restart(what: str) -> None:
    log.warning("action=reload %s cannot be changed without restarting the launcher", what)


def _duplicate_stderr() -> int | None:
    """Our standard error as a descriptor that workers inherit; None if it is closed."""
    try:
        return os.dup(2)
    except OSError:
        return None


def _noticed_by_wakeup_fd(_number: int, _frame: object) -> None:
    """A handler must exist for the signal's number to be written to the wake-up descriptor."""
