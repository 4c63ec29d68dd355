"""Starts and stops the workers of subscriptions, following the catalog.

``look`` is steps L1 to L3: compare the catalog with the worker slots, launch and stop. Every
enabled subscription has an apply worker, and an apply worker asks for its sync workers.

A worked trace, with ``wal_retrieve_retry_interval`` = 5 s; subscription a fails at once, b is
altered::

    0.0  a and b enabled        launch a, b; start times a = b = 0.0
    0.4  a exits with 1         a is due at 5.0
    2.0  b exits with 0         (b read the altered row) start time of b forgotten: launch b now
    5.0  a is due               start time a = 5.0; launch a

A worker that ends with the error of its predecessor waits longer and longer
(``workers.process.retry``), until a command, a SIGHUP or a success.

A subscription waits for its own start time only. A reason to look may arrive while the loop is
busy: the next turn finds the reason, and no wait can lose a reason.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection
from contextlib import suppress

from catalog.errcodes import ReplicationError
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.limits import CATALOG_POLL_SECONDS, GAP_RETRY_SECONDS
from subscriber.launcher.worker_processes import Exited, WorkerProcesses
from workers.process.retry import retry_delay
from workers.process.worker_exit import EXIT_GAP, EXIT_REPEATED
from workers.process.worker_slots import SyncRefusal, WorkerType, decide, is_wanted, refuse_sync

log = logging.getLogger(__name__)


class SubscriptionWorkers:
    """Decides when the workers of subscriptions start.

    ``held`` returns the subscriptions with workers stopped by a command. While ``paused``, every
    worker is stopped and no worker starts.
    """

    def __init__(
        self,
        store: CatalogStore,
        workers: WorkerProcesses,
        settings: Callable[[], Settings],
        held: Callable[[], Collection[int]],
    ) -> None:
        self.next_look = 0.0
        self.paused = False
        self._store = store
        self._workers = workers
        self._settings = settings
        self._held = held
        self._last_start_times: dict[int, float] = {}
        self._repeats: dict[int, int] = {}
        self._subscriptions: list[Subscription] = []

    def look_soon(self) -> None:
        """Read pg_subscription in the current turn of the loop."""
        self.next_look = 0.0

    def forget_start_time(self, subid: int) -> None:
        """``ApplyLauncherForgetWorkerStartTime``."""
        self._repeats.pop(subid, None)
        self._last_start_times.pop(subid, None)
        self.look_soon()

    def retry_at_once(self) -> None:
        """Start the workers that wait longer than others: a user changed something."""
        for subid in list(self._repeats):
            self.forget_start_time(subid)

    def look(self) -> None:
        """Compare the catalog with the slots; launch and stop workers."""
        now = time.monotonic()
        try:
            stored = self._store.subscriptions()
        except ReplicationError as error:
            log.warning("action=look sqlstate=%s %s", error.code, error.primary)
            self.next_look = now + CATALOG_POLL_SECONDS
            return
        held, settings = self._held(), self._settings()
        self._subscriptions = [sub for sub in stored if sub.oid not in held and not self.paused]
        for subid in set(self._last_start_times) - {sub.oid for sub in stored if is_wanted(sub)}:
            del self._last_start_times[subid]
            self._repeats.pop(subid, None)
        slots = self._workers.slots.rows()
        actions = decide(self._subscriptions, slots, self._last_start_times, now, settings)
        for row in actions.stop:
            self._workers.stop(row.tenant)
        for subid in (*actions.launch, *actions.no_slot):
            self._last_start_times[subid] = now
        for subid in actions.launch:
            self._launch(subid, 0)
        if actions.no_slot:
            _warn_out_of_slots()
        wake = CATALOG_POLL_SECONDS
        if actions.wake is not None:
            wake = min(wake, actions.wake)
        if actions.launch:
            wake = min(wake, settings.wal_retrieve_retry_interval)
        self.next_look = now + wake

    def launch_sync(self, subid: int, relid: int) -> str | None:
        """Start a table's sync worker; the refusal, None if the worker was started."""
        slots = self._workers.slots.rows()
        refusal = refuse_sync(subid, relid, self._subscriptions, slots, self._settings())
        if refusal is SyncRefusal.NO_SLOT:
            _warn_out_of_slots()
        if refusal is not None:
            return refusal.value
        return None if self._launch(subid, relid) else SyncRefusal.NO_SLOT.value

    def take_exit(self, exited: Exited) -> None:
        """After a worker's end set the successor's start time; wake the subscription's others."""
        if exited.row.type is WorkerType.APPLY:
            self._set_start_time(exited)
        self._workers.wake(exited.row.subid)
        self.look_soon()

    def _set_start_time(self, exited: Exited) -> None:
        subid, interval = exited.row.subid, self._settings().wal_retrieve_retry_interval
        repeats = self._repeats.pop(subid, 0) + 1
        if exited.on_purpose:
            self._last_start_times.pop(subid, None)
        elif exited.status == EXIT_GAP:
            self._start_after(subid, GAP_RETRY_SECONDS, interval)
        elif exited.status == EXIT_REPEATED:
            self._repeats[subid] = repeats
            delay = retry_delay(interval, repeats)
            self._start_after(subid, delay, interval)
            log.info(
                "action=retry subid=%d the error is that of the worker before: next attempt in "
                "%.0f s, or when a command or SIGHUP changes something",
                subid,
                delay,
            )

    def _start_after(self, subid: int, delay: float, interval: float) -> None:
        """Let the successor start after ``delay``: ``interval`` after its start time."""
        self._last_start_times[subid] = time.monotonic() + max(delay - interval, 0.0)
        due = time.time_ns() // 1000 + int(delay * 1e6)
        with suppress(ReplicationError):  # of a full disk, say; status then shows no time
            self._store.put_next_attempt(subid, 0, due)

    def _launch(self, subid: int, relid: int) -> bool:
        try:
            generation = self._store.next_generation(subid)
        except ReplicationError as error:  # dropped meanwhile, or the disk is full
            log.warning("action=worker_start subid=%d sqlstate=%s %s", subid, error.code, error)
            return False
        timeout = self._settings().wal_receiver_timeout
        return self._workers.launch(subid, relid, generation, timeout) is not None


def _warn_out_of_slots() -> None:
    log.warning(
        "action=no_slot out of logical replication worker slots",
        extra={"HINT": 'You might need to increase "max_logical_replication_workers".'},
    )
