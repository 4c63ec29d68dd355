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
autovacuum_vacuum_threshold + autovacuum_vacuum_scale_factor × live rows, one table of a worker in
each autovacuum_naptime. It rewrites some files; once it finds none, what is still counted as dead
(deletes of files that are gone) counts no more.

Expiry deletes what a removal of orphan files reads: the manifests of all snapshots. So it waits
until that has ended. A compaction deletes nothing.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable
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
    """Of a table: the rows in its files, the deletes that are counted, those of them that were
    ``left`` when no file was found to rewrite, and when that was last tried."""

    rows: int = 0
    dead: int = 0
    left: int = 0
    at: float = -math.inf


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
        self._vacuumed = clock()
        self._commits: dict[int, int] = {}
        self._untidy: dict[int, int] = {}

    def opened(self, relid: int, lake: LakeTable) -> None:
        """Begin with what ``main`` holds."""
        kept = max(lake.snapshots - RETAIN_SNAPSHOTS, 0)
        self._commits[relid] = min(kept, EXPIRE_EVERY - AT_LEAST)
        self._untidy[relid] = min(lake.files, COMPACT_EVERY - AT_LEAST)
        self._dead.pop(relid, None)

    def tend(self, published: Iterable[Written]) -> set[int]:
        """A batch was published. The tables (relids) whose branch must not be used any more.

        One of them is vacuumed at most, the one whose turn is longest ago: so the batches go on
        between two rewrites, however many tables are due.
        """
        spoiled: set[int] = set()
        due: list[OpenTable] = []
        for each in published:
            table = each.table
            if not self._after(each):
                spoiled.add(table.rel.srrelid)
            elif _stands(table) and self._due(table.rel.srrelid):
                due.append(table)
        if due:
            table = min(due, key=lambda table: self._dead[table.rel.srrelid].at)
            if not self._vacuum(table):
                spoiled.add(table.rel.srrelid)
        return spoiled

    def tidy(self, table: OpenTable) -> bool:
        """Rewrite files, if it is time. False if the branch must not be used any more."""
        due = self._due(table.rel.srrelid)
        return self._compact(table) and (not due or self._vacuum(table))

    def _after(self, written: Written) -> bool:
        table, relid, counts = written.table, written.table.rel.srrelid, written.counts
        small = counts.appended + counts.merged < SMALL_BATCH
        self._commits[relid] = self._commits.get(relid, 0) + 1
        self._untidy[relid] = self._untidy.get(relid, 0) + (10 if small else 1)
        if counts.rows:
            known = self._dead.get(relid, NONE_DEAD)
            left = min(known.left, counts.dead)
            self._dead[relid] = Dead(counts.rows, counts.dead, left, known.at)
        usable = self._compact(table) if _stands(table) else True
        return self._expire(table) and usable

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

    def _due(self, relid: int) -> bool:
        settings = self._settings()
        rested = self._clock() - self._vacuumed >= settings.autovacuum_naptime
        dead = self._dead.get(relid, NONE_DEAD)
        return settings.autovacuum and rested and vacuum_is_due(dead, settings)

    def _vacuum(self, table: OpenTable) -> bool:
        relid = table.rel.srrelid
        share = self._settings().autovacuum_vacuum_scale_factor / 2  # some files have more
        # Before it is tried: one that fails has to rest, too.
        self._vacuumed = self._clock()
        dead = self._dead[relid] = replace(self._dead[relid], at=self._vacuumed)
        try:
            files = self._dest.compact(table.lake.ident, table.branch or "", dead_share=share)
        except ReplicationError as error:
            return _failed(relid, error)
        if not files:
            self._dead[relid] = replace(dead, left=dead.dead)
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


def vacuum_is_due(dead: Dead, settings: Settings) -> bool:
    """``relation_needs_vacanalyze``: by what died since a look found nothing to do."""
    died = dead.dead - dead.left
    live = max(dead.rows - died, 0)  # what was left lies in no file any more
    bar = settings.autovacuum_vacuum_threshold + settings.autovacuum_vacuum_scale_factor * live
    return died > bar


def _stands(table: OpenTable) -> bool:
    """Its branch takes the next batch, too, and what upkeep leaves there is published with it."""
    return bool(table.branch) and not table.source


def _failed(relid: int, error: ReplicationError) -> bool:
    log.warning("action=maintenance relid=%d sqlstate=%s %s", relid, error.code, error)
    return False
