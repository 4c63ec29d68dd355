"""Rows that are in the way or missing: PostgreSQL's words, no value, counted once."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ConnectionFailure, ReplicationError
from catalog.pg_stat_subscription_stats import ConflictType, SubscriptionStats
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.changes.key_conflict import KeyConflict
from workers.lake.effects import Counts
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.process import failpoints
from workers.proto.messages import Delete, Insert, Message, Update

A = relation(1, "a", "id", "v")
FULL = relation(1, "a", "id", "v", identity="f")
SECRET = "31415926"

MISSES: list[list[Message]] = [
    [A, Update(1, None, None, row("8", SECRET)), Delete(1, "K", row(SECRET, ""))],
    [A, Update(1, None, None, row("9", SECRET))],
]


def stats(world: Subscribed) -> SubscriptionStats:
    return world.store.subscription_stats(world.sub.oid)


def test_rows_that_were_not_found_are_told_and_counted(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    world.worker().apply_batch(batch(*MISSES))
    lines = [each for each in caplog.records if "action=conflict" in each.getMessage()]
    relid = world.rel("a").srrelid
    assert [each.getMessage() for each in lines] == [
        f"action=conflict subid={world.sub.oid} relid={relid} lsn=0/C8 count={count} "
        f'sqlstate=40001 conflict detected on relation "public.a": conflict={conflict}'
        for count, conflict in ((2, "update_missing"), (1, "delete_missing"))
    ]
    assert [each.__dict__["DETAIL"] for each in lines] == [
        "Could not find the row to be updated.\n2 such rows in the batch that ends at 0/C8, "
        "matched by replica identity (id).",
        "Could not find the row to be deleted.\nOne such row in the batch that ends at 0/C8, "
        "matched by replica identity (id).",
    ]
    assert SECRET not in "".join(str(vars(each)) for each in lines)
    assert stats(world) == SubscriptionStats(
        world.sub.oid, confl_update_missing=2, confl_delete_missing=1
    )


def test_rows_of_somebody_else_are_told_and_counted(
    world: Subscribed, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = MemoryDestination.count

    def beside_another(*given: Any) -> list[Counts]:
        met = {"update_origin_differs": 1, "delete_origin_differs": 2}
        return [replace(each, **met) for each in count(*given)]

    monkeypatch.setattr(MemoryDestination, "count", beside_another)
    caplog.set_level(logging.INFO, "workers")
    world.worker().apply_batch(batch([A, Insert(1, row("50", SECRET))]))
    lines = [each for each in caplog.records if "action=conflict" in each.getMessage()]
    assert [each.getMessage().partition("count=")[2] for each in lines] == [
        '1 sqlstate=40001 conflict detected on relation "public.a": conflict=update_origin_differs',
        '2 sqlstate=40001 conflict detected on relation "public.a": conflict=delete_origin_differs',
    ]
    assert [each.__dict__["DETAIL"].splitlines()[0] for each in lines] == [
        "Updating a row that was modified by somebody else.",
        "Deleting a row that was modified by somebody else.",
    ]
    counted = stats(world)
    assert (counted.confl_update_origin_differs, counted.confl_delete_origin_differs) == (1, 2)


def test_several_changes_of_a_missing_row_are_one(world: Subscribed) -> None:
    update = Update(1, None, None, row("8", "1"))
    world.worker().apply_batch(batch([A, update], [update, update]))
    assert stats(world).confl_update_missing == 1


def test_rows_matched_whole_name_no_key(
    world: Subscribed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "workers")
    world.worker().apply_batch(batch([FULL, Delete(1, "O", row("1", "1"))]))
    (line,) = (each for each in caplog.records if "action=conflict" in each.getMessage())
    assert line.__dict__["DETAIL"].endswith("matched by whole rows.")
    assert stats(world).confl_delete_missing == 1


@pytest.mark.parametrize("place", ["apply.all_tables_published", "apply.branches_written"])
def test_a_worker_that_dies_before_the_origin_moves_has_counted_nothing(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    worker = world.worker()

    def reach(name: str) -> None:
        if name == place:
            raise ConnectionFailure("died")

    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(ConnectionFailure):
            worker.apply_batch(batch(*MISSES))
    assert stats(world) == SubscriptionStats(world.sub.oid)


def test_a_sync_worker_counts_too(world: Subscribed) -> None:
    worker = world.worker()
    worker.own_relid = world.rel("a").srrelid
    worker.apply_batch(batch(*MISSES))
    assert stats(world).confl_update_missing == 2
    assert world.position() == 0


def test_a_row_in_the_way(world: Subscribed) -> None:
    world.distrust("a")
    world.put("a", (1, 1))
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch([A, Insert(1, row("1", SECRET))]))
    error = caught.value
    assert isinstance(error, KeyConflict)
    assert error.conflict is ConflictType.INSERT_EXISTS
    assert error.report().splitlines()[:2] == [
        'ERROR:  23505: conflict detected on relation "public.a": conflict=insert_exists',
        'DETAIL:  Key (id) already exists in lake table "public.a".',
    ]
    assert SECRET not in error.report()


def test_the_wording_of_both_conflicts_of_keys() -> None:
    for kind in (ConflictType.INSERT_EXISTS, ConflictType.UPDATE_EXISTS):
        error = KeyConflict(kind, LakeIdent("s", "t"), ("a", "b"))
        assert error.primary == f'conflict detected on relation "s.t": conflict={kind.value}'
        assert error.detail == 'Key (a, b) already exists in lake table "s.t".'
