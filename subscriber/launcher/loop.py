"""The launcher's loop: reap workers, watch the lake server, look at the catalog, wait for events.

One turn:

1. Events of the last wait: the socket, functions posted by threads, signals. SIGTERM and SIGINT end
   the launcher and its processes, SIGHUP reads the configuration again, SIGCHLD only wakes the
   loop. A second SIGTERM or SIGINT ends the wait for processes.
2. Processes that ended are reaped, and their slots are free from here on. The subscription's
   remaining workers are woken: an apply worker may wait for its sync worker, and a sync worker for
   its apply worker. After an exit on purpose (status 0, or after a stop) the subscription's start
   time is forgotten, so the next start is at once. After an error the start time stays, so the
   next start waits for the interval.
3. The lake server is watched: starting, up, or dead and due for a restart. A server that does not
   answer is killed (``lake_watch``), and so is a server that fails every subscription for minutes
   (``lake_errors``). A server that uses up a resource (``lake_budget``) is replaced: all workers
   are told to end, and end after the batch in hand, as by SIGTERM. Then the server is killed, and
   the workers start again.
4. The catalog is read if a look is due (``subscription_workers``).
5. Status tables are compared, the service manager is told, and requests that waited are answered.
   Once a day the lake's catalog is probed (``daily_probe``), and twice a minute a process looks
   for tables that joined or left a publication (``publication_look``).

The turn ends in a wait: for the local socket, for signals, and for the next deadline. No step
before the wait blocks.
"""

from __future__ import annotations

import logging
import selectors
import signal
import time
from collections.abc import Callable
from contextlib import suppress

from catalog.errcodes import ReplicationError
from catalog.store_sqlite import CatalogStore
from config.limits import CATALOG_POLL_SECONDS
from subscriber.launcher.configuration import ConfigurationFile, SettingsInForce
from subscriber.launcher.daily_probe import DailyProbe
from subscriber.launcher.lake_budget import Health, Urgency, excess_of
from subscriber.launcher.lake_errors import LakeErrors
from subscriber.launcher.lake_process import LakeChild, LakeEvent
from subscriber.launcher.lake_watch import LakeWatch
from subscriber.launcher.publication_look import PublicationLook
from subscriber.launcher.requests import Requests
from subscriber.launcher.service_manager import ServiceManager, State, service_state
from subscriber.launcher.socket_server import Client
from subscriber.launcher.subscription_workers import SubscriptionWorkers
from subscriber.launcher.wake_up import WakeUp
from subscriber.launcher.worker_processes import WorkerProcesses
from subscriber.status.lake_tables import StatusTables
from workers.process import log as server_log
from workers.process.worker_slots import SyncRefusal

log = logging.getLogger(__name__)


class LauncherLoop:
    """Runs turns until the launcher is to end and no worker is left; ``status`` is the result."""

    def __init__(
        self,
        store: CatalogStore,
        configuration: SettingsInForce,
        workers: WorkerProcesses,
        lake: LakeChild,
        status_tables: StatusTables,
        wake_up: WakeUp,
        lake_watch: LakeWatch,
        daily_probe: DailyProbe,
        publication_look: PublicationLook,
        *,
        service_manager: ServiceManager,
        start_time: int,
        apply_file: Callable[[str], None] | None,
        on_running: Callable[[], None] | None,
    ) -> None:
        self.phase = "starting"
        self.status = 0
        self.start_time = start_time
        self.workers = workers
        self.requests = Requests(self)
        self._store = store
        self._configuration = configuration
        self._lake = lake
        self._status_tables = status_tables
        self._wake_up = wake_up
        self._service_manager = service_manager
        self._lake_watch = lake_watch
        self._daily_probe = daily_probe
        self._publication_look = publication_look
        self._on_running = on_running
        self._file = apply_file and ConfigurationFile(apply_file, wake_up.post, self._applied)
        self._subscriptions = SubscriptionWorkers(
            store, workers, lambda: configuration.settings, lambda: self.requests.held_subscriptions
        )
        self._in_a_hurry = False
        self._errors_of_lake = LakeErrors(store)

    def run(self, selector: selectors.BaseSelector) -> None:
        """One turn after another, until the end."""
        while True:
            self._wake_up.run_posted()
            for exited in self.workers.reap():
                self._subscriptions.take_exit(exited)
            if self.phase == "stopping":
                if not self.workers.children:
                    self._tell_service_manager()  # the last worker may have ended at the signal
                    return
            else:
                self._watch_lake()
            if self.phase != "stopping" and time.monotonic() >= self._subscriptions.next_look:
                self._subscriptions.look()
            if self.phase != "stopping":
                self._mind_lake()
            if self.phase == "running":
                interval = self._configuration.settings.status_tables_interval
                self._status_tables.poll(time.monotonic(), interval, self._lake.url)
                self._publication_look.poll(time.monotonic())
                if self._daily_probe.poll(time.monotonic(), self._lake.url):
                    self._end(1)  # the process has logged the error
            self._tell_service_manager()
            self.requests.settle()
            for key, mask in selector.select(self._pause_seconds()):
                key.data(mask)

    def _pause_seconds(self) -> float:
        """Seconds until something is due without an event."""
        now = time.monotonic()
        due = [self.workers.next_deadline(), self.requests.next_deadline()]
        due.append(self._service_manager.next_deadline())
        if self.phase != "stopping":
            due += [self._subscriptions.next_look, self._lake.next_deadline(now)]
            due.append(self._lake_watch.next_deadline())
        if self.phase == "running":
            interval = self._configuration.settings.status_tables_interval
            due.append(self._status_tables.next_deadline(interval))
            due.append(self._daily_probe.next_deadline())
            due.append(self._publication_look.next_deadline())
        times = [moment for moment in due if moment is not None]
        return max(min(times, default=now + CATALOG_POLL_SECONDS) - now, 0.0)

    def _tell_service_manager(self) -> None:
        self._service_manager.turn(time.monotonic(), self.phase, self._service_state)

    def _service_state(self) -> State:
        return service_state(self._store, self.workers.slots.rows(), time.time_ns() // 1000)

    def take_signals(self, numbers: bytes) -> None:
        """Act on the signals that arrived."""
        if signal.SIGHUP in numbers and self.phase != "stopping":
            self._reload()
        stops = sum(numbers.count(number) for number in (signal.SIGTERM, signal.SIGINT))
        if not stops:
            return
        if self.phase == "stopping" or stops > 1:
            self._in_a_hurry = True
        self.begin_stop()

    def begin_stop(self) -> None:
        """End the workers, then the launcher; in a hurry after a second signal."""
        if self.phase != "stopping":
            self.phase = "stopping"
            log.info("action=shutdown shutting down")
        for tenant in list(self.workers.children):
            if self._in_a_hurry:
                self.workers.stop(tenant, grace=0)
            else:
                self.workers.stop(tenant)

    def lose_client(self, client: Client) -> None:
        """A connection on the launcher's socket has ended."""
        self.workers.lose_client(client)
        self.requests.end_hold(client)

    def _fail(self, error: ReplicationError) -> None:
        server_log.report(error)
        self._end(1)

    def _end(self, status: int) -> None:
        self.status = status
        self.begin_stop()

    # -- for requests --------------------------------------------------------------------------

    @property
    def lake_url(self) -> str | None:
        """The lake's URL, None while the lake is down."""
        return self._lake.url

    @property
    def staging(self) -> str | None:
        """``spark.staging`` as of the start: the folder belongs to ``spark.remote``."""
        return self._configuration.at_start.spark.staging

    @property
    def lake_pid(self) -> int | None:
        """The lake server's process."""
        return self._lake.pid

    @property
    def lake_restarts(self) -> int:
        """Starts of the lake server after the first."""
        return max(self._lake.starts - 1, 0)

    def replace_lake(self) -> None:
        """End a lake server that cannot go on; a new server follows.

        A worker does not know which of two servers is broken. A commit service that is replaced
        for an error of the user's Spark server costs seconds, and a young service stays.
        """
        self._lake.replace(time.monotonic())

    def lake_alive(self, lake_pid: int, health: Health) -> None:
        """The lake server has answered the watching process."""
        self._lake_watch.take(lake_pid, health, time.monotonic())

    def look_at_catalog(self) -> None:
        """Read pg_subscription in this turn."""
        self._subscriptions.look_soon()

    def retry_at_once(self) -> None:
        """Start workers that wait because of a repeated error."""
        self._subscriptions.retry_at_once()

    def forget_start_time(self, subid: int) -> None:
        """``ApplyLauncherForgetWorkerStartTime``."""
        self._subscriptions.forget_start_time(subid)

    def launch_sync(self, subid: int, relid: int) -> str | None:
        """Start a table's sync worker. Returns the refusal, or None if the worker was started."""
        if self.phase == "stopping":
            return SyncRefusal.NOT_WANTED.value
        return self._subscriptions.launch_sync(subid, relid)

    # -- the lake and the configuration --------------------------------------------------------

    def _mind_lake(self) -> None:
        """Kill a lake server that does not answer; replace an unhealthy one between batches.

        The replacement begins with the end of all workers, which finish the batch in hand first.
        """
        now = time.monotonic()
        lake = self._lake
        unanswered = self._lake_watch.poll(
            now, lake.own_url, lake.pid, self._configuration.settings
        )
        if unanswered is not None:
            lake.kill(unanswered)
            return
        if self.phase != "running":
            return  # the configuration file is being applied, with the lake
        failing = self._lake_errors(now)
        if failing is not None and lake.may_be_replaced(now):
            lake.replace(now, failing)
            self.retry_at_once()
            return
        excess = excess_of(self._lake_watch.health)
        if self._subscriptions.paused:
            if not self.workers.children:
                self._status_tables.stop()
                lake.replace(now, "" if excess is None else excess.what)
        elif excess is not None and lake.may_be_replaced(now):
            if excess.urgency is Urgency.SOON and self.workers.are_copying():
                return
            log.warning("action=lake_renew pid=%d workers end first: %s", lake.pid, excess.what)
            self._pause_workers(paused=True)

    def _lake_errors(self, now: float) -> str | None:
        """The reason to replace a server that fails every subscription; None without.

        Beside a Spark server of the user the errors may be that server's, for hours.
        """
        if not self._lake.has_sessions:
            return None
        with suppress(ReplicationError):  # of the catalog, say of a full disk
            return self._errors_of_lake.poll(now, self._lake.pid, self.workers.slots.rows())
        return None

    def _pause_workers(self, *, paused: bool) -> None:
        self._subscriptions.paused = paused
        self.look_at_catalog()

    def _watch_lake(self) -> None:
        self._lake.retry_interval = self._configuration.settings.wal_retrieve_retry_interval
        try:
            event = self._lake.poll(time.monotonic())
        except ReplicationError as error:
            self._fail(error)
            return
        if event is None:
            return
        if event is LakeEvent.UP and self._lake.has_sessions:
            with suppress(ReplicationError):  # of a full disk, say; an old session costs some time
                self._store.forget_idle_spark_sessions()
        self.workers.announce_lake(self._lake.url)
        if self._subscriptions.paused:
            self._pause_workers(paused=False)
        if event is not LakeEvent.UP:
            return
        starting = self.phase == "starting"
        if self._file is not None and (starting or self._file.wanted):
            self._file.start(self._lake.url)
        elif self._file is None and starting:
            self._begin_running()

    def _reload(self) -> None:
        log.info("action=reload received SIGHUP, reloading configuration")
        for child in self.workers.children.values():
            if child.attached:
                child.process.send_signal(signal.SIGHUP)
        if self._file is None:
            self._reread_settings()
        elif self._file.running or self.phase == "starting":
            self._file.wanted = self._file.running
        else:
            self._file.start(self._lake.url)

    def _applied(self, error: ReplicationError | None) -> None:
        """The configuration file was applied, or could not be."""
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
        if self._file is not None and self._file.wanted:
            self._file.start(self._lake.url)

    def _begin_running(self) -> None:
        self.phase = "running"
        log.info("action=ready lake and subscriptions are ready")
        if self._on_running is not None:
            self._on_running()

    def _reread_settings(self) -> None:
        self._configuration.reread()
        self.retry_at_once()
        self.look_at_catalog()
