"""When a table's small files are written together and its old snapshots go.

Every batch leaves files and snapshots, so upkeep is due after so many of them, not after a time.
The counts begin with what the table holds when it is opened: workers that are killed every two
minutes never counted to three hundred by themselves, and after an hour a table had five times the
files it should have. Nothing is due within the first batches of a worker all the same: one
that comes and goes for another reason should not begin each life with seconds of upkeep.

An expiry is due when it would take snapshot_expiry_batches snapshots: what snapshot_retain_last or
snapshot_retain_age keeps is no reason for one, so a table of thousands that are all young has none,
however often its worker begins anew. What a tag or another branch keeps looks as if it would go,
and does not: it is a reason once in a worker's life.

Trace: a table is opened with 290 snapshots, of which an expiry would leave 100. So 190 of the 300
are there; after 110 batches old snapshots go, 100 are left, and it takes 300 batches again. With an
age of a day and a batch in each minute nothing is due for a day. Then each batch makes one
snapshot old enough, and 300 batches later there are 1,740, of which 300 go.

Rows that are deleted stay in their files, as in PostgreSQL's heap, and cost whoever reads them. So
there is a vacuum as PostgreSQL's, by its settings: when more rows are dead than
autovacuum_vacuum_threshold + autovacuum_vacuum_scale_factor × live rows, one table of a worker in
each autovacuum_naptime. It rewrites some files; once it finds none, what is still counted as dead
(deletes of files that are gone) counts no more.

Of the tables that a batch changed a tenth have upkeep after it, those first that have waited
longest; their rewrites run side by side. Tables that are changed together are due together: forty
of them, 0.4 s each, held the next batch up for 15 s after every tenth one.

What was done, or failed, is counted in the catalog for ``status``: one small write for each time.
Where the lake server went away nothing is: that ends the worker, and says nothing of the table.

Expiry deletes what a removal of orphan files reads: the manifests of all snapshots. So it waits
until that has ended. A compaction deletes nothing.
"""

from __future__ import annotations

import logging
import math
import random
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from catalog.errcodes import FamilyProcessGone, ReplicationError
from catalog.lake_maintenance import AUTOVACUUM, COMPACTION, EXPIRY, LakeUpkeep
from config.guc import Settings
from workers.lake.destination import Destination, LakeIdent, LakeTable
from workers.written import OpenTable, Written

log = logging.getLogger(__name__)

COMPACT_EVERY: Final = 100
"""What a table's batches count until its small files are looked at; a small one counts for ten."""
SMALL_BATCH: Final = 10_000
"""Rows from which on a batch's files may be large enough to stay as they are."""
AT_LEAST: Final = 10
"""Batches of a worker before the first upkeep of a table; a small one is enough for its files."""


Busy = Callable[[LakeIdent], bool]


def _nothing() -> None:
    """Nobody waits for it."""


def idle(_: LakeIdent) -> bool:
    """Nothing is under way beside the batches."""
    return False


Job = Callable[[], int | ReplicationError]
"""Upkeep of one table: files or snapshots that went, or why none did."""

Together = Callable[[Sequence[Job]], list[int | ReplicationError]]


def in_turn(jobs: Sequence[Job]) -> list[int | ReplicationError]:
    """One job after the other."""
    return [job() for job in jobs]


Record = Callable[[LakeUpkeep], None]


def unrecorded(_: LakeUpkeep) -> None:
    """Nobody asks what was done."""


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
        record: Record = unrecorded,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        order: Callable[[], float] = random.random,
    ) -> None:
        """``busy`` tells whether a table's snapshots have to stay for now; ``settings`` are those
        in force; ``record`` stores what was done. ``clock`` counts seconds since anything, ``now``
        tells Unix time. ``order`` is a table's place among those that have waited as long: by
        chance, or the last ones would never come first with a worker that is killed every so
        often."""
        self._dest = dest
        self._busy = busy
        self._settings = settings
        self._record = record
        self._clock = clock
        self._now = now
        self._dead: dict[int, Dead] = {}
        self._vacuumed = clock()
        self._next = order
        self._order: dict[int, float] = {}
        self._snapshots: dict[int, array[float]] = {}
        self._batches: dict[int, int] = {}
        self._untidy: dict[int, int] = {}

    def opened(self, relid: int, lake: LakeTable) -> None:
        """Begin with what ``main`` holds."""
        self._snapshots[relid] = array("d", lake.snapshots)
        self._batches[relid] = 0
        self._order[relid] = self._next()
        self._untidy[relid] = min(lake.files, COMPACT_EVERY - AT_LEAST)
        self._dead.pop(relid, None)

    def tend(
        self,
        published: Sequence[Written],
        together: Together = in_turn,
        expired: Callable[[], None] = _nothing,
    ) -> set[int]:
        """A batch was published. The tables (relids) whose branch must not be used any more.

        One of them is vacuumed at most, the one whose turn is longest ago: so the batches go on
        between two rewrites, however many tables are due. ``expired`` is called before any rewrite,
        when nothing more is done to shared tables.
        """
        for each in published:
            self._count(each)
        most = -(-len(published) // AT_LEAST)
        tables = [each.table for each in published]
        spoiled = self._expire(tables, together)
        expired()
        standing = [
            table for table in tables if _stands(table) and table.rel.srrelid not in spoiled
        ]
        spoiled |= self._compact(standing, most, together)
        due = [
            table
            for table in standing
            if table.rel.srrelid not in spoiled and self._due(table.rel.srrelid)
        ]
        if due:
            table = min(due, key=lambda table: self._dead[table.rel.srrelid].at)
            if not self._vacuum(table):
                spoiled.add(table.rel.srrelid)
        return spoiled

    def tidy(self, table: OpenTable) -> bool:
        """Rewrite files, if it is time. False if the branch must not be used any more."""
        due = self._due(table.rel.srrelid)
        return not self._compact([table], 1, in_turn) and (not due or self._vacuum(table))

    def _count(self, written: Written) -> None:
        relid, counts = written.table.rel.srrelid, written.counts
        small = counts.appended + counts.merged < SMALL_BATCH
        self._batches[relid] += 1
        if self._settings().snapshot_expiry_batches:  # nobody would ever take them out again
            self._snapshots[relid].append(self._now())
        self._untidy[relid] = self._untidy.get(relid, 0) + (10 if small else 1)
        if counts.rows:
            known = self._dead.get(relid, NONE_DEAD)
            left = min(known.left, counts.dead)
            self._dead[relid] = Dead(counts.rows, counts.dead, left, known.at)

    def _compact(self, tables: Sequence[OpenTable], most: int, together: Together) -> set[int]:
        """Write the small files of the tables together whose time has come, of so many at most."""
        if not self._settings().autovacuum:
            return set()
        untidy = [(self._untidy.get(table.rel.srrelid, 0), table) for table in tables]
        due = self._longest([each for each in untidy if each[0] >= COMPACT_EVERY], most)
        for table in due:
            self._untidy[table.rel.srrelid] = 0

        def compact(table: OpenTable) -> int:
            return self._dest.compact(table.lake.ident, table.branch or "")

        done = together([_job(compact, table) for table in due])
        return self._tell_all(COMPACTION, "action=compact relid=%d files=%d", due, done)

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
            return self._failed(table, AUTOVACUUM, error)
        if not files:
            self._dead[relid] = replace(dead, left=dead.dead)
        log.info("action=vacuum relid=%d files=%d dead=%d", relid, files, dead.dead)
        return self._went_well(table, AUTOVACUUM)

    def _expire(self, tables: Sequence[OpenTable], together: Together) -> set[int]:
        """Drop old snapshots of the tables that have most to drop, of a tenth of them at most.

        Of more where fewer than ten batches are to lie between two expiries.
        """
        settings = self._settings()
        if not settings.snapshot_expiry_batches:
            return set()
        most = -(-len(tables) // min(AT_LEAST, settings.snapshot_expiry_batches))
        old = [(self._old(table.rel.srrelid, settings), table) for table in tables]
        due = self._longest([each for each in old if self._expires(*each, settings)], most)
        for table in due:
            # Whether they go or not: what stays all the same is no reason to try again.
            relid = table.rel.srrelid
            del self._snapshots[relid][: self._old(relid, settings)]
        retain, age = settings.snapshot_retain_last, settings.snapshot_retain_age

        def expire(table: OpenTable) -> int:
            return self._dest.expire(table.lake.ident, retain=retain, age=age)

        done = together([_job(expire, table) for table in due])
        return self._tell_all(EXPIRY, "action=expire relid=%d snapshots=%d", due, done)

    def _expires(self, old: int, table: OpenTable, settings: Settings) -> bool:
        began = self._batches[table.rel.srrelid] >= AT_LEAST
        enough = old >= settings.snapshot_expiry_batches
        return began and enough and not self._busy(table.lake.ident)

    def _longest(self, due: Sequence[tuple[int, OpenTable]], most: int) -> list[OpenTable]:
        """Those with the largest numbers, and of the sources of one lake table one.

        Two expiries of a table at a time would take from each other what they read.
        """
        first: dict[LakeIdent, OpenTable] = {}
        for _, table in sorted(due, key=lambda each: (-each[0], self._order[each[1].rel.srrelid])):
            first.setdefault(table.lake.ident, table)
        return list(first.values())[:most]

    def _tell_all(
        self,
        kind: str,
        words: str,
        tables: Sequence[OpenTable],
        done: Sequence[int | ReplicationError],
    ) -> set[int]:
        """Log and store what became of each; those whose branch must not be used any more."""
        spoiled: set[int] = set()
        for table, outcome in zip(tables, done, strict=True):
            if isinstance(outcome, ReplicationError):
                self._failed(table, kind, outcome)
                spoiled.add(table.rel.srrelid)
            else:
                log.info(words, table.rel.srrelid, outcome)
                self._went_well(table, kind)
        return spoiled

    def _old(self, relid: int, settings: Settings) -> int:
        """How many snapshots an expiry would take."""
        known, age = self._snapshots[relid], settings.snapshot_retain_age
        old = bisect_left(known, self._now() - age) if age else len(known)
        return max(min(len(known) - settings.snapshot_retain_last, old), 0)

    def _went_well(self, table: OpenTable, kind: str) -> bool:
        rel = table.rel
        self._store(LakeUpkeep(rel.srsubid, rel.srrelid, kind, times=1, done=self._microseconds()))
        return True

    def _failed(self, table: OpenTable, kind: str, error: ReplicationError) -> bool:
        rel = table.rel
        _tell(rel.srrelid, error)
        if not isinstance(error, FamilyProcessGone):
            at = self._microseconds()
            # The primary message alone: a DETAIL may be long, and is in the log.
            said = LakeUpkeep(rel.srsubid, rel.srrelid, kind, failed=at, error=error.primary)
            self._store(said)
        return False

    def _store(self, done: LakeUpkeep) -> None:
        """The batch is published: what cannot be counted must not look as if that had failed."""
        try:
            self._record(done)
        except ReplicationError as error:
            _tell(done.relid, error)

    def _microseconds(self) -> int:
        return int(self._now() * 10**6)


def vacuum_is_due(dead: Dead, settings: Settings) -> bool:
    """``relation_needs_vacanalyze``: by what died since a look found nothing to do."""
    died = dead.dead - dead.left
    live = max(dead.rows - died, 0)  # what was left lies in no file any more
    bar = settings.autovacuum_vacuum_threshold + settings.autovacuum_vacuum_scale_factor * live
    return died > bar


def _job(work: Callable[[OpenTable], int], table: OpenTable) -> Job:
    """An error is an outcome: what others do meanwhile is to end, and to be told."""

    def run() -> int | ReplicationError:
        try:
            return work(table)
        except ReplicationError as error:
            return error

    return run


def _stands(table: OpenTable) -> bool:
    """Its branch takes the next batch, too, and what upkeep leaves there is published with it."""
    return bool(table.branch) and not table.source


def _tell(relid: int, error: ReplicationError) -> None:
    fields = {"DETAIL": error.detail, "HINT": error.hint}
    log.warning(
        "action=maintenance relid=%d sqlstate=%s %s", relid, error.code, error, extra=fields
    )
