"""What every worker process has: its place, the catalog, the launcher's socket, the lake.

A worker is started by the launcher with nothing but numbers on its command line. It ends with
exit status 0 when its work is over on purpose, so that a successor may start at once, and with 1
after an error, so that the launcher waits ``wal_retrieve_retry_interval``.
"""

from __future__ import annotations

import contextlib
import logging
import time
from dataclasses import dataclass
from pathlib import Path

from catalog.errcodes import ReplicationError
from catalog.last_error import LastError
from catalog.pg_lsn import LSN, InvalidXLogRecPtr
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SubRelState
from catalog.store_sqlite import CatalogStore
from config.guc import Settings, stored_settings
from config.lake import stored_lake
from workers.lake.connect.session import SESSION_IDLE
from workers.lake.destination import Destination
from workers.lake.iceberg.destination import IcebergDestination
from workers.lake.storage.staging_folder import own_place
from workers.lake.storage.store import remove_folder, remove_folders
from workers.lake.table import Identity, LakeIdent
from workers.process.launcher_link import LauncherLink
from workers.process.launcher_socket import read_lock_file
from workers.process.worker_exit import WorkerExit

log = logging.getLogger(__name__)


@dataclass(slots=True)
class WorkerProcess:
    """One worker's surroundings; ``relid`` is 0 in an apply worker.

    ``applying``: it is where PostgreSQL counts errors and acts on ``disable_on_error``. An apply
    worker is not before it streams, a sync worker is from its first connection on. ``behind``:
    where the publisher stood when an apply worker met it; the transaction that ended its
    predecessor ends there or before.
    """

    data_dir: Path
    subid: int
    relid: int
    generation: int
    store: CatalogStore
    link: LauncherLink
    settings: Settings
    dest: Destination | None = None
    catalog_version: int = -1
    swept: float = 0.0
    well: bool = False
    applying: bool = False
    behind: LSN = InvalidXLogRecPtr

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

    def went_well(self) -> None:
        """This worker got on with its work: what ended its predecessor is over."""
        if not self.well:
            self.well = True
            self.store.forget_last_error(self.subid, self.relid)

    def nothing_left(self, idle: LSN) -> None:
        """Everything up to ``idle`` was done, or is none of ours.

        A keepalive alone says little: it comes before the transaction that ended the predecessor.
        """
        if idle >= self.behind:
            self.went_well()

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

    def open_lake(self) -> Destination:
        """The lake, after every Spark session of this place's predecessors is closed for good.

        That is the first fence: a call that a dead worker left running is stopped, and its
        session can never be used again. Its staged files go too.
        """
        place = self._staging_place()
        own = f"{place}/{self._own_folder}"
        left = self.store.spark_sessions(self.subid, self.relid)
        url = self.link.lake_url()  # which may take minutes
        dest = IcebergDestination(
            url,
            identity=Identity(self.subid, self.generation, self.relid),
            staging_dir=own,
            settings=self.settings,
            format_version=stored_lake(self.store.settings()).format_version,
            remember_session=self._remember_session,
            session=self._take_idle(since=time.time() - SESSION_IDLE) if self.relid else None,
        )
        dest.release_sessions(left)
        self.store.forget_spark_sessions(self.subid, self.relid, self.generation - 1)
        self._release_orphans(dest, place)
        self._remove_staged(place, self.subid, self.relid, keep=own)
        self.dest = dest
        return dest

    def hand_over_session(self) -> None:
        """Leave the session a table was copied in to the next copy, which then begins none.

        Only for a worker whose work is done: whoever dies has its sessions closed.
        """
        if not isinstance(self.dest, IcebergDestination):
            return
        with contextlib.suppress(ReplicationError):  # then it is closed as any other
            ids = self.dest.idle_session()
            if ids is not None:
                self.store.hand_over_spark_session(*ids, time.time())

    def _take_idle(self, **window: float) -> tuple[str, str] | None:
        return self.store.take_spark_session(self.subid, self.relid, self.generation, **window)

    def close_unused_sessions(self) -> None:
        """Now and then, in a worker with time for it; see ``_release_unused``."""
        if self.dest is not None and time.monotonic() - self.swept > SESSION_IDLE / 2:
            with contextlib.suppress(ReplicationError):  # next time
                self._release_unused(self.dest)

    def _release_unused(self, dest: Destination) -> None:
        """Close what was handed over and nobody took. It is ours first: then nobody will."""
        self.swept = time.monotonic()
        limit = time.time() - SESSION_IDLE
        while (ids := self._take_idle(before=limit)) is not None:
            self._close_for_good(dest, [ids])

    def _close_for_good(self, dest: Destination, sessions: list[tuple[str, str]]) -> None:
        dest.release_sessions(sessions)
        for ids in sessions:
            self.store.forget_spark_session(*ids)

    def _release_orphans(self, dest: Destination, place: str) -> None:
        """Close what nobody uses and workers without a successor left open: whoever comes first.

        Their subscription was dropped, their table left it or is synchronised. What they staged
        goes too. A worker that still runs closes its own; it has its slot until it is reaped.
        """
        self._release_unused(dest)
        for subid, relid in dict.fromkeys(row[:2] for row in self.store.all_spark_sessions()):
            if self._has_successor(subid, relid) or self.link.find(subid, relid) is not None:
                continue
            # Read once it is gone: before it went it may have handed one over.
            self._close_for_good(dest, self.store.spark_sessions(subid, relid))
            self._remove_staged(place, subid, relid)

    def _staging_place(self) -> str:
        """Where staged files lie: what ``spark.staging`` names, as of the launcher's start."""
        place = self.link.staging
        return own_place(place, self.data_dir) if place else self._here

    @property
    def _here(self) -> str:
        return str(self.data_dir / "staging")

    @property
    def _own_folder(self) -> str:
        return f"{self.subid}_{self.relid}_{self.generation}"

    def _remove_staged(self, place: str, subid: int, relid: int, *, keep: str = "") -> None:
        for each in {place, self._here}:  # a copy's password file lies here in any case
            remove_folders(each, f"{subid}_{relid}_", keep=keep)

    def _has_successor(self, subid: int, relid: int) -> bool:
        """Whether a worker will ever start in this place again."""
        if not relid:
            return self.store.subscription(subid) is not None
        rel = self.store.rel(subid, relid)
        return rel is not None and rel.srsubstate not in (SubRelState.SYNCDONE, SubRelState.READY)

    def close(self) -> None:
        """Close our Spark sessions, say goodbye to the launcher; the process is about to end.

        Our staging folder goes, too: a table that is synchronised has no successor to remove it.

        The channels of the sessions are not closed but end with the process: in a forked process
        gRPC may wait for ever for a cancelled call while it closes one.
        """
        if self.dest is not None:
            with contextlib.suppress(ReplicationError):  # a lake that is gone holds no session
                self.dest.release_sessions(self.store.spark_sessions(self.subid, self.relid))
                self.store.forget_spark_sessions(self.subid, self.relid, self.generation)
                remove_folder(f"{self._here}/{self._own_folder}")
                remove_folder(f"{self._staging_place()}/{self._own_folder}")
        self.link.close()
        self.store.close()

    def _remember_session(self, user_id: str, session_id: str) -> None:
        self.store.put_spark_session(self.subid, self.relid, self.generation, user_id, session_id)
