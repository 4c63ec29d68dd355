"""A copy is still wanted, and still of the server that the subscription streams from."""

from __future__ import annotations

import pytest

from catalog.pg_lsn import LSN
from tests.workers.subscribed import Subscribed
from workers.process.worker_exit import WorkerExit
from workers.sync.attempt_check import check_attempt_and_publisher, check_same_attempt


def test_the_row_comes_back_as_the_catalog_has_it_now(world: Subscribed) -> None:
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, fingerprint="i---- @2", lake_lsn=LSN(9))
    for stored in (
        check_same_attempt(world.store, rel),
        check_attempt_and_publisher(world.store, world.sub, rel),
    ):
        assert (stored.fingerprint, stored.lake_lsn) == ("i---- @2", LSN(9))


def test_a_table_that_left_ends_the_worker(world: Subscribed) -> None:
    rel = world.rel("a")
    world.store.delete_rel(rel.srsubid, rel.srrelid)
    with pytest.raises(WorkerExit, match="has left the subscription, or is to be copied anew"):
        check_same_attempt(world.store, rel)


def test_another_copy_id_ends_the_worker(world: Subscribed) -> None:
    rel = world.rel("a")
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="another")
    with pytest.raises(WorkerExit, match="has left the subscription, or is to be copied anew"):
        check_same_attempt(world.store, rel)
    with pytest.raises(WorkerExit, match="has left the subscription, or is to be copied anew"):
        check_attempt_and_publisher(world.store, world.sub, rel)


def test_another_timeline_ends_the_worker(world: Subscribed) -> None:
    rel, made_on = world.rel("a"), world.sub
    world.store.update_subscription(made_on.oid, timeline=2)
    assert check_same_attempt(world.store, rel) == rel
    with pytest.raises(WorkerExit, match="was made on timeline None"):
        check_attempt_and_publisher(world.store, made_on, rel)


def test_a_subscription_that_is_gone_ends_the_worker(world: Subscribed) -> None:
    rel = world.rel("a")
    world.store.delete_subscription(world.sub.oid)
    with pytest.raises(WorkerExit, match='subscription "mysub" was removed'):
        check_attempt_and_publisher(world.store, world.sub, rel)
