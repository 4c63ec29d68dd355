"""Files of expired snapshots: listed at the expiry, removed after the grace of readers.

A reader of any engine plans a scan on a snapshot and opens the snapshot's files for as long as the
query runs. Snapshots expire by count, on a busy table within a minute. So an expiry removes no
file: the expiry stores a list, and the files of the list go ``file_grace`` later. The list is on
the disk before the expiry commits. A worker that dies between the two leaves a list of files that
snapshots still name; such files stay (``workers.lake.api.expired_files``), and the next expiry
lists the files again.

Files that stand on a younger list of the table wait for the younger list. A list outlives a table
that leaves the subscription; lists of a dropped subscription are taken over by any apply worker of
the data directory. If a list of over a day cannot be removed, the list is forgotten, and the files
are left to orphan removal.

Trace, grace 1h: at 10:00 an expiry of 300 snapshots lists 1,900 files and commits. A query that
began at 9:59 reads a listed file at 10:40. At 11:00 the files go, and the list goes after the
files. A worker that dies in between finds the list again: missing files are no error.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial

from catalog.errcodes import LakeBroken, ReplicationError, RequiredProcessGone
from catalog.expired_files import ExpiredFiles
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.limits import FILE_REMOVAL_POLL_SECONDS, LIST_GIVEN_UP_SECONDS
from workers.lake.destination import Destination
from workers.lake.table import LakeIdent
from workers.process.log import unexpected
from workers.tables.maintenance.jobs import Outcome, RunInBackground

log = logging.getLogger(__name__)


class FileRemoval:
    """Stores the lists of a subscription's expiries, and removes the files of due lists."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        subid: int,
        run_in_background: RunInBackground,
        now: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``now`` returns Unix time, ``monotonic`` the time since any start, in seconds."""
        self._dest = dest
        self._store = store
        self._subid = subid
        self._run_in_background = run_in_background
        self._now = now
        self._monotonic = monotonic
        # At once: a worker that lives less than a poll would never remove a file.
        self._looked = monotonic() - FILE_REMOVAL_POLL_SECONDS
        self._removal: tuple[ExpiredFiles, Future[Outcome]] | None = None
        self._failed: set[int] = set()

    def list_files(self, ident: LakeIdent, table_uuid: str, files: Sequence[str]) -> None:
        """Store the list of an expiry of ``ident``. Any thread may call."""
        list_expired(self._store, self._subid, ident, table_uuid, files, self._now())

    def listed(self, ident: LakeIdent) -> set[str]:
        """All files on lists of the table. Any thread may call."""
        return listed_files(self._store, ident)

    def turn(self, settings: Settings) -> None:
        """Record an ended removal, and begin the removal of the oldest due list, without waiting.

        Raises ``LakeBroken`` alone, because batches would meet the broken lake, too.
        """
        now = self._monotonic()
        if self._removal is not None:
            removed, outcome = self._removal
            if not outcome.done():
                return
            self._removal = None
            self._looked = now
            if not self._ended(removed, outcome.result(), settings):
                return
        elif now - self._looked < FILE_REMOVAL_POLL_SECONDS:
            return
        self._looked = now
        due = self._store.due_expired_files(
            self._subid, now=self._now(), grace=settings.file_grace, tried=self._failed
        )
        if due is not None:
            self._removal = (due, self._run_in_background(partial(self._remove, due)))
        else:
            self._failed.clear()  # the next look tries the failed lists again

    def _remove(self, due: ExpiredFiles) -> Outcome:
        ident = LakeIdent(due.lake_schema, due.lake_table)
        begun = time.monotonic()
        try:
            lists = self._store.expired_files_of_table(ident.schema, ident.table)
            waiting = {file for each in lists if each.id > due.id for file in each.files}
            files = [file for file in due.files if file not in waiting]
            count = self._dest.remove_files(ident, due.table_uuid, files) if files else 0
        except Exception as error:
            return unexpected(error)
        seconds = time.monotonic() - begun
        log.info("action=remove_files files=%d table=%s seconds=%.1f", count, ident, seconds)
        return count

    def _ended(self, removed: ExpiredFiles, outcome: Outcome, settings: Settings) -> bool:
        """Forget or mark the list; True if the files are gone."""
        if not isinstance(outcome, ReplicationError):
            self._store.forget_expired_files(removed.id)
            return True
        fields = {"DETAIL": outcome.detail, "HINT": outcome.hint}
        log.warning("action=remove_files sqlstate=%s %s", outcome.code, outcome, extra=fields)
        if isinstance(outcome, LakeBroken):  # the lake server has to be started again
            raise outcome
        age = self._now() - removed.expired - settings.file_grace
        if age > LIST_GIVEN_UP_SECONDS and not isinstance(outcome, RequiredProcessGone):
            self._store.forget_expired_files(removed.id)
            return False
        self._failed.add(removed.id)
        return False


def listed_files(store: CatalogStore, ident: LakeIdent) -> set[str]:
    """All files on lists of the table."""
    lists = store.expired_files_of_table(ident.schema, ident.table)
    return {file for each in lists for file in each.files}


def list_expired(
    store: CatalogStore,
    subid: int,
    ident: LakeIdent,
    table_uuid: str,
    files: Sequence[str],
    now: float | None = None,
) -> None:
    """Store the list of an expiry. ``now`` is Unix time."""
    expired = time.time() if now is None else now
    store.add_expired_files(
        ExpiredFiles(subid, ident.schema, ident.table, table_uuid, expired, files)
    )
