"""Figures of a subscription's stream, for the metrics and for the terminal: lag, work, files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from workers.process.launcher_client import LauncherStatus
from workers.process.work_done import LAKE, counters, total


@dataclass(frozen=True, slots=True)
class Lag:
    """How far the lake is behind.

    ``flush_lsn`` is the position last confirmed to the publisher, and ``lag_bytes`` the WAL that
    was received and is not confirmed; both are None without a worker. ``since`` is the commit time
    of the oldest transaction that readers do not see, in microseconds since 1970; without a worker
    the time at which the lake was last known to be complete; 0 if unknown.
    """

    flush_lsn: int | None
    lag_bytes: int | None
    since: int


def lags(status: LauncherStatus, now: int) -> dict[int, Lag]:
    """The lag of each subscription, by oid; ``now`` in microseconds since 1970."""
    found = {row["subid"]: Lag(None, None, row["caught_up"]) for row in status.totals}
    for worker in status.workers:
        if not worker.relid and worker.flush_lsn:
            flushed = int(worker.flush_lsn)
            behind = max(int(worker.last_lsn) - flushed, 0)
            found[worker.subid] = Lag(flushed, behind, worker.applying_commit_time or now)
    return found


def work_sums(status: LauncherStatus) -> dict[int, Mapping[str, Any]]:
    """The sums of ``work_done`` of each subscription, by oid, with those of ended workers."""
    sums: dict[int, Any] = {row["subid"]: row["work"] for row in status.totals}
    for worker in status.workers:
        sums[worker.subid] = total(sums.get(worker.subid), counters(worker.work))
    return {subid: work or {} for subid, work in sums.items()}


def lake_files(status: LauncherStatus) -> dict[int, Mapping[str, int]]:
    """The files of the lake tables of each subscription, by oid, as its apply worker counts."""
    return {
        worker.subid: worker.work[LAKE]
        for worker in status.workers
        if not worker.relid and worker.work and LAKE in worker.work
    }
