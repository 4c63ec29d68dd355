"""Hand tables over from sync workers to the apply worker. Pure.

PostgreSQL's two ``process_syncing_tables``. Three positions are never mixed here: *received* (the
highest position in any message), *decided* (the end LSN of the last transaction that the gate has
decided) and *durable* (the end LSN up to which every transaction is committed in every table).

The hand-over, the apply worker in front::

    sync:  copied at 8, says w(8)     apply: decided 10
    apply: c = max(8, 10) = 10, closes no batch until the catalog says s
    sync:  streams 8..10, stores s(10)
    apply: goes on at 10; applies the transactions whose commit record starts at 10 or later

and the sync worker in front::

    sync:  copied at 10, says w(10)   apply: decided 8
    apply: c = max(10, 8) = 10
    sync:  has nothing to do, stores s(10)
    apply: takes 8..10 for other tables, drops the table's changes (10 > commit_lsn), then r
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel


@dataclass(frozen=True, slots=True)
class SetReady:
    """Store ``r`` at ``lsn``."""

    relid: int
    lsn: LSN


@dataclass(frozen=True, slots=True)
class AnswerCatchup:
    """Set a waiting sync worker's memory state to ``c`` at ``lsn`` and wake it."""

    relid: int
    lsn: LSN


@dataclass(frozen=True, slots=True)
class LaunchSync:
    """Ask the launcher for a sync worker."""

    relid: int


@dataclass(frozen=True, slots=True)
class AwaitSyncDone:
    """A table is in ``c``: close no batch before the catalog says s or the sync worker is gone."""

    relid: int


Action = SetReady | AnswerCatchup | LaunchSync | AwaitSyncDone


@dataclass(frozen=True, slots=True)
class SyncWorkerState:
    """The worker slot of a running sync worker; ``sign`` changes with each report."""

    relid: int
    relstate: SubRelState | None
    relstate_lsn: LSN | None
    sign: Hashable = None


def process_syncing_tables_for_apply(
    rels: Iterable[SubscriptionRel],
    sync_workers: Mapping[int, SyncWorkerState],
    *,
    decided_lsn: LSN,
    durable: LSN,
    now: float,
    last_start: Mapping[int, float],
    max_sync_workers: int,
    retry_interval: float,
    retry_later: Mapping[int, float] | None = None,
) -> list[Action]:
    """Decide what the apply worker does for each table that is not ready, at a batch boundary.

    All tables in w are answered at the same boundary, with the same decided position. So apply
    stops once for many small tables, and not for each table. ``now`` and ``last_start`` (by relid)
    are monotonic seconds. A failing table is tried again after ``retry_interval`` or later,
    whatever happens to the remaining tables; ``retry_later`` has longer times by relid. A suspended
    table gets no sync worker before a resume.
    """
    actions: list[Action] = []
    running = len(sync_workers)
    for rel in rels:
        worker = sync_workers.get(rel.srrelid)
        if rel.srsubstate == SubRelState.SYNCDONE and rel.srsublsn is not None:
            if durable >= rel.srsublsn:
                actions.append(SetReady(rel.srrelid, durable))
        elif not rel.awaits_sync:
            continue
        elif worker is not None:
            lsn = worker.relstate_lsn
            if worker.relstate == SubRelState.SYNCWAIT and lsn is not None:
                actions.append(AnswerCatchup(rel.srrelid, LSN(max(lsn, decided_lsn))))
            elif worker.relstate in (SubRelState.CATCHUP, SubRelState.SYNCDONE):
                actions.append(AwaitSyncDone(rel.srrelid))
        elif running < max_sync_workers:
            started = last_start.get(rel.srrelid)
            interval = (retry_later or {}).get(rel.srrelid, retry_interval)
            if started is None or now - started >= interval:
                actions.append(LaunchSync(rel.srrelid))
                running += 1
    return actions


def process_syncing_tables_for_sync(
    relstate: SubRelState | None, relstate_lsn: LSN | None, current_lsn: LSN
) -> LSN | None:
    """Return the LSN to store with ``s`` if the sync worker has caught up; None: go on."""
    if relstate == SubRelState.CATCHUP and relstate_lsn is not None and current_lsn >= relstate_lsn:
        return current_lsn
    return None
