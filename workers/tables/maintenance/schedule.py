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

A table that changes no more keeps the files of its last batches, and its dead rows. So once in each
autovacuum_naptime one of those is tidied, whether others change or not, and what it has then is
shown by an empty batch (``LakeWriter.rest``).

Writing small files together may take a tenth of a table's time: after two seconds of it there are
eighteen without.

Of the tables that a batch changed a tenth have upkeep after it, those first that have waited
longest; their rewrites run side by side. Tables that are changed together are due together: forty
of them, 0.4 s each, held the next batch up for 15 s after every tenth one.

A rewrite stands between two batches, because a MERGE that commits meanwhile makes it fail, and it
a MERGE; so there is little in each (docs/decisions/0006-upkeep.md). An expiry is in no batch's way
and goes on beside them, in the thread that removes orphan files: that reads the manifests which an
expiry deletes, so the two take turns. ``turn`` hears how it ended. Of a shared table it has the
lock meanwhile. A table that is not ready has no upkeep, and an expiry that has not begun when its
table leaves never does.

What was done, or failed, is counted in the catalog for ``status``: one small write for each time.
Where the lake server went away nothing is: that ends the worker, and says nothing of the table. One
that is broken ends it here, after the others were told: their batches may not need what is.
"""

from __future__ import annotations

import logging
import random
import time
from array import array
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from catalog.errcodes import FamilyProcessGone, LakeBroken, ReplicationError
from catalog.lake_maintenance import AUTOVACUUM, COMPACTION, EXPIRY, LakeUpkeep
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.guc import Settings
from workers.lake.destination import Destination
from workers.lake.effects import FileSizes
from workers.lake.table import LakeIdent, LakeTable
from workers.process import failpoints
from workers.tables.maintenance.expiry import _Expiry
from workers.tables.maintenance.jobs import (
    Beside,
    Job,
    Record,
    Together,
    _job,
    _tell,
    at_once,
    in_turn,
    unrecorded,
)
from workers.tables.maintenance.vacuum_due import NONE_DEAD, Dead, vacuum_is_due
from workers.tables.open_table import OpenTable
from workers.tables.table_locks import TableLocks
from workers.tables.written import Written

log = logging.getLogger(__name__)

SMALL_BATCH: Final = 10_000
"""Rows from which on a batch's files may be large enough to stay as they are."""
QUIET: Final = 1.0
"""Seconds without a change after which a table's upkeep waits for no other batch of it."""
UNTIDY: Final = 30
"""What counts as some: three small batches' files."""
PAUSE: Final = 9
"""How many times as long as it took small files are left alone."""
AT_LEAST: Final = 10
"""Batches of a worker before the first upkeep of a table; a small one is enough for its files."""
"""Upkeep of one table: files or snapshots that went, or why none did."""
"""Begins what no batch waits for, one job after the other."""


class Upkeep:
    """The counts of one worker's tables, by relid, and what is done when they are reached."""

    def __init__(
        self,
        dest: Destination,
        beside: Beside = at_once,
        settings: Callable[[], Settings] = Settings,
        record: Record = unrecorded,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
        order: Callable[[], float] = random.random,
        locks: TableLocks | None = None,
    ) -> None:
        """``beside`` runs expiries; ``settings`` are those in force; ``record`` stores what was
        done. ``clock`` counts seconds since anything, ``now`` tells Unix time. ``order`` is a
        table's place among those that have waited as long: by chance, or the last ones would never
        come first with a worker that is killed every so often. ``locks`` are those of shared
        tables, for expiries alone: the batches hold theirs by another file."""
        self._dest = dest
        self._beside = beside
        self._locks = locks or TableLocks(None)
        self._expiring: dict[LakeIdent, _Expiry] = {}
        self._settings = settings
        self._record = record
        self._clock = clock
        self._now = now
        self._dead: dict[int, Dead] = {}
        self._vacuumed = self._rested = clock()
        self._next = order
        self._order: dict[int, float] = {}
        self._snapshots: dict[int, array[float]] = {}
        self._batches: dict[int, int] = {}
        self._untidy: dict[int, int] = {}
        self._not_before: dict[int, float] = {}
        self._changed: dict[int, float] = {}
        self._unshown: set[int] = set()
        self._tried: dict[int, float] = {}

    def opened(self, relid: int, lake: LakeTable) -> None:
        """Begin with what ``main`` holds."""
        self._snapshots[relid] = array("d", lake.snapshots)
        self._batches[relid] = 0
        self._order[relid] = self._next()
        few = max(self._settings().compaction_batches - AT_LEAST, 0)
        self._untidy[relid] = min(lake.files, few)
        self._dead.pop(relid, None)
        self._unshown.discard(relid)

    def tend(self, changed: Sequence[OpenTable], together: Together = in_turn) -> set[int]:
        """After a batch that changed these. The tables whose branch must not be used any more.

        One of them is vacuumed at most, the one whose turn is longest ago: so the batches go on
        between two rewrites, however many tables are due.
        """
        most = -(-len(changed) // AT_LEAST)
        tables = [table for table in changed if _is_ready(table.rel)]
        self._expire(tables)
        standing = [table for table in tables if _stands(table)]
        spoiled = self._compact(standing, most, together)
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

    def turn(self, rels: Iterable[SubscriptionRel]) -> None:
        """Take note of expiries that have ended; waits for nothing.

        ``rels`` are the subscription's: those that wait for their turn and are ready no more, or
        gone, are not begun.
        """
        ready = {rel.srrelid for rel in rels if _is_ready(rel)}
        for ident, expiry in list(self._expiring.items()):
            if expiry.table.rel.srrelid not in ready and expiry.answer.cancel():
                del self._expiring[ident]
        self._take_note()

    def _take_note(self) -> None:
        for ident, expiry in list(self._expiring.items()):
            if expiry.answer.done():
                del self._expiring[ident]
                self._tell_all(EXPIRY, [expiry.table], [expiry.answer.result()])

    def has_rested(self) -> bool:
        """Whether a table that changes no more may be looked for."""
        settings = self._settings()
        rested = self._clock() - self._rested >= settings.autovacuum_naptime
        return settings.autovacuum and rested

    def left_untidy(self, tables: Iterable[OpenTable]) -> OpenTable | None:
        """The one to ``rest``, if ``has_rested``; then it has not."""
        now = self._clock()
        untidy = [
            (self._untidy.get(table.rel.srrelid, 0), table)
            for table in tables
            if _is_ready(table.rel)
            and not table.source
            and now - self._changed.get(table.rel.srrelid, now) >= QUIET
        ]
        left = [each for each in untidy if each[0] >= UNTIDY or self._is_left(each[1].rel.srrelid)]
        if not left:
            return None
        # Who failed is as untidy as before, and would come first for ever.
        _, table = min(left, key=lambda each: (self._tried.get(each[1].rel.srrelid, 0.0), -each[0]))
        self._rested = self._tried[table.rel.srrelid] = now
        return table

    def rest(self, table: OpenTable) -> bool | None:
        """Tidy a table that no batch waits for, where few files are enough.

        Whether its branch has something to be shown, from now or from behind its last batch; None
        if that must not be used any more.
        """
        relid = table.rel.srrelid
        if self._untidy.get(relid, 0) >= UNTIDY:
            self._untidy[relid] = 0
            done = self._joining(table, replace(_sizes(self._settings()), few=2))()
            if self._tell_all(COMPACTION, [table], [done]):
                self._untidy[relid] = UNTIDY  # nobody else would try it again
                return None
            _rewritten(done)
        if self._due(relid) and not self._vacuum(table):
            return None
        unshown = relid in self._unshown
        self._unshown.discard(relid)
        return unshown

    def not_shown(self, table: OpenTable, error: ReplicationError) -> None:
        """What ``rest`` left could not be published: that is upkeep, too, and stops nobody."""
        self._untidy[table.rel.srrelid] = UNTIDY
        self._failed(table, COMPACTION, error)

    def _is_left(self, relid: int) -> bool:
        return relid in self._unshown or self._due(relid)

    def tidy(self, table: OpenTable) -> bool:
        """Rewrite files, if it is time. False if the branch must not be used any more."""
        if not _is_ready(table.rel):
            return True
        due = self._due(table.rel.srrelid)
        return not self._compact([table], 1, in_turn) and (not due or self._vacuum(table))

    def count(self, written: Written) -> None:
        """A batch of a table was published."""
        relid, counts = written.table.rel.srrelid, written.counts
        self._changed[relid] = self._clock()
        self._unshown.discard(relid)
        rows = counts.appended + counts.merged
        self._batches[relid] += 1
        if self._settings().snapshot_expiry_batches:  # nobody would ever take them out again
            self._snapshots[relid].append(self._now())
        if rows:  # else there are no more files: what was rewritten is shown, say
            self._untidy[relid] = self._untidy.get(relid, 0) + (10 if rows < SMALL_BATCH else 1)
        if counts.rows:
            known = self._dead.get(relid, NONE_DEAD)
            left = min(known.left, counts.dead)
            self._dead[relid] = Dead(counts.rows, counts.dead, left, known.at)

    def _compact(self, tables: Sequence[OpenTable], most: int, together: Together) -> set[int]:
        """Write the small files of the tables together whose time has come, of so many at most."""
        settings = self._settings()
        if not settings.autovacuum:
            return set()
        untidy = [(self._untidy.get(table.rel.srrelid, 0), table) for table in tables]
        now = self._clock()
        long_ago = [
            each
            for each in untidy
            if each[0] >= settings.compaction_batches
            and now >= self._not_before.get(each[1].rel.srrelid, now)
        ]
        due = self._longest(long_ago, most)
        for table in due:
            self._untidy[table.rel.srrelid] = 0

        done = together([self._joining(table, _sizes(settings)) for table in due])
        spoiled = self._tell_all(COMPACTION, due, done)
        _rewritten(*done)
        return spoiled

    def _joining(self, table: OpenTable, sizes: FileSizes) -> Job:
        def compact(table: OpenTable) -> int:
            begun = self._clock()
            try:
                return self._dest.compact(table.lake.ident, table.branch or "", sizes)
            finally:
                now = self._clock()
                self._not_before[table.rel.srrelid] = now + PAUSE * (now - begun)

        return _job(compact, table, "action=compact relid=%d files=%d")

    def _due(self, relid: int) -> bool:
        settings = self._settings()
        rested = self._clock() - self._vacuumed >= settings.autovacuum_naptime
        dead = self._dead.get(relid, NONE_DEAD)
        return settings.autovacuum and rested and vacuum_is_due(dead, settings)

    def _vacuum(self, table: OpenTable) -> bool:
        relid, settings = table.rel.srrelid, self._settings()
        share = settings.autovacuum_vacuum_scale_factor / 2  # some files have more
        # Before it is tried: one that fails has to rest, too.
        self._vacuumed = self._clock()
        dead = self._dead[relid] = replace(self._dead[relid], at=self._vacuumed)

        def vacuum(table: OpenTable) -> int:
            return self._dest.compact(
                table.lake.ident, table.branch or "", _sizes(settings), dead_share=share
            )

        files = _job(vacuum, table, "action=vacuum relid=%d files=%d")()
        if files == 0:
            self._dead[relid] = replace(dead, left=dead.dead)
        if self._tell_all(AUTOVACUUM, [table], [files]):
            return False
        _rewritten(files)
        return True

    def _expire(self, tables: Sequence[OpenTable]) -> None:
        """Ask for expiries of the tables that have most to drop, of a tenth of them at most.

        Of more where fewer than ten batches are to lie between two expiries, of fewer while some
        of those before are still to come.
        """
        self._take_note()
        settings = self._settings()
        if not settings.snapshot_expiry_batches:
            return
        most = -(-len(tables) // min(AT_LEAST, settings.snapshot_expiry_batches))
        old = [(self._old(table.rel.srrelid, settings), table) for table in tables]
        due = [each for each in old if self._expires(*each, settings)]
        for table in self._longest(due, max(most - len(self._expiring), 0)):
            # Whether they go or not: what stays all the same is no reason to try again.
            relid = table.rel.srrelid
            del self._snapshots[relid][: self._old(relid, settings)]
            expire = partial(self._expired, settings)
            answer = self._beside(_job(expire, table, "action=expire relid=%d snapshots=%d"))
            self._expiring[table.lake.ident] = _Expiry(table, answer)
        self._take_note()

    def _expired(self, settings: Settings, table: OpenTable) -> int:
        retain, age = settings.snapshot_retain_last, settings.snapshot_retain_age
        ident = table.lake.ident
        with self._locks.held([ident] if table.source else []):
            return self._dest.expire(ident, retain=retain, age=age)

    def _expires(self, old: int, table: OpenTable, settings: Settings) -> bool:
        began = self._batches[table.rel.srrelid] >= AT_LEAST
        enough = old >= settings.snapshot_expiry_batches
        return began and enough and table.lake.ident not in self._expiring

    def _longest(self, due: Sequence[tuple[int, OpenTable]], most: int) -> list[OpenTable]:
        """Those with the largest numbers, and of the sources of one lake table one.

        Two expiries of a table at a time would take from each other what they read.
        """
        first: dict[LakeIdent, OpenTable] = {}
        for _, table in sorted(due, key=lambda each: (-each[0], self._order[each[1].rel.srrelid])):
            first.setdefault(table.lake.ident, table)
        return list(first.values())[:most]

    def _tell_all(
        self, kind: str, tables: Sequence[OpenTable], done: Sequence[int | ReplicationError]
    ) -> set[int]:
        """Store what became of each; those whose branch must not be used any more."""
        spoiled: set[int] = set()
        for table, outcome in zip(tables, done, strict=True):
            relid = table.rel.srrelid
            if isinstance(outcome, ReplicationError):
                self._failed(table, kind, outcome)
                spoiled.add(relid)
            else:
                self._went_well(table, kind)
                if kind == AUTOVACUUM or (kind == COMPACTION and outcome):
                    self._unshown.add(relid)  # a vacuum may have merged deletes alone
        if kind != EXPIRY:
            self._unshown -= spoiled
        for outcome in done:
            if isinstance(outcome, LakeBroken):  # it has to be started again
                raise outcome
        return spoiled

    def _old(self, relid: int, settings: Settings) -> int:
        """How many snapshots an expiry would take."""
        known, age = self._snapshots[relid], settings.snapshot_retain_age
        old = bisect_left(known, self._now() - age) if age else len(known)
        return max(min(len(known) - settings.snapshot_retain_last, old), 0)

    def _went_well(self, table: OpenTable, kind: str) -> None:
        rel = table.rel
        self._store(LakeUpkeep(rel.srsubid, rel.srrelid, kind, times=1, done=self._microseconds()))

    def _failed(self, table: OpenTable, kind: str, error: ReplicationError) -> None:
        rel = table.rel
        _tell(rel.srrelid, error)
        if not isinstance(error, FamilyProcessGone):
            at = self._microseconds()
            # The primary message alone: a DETAIL may be long, and is in the log.
            said = LakeUpkeep(rel.srsubid, rel.srrelid, kind, failed=at, error=error.primary)
            self._store(said)

    def _store(self, done: LakeUpkeep) -> None:
        """The batch is published: what cannot be counted must not look as if that had failed."""
        try:
            self._record(done)
        except ReplicationError as error:
            _tell(done.relid, error)

    def _microseconds(self) -> int:
        return int(self._now() * 10**6)


def _is_ready(rel: SubscriptionRel) -> bool:
    return rel.srsubstate is SubRelState.READY


def _sizes(settings: Settings) -> FileSizes:
    return FileSizes(
        small=settings.compaction_small_size,
        whole=settings.compaction_target_size,
        at_once=settings.autovacuum_max_size,
    )


def _stands(table: OpenTable) -> bool:
    """Its branch takes the next batch, too, and what upkeep leaves there is published with it."""
    return bool(table.branch) and not table.source


def _rewritten(*files: int | ReplicationError) -> None:
    if any(isinstance(each, int) and each for each in files):
        failpoints.reach("apply.branch_rewritten")
