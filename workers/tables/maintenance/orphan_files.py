"""Orphan files of the lake tables: removed now and then, beside the batches.

A batch or a copy that is killed has written files that no snapshot will ever name. Looking for
them takes seconds for a small table and minutes for a large one, so it has another thread and a
Spark session of its own, and the apply loop never waits for it: it only looks whether the last one
has ended and whether another is due. Nothing is committed to the table, so no batch can be in its
way, and it in no batch's; expiries of snapshots have the same thread, because it reads what they
delete (``upkeep``). Removed is what is older than ``orphan_removal_min_age`` and known to no
snapshot (``workers.lake.sql.orphan_files``).

The apply worker does it, for tables in ``r`` alone: while one is copied the first files of the
copy may be older than any age. A table that several publisher tables of the subscription are
written to waits until all of them are.

One table at a time, and a rest after each: of ten thousand tables one has its turn every nine
seconds if each is to have one a day. When a table had its turn is stored, so that workers
that are killed every hour look no more often, and ``status`` can tell.

Trace, interval 1d: a table becomes r on Monday at noon and is counted from then. On Tuesday at
noon its folder is listed: nothing is three days old. A batch is killed in the afternoon. Its files
go on Saturday at noon; on Friday they were not old enough yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from catalog.errcodes import LakeBroken, ReplicationError
from catalog.lake_maintenance import LakeMaintenance
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from config.limits import CLOCK_MARGIN_SECONDS, CLOCK_SETTLING_SECONDS, ORPHAN_POLL_SECONDS
from workers.lake.destination import Destination
from workers.lake.effects import Orphans
from workers.lake.sources import owner_of
from workers.lake.table import LakeIdent
from workers.process.log import unexpected

log = logging.getLogger(__name__)

_UNDER_WAY: Final = "it is under way, or was cut off"


@dataclass(frozen=True, slots=True)
class _Removal:
    """One that is under way: of which lake table, and which tables are written to it."""

    ident: LakeIdent
    relids: Sequence[int]
    answer: Future[Orphans]


class OrphanRemoval:
    """An apply worker's; one thread calls it, and what takes long has another."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        beside: Executor,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``beside`` runs what takes long, one job at a time. ``clock`` tells Unix time,
        ``monotonic`` the time since anything; both in seconds."""
        self._dest = dest
        self._store = store
        self._sub = sub
        self._clock = clock
        self._monotonic = monotonic
        self._beside = beside
        self._removal: _Removal | None = None
        self._known: dict[int, LakeMaintenance] | None = None
        self._unsaved: dict[int, LakeMaintenance] = {}
        self._looked = monotonic()
        self._rest = ORPHAN_POLL_SECONDS
        self._ahead = clock() - monotonic()
        self._settled = self._looked

    def turn(self, rels: Iterable[SubscriptionRel], settings: Settings) -> None:
        """Take note of a removal that has ended, begin one that is due; waits for nothing.

        What fails is told and tried again later: batches can do without it. Raises ``LakeBroken``
        alone, which the batches would meet, too.
        """
        try:
            self._turn(rels, settings)
        except LakeBroken:
            raise
        except Exception as error:
            _tell(error)

    def close(self) -> None:
        """Store what is known. What runs ends with the worker's Spark sessions."""
        with suppress(ReplicationError):
            self._save({})

    def _turn(self, rels: Iterable[SubscriptionRel], settings: Settings) -> None:
        now, interval = self._monotonic(), settings.orphan_removal_interval
        if self._removal is not None:
            if not self._removal.answer.done():
                return
            ended, self._removal = self._removal, None
            self._looked = now
            self._ended(ended)
        if now - self._looked < self._rest:
            return
        self._looked = now
        tables = _ready(rels) if interval else {}
        self._rest = (
            min(ORPHAN_POLL_SECONDS, interval / len(tables)) if tables else ORPHAN_POLL_SECONDS
        )
        due = self._due(tables, interval)
        relids = [rel.srrelid for rel in tables[due]] if due is not None else []
        # Stored before it begins: one that takes the lake server with it must not come again
        # as soon as there is another.
        self._save(self._tried(relids, reason=_UNDER_WAY))
        if due is not None:
            answer = self._beside.submit(
                self._dest.remove_orphans,
                due,
                owner=owner_of(self._sub, tables[due][0]),
                older_than=self._clock() - settings.orphan_removal_min_age - CLOCK_MARGIN_SECONDS,
            )
            self._removal = _Removal(due, relids, answer)

    def _due(
        self, tables: Mapping[LakeIdent, Sequence[SubscriptionRel]], interval: float
    ) -> LakeIdent | None:
        """The table whose turn is longest ago, if that is long enough; new ones are counted."""
        known, now = self._records(), self._clock()
        for rel in (rel for rels in tables.values() for rel in rels):
            if rel.srrelid not in known:
                since = _microseconds(now)
                counted = LakeMaintenance(self._sub.oid, rel.srrelid, since)
                known[rel.srrelid] = self._unsaved[rel.srrelid] = counted
        if self._clock_was_set():
            return None
        ages = {
            ident: now - min(known[rel.srrelid].since for rel in rels) / _microseconds(1.0)
            for ident, rels in tables.items()
        }
        # A clock that was set back must not hold a table up for as long as it was ahead.
        due = [ident for ident, age in ages.items() if not 0 <= age < interval]
        return max(due, key=lambda ident: ages[ident], default=None)

    def _clock_was_set(self) -> bool:
        """Within the last hour: a file that is being written may seem to be days old."""
        now, ahead = self._monotonic(), self._clock() - self._monotonic()
        if abs(ahead - self._ahead) > CLOCK_SETTLING_SECONDS:
            log.info("action=orphans the clock was set, nothing is removed for an hour")
            self._ahead, self._settled = ahead, now + CLOCK_SETTLING_SECONDS
        return now < self._settled

    def _ended(self, removal: _Removal) -> None:
        ident, relids = removal.ident, removal.relids
        try:
            done = removal.answer.result()
        except Exception as error:
            self._note(relids, reason=_tell(error, relids[0]))
            if isinstance(error, LakeBroken):  # it has to be started again
                raise
            return
        if done.left is not None:
            log.info("action=orphans relid=%d left alone: %s", relids[0], done.left)
            self._note(relids, reason=done.left)
            return
        log.info("action=orphans relid=%d files=%d table=%s", relids[0], done.files, ident)
        self._note(relids, files=done.files)

    def _note(self, relids: Iterable[int], *, files: int = 0, reason: str | None = None) -> None:
        """How it ended. Stored with what begins next: the loop reads all tables after a write."""
        ended = self._tried(relids, files=files, reason=reason)
        self._records().update(ended)
        self._unsaved.update(ended)

    def _tried(
        self, relids: Iterable[int], *, files: int = 0, reason: str | None = None
    ) -> dict[int, LakeMaintenance]:
        """What ``status`` shows of tables then; without a reason it was done."""
        before = {relid: self._records()[relid] for relid in relids}
        return {
            relid: replace(
                was,
                since=_microseconds(self._clock()),
                orphan_removals=was.orphan_removals + (reason is None),
                orphan_files=was.orphan_files + files,
                reason=reason,
            )
            for relid, was in before.items()
        }

    def _records(self) -> dict[int, LakeMaintenance]:
        """By relid; nobody else writes them, so they are read once."""
        if self._known is None:
            stored = self._store.lake_maintenance(self._sub.oid)
            self._known = {each.relid: each for each in stored}
        return self._known

    def _save(self, begun: Mapping[int, LakeMaintenance]) -> None:
        """Store what has changed and what begins, together; nothing has begun if that fails."""
        changed = {**self._unsaved, **begun}
        if changed:
            with self._store.transaction():
                for each in changed.values():
                    self._store.put_lake_maintenance(each)
            self._records().update(begun)
            self._unsaved.clear()


def _tell(error: Exception, relid: int = 0) -> str:
    """Log what failed, and of which table; its words."""
    shown = unexpected(error)
    fields = {"DETAIL": shown.detail, "HINT": shown.hint}
    log.warning("action=orphans relid=%d sqlstate=%s %s", relid, shown.code, shown, extra=fields)
    return shown.primary


def _ready(rels: Iterable[SubscriptionRel]) -> dict[LakeIdent, list[SubscriptionRel]]:
    """The lake tables all of whose sources are ``r``, with these."""
    found: dict[LakeIdent, list[SubscriptionRel]] = {}
    unready: set[LakeIdent] = set()
    for rel in rels:
        ident = LakeIdent(rel.lake_schema, rel.lake_table)
        found.setdefault(ident, []).append(rel)
        if rel.srsubstate is not SubRelState.READY:
            unready.add(ident)
    return {ident: each for ident, each in found.items() if ident not in unready}


def _microseconds(seconds: float) -> int:
    return int(seconds * 10**6)
