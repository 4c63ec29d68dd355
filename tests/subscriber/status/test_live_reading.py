"""What the terminal of ``pgsub up`` shows: from the views, with rates between two readings."""

from __future__ import annotations

from dataclasses import replace

from catalog.store_sqlite import CatalogStore
from config.monitor_limits import LIVE_RATE_SECONDS
from subscriber.status.live_reading import Rates, Reading, SubscriptionLine, TableLine, read
from subscriber.status.views import VIEWS
from tests.subscriber.status.scraped import NOW, busy, snapshot
from workers.process.worker_slots import LogicalRepWorker

VIEW_NAMES = ("pg_subscription", "pg_subscription_rel", "pg_stat_progress_copy", "last_errors")


def taken(
    store: CatalogStore, workers: tuple[LogicalRepWorker, ...], rates: Rates, after: float
) -> Reading:
    status = snapshot(store, workers).status
    rows = {name: VIEWS[name].rows(store, workers) for name in VIEW_NAMES}
    return read(status, rows, rates, NOW / 1e6 + after)


def test_rates_are_those_between_two_readings(store: CatalogStore) -> None:
    apply, sync = busy(store)
    rates = Rates()
    copied = {"bytes_processed": 30, "bytes_total": 100, "tuples_processed": 300}
    first = taken(store, (apply, replace(sync, progress=copied)), rates, 0)
    assert first.subscriptions == (SubscriptionLine("mysub", True, 0.0, 200, 2.5),)
    copying = next(table for table in first.tables if table.state == "d")
    assert copying == TableLine("mysub", "public.b", "d", 300, 0.3, None, None)
    more = {"bytes_processed": 60, "bytes_total": 100, "tuples_processed": 600}
    assert apply.work is not None
    worked = {**apply.work, "rows": {"insert": 25}}
    workers = (replace(apply, work=worked), replace(sync, progress=more))
    second = taken(store, workers, rates, 2)
    assert second.subscriptions[0].rate == (25 - 6) / 2
    copying = next(table for table in second.tables if table.state == "d")
    assert (copying.rate, copying.seconds_left) == (150.0, 600 * 0.4 / 0.6 / 150)
    assert second.states == {"i": 1, "d": 1}
    assert [row["sqlstate"] for row in second.errors] == ["22003"]


def test_a_rate_is_that_of_the_last_seconds_and_begins_anew_after_a_fall() -> None:
    rates = Rates()
    assert rates.rate("a", 0, 0) is None
    assert rates.rate("a", 1000, 1) == 1000
    for second in range(2, 20):
        steady = rates.rate("a", 1000 + second, second)
    assert steady == 1.0
    assert len(rates._seen["a"]) <= LIVE_RATE_SECONDS + 2
    assert rates.rate("a", 5, 20) is None
    assert rates.rate("b", 1, 20) is None
    rates.keep({"b"})
    assert rates._seen.keys() == {"b"}
