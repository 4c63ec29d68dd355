"""Lag and work of a subscription, with a worker and without."""

from __future__ import annotations

from dataclasses import replace

from catalog.pg_lsn import LSN
from catalog.store_sqlite import CatalogStore
from subscriber.status.stream_figures import Lag, lags, work_sums
from tests.subscriber.status.scraped import NOW, busy, snapshot, work


def test_a_worker_that_applies_and_one_that_has_nothing_to_do(store: CatalogStore) -> None:
    apply, sync = busy(store)
    status = snapshot(store, (apply, sync)).status
    assert lags(status, NOW) == {apply.subid: Lag(700, 200, NOW - 2_500_000)}
    idle = replace(apply, applying_commit_time=0, last_lsn=LSN(600))
    assert lags(replace(status, workers=(idle,)), NOW) == {apply.subid: Lag(700, 0, NOW)}


def test_without_a_worker_the_lake_was_complete_some_time_ago(store: CatalogStore) -> None:
    apply, sync = busy(store)
    status = replace(snapshot(store, (apply, sync)).status, workers=(sync,))
    assert lags(status, NOW) == {apply.subid: Lag(None, None, NOW - 9_000_000)}


def test_the_work_of_ended_workers_counts(store: CatalogStore) -> None:
    apply, sync = busy(store)
    status = snapshot(store, (apply, sync)).status
    assert work_sums(status)[apply.subid]["rows"] == {"insert": 10, "delete": 2}
    assert work_sums(replace(status, workers=(), totals=({**status.totals[0], "work": None},))) == {
        apply.subid: {}
    }
    assert work()["rows"] == {"insert": 5, "delete": 1}
