"""``pgsub reset-stats``: one subscription's counters, or all."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from catalog.errcodes import UndefinedObject
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore
from subscriber.commands.reset_stats import reset_subscription_stats


@pytest.fixture
def store() -> Iterator[CatalogStore]:
    store = CatalogStore.open(":memory:")
    sub = Subscription("one", "host=db", ("pub",), subuuid="1")
    for each in (sub, replace(sub, subname="two", subuuid="2")):
        store.count_for_stats(store.insert_subscription(each).oid, apply_error_count=3)
    yield store
    store.close()


def counted(store: CatalogStore) -> list[tuple[int, int | None]]:
    stats = [store.subscription_stats(sub.oid) for sub in store.subscriptions()]
    return [(each.apply_error_count, each.stats_reset) for each in stats]


def test_one_is_reset_and_the_other_is_not(store: CatalogStore) -> None:
    reset_subscription_stats("one", store)
    (errors, first), other = counted(store)
    assert (errors, other) == (0, (3, None))
    assert first
    reset_subscription_stats("one", store)
    again = counted(store)[0][1]
    assert again
    assert again > first


def test_all_are_reset_with_one_stamp(store: CatalogStore) -> None:
    reset_subscription_stats(None, store)
    (errors, stamp), other = counted(store)
    assert errors == 0
    assert stamp
    assert other == (0, stamp)


def test_unknown_subscription(store: CatalogStore) -> None:
    with pytest.raises(UndefinedObject, match='subscription "nobody" does not exist'):
        reset_subscription_stats("nobody", store)
    assert counted(store) == [(3, None), (3, None)]
