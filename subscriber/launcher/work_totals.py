"""The work of all workers since the launcher's start, by subscription, for metrics.

The sums of running workers are in the slots. Here are the sums of workers that have ended: both
together never fall when a worker starts again.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from workers.process.work_done import counters, total
from workers.process.worker_slots import LogicalRepWorker, WorkerType


@dataclass(slots=True)
class WorkTotals:
    """``ended`` holds the sums of ended workers, ``failures`` the ends by an error, by kind."""

    ended: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, dict[str, int]] = field(default_factory=dict)
    caught_up: dict[int, int] = field(default_factory=dict)

    def take_end(self, row: LogicalRepWorker, *, failed: bool) -> None:
        """Add the sums of a worker that has ended."""
        self.ended[row.subid] = total(self.ended.get(row.subid), counters(row.work))
        if failed:
            found = self.failures.setdefault(row.subid, {})
            found[row.type.value] = found.get(row.type.value, 0) + 1
        if row.type is WorkerType.APPLY and (known := last_caught_up(row)):
            self.caught_up[row.subid] = known

    def to_json(self) -> list[dict[str, Any]]:
        """A row per subscription that had a worker, for the launcher's socket."""
        return [
            {
                "subid": subid,
                "work": work,
                "failures": self.failures.get(subid, {}),
                "caught_up": self.caught_up.get(subid, 0),
            }
            for subid, work in self.ended.items()
        ]


def last_caught_up(row: LogicalRepWorker) -> int:
    """The last time at which the lake had all changes that an apply worker had received.

    Microseconds since 1970, 0 if unknown: a commit time while a batch is being applied, the time of
    the last message while no change waits.
    """
    if row.applying_commit_time:
        return row.applying_commit_time
    return 0 if row.spool_bytes else row.last_recv_time
