"""The launcher's configuration: the settings in force, and the file that ``pgsub up`` names.

With a file, the launcher applies the file once the lake is up and again at every SIGHUP: a thread
creates the subscriptions of the file or brings them in line, and stores the settings. Without a
file, SIGHUP only reads the stored settings again. A few settings need a restart; a warning says so.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence

from catalog.errcodes import InternalError, ReplicationError
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.load import Config, from_stored
from workers.process import log as server_log

log = logging.getLogger(__name__)

ApplyFile = Callable[[str, Sequence[int]], None]
"""Brings the catalog in line with the configuration file, the lake's URL given. The descriptors are
those of the lock: a process that the call starts holds them open."""


class SettingsInForce:
    """The stored configuration as the launcher follows it."""

    def __init__(self, store: CatalogStore) -> None:
        self._store = store
        self.at_start: Config = from_stored(store.settings())
        self.settings: Settings = self.at_start.settings
        server_log.use_format(self.settings.log_format)

    def reread(self) -> None:
        """Follow the stored settings, but for those that need a restart."""
        new = from_stored(self._store.settings())
        slots = self.settings.max_logical_replication_workers
        if new.settings.max_logical_replication_workers != slots:
            _warn_needs_restart("max_logical_replication_workers")
        if new.settings.metrics_listen != self.at_start.settings.metrics_listen:
            _warn_needs_restart("metrics_listen")
        old = self.at_start
        if (new.lake.catalog, new.spark) != (old.lake.catalog, old.spark):
            _warn_needs_restart("lake.catalog and spark")
        fixed = {"max_logical_replication_workers": slots}
        self.settings = new.settings.model_copy(update=fixed)
        server_log.use_format(self.settings.log_format)


class ConfigurationFile:
    """Applies the file in a thread, one run at a time.

    ``post`` hands a call to the main thread, where ``on_applied`` hears of the end of every run
    and of its error. ``wanted`` is true while a run is to follow: the lake was down, or the file
    changed during a run.
    """

    def __init__(
        self,
        apply: Callable[[str], None],
        post: Callable[[Callable[[], None]], None],
        on_applied: Callable[[ReplicationError | None], None],
    ) -> None:
        self.running = False
        self.wanted = False
        self._apply = apply
        self._post = post
        self._on_applied = on_applied

    def start(self, lake_url: str | None) -> None:
        """Start a run; without a lake only want one."""
        if lake_url is None:
            self.wanted = True
            return
        self.running, self.wanted = True, False
        threading.Thread(
            target=self._run, args=[lake_url], name="configuration", daemon=True
        ).start()

    def _run(self, lake_url: str) -> None:
        error: ReplicationError | None = None
        try:
            self._apply(lake_url)
        except ReplicationError as raised:
            error = raised
        except Exception as raised:
            error = InternalError(f"unexpected {type(raised).__name__} in the configuration")
        self._post(lambda: self._end(error))

    def _end(self, error: ReplicationError | None) -> None:
        self.running = False
        self._on_applied(error)


def _warn_needs_restart(settings: str) -> None:
    log.warning("action=reload %s cannot be changed without restarting the launcher", settings)
