"""How a job of maintenance runs: now, in the background, one by one."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future

from catalog.errcodes import ReplicationError
from catalog.lake_maintenance import LakeUpkeep
from workers.process.log import unexpected
from workers.tables.open_table import OpenTable

log = logging.getLogger(__name__)


Job = Callable[[], int | ReplicationError]

Together = Callable[[Sequence[Job]], list[int | ReplicationError]]


def in_turn(jobs: Sequence[Job]) -> list[int | ReplicationError]:
    """One job after the other."""
    return [job() for job in jobs]


Beside = Callable[[Job], "Future[int | ReplicationError]"]


def at_once(job: Job) -> Future[int | ReplicationError]:
    """Has done it when it returns."""
    done: Future[int | ReplicationError] = Future()
    done.set_result(job())
    return done


Record = Callable[[LakeUpkeep], None]


def unrecorded(_: LakeUpkeep) -> None:
    """Nobody asks what was done."""


def _job(work: Callable[[OpenTable], int], table: OpenTable, words: str) -> Job:
    """An error is an outcome: what others do meanwhile is to end, and to be told.

    Any error: the batch is published, and is nothing to stop or disable a subscription for.
    """

    def run() -> int | ReplicationError:
        begun = time.monotonic()
        try:
            done = work(table)
        except Exception as error:
            return unexpected(error)
        log.info(f"{words} seconds=%.1f", table.rel.srrelid, done, time.monotonic() - begun)
        return done

    return run


def _tell(relid: int, error: ReplicationError) -> None:
    fields = {"DETAIL": error.detail, "HINT": error.hint}
    log.warning(
        "action=maintenance relid=%d sqlstate=%s %s", relid, error.code, error, extra=fields
    )
