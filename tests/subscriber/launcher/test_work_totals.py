"""Counts of workers that have ended, next to those of the running ones."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from subscriber.launcher.work_totals import WorkTotals, last_caught_up
from tests.subscriber.launcher_family import Family, reported
from tests.waiting import wait_until
from workers.process.launcher_client import LauncherStatus
from workers.process.work_done import LAKE
from workers.process.worker_slots import LogicalRepWorker, WorkerType

DONE = {"transactions": 3, "rows": {"insert": 1}, LAKE: {"data_files": 7}}
APPLY = LogicalRepWorker(0, 1, WorkerType.APPLY, 5, work=DONE)
WORK = {"transactions": 3, "rows": {"insert": 5}}


def test_a_worker_that_starts_again_goes_on_counting(family: Family) -> None:
    (subid,) = family.subscribe("works")
    family.start()
    for number in range(1, 3):
        row = reported(family, subid, "work", WORK)
        family.kill(row.pid)
        found = wait_until(partial(_ended, family, 3 * number), 20, family.log)
        assert found.totals[0]["failures"] == {"apply": number}
        assert found.totals[0]["caught_up"] == 7
    row = reported(family, subid, "work", WORK)
    assert row.work == WORK
    assert _ended(family, 6)


def _ended(family: Family, transactions: int) -> LauncherStatus | None:
    status = family.status()
    sums = [each["work"]["transactions"] for each in status.totals]
    return status if sums == [transactions] else None


def test_ends_on_purpose_are_no_failures() -> None:
    totals = WorkTotals()
    totals.take_end(APPLY, failed=False)
    totals.take_end(replace(APPLY, type=WorkerType.TABLESYNC, relid=9), failed=True)
    totals.take_end(replace(APPLY, subid=6, work=None), failed=True)
    assert totals.to_json() == [
        {
            "subid": 5,
            "work": {"transactions": 6, "rows": {"insert": 2}},
            "failures": {"tablesync": 1},
            "caught_up": 0,
        },
        {"subid": 6, "work": None, "failures": {"apply": 1}, "caught_up": 0},
    ]


def test_the_last_time_a_worker_was_caught_up() -> None:
    idle = replace(APPLY, last_recv_time=900, spool_bytes=0)
    assert last_caught_up(idle) == 900
    assert last_caught_up(replace(idle, spool_bytes=10)) == 0
    assert last_caught_up(replace(idle, spool_bytes=10, applying_commit_time=400)) == 400
