"""When a table's small files are written together and its old snapshots go.

Every batch leaves files and snapshots, so upkeep is due after so many of them, not after a time.
The counts begin with what the table holds when it is opened: workers that are killed every two
minutes never counted to three hundred by themselves, and after an hour a table had five times the
files it should have. Nothing is due within the first batches of a worker all the same: one
that comes and goes for another reason should not begin each life with seconds of upkeep.

Trace: a table is opened with 290 snapshots, of which an expiry would leave 100. So 190 of the 300
are counted; after 110 batches old snapshots go, and the count begins at 0.

Rows that are deleted stay in their files, as in PostgreSQL's heap, and cost whoever reads them. So
there is a vacuum as PostgreSQL's, by its settings: when more rows are dead than
autovacuum_vacuum_threshold + autovacuum_vacuum_scale_factor × live rows, at most once in
autovacuum_naptime. Each rewrites some files; once one finds none, what is still counted as
dead (deletes of files that are gone) counts no more.

Expiry deletes what a removal of orphan files reads: the manifests of all snapshots. So it waits
until that has ended. A compaction deletes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from catalog.errcodes import ReplicationError
from config.guc import Settings
from workers.lake.destination import Destination, LakeIdent, LakeTable
from workers.written import OpenTable, Written

log = logging.getLogger(__name__)

COMPACT_EVERY: Final = 100
"""What a table's batches count until its small files are looked at; a small one counts for ten."""
SMALL_BATCH: Final = 10_000
"""Rows from which on a batch's files may be large enough to stay as they are."""
EXPIRE_EVERY: Final = 300
"""Batches of a table between two expirations of its snapshots; one costs some seconds."""
RETAIN_SNAPSHOTS: Final = 100
"""Snapshots of main that readers may still travel back to."""
AT_LEAST: Final = 10
"""Batches of a worker before the first upkeep of a table; a small one is enough for its files."""


Busy = Callable[[LakeIdent], bool]


def idle(_: LakeIdent) -> bool:
    """Nothing is under way beside the batches."""
    return False


@dataclass(frozen=True, slots=True)
class Dead:
    """Of a table: the rows in its files, the deleted ones among them, those that ``left`` no file
    to rewrite, and when that was last tried."""

    rows: int = 0
    dead: int = 0
    left: int = 0
    at: float | None = None


NONE_DEAD: Final = Dead()


class Upkeep:
    """The counts of one worker's tables, by relid, and what is done when they are reached."""

    def __init__(
        self,
        dest: Destination,
        busy: Busy = idle,
        settings: Callable[[], Settings] = Settings,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """``busy`` tells whether a table's snapshots have to stay for now; ``settings`` are those
        in force."""
        self._dest = dest
        self._busy = busy
        self._settings = settings
        self._clock = clock
        self._dead: dict[int, Dead] = {}
        self._commits: dict[int, int] = {}
        self._untidy: dict[int, int] = {}

    def opened(self, relid: int, lake: LakeTable) -> None:
        """Begin with what ``main`` holds."""
        kept = max(lake.snapshots - RETAIN_SNAPSHOTS, 0)
        self._commits[relid] = min(kept, EXPIRE_EVERY - AT_LEAST)
        self._untidy[relid] = min(lake.files, COMPACT_EVERY - AT_LEAST)

    def after(self, written: Written) -> bool:
        """A batch of a table was published. False if its branch must not be used any more."""
        table, relid = written.table, written.table.rel.srrelid
        small = written.counts.appended + written.counts.merged < SMALL_BATCH
        self._commits[relid] = self._commits.get(relid, 0) + 1
        self._untidy[relid] = self._untidy.get(relid, 0) + (10 if small else 1)
        if written.counts.rows:
            known = self._dead.get(relid, NONE_DEAD)
            self._dead[relid] = replace(known, rows=written.counts.rows, dead=written.counts.dead)
        stands = table.branch and not table.source
        usable = self.tidy(table) if stands else True
        return self._expire(table) and usable

    def tidy(self, table: OpenTable) -> bool:
        """Rewrite files, if it is time. False if the branch must not be used any more."""
        return self._compact(table) and self._vacuum(table)

    def _compact(self, table: OpenTable) -> bool:
        relid = table.rel.srrelid
        if self._untidy.get(relid, 0) < COMPACT_EVERY or not self._settings().autovacuum:
            return True
        self._untidy[relid] = 0
        try:
            files = self._dest.compact(table.lake.ident, table.branch or "")
        except ReplicationError as error:
            return _failed(relid, error)
        log.info("action=compact relid=%d files=%d", relid, files)
        return True

    def _vacuum(self, table: OpenTable) -> bool:
        relid = table.rel.srrelid
        settings, dead = self._settings(), self._dead.get(relid, NONE_DEAD)
        if not settings.autovacuum or not vacuum_is_due(dead, settings, self._clock()):
            return True
        share = settings.autovacuum_vacuum_scale_factor / 2  # some files have more than others
        try:
            files = self._dest.compact(table.lake.ident, table.branch or "", dead_share=share)
        except ReplicationError as error:
            return _failed(relid, error)
        left = dead.left if files else dead.dead
        self._dead[relid] = replace(dead, left=left, at=self._clock())
        log.info("action=vacuum relid=%d files=%d dead=%d", relid, files, dead.dead)
        return True

    def _expire(self, table: OpenTable) -> bool:
        relid = table.rel.srrelid
        if self._commits[relid] < EXPIRE_EVERY or self._busy(table.lake.ident):
            return True
        self._commits[relid] = 0
        try:
            gone = self._dest.expire(table.lake.ident, retain=RETAIN_SNAPSHOTS)
        except ReplicationError as error:
            return _failed(relid, error)
        log.info("action=expire relid=%d snapshots=%d", relid, gone)
        return True


def vacuum_is_due(dead: Dead, settings: Settings, now: float) -> bool:
    """``relation_needs_vacanalyze``: by what died since a look found nothing to do."""
    live = max(dead.rows - dead.dead, 0)
    bar = settings.autovacuum_vacuum_threshold + settings.autovacuum_vacuum_scale_factor * live
    rested = dead.at is None or now - dead.at >= settings.autovacuum_naptime
    return rested and dead.dead - min(dead.left, dead.dead) > bar


def _failed(relid: int, error: ReplicationError) -> bool:
    log.warning("action=maintenance relid=%d sqlstate=%s %s", relid, error.code, error)
    return False
