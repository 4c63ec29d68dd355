"""Jobs of maintenance: how a job runs, and how the outcome is recorded.

A job's error is an outcome: the batch before the job is published, and the error is no reason to
stop or disable a subscription. The catalog counts successes and failures for ``status``, with a
small write for every job. Two errors are treated differently:

* The loss of the lake server ends the worker and says nothing about the table: not recorded.
* A broken lake server ends the worker here, after all outcomes are recorded. Batches may not need
  the broken part, and would never end the worker.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from catalog.errcodes import LakeBroken, ReplicationError, RequiredProcessGone
from catalog.lake_maintenance import LakeUpkeep
from workers.process.log import unexpected
from workers.tables.open_table import OpenTable

log = logging.getLogger(__name__)

Outcome = int | ReplicationError
"""How many files or snapshots went, or why the job failed."""

Job = Callable[[], Outcome]
"""One kind of maintenance of one table. Raises no error."""

RunInParallel = Callable[[Sequence[Job]], list[Outcome]]
"""Runs jobs at the same time and returns when all have ended."""

RunInBackground = Callable[[Job], "Future[Outcome]"]
"""Begins a job and returns without waiting. One such job runs at a time."""

Record = Callable[[LakeUpkeep], None]
"""Stores an outcome in the catalog."""


def run_one_by_one(jobs: Sequence[Job]) -> list[Outcome]:
    """Run the jobs in turn."""
    return [job() for job in jobs]


def run_now(job: Job) -> Future[Outcome]:
    """Run the job before returning."""
    done: Future[Outcome] = Future()
    done.set_result(job())
    return done


def record_nothing(_: LakeUpkeep) -> None:
    """Store no outcome."""


def maintenance_job(work: Callable[[OpenTable], int], table: OpenTable, words: str) -> Job:
    """Make a job of ``work``: log ``words`` with relid and result, or return the error."""

    def run() -> Outcome:
        begun = time.monotonic()
        try:
            done = work(table)
        except Exception as error:
            return unexpected(error)
        log.info(f"{words} seconds=%.1f", table.rel.srrelid, done, time.monotonic() - begun)
        return done

    return run


class Outcomes:
    """Records outcomes of jobs, by table and kind of maintenance."""

    def __init__(self, record: Record, now: Callable[[], float]) -> None:
        """``now`` returns Unix time in seconds."""
        self._record = record
        self._now = now

    def record_all(
        self, kind: str, tables: Sequence[OpenTable], outcomes: Sequence[Outcome]
    ) -> set[int]:
        """Record every table's outcome; return the relids of failed jobs."""
        failed: set[int] = set()
        for table, outcome in zip(tables, outcomes, strict=True):
            if isinstance(outcome, ReplicationError):
                self.record_failure(kind, table, outcome)
                failed.add(table.rel.srrelid)
            else:
                self._record_success(kind, table)
        for outcome in outcomes:
            if isinstance(outcome, LakeBroken):  # the lake server has to be started again
                raise outcome
        return failed

    def record_failure(self, kind: str, table: OpenTable, error: ReplicationError) -> None:
        """Log the error. Record the error, too, unless the lake server went away."""
        rel = table.rel
        _log_failure(rel.srrelid, error)
        if not isinstance(error, RequiredProcessGone):
            at = self._microseconds()
            # The primary message alone: a DETAIL may be long, and is in the log.
            self._store(LakeUpkeep(rel.srsubid, rel.srrelid, kind, failed=at, error=error.primary))

    def _record_success(self, kind: str, table: OpenTable) -> None:
        rel, at = table.rel, self._microseconds()
        self._store(LakeUpkeep(rel.srsubid, rel.srrelid, kind, times=1, done=at))

    def _store(self, done: LakeUpkeep) -> None:
        """Store an outcome. An error is only logged: the batch must not seem to have failed."""
        try:
            self._record(done)
        except ReplicationError as error:
            _log_failure(done.relid, error)

    def _microseconds(self) -> int:
        return int(self._now() * 10**6)


def _log_failure(relid: int, error: ReplicationError) -> None:
    fields = {"DETAIL": error.detail, "HINT": error.hint}
    log.warning(
        "action=maintenance relid=%d sqlstate=%s %s", relid, error.code, error, extra=fields
    )
