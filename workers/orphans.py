"""Orphan files of the lake tables: removed now and then, beside the batches.

A batch or a copy that is killed has written files that no snapshot will ever name. Looking for
them takes seconds for a small table and minutes for a large one, so it has a thread and a Spark
session of its own, and the apply loop never waits for it: it only looks whether the last one has
ended and whether another is due. Nothing is committed to the table, so no batch can be in its way,
and it in no batch's. Removed is what is older than ``orphan_removal_min_age`` and known to no
snapshot (``workers.lake.orphans``).

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
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Final

from catalog.errcodes import LakeBroken
from catalog.lake_maintenance import LakeMaintenance
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.store_sqlite import CatalogStore
from config.guc import Settings
from workers.lake.destination import Destination, LakeIdent, Orphans
from workers.log import unexpected
from workers.shared_targets import owner_of

log = logging.getLogger(__name__)

LOOK_EVERY: Final = 60.0
"""Seconds between two looks whether a table is due, at most; also before a worker's first."""
_MICROSECONDS: Final = 10**6
_UNDER_WAY: Final = "it is under way, or was cut off"


@dataclass(frozen=True, slots=True)
class _Removal:
    """One that is under way: of which lake table, and which tables are written to it."""

    ident: LakeIdent
    relids: Sequence[int]
    answer: Future[Orphans]


class OrphanRemoval:
    """An apply worker's; one thread calls it, and it has one of its own for what takes long."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """``clock`` tells Unix time in seconds."""
        self._dest = dest
        self._store = store
        self._sub = sub
        self._clock = clock
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="orphans")
        self._removal: _Removal | None = None
        self._looked = clock()
        self._rest = LOOK_EVERY

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

    def _turn(self, rels: Iterable[SubscriptionRel], settings: Settings) -> None:
        if self._removal is not None:
            if not self._removal.answer.done():
                return
            ended, self._removal = self._removal, None
            self._looked = self._clock()
            self._ended(ended)
        now, interval = self._clock(), settings.orphan_removal_interval
        if not interval or 0 <= now - self._looked < self._rest:
            return
        self._looked = now
        ready = _ready(rels)
        tables = {ident: [rel.srrelid for rel in each] for ident, each in ready.items()}
        self._rest = min(LOOK_EVERY, interval / max(len(tables), 1))
        due = self._due(tables, now, interval)
        if due is not None:
            # Stored before it begins: one that takes the lake server with it must not come again
            # as soon as there is another.
            self._note(tables[due], reason=_UNDER_WAY)
            owner = owner_of(self._sub, ready[due][0])
            older_than = now - settings.orphan_removal_min_age
            answer = self._pool.submit(
                self._dest.remove_orphans, due, owner=owner, older_than=older_than
            )
            self._removal = _Removal(due, tables[due], answer)

    def close(self) -> None:
        """Begin no other. What runs ends with the worker's Spark sessions."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _due(
        self, tables: Mapping[LakeIdent, Sequence[int]], now: float, interval: float
    ) -> LakeIdent | None:
        """The table whose turn is longest ago, if that is long enough; new ones are counted."""
        known = self._known()
        new = [relid for relids in tables.values() for relid in relids if relid not in known]
        if new:
            since = int(now * _MICROSECONDS)
            with self._store.transaction():
                for relid in new:
                    self._store.put_lake_maintenance(LakeMaintenance(self._sub.oid, relid, since))
        ages = {
            ident: now - min(known[relid].since for relid in relids) / _MICROSECONDS
            for ident, relids in tables.items()
            if known.keys() >= set(relids)
        }
        # A clock that was set back must not hold a table up for as long as it was ahead.
        due = [ident for ident, age in ages.items() if not 0 <= age < interval]
        return max(due, key=lambda ident: ages[ident], default=None)

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
        """What ``status`` shows; without a reason it was done."""
        known = self._known()
        with self._store.transaction():
            for relid in relids:
                before = known.get(relid, LakeMaintenance(self._sub.oid, relid, 0))
                now = replace(
                    before,
                    since=int(self._clock() * _MICROSECONDS),
                    orphan_removals=before.orphan_removals + (reason is None),
                    orphan_files=before.orphan_files + files,
                    reason=reason,
                )
                self._store.put_lake_maintenance(now)

    def _known(self) -> dict[int, LakeMaintenance]:
        return {each.relid: each for each in self._store.lake_maintenance(self._sub.oid)}


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
