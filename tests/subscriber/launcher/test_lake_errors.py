"""When the errors of workers say that the lake server is of no use."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from catalog.last_error import LastError
from catalog.pg_subscription import SubCreate, Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.remedies import LAKE_FAILED, LAKE_STORAGE_FAILED
from catalog.store_sqlite import CatalogStore
from subscriber.launcher.lake_errors import LakeErrors, failing_places
from tests.subscriber.launcher_family import Family
from tests.waiting import wait_until
from workers.process.worker_slots import LogicalRepWorker, WorkerType

LAKE = 812


def failed(subid: int, relid: int = 0, message: str = LAKE_FAILED) -> LastError:
    return LastError(subid, relid, 1, "XX000", f"{message} while reading")


def test_every_subscription_has_to_fail() -> None:
    tables = {1: [11, 12], 2: [21]}
    assert failing_places(tables, [failed(1)]) is None
    assert failing_places(tables, [failed(1), failed(2, message=LAKE_STORAGE_FAILED)]) == {
        (1, 0),
        (2, 0),
    }
    assert failing_places({}, [failed(3)]) is None, "of a subscription that is off"


def test_the_tables_count_where_the_apply_worker_has_nothing_to_do() -> None:
    assert failing_places({1: [11, 12]}, [failed(1, 11)]) is None
    assert failing_places({1: [11, 12]}, [failed(1, 11), failed(1, 12)]) == {(1, 11), (1, 12)}
    assert failing_places({1: []}, []) is None


@pytest.mark.parametrize(
    "message", ["could not connect", "no space left on the lake's storage while reading"]
)
def test_an_error_that_a_new_server_would_meet_too(message: str) -> None:
    error = LastError(1, 0, 1, "53100", message)
    assert failing_places({1: [11]}, [error]) is None


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    with closing(CatalogStore.open(":memory:")) as opened:
        yield opened


def subscribed(store: CatalogStore, name: str) -> int:
    sub = Subscription(name, "host=db", ("p",), subuuid=name, subcreate=SubCreate.READY)
    oid = store.insert_subscription(sub).oid
    store.insert_rel(SubscriptionRel(oid, 0, SubRelState.READY, None, "s", name, "s", name))
    return oid


def worker(subid: int, relid: int = 0, relstate: str | None = None) -> LogicalRepWorker:
    kind = WorkerType.TABLESYNC if relid else WorkerType.APPLY
    return LogicalRepWorker(0, 1, kind, subid, relid, relstate=relstate)


def polled(watch: LakeErrors, now: float, *workers: LogicalRepWorker) -> bool:
    return watch.poll(now, LAKE, workers) is not None


def test_the_errors_have_to_last(store: CatalogStore) -> None:
    watch = LakeErrors(store)
    a, b = subscribed(store, "a"), subscribed(store, "b")
    store.put_last_error(failed(a))
    assert not polled(watch, 0)
    store.put_last_error(failed(b))
    assert not polled(watch, 20)
    assert not polled(watch, 310)
    assert watch.poll(320, LAKE, ()) == ("every subscription has failed with its errors for 300 s")
    store.forget_last_error(b, 0)
    assert not polled(watch, 340)
    store.put_last_error(failed(b))
    assert not polled(watch, 360), "one had a success: the clock starts again"
    assert polled(watch, 660)
    store.update_subscription(a, subenabled=False)
    assert polled(watch, 680), "one that is off does not count"


def test_a_worker_that_runs_may_be_about_to_succeed(store: CatalogStore) -> None:
    """An error once, and then a batch of ten minutes."""
    watch = LakeErrors(store)
    a = subscribed(store, "a")
    store.put_last_error(failed(a))
    assert not polled(watch, 0)
    assert not polled(watch, 600, worker(a))
    assert polled(watch, 620)


@pytest.mark.parametrize("relstate", [None, SubRelState.DATASYNC, SubRelState.CATCHUP])
def test_a_copy_beside_a_failing_apply_worker_goes_on(
    store: CatalogStore, relstate: str | None
) -> None:
    """The apply worker fails for a lost file of one table; another table is copied for hours."""
    watch = LakeErrors(store)
    a = subscribed(store, "a")
    store.put_last_error(failed(a))
    for now in (0, 320, 7200):
        assert not polled(watch, now, worker(a, 7, relstate))
    assert polled(watch, 7220), "the copy has ended"


@pytest.mark.parametrize("relstate", [SubRelState.SYNCWAIT, SubRelState.SYNCDONE])
def test_a_sync_worker_that_waits_shows_nothing(store: CatalogStore, relstate: str) -> None:
    """It would wait for the failing apply worker for ever."""
    watch = LakeErrors(store)
    a = subscribed(store, "a")
    store.put_last_error(failed(a))
    assert not polled(watch, 0, worker(a, 7, relstate))
    assert polled(watch, 320, worker(a, 7, relstate))


def test_an_idle_apply_worker_beside_failing_copies_shows_nothing(store: CatalogStore) -> None:
    watch = LakeErrors(store)
    a = subscribed(store, "a")
    (rel,) = store.rels(a)
    store.put_last_error(failed(a, rel.srrelid))
    assert not polled(watch, 0, worker(a))
    assert not polled(watch, 310, worker(a), worker(a, rel.srrelid, SubRelState.DATASYNC))
    assert polled(watch, 320, worker(a))


def test_a_new_server_has_its_own_time(store: CatalogStore) -> None:
    watch = LakeErrors(store)
    store.put_last_error(failed(subscribed(store, "a")))
    assert not polled(watch, 0)
    assert watch.poll(400, None, ()) is None
    assert watch.poll(500, LAKE + 1, ()) is None
    assert watch.poll(790, LAKE + 1, ()) is None
    assert watch.poll(800, LAKE + 1, ()) is not None


def test_the_launcher_replaces_the_server_and_the_workers_try_at_once(family: Family) -> None:
    (repeats,) = family.subscribe("repeats")
    family.store.put_last_error(failed(repeats))
    family.start(
        settings={"wal_retrieve_retry_interval": "10s"},
        lake_errors={"LAKE_ERRORS_SECONDS": 1.0, "LAKE_ERRORS_POLL_SECONDS": 0.1},
        lake_replace_first=0,
    )
    replaced = "lake server is started again: every subscription has failed"
    wait_until(lambda: replaced in family.log(), 60, family.log)
    assert "next attempt in 20 s" in family.log()

    def tries_again() -> bool:
        sub = family.store.subscription(repeats)
        return sub is not None and sub.generation > 1

    wait_until(tries_again, 8, family.log)
    wait_until(lambda: family.status().lake_restarts, 30, family.log)
