"""A worker's way into the lake: end its predecessors' sessions first, and clean up after the dead.

Before a worker uses a Spark session, the worker stores the session's id under subscription, table
and generation. A later worker reads the rows of dead workers and closes their sessions for good,
before writing to the lake: a running call in the session is stopped, and the session can never be
used again. The closing is the first fence against a commit that lands late. The later worker also
removes the files that a dead worker staged.

Example. Sync worker 16384/16385 of generation 7 is killed while Spark runs a MERGE::

    generation 8 starts for the table         reads the session ids of generation 7
    opens the lake                            closes the sessions: the MERGE is stopped
                                              removes folder 16384_16385_7, keeps 16384_16385_8
    the copy is done                          hands the session over: the row has no owner
    sync worker 16384/16390 starts            takes the session instead of beginning a new one
    no worker starts for half an hour         an idle worker closes the session
"""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass
from pathlib import Path

from catalog.errcodes import ReplicationError
from catalog.pg_subscription_rel import SubRelState
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.lake import embedded_catalog_file, stored_lake
from config.limits import SESSION_IDLE_SECONDS
from workers.lake.destination import Destination
from workers.lake.iceberg.destination import IcebergDestination
from workers.lake.storage.staging_folder import own_place, remove_folder, remove_folders
from workers.lake.table import Identity
from workers.process.launcher_link import LauncherLink


@dataclass(slots=True)
class WorkerLake:
    """One worker's lake; ``relid`` is 0 in an apply worker.

    ``dest`` is None until ``open``, as is ``writer``, the value of ``lake.writer`` that counts.
    ``closed_unused_at`` is the monotonic time of the last ``close_unused_sessions``.
    """

    data_dir: Path
    subid: int
    relid: int
    generation: int
    store: CatalogStore
    link: LauncherLink
    dest: Destination | None = None
    closed_unused_at: float = 0.0
    writer: str | None = None

    def open(self, settings: Settings) -> Destination:
        """Open the lake after every Spark session of this worker's predecessors is closed for good.

        The files that the predecessors staged are removed too.
        """
        root = self._staging_root()
        own_folder = f"{root}/{self._folder_name}"
        left_open = self.store.spark_sessions(self.subid, self.relid)
        url = self.link.lake_url()  # which may take minutes
        lake = stored_lake(self.store.settings())
        self.writer = lake.writer
        # Only a sync worker takes a session over: an apply worker copies nothing.
        since = time.time() - SESSION_IDLE_SECONDS
        dest = IcebergDestination(
            url,
            identity=Identity(self.subid),
            staging_dir=own_folder,
            settings=settings,
            format_version=lake.format_version,
            writer=lake.writer,
            remember_session=self._remember_session,
            session=self._take_idle_session(since=since) if self.relid else None,
            has_successor=self._is_replaced,
            catalog_file=embedded_catalog_file(self.data_dir),
            keys_dir=None if self.relid else self.data_dir / "keys",  # no copy looks rows up
        )
        dest.release_sessions(left_open)
        self.store.forget_spark_sessions(self.subid, self.relid, self.generation - 1)
        self._clean_up_without_successor(dest, root)
        self._remove_staged(root, self.subid, self.relid, keep=own_folder)
        self.dest = dest
        return dest

    def has_other_writer(self) -> bool:
        """Has ``lake.writer`` another value by now than the value that counts?"""
        return self.writer not in (None, stored_lake(self.store.settings()).writer)

    def hand_over_session(self) -> None:
        """Leave the session of a finished copy to the next copy, which then needs no new session.

        Call this only after the worker's whole work: the successor of a dead worker closes the dead
        worker's sessions.
        """
        if not isinstance(self.dest, IcebergDestination):
            return
        with contextlib.suppress(ReplicationError):  # the session is closed like any other then
            ids = self.dest.idle_session()
            if ids is not None:
                self.store.hand_over_spark_session(*ids, time.time())

    def close_unused_sessions(self) -> None:
        """Close sessions that no worker took over in time; does nothing if called too early.

        An idle worker calls this now and then.
        """
        due = self.closed_unused_at + SESSION_IDLE_SECONDS / 2
        if self.dest is not None and time.monotonic() > due:
            with contextlib.suppress(ReplicationError):  # the next call tries again
                self._close_unused_sessions(self.dest)

    def close(self) -> None:
        """Close this worker's Spark sessions and remove the staging folder.

        A synchronised table has no later worker that would remove the folder.

        The channels of the sessions are not closed but end with the process: in a forked process
        gRPC may wait for ever for a cancelled call while gRPC closes a channel.
        """
        if self.dest is None:
            return
        with contextlib.suppress(ReplicationError):  # a lake that is gone holds no session
            self.dest.release_sessions(self.store.spark_sessions(self.subid, self.relid))
            self.store.forget_spark_sessions(self.subid, self.relid, self.generation)
            remove_folder(f"{self._local_staging_root}/{self._folder_name}")
            remove_folder(f"{self._staging_root()}/{self._folder_name}")

    # -- sessions ------------------------------------------------------------------------------

    def _remember_session(self, user_id: str, session_id: str) -> None:
        self.store.put_spark_session(self.subid, self.relid, self.generation, user_id, session_id)

    def _is_replaced(self, ids: tuple[str, str]) -> bool:
        """Has another worker closed this worker's session, to take this worker's place?

        A successor has this worker's slot, and forgets the session after closing it. Without either
        the server has closed the session, for example after a time-out. In doubt: yes.
        """
        try:
            row = self.link.find(self.subid, self.relid)
            known = self.store.spark_sessions(self.subid, self.relid)
        except ReplicationError:
            return True
        return row is None or row.generation != self.generation or ids not in known

    def _take_idle_session(self, **window: float) -> tuple[str, str] | None:
        return self.store.take_spark_session(self.subid, self.relid, self.generation, **window)

    def _close_unused_sessions(self, dest: Destination) -> None:
        """Close sessions that no worker took over. Take each first: then no other worker can."""
        self.closed_unused_at = time.monotonic()
        limit = time.time() - SESSION_IDLE_SECONDS
        while (ids := self._take_idle_session(before=limit)) is not None:
            self._close_for_good(dest, [ids])

    def _close_for_good(self, dest: Destination, sessions: list[tuple[str, str]]) -> None:
        dest.release_sessions(sessions)
        for ids in sessions:
            self.store.forget_spark_session(*ids)

    def _clean_up_without_successor(self, dest: Destination, root: str) -> None:
        """Close the sessions, and remove the staged files, of dead workers without a successor.

        The subscription was dropped, or the table left the subscription or is synchronised. The
        first later worker cleans up, whatever its table. A running worker is left alone: a worker
        has a slot until the launcher has reaped the process.
        """
        self._close_unused_sessions(dest)
        for subid, relid in dict.fromkeys(row[:2] for row in self.store.all_spark_sessions()):
            if self._has_successor(subid, relid) or self.link.find(subid, relid) is not None:
                continue
            # Read after the worker is gone: it may have handed a session over before.
            self._close_for_good(dest, self.store.spark_sessions(subid, relid))
            self._remove_staged(root, subid, relid)

    def _has_successor(self, subid: int, relid: int) -> bool:
        """True if a worker will ever start for this subscription and table again."""
        if not relid:
            return self.store.subscription(subid) is not None
        rel = self.store.rel(subid, relid)
        return rel is not None and rel.srsubstate not in (SubRelState.SYNCDONE, SubRelState.READY)

    # -- staged files --------------------------------------------------------------------------

    def _staging_root(self) -> str:
        """The folder of all staging folders: ``spark.staging`` as read at the launcher's start."""
        configured = self.link.staging
        return own_place(configured, self.data_dir) if configured else self._local_staging_root

    @property
    def _local_staging_root(self) -> str:
        return str(self.data_dir / "staging")

    @property
    def _folder_name(self) -> str:
        return f"{self.subid}_{self.relid}_{self.generation}"

    def _remove_staged(self, root: str, subid: int, relid: int, *, keep: str = "") -> None:
        # The password file of a copy lies in the local folder in any case.
        for folder in {root, self._local_staging_root}:
            remove_folders(folder, f"{subid}_{relid}_", keep=keep)
