"""Orphan removal: remove files of lake tables unknown to every snapshot, beside the batches.

A killed batch or copy leaves files that no snapshot will ever name. Looking for orphan files takes
seconds for a small table and minutes for a large table. So orphan removal has a thread and a Spark
session besides the batches' own, and the apply loop never waits: the loop only asks whether the
last removal has ended and whether a table is due. Orphan removal commits nothing, so batches and
removals never meet. Expiries run in the thread of orphan removal, because orphan removal reads the
manifests deleted by an expiry (``workers.tables.maintenance.expiry``). Removed are files older than
``orphan_removal_min_age`` and unknown to every snapshot (``workers.lake.sql.orphan_files``). Files
of expired snapshots on a list (``workers.tables.maintenance.expired_files``) are no orphans.

The apply worker removes orphan files of tables in ``r`` alone: during a copy the first files of the
copy may be older than any age. A shared table waits until all the subscription's sources of the
table are in ``r``.

Tables have turns, with a rest after every turn: with ten thousand tables a turn begins every nine
seconds, if every table is to have a turn a day. The time of a table's last turn is stored.
Workers killed every hour therefore look no more often, and ``status`` shows the time.

Trace, interval 1d: a table becomes r on Monday at noon, and the first day begins. On Tuesday at
noon the table's folder is listed: no file is three days old. A batch is killed in the afternoon.
The batch's files go on Saturday at noon; on Friday the files were not old enough yet.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor, Future
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
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
from workers.tables.maintenance.expired_files import FileRemoval

log = logging.getLogger(__name__)

_UNDER_WAY: Final = "it is under way, or was cut off"


@dataclass(frozen=True, slots=True)
class _Removal:
    """A removal in progress: the lake table, and the relids of the table's sources."""

    ident: LakeIdent
    relids: Sequence[int]
    answer: Future[Orphans]


class OrphanRemoval:
    """Removes orphan files for an apply worker. The worker's main thread calls the methods."""

    def __init__(
        self,
        dest: Destination,
        store: CatalogStore,
        sub: Subscription,
        background: Executor,
        files: FileRemoval,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """``background`` runs removals, one job at a time. ``files`` knows the files of expired
        snapshots, which are no orphans. ``clock`` returns Unix time,
        ``monotonic`` the time since any start, in seconds."""
        self._dest = dest
        self._store = store
        self._sub = sub
        self._clock = clock
        self._monotonic = monotonic
        self._background = background
        self._files = files
        self._removal: _Removal | None = None
        self._known: dict[int, LakeMaintenance] | None = None
        self._unsaved: dict[int, LakeMaintenance] = {}
        self._looked = monotonic()
        self._rest = ORPHAN_POLL_SECONDS
        self._ahead = clock() - monotonic()
        self._settled = self._looked

    def turn(self, rels: Iterable[SubscriptionRel], settings: Settings) -> None:
        """Record an ended removal and begin a due removal, without waiting.

        A failure is logged, and the removal is tried again later: batches need no removal. Raises
        ``LakeBroken`` alone, because batches would meet the broken lake, too.
        """
        try:
            self._turn(rels, settings)
        except LakeBroken:
            raise
        except Exception as error:
            _log_failure(error)

    def close(self) -> None:
        """Store the outcomes. A running removal ends with the worker's Spark sessions."""
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
        # Stored before the removal begins: a removal that kills the lake server must not begin
        # again as soon as a new lake server runs.
        self._save(self._after_turn(relids, reason=_UNDER_WAY))
        if due is not None:
            answer = self._background.submit(
                self._dest.remove_orphans,
                due,
                owner=owner_of(self._sub, tables[due][0]),
                older_than=self._clock() - settings.orphan_removal_min_age - CLOCK_MARGIN_SECONDS,
                listed=partial(self._files.listed, due),
            )
            self._removal = _Removal(due, relids, answer)

    def _due(
        self, tables: Mapping[LakeIdent, Sequence[SubscriptionRel]], interval: float
    ) -> LakeIdent | None:
        """The table with the oldest turn, if a turn is due. A new table's interval begins now."""
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
        # A clock set back must not delay a table by the time of the jump.
        due = [ident for ident, age in ages.items() if not 0 <= age < interval]
        return max(due, key=lambda ident: ages[ident], default=None)

    def _clock_was_set(self) -> bool:
        """Was the clock set within the last hour? A file in progress may then seem days old."""
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
            self._note(relids, reason=_log_failure(error, relids[0]))
            if isinstance(error, LakeBroken):  # the lake server has to be started again
                raise
            return
        if done.left is not None:
            log.info("action=orphans relid=%d left alone: %s", relids[0], done.left)
            self._note(relids, reason=done.left)
            return
        log.info("action=orphans relid=%d files=%d table=%s", relids[0], done.files, ident)
        self._note(relids, files=done.files)

    def _note(self, relids: Iterable[int], *, files: int = 0, reason: str | None = None) -> None:
        """Note an outcome, to be stored when the next removal begins.

        After every write the loop reads all tables again: fewer writes, fewer reads.
        """
        ended = self._after_turn(relids, files=files, reason=reason)
        self._records().update(ended)
        self._unsaved.update(ended)

    def _after_turn(
        self, relids: Iterable[int], *, files: int = 0, reason: str | None = None
    ) -> dict[int, LakeMaintenance]:
        """The rows for ``status`` after a turn now; without a ``reason`` the removal succeeded."""
        before = {relid: self._records()[relid] for relid in relids}
        return {
            relid: replace(
                row,
                since=_microseconds(self._clock()),
                orphan_removals=row.orphan_removals + (reason is None),
                orphan_files=row.orphan_files + files,
                reason=reason,
            )
            for relid, row in before.items()
        }

    def _records(self) -> dict[int, LakeMaintenance]:
        """The rows by relid, read once: no other process writes the rows."""
        if self._known is None:
            stored = self._store.lake_maintenance(self._sub.oid)
            self._known = {each.relid: each for each in stored}
        return self._known

    def _save(self, begun: Mapping[int, LakeMaintenance]) -> None:
        """Store noted outcomes and the removal to begin in one transaction, before it begins."""
        changed = {**self._unsaved, **begun}
        if changed:
            with self._store.transaction():
                for each in changed.values():
                    self._store.put_lake_maintenance(each)
            self._records().update(begun)
            self._unsaved.clear()


def _log_failure(error: Exception, relid: int = 0) -> str:
    """Log a failure of a table; return the error's message."""
    reported = unexpected(error)
    fields = {"DETAIL": reported.detail, "HINT": reported.hint}
    log.warning(
        "action=orphans relid=%d sqlstate=%s %s", relid, reported.code, reported, extra=fields
    )
    return reported.primary


def _ready(rels: Iterable[SubscriptionRel]) -> dict[LakeIdent, list[SubscriptionRel]]:
    """The lake tables with all sources in ``r``, and the sources."""
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
