"""Lists of files of expired snapshots."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from pathlib import Path

from catalog.expired_files import ExpiredFiles
from catalog.pg_subscription import Subscription
from catalog.store_sqlite import CatalogStore

SUB = Subscription("mysub", "host=db", ("pub",), subuuid="u", subslotname="mysub")
HOUR = 3600.0


def expired(subid: int, table: str = "a", at: float = 1000.0) -> ExpiredFiles:
    return ExpiredFiles(subid, "public", table, "uuid", at, ["file:/x y\n/é", "s3://b/2"])


def test_a_list_comes_back_as_it_was_from_the_disk(tmp_path: Path) -> None:
    with closing(CatalogStore.open(tmp_path)) as store:
        store.add_expired_files(expired(7))
        store.add_expired_files(expired(7, "b"))
    with closing(CatalogStore.open(tmp_path)) as store:
        (found,) = store.expired_files_of_table("public", "a")
        assert replace(found, id=0) == expired(7)
        store.forget_expired_files(found.id)
        assert store.expired_files_of_table("public", "a") == []
        assert len(store.expired_files_of_table("public", "b")) == 1


def test_a_list_is_due_when_the_grace_is_over(tmp_path: Path) -> None:
    """Or when the clock was set back, by years perhaps."""
    with closing(CatalogStore.open(tmp_path)) as store:
        store.add_expired_files(expired(7, at=10 * HOUR))

        def due(hours: float) -> int:
            return store.due_expired_files(7, now=hours * HOUR, grace=HOUR) is not None

        hours = [hours for hours in (8.9, 9.1, 10, 10.9, 11, 12) if due(hours)]
        assert hours == [8.9, 11, 12]


def test_the_oldest_due_list_comes_first_and_tried_ones_not_at_all(tmp_path: Path) -> None:
    with closing(CatalogStore.open(tmp_path)) as store:
        for at in (30.0, 10.0, 20.0):
            store.add_expired_files(expired(7, at=at))
        tried: list[int] = []
        times = []
        while (due := store.due_expired_files(7, now=HOUR, grace=0, tried=tried)) is not None:
            tried.append(due.id)
            times.append(due.expired)
        assert times == [10.0, 20.0, 30.0]


def test_lists_of_a_dropped_subscription_are_everybodys(tmp_path: Path) -> None:
    with closing(CatalogStore.open(tmp_path)) as store:
        one = store.insert_subscription(SUB).oid
        other = store.insert_subscription(replace(SUB, subname="other", subuuid="v")).oid
        store.add_expired_files(expired(one))
        assert store.due_expired_files(one, now=9000.0, grace=0) is not None
        assert store.due_expired_files(other, now=9000.0, grace=0) is None
        store.delete_subscription(one)
        assert store.due_expired_files(other, now=9000.0, grace=0) is not None
