"""The launcher: starts and ends everything that runs on a data directory.

PostgreSQL's ``ApplyLauncherMain``, and its postmaster: the launcher owns the data directory (the
lock), the worker slots, and all processes. The loop (``loop``) runs in the main thread in between.

At the end the workers stop first (SIGTERM, and SIGKILL after ``STOP_GRACE``), while the launcher
still answers their requests; then the lake server, which the last commits need; then the lock is
released.
"""

from __future__ import annotations

import logging
import os
import selectors
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.lake import has_commit_service
from config.limits import PREDECESSOR_EXIT_SECONDS, WORKER_ATTACH_SECONDS
from config.listen import parse_listen_address
from config.load import Config
from subscriber.launcher.configuration import ApplyFile, SettingsInForce
from subscriber.launcher.daily_probe import DailyProbe
from subscriber.launcher.data_directory_lock import DataDirectoryLock
from subscriber.launcher.fork_server import begin_loading
from subscriber.launcher.lake_process import EmbeddedLake, LakeChild, LakeStarter
from subscriber.launcher.lake_watch import LakeWatch, WatchingProcess
from subscriber.launcher.loop import LauncherLoop
from subscriber.launcher.passfile import sweep_passfiles
from subscriber.launcher.publication_look import PublicationLook
from subscriber.launcher.service_manager import ServiceManager
from subscriber.launcher.socket_server import LocalServer
from subscriber.launcher.wake_up import WakeUp
from subscriber.launcher.worker_processes import WorkerArgv, WorkerProcesses
from subscriber.messages import print_notice
from subscriber.status.lake_tables import ForkedProcess, StatusTables, changed_views
from workers.process import log as server_log
from workers.process.launcher_socket import (
    LockInfo,
    make_socket_path,
    read_lock_file,
    remove_socket,
)

if TYPE_CHECKING:
    from subscriber.status.listener import Show, StatusListener

log = logging.getLogger(__name__)


def ApplyLauncherMain(  # noqa: N802 (PostgreSQL's name)
    data_dir: Path,
    *,
    config: Config | None = None,
    apply_file: ApplyFile | None = None,
    on_running: Callable[[], None] | None = None,
    console: bool = True,
    look_module: str | None = None,
) -> int:
    """Run the launcher in the foreground until a signal or a command ends it; the exit status.

    ``config`` is stored in the catalog once the launcher has the data directory; None: the stored
    configuration counts. ``apply_file`` runs in a thread when the lake is up, and again at SIGHUP.
    If the first run raises, the error is logged, everything ends and the status is 1.
    ``on_running`` is called in the main thread after the first run. Without ``console`` the log
    goes to the log file alone. ``look_module`` looks for tables of publications
    (``publication_look``). Raises 55006 for a second launcher. Call from the main thread.
    """
    return Launcher(
        data_dir,
        config=config,
        apply_file=apply_file,
        on_running=on_running,
        console=console,
        look_module=look_module,
    ).run()


class Launcher:
    """One run of the launcher; the parameters after ``console`` are for the tests."""

    def __init__(
        self,
        data_dir: Path,
        *,
        config: Config | None = None,
        apply_file: ApplyFile | None = None,
        on_running: Callable[[], None] | None = None,
        console: bool = True,
        lake_starter: LakeStarter | None = None,
        argv: WorkerArgv | None = None,
        lock_wait: float = PREDECESSOR_EXIT_SECONDS,
        attach_timeout: float = WORKER_ATTACH_SECONDS,
        lake_watch: Callable[[list[str]], WatchingProcess] | None = None,
        catalog_probe: Callable[[list[str]], ForkedProcess] | None = None,
        look_module: str | None = None,
    ) -> None:
        self.data_dir = data_dir.resolve()
        self._start_time = time.time_ns() // 1000
        self._config = config
        self._apply_file = apply_file
        self._on_running = on_running
        self._has_console = console
        self._lake_starter = lake_starter
        self._argv = argv
        self._lock_wait = lock_wait
        self._attach_timeout = attach_timeout
        self._watching = lake_watch
        self._probing = catalog_probe
        self._looking = look_module

    def run(self) -> int:
        """Take the lock, run, end every process; the exit status."""
        self._service_manager = ServiceManager.from_environment(os.environ, os.getpid())
        server_log.setup("launcher", self.data_dir, console=self._has_console)
        if self._config is not None:
            server_log.use_format(self._config.settings.log_format)
        lock = DataDirectoryLock.acquire(
            self.data_dir,
            wait=self._lock_wait,
            on_wait=lambda holders: log.info("action=lock_wait waiting for %s to end", holders),
        )
        try:
            with selectors.DefaultSelector() as selector:
                self._open(lock, selector)
                try:
                    self._loop.run(selector)
                finally:
                    self._close(lock)
        finally:
            lock.release()
        return self._loop.status

    def _open(self, lock: DataDirectoryLock, selector: selectors.BaseSelector) -> None:
        previous = read_lock_file(self.data_dir)
        if previous is not None:
            remove_socket(previous.socket, self.data_dir)
        self._store = CatalogStore.open(self.data_dir)
        if self._config is not None:
            self._store.put_settings(self._config.stored())
        configuration = SettingsInForce(self._store)
        self._sweep_passfiles()
        self._wake_up = WakeUp()
        self._workers = self._open_workers(lock, configuration)
        if self._argv is None:
            begin_loading()
        self._status_tables = StatusTables(
            lambda: changed_views(self._store, self._workers.slots.rows(), self.data_dir),
            self._workers.fork_status_writer,
            time.monotonic(),
        )
        at_start = configuration.at_start
        probe = self._workers.fork_catalog_probe if self._argv is None else self._probing
        configured = at_start.lake.catalog or at_start.spark.remote
        self._daily_probe = DailyProbe(probe if configured else None, time.monotonic())
        look = None if self._looking is None else partial(self._workers.fork_module, self._looking)
        self._publication_look = PublicationLook(look, self._store.subscriptions, time.monotonic())
        self._lake = self._open_lake(lock, at_start)
        self._lake_watch = LakeWatch(
            self._workers.fork_lake_watch if self._argv is None else self._watching
        )
        self._loop = LauncherLoop(
            self._store,
            configuration,
            self._workers,
            self._lake,
            self._status_tables,
            self._wake_up,
            self._lake_watch,
            self._daily_probe,
            self._publication_look,
            service_manager=self._service_manager,
            start_time=self._start_time,
            apply_file=self._apply_file and partial(self._apply, self._apply_file, lock),
            on_running=self._on_running,
        )
        self._socket = make_socket_path(self.data_dir)
        self._server = LocalServer(
            selector, self._socket, self._loop.requests.take, self._loop.lose_client
        )
        lock.describe(LockInfo.own(self._socket, self._start_time))
        self._wake_up.catch_signals(selector, self._loop.take_signals)
        self._lake.begin()
        # With a console the log is there already.
        show = None if self._has_console else print_notice
        self._listener = _open_listener(configuration.settings, self.data_dir, show)
        log.info("action=start launcher started; data directory %s", self.data_dir)

    def _apply(self, apply_file: ApplyFile, lock: DataDirectoryLock, lake_url: str) -> None:
        apply_file(lake_url, [lock.fd])

    def _sweep_passfiles(self) -> None:
        used = {sub.passfile for sub in self._store.subscriptions()}
        used |= {slot.passfile for slot in self._store.leaked_slots()}
        sweep_passfiles(self.data_dir, used)

    def _open_workers(
        self, lock: DataDirectoryLock, configuration: SettingsInForce
    ) -> WorkerProcesses:
        self._console = _duplicate_stderr() if self._has_console else _nowhere()
        self._log_fd = server_log.open_log_file(self.data_dir)
        return WorkerProcesses(
            self.data_dir,
            configuration.settings.max_logical_replication_workers,
            self._argv,
            pass_fds=[lock.fd],
            console_fd=self._console,
            log_fd=self._log_fd,
            on_change=self._wake_up.kick,
            attach_timeout=self._attach_timeout,
        )

    def _open_lake(self, lock: DataDirectoryLock, config: Config) -> LakeChild:
        starter = self._lake_starter or EmbeddedLake(
            self.data_dir, config.lake, config.spark, config.settings
        )
        return LakeChild(
            starter,
            config.spark.remote,
            [lock.fd],
            self._wake_up.kick,
            keeps_trying=bool(self._store.subscriptions()),
            commit_service=has_commit_service(config.lake, config.spark),
        )

    def _close(self, lock: DataDirectoryLock) -> None:
        """End what is left: after a normal end nothing, after an error of the loop everything."""
        for child in list(self._workers.children.values()):
            child.process.kill()
            child.process.wait()
        self._status_tables.stop()
        if self._listener is not None:
            self._listener.stop()
        self._lake_watch.stop()
        self._daily_probe.stop()
        self._publication_look.stop()
        self._loop.requests.settle()
        self._lake.stop()
        self._workers.end_spark_python()
        self._server.close()
        remove_socket(self._socket, self.data_dir)
        lock.describe(None)
        self._store.close()
        self._wake_up.close()
        for fd in (self._console, self._log_fd):
            if fd is not None:
                os.close(fd)
        log.info("action=stop launcher stopped; data directory %s", self.data_dir)


def _open_listener(settings: Settings, data_dir: Path, show: Show | None) -> StatusListener | None:
    """Start the listener of ``metrics_listen``; None if the setting is off."""
    address = parse_listen_address(settings.metrics_listen, "metrics_listen")
    if address is None:
        return None
    # Only a launcher with metrics loads the library.
    from subscriber.status.listener import StatusListener

    listener = StatusListener(address, data_dir, show)
    listener.start()
    return listener


def _nowhere() -> int:
    """A descriptor for workers whose log lines go to the file alone."""
    return os.open(os.devnull, os.O_WRONLY)


def _duplicate_stderr() -> int | None:
    """Standard error as a descriptor that workers inherit; None if closed."""
    try:
        return os.dup(2)
    except OSError:
        return None
