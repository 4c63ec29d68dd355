"""The parts of every worker process: its slot, the catalog, the link to the launcher, the lake.

The launcher starts a worker with nothing but numbers on the command line. A worker ends with exit
status 0 when its work is over on purpose: a successor may start at once. After an error the status
is 1, and the launcher waits ``wal_retrieve_retry_interval``.

The *last error* of a worker is stored in the catalog for ``status``. An error that stays the same
from worker to worker is logged once. The stored error goes when a successor has made progress.
Trace::

    apply worker, generation 5    duplicate key in the transaction that ends at 900
                                  stored and logged
    generation 6                  publisher's position at the start: 1000
      keepalive at 400            no proof of progress: 400 < 1000, the error stays
      the transaction up to 900   duplicate key again: equal to the stored error, not logged
    the user skips the transaction
    generation 7                  a batch is published: progress, the error is removed
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from catalog.errcodes import ReplicationError
from catalog.last_error import LastError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings, stored_settings
from workers.process.launcher_link import LauncherLink
from workers.process.launcher_socket import read_lock_file
from workers.process.log import use_format
from workers.process.worker_exit import WorkerExit
from workers.process.worker_lake import WorkerLake

log = logging.getLogger(__name__)

LAKE_WRITER: Final = "lake.writer"
"""A setting outside ``settings`` that a worker takes over."""


@dataclass(slots=True)
class WorkerProcess:
    """All that one worker works with; ``relid`` is 0 in an apply worker.

    ``applying`` is true from the point on at which PostgreSQL counts errors and acts on
    ``disable_on_error``: in an apply worker from the start of the stream, in a sync worker from
    the first connection. ``publisher_lsn_at_start`` is the publisher's position when an apply
    worker connected: the transaction that ended the predecessor ends there or before.
    ``repeats_error`` is true after ``remember_error`` of the predecessor's error.
    """

    data_dir: Path
    subid: int
    relid: int
    generation: int
    store: CatalogStore
    link: LauncherLink
    settings: Settings
    catalog_version: int = -1
    has_progressed: bool = False
    applying: bool = False
    repeats_error: bool = False
    publisher_lsn_at_start: LSN = InvalidXLogRecPtr
    lake: WorkerLake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = WorkerLake(
            self.data_dir, self.subid, self.relid, self.generation, self.store, self.link
        )

    @property
    def spool_dir(self) -> Path:
        """The folder for unlinked spool files."""
        return self.data_dir / "spool"

    def interrupted(self) -> bool:
        """True after SIGTERM."""
        return self.link.shutdown_requested.is_set()

    def process_config_file(self) -> list[str]:
        """``ProcessConfigFile``: take over changed settings; return their names.

        The launcher reads the file, at its start and after SIGHUP, and stores the settings in the
        catalog. A worker reads the catalog; SIGHUP only makes the worker look at once.
        """
        version = self.store.data_version()
        if version == self.catalog_version:
            return []
        self.catalog_version = version
        old, self.settings = self.settings, stored_settings(self.store.settings())
        use_format(self.settings.log_format)
        names = Settings.model_fields
        changed = [name for name in names if getattr(old, name) != getattr(self.settings, name)]
        return [*changed, LAKE_WRITER] if self.lake.has_other_writer() else changed

    def subscription(self) -> Subscription:
        """Read the subscription; raise ``WorkerExit`` if it was removed or is disabled."""
        sub = self.store.subscription(self.subid)
        if sub is None or sub.subcreate != SubCreate.READY:
            raise WorkerExit(f"subscription {self.subid} was removed before the worker started")
        if not sub.subenabled:
            raise WorkerExit(f'subscription "{sub.subname}" is disabled')
        return sub

    def note_progress(self) -> None:
        """Note that the worker made progress: the predecessor's error is over."""
        if not self.has_progressed:
            self.has_progressed = True
            self.store.forget_last_error(self.subid, self.relid)

    def note_idle(self, idle: LSN) -> None:
        """Note that no change up to ``idle`` is left to apply.

        A keepalive alone proves no progress: the keepalive may come before the transaction that
        ended the predecessor.
        """
        if idle >= self.publisher_lsn_at_start:
            self.note_progress()

    def remember_error(self, error: ReplicationError) -> bool:
        """Store the error that ends the worker, for ``status``.

        False if the error equals the predecessor's under the same launcher, which was logged.
        """
        now = LastError(
            self.subid,
            self.relid,
            time.time_ns() // 1000,
            error.code,
            error.primary,
            error.detail,
            error.hint,
        )
        logged = False
        try:
            before = self._predecessors_error(now.since)
            if before is not None:
                self.repeats_error = before.is_repeated_by(now)
                logged = before.is_same_error(now)
                now = now.after(before)
            self.store.put_last_error(now)
        except ReplicationError:  # the subscription is gone, or the disk is full
            log.debug("action=last_error could not be stored")
        return not logged

    def _predecessors_error(self, now: int) -> LastError | None:
        """The error of the predecessor under the same launcher, None after progress."""
        before = self.store.last_error(self.subid, self.relid)
        launcher = read_lock_file(self.data_dir)
        since = launcher.start_time if launcher else now
        return before if before is not None and before.since >= since else None

    def close(self) -> None:
        """Close the lake and the connection to the launcher; the process is about to end."""
        self.lake.close()
        self.link.close()
        self.store.close()
