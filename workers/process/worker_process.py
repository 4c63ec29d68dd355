"""What every worker process has: its place, the catalog, the launcher's socket, the lake.

A worker is started by the launcher with nothing but numbers on its command line. It ends with
exit status 0 when its work is over on purpose, so that a successor may start at once, and with 1
after an error, so that the launcher waits ``wal_retrieve_retry_interval``.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, field
from pathlib import Path

from catalog.errcodes import ReplicationError
from catalog.last_error import LastError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate, Subscription
from catalog.store_sqlite import CatalogStore
from config.guc import Settings, stored_settings
from workers.lake.table import LakeIdent
from workers.process.launcher_link import LauncherLink
from workers.process.launcher_socket import read_lock_file
from workers.process.worker_exit import WorkerExit
from workers.process.worker_lake import WorkerLake

log = logging.getLogger(__name__)


@dataclass(slots=True)
class WorkerProcess:
    """All that one worker works with; ``relid`` is 0 in an apply worker.

    ``applying`` is true from the point on at which PostgreSQL counts errors and acts on
    ``disable_on_error``: in an apply worker from the start of the stream, in a sync worker from
    the first connection. ``publisher_lsn_at_start`` is the publisher's position when an apply
    worker connected: the transaction that ended the predecessor ends there or before.
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
    publisher_lsn_at_start: LSN = InvalidXLogRecPtr
    lake: WorkerLake = field(init=False)

    def __post_init__(self) -> None:
        self.lake = WorkerLake(
            self.data_dir, self.subid, self.relid, self.generation, self.store, self.link
        )

    @property
    def spool_dir(self) -> Path:
        """Where this worker's unlinked spool files are made."""
        return self.data_dir / "spool"

    def interrupted(self) -> bool:
        """Told to stop by SIGTERM."""
        return self.link.shutdown_requested.is_set()

    def process_config_file(self) -> list[str]:
        """``ProcessConfigFile``: take over settings that changed; their names.

        The launcher is the one that reads the file, when it starts and at SIGHUP. It stores the
        settings in the catalog, so a worker follows that; SIGHUP only makes it look at once.
        """
        version = self.store.data_version()
        if version == self.catalog_version:
            return []
        self.catalog_version = version
        old, self.settings = self.settings, stored_settings(self.store.settings())
        names = Settings.model_fields
        return [name for name in names if getattr(old, name) != getattr(self.settings, name)]

    def subscription(self) -> Subscription:
        """The subscription, if it is to be worked on at all."""
        sub = self.store.subscription(self.subid)
        if sub is None or sub.subcreate != SubCreate.READY:
            raise WorkerExit(f"subscription {self.subid} was removed before the worker started")
        if not sub.subenabled:
            raise WorkerExit(f'subscription "{sub.subname}" is disabled')
        return sub

    def note_progress(self) -> None:
        """This worker got on with its work: what ended its predecessor is over."""
        if not self.has_progressed:
            self.has_progressed = True
            self.store.forget_last_error(self.subid, self.relid)

    def note_idle(self, idle: LSN) -> None:
        """Everything up to ``idle`` was done, or is none of ours.

        A keepalive alone says little: it comes before the transaction that ended the predecessor.
        """
        if idle >= self.publisher_lsn_at_start:
            self.note_progress()

    def remember_error(self, error: ReplicationError) -> bool:
        """Store what ends this worker, for ``status``.

        False if it is what ended its predecessor under the same launcher: that was told already.
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
        try:
            before = self.store.last_error(self.subid, self.relid)
            launcher = read_lock_file(self.data_dir)
            since = launcher.start_time if launcher else now.since
            if before is not None and before.says(now) and before.since >= since:
                return False
            self.store.put_last_error(now)
        except ReplicationError:  # the subscription is gone, or the disk is full
            log.debug("action=last_error could not be stored")
        return True

    def ident_of(self, relid: int) -> LakeIdent | None:
        """The lake table of one of the subscription's tables."""
        rel = self.store.rel(self.subid, relid)
        return LakeIdent(rel.lake_schema, rel.lake_table) if rel else None

    def close(self) -> None:
        """Close the lake and the connection to the launcher; the process is about to end."""
        self.lake.close()
        self.link.close()
        self.store.close()
