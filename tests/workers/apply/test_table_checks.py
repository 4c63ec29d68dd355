"""A table that gets another name, or another relation under its name."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import ReplicationError
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import SubRelState
from tests.workers.subscribed import Subscribed
from tests.workers.transactions import batch, relation, row
from workers.proto.messages import Delete, Insert, Message, Truncate

A = relation(1, "a", "id", "v")


B = relation(2, "b", "id", "v")


MOVED = relation(1, "moved", "id", "v")


ANOTHER = relation(3, "a", "id", "v")


@pytest.fixture
def world(world: Subscribed) -> Subscribed:
    for name, relid in (("a", 1), ("b", 2)):
        world.store.update_rel(world.sub.oid, world.rel(name).srrelid, remote_relid=relid)
    return world


def insert(relid: int, key: int) -> Insert:
    return Insert(relid, row(str(key), "0"))


def keys(world: Subscribed, name: str) -> list[int]:
    return [found[0] for found in world.rows(name)]


def refused(world: Subscribed, *transactions: list[Message]) -> ReplicationError:
    with pytest.raises(ReplicationError) as caught:
        world.worker().apply_batch(batch(*transactions))
    return caught.value


@pytest.mark.parametrize("change", [insert(1, 2), Truncate(False, False, (1,))])
def test_a_renamed_table_stops_before_its_first_change(world: Subscribed, change: Message) -> None:
    """Its changes are not dropped, and what came before is applied."""
    before: list[Message] = [A, insert(1, 1)]
    others: list[list[Message]] = [[B, insert(2, n)] for n in (1, 2, 3)]
    error = refused(world, before, others[0], others[1], [MOVED, change], others[2])
    assert error.code == "55000"
    assert '"public.moved" does not exist' in error.primary
    assert '"public.a"' in (error.detail or "")
    assert f"pgsub refresh {world.sub.subname}" in (error.hint or "")
    assert (keys(world, "a"), keys(world, "b")) == ([1], [1, 2])


@pytest.mark.parametrize("apart", [True, False], ids=["transactions", "one transaction"])
def test_a_table_that_has_its_old_name_again_at_the_end(world: Subscribed, apart: bool) -> None:
    """What counts is the name that it had at each change."""
    steps: list[list[Message]] = [[A, insert(1, 1)], [MOVED, insert(1, 2)], [A, insert(1, 3)]]
    transactions = steps if apart else [[message for step in steps for message in step]]
    error = refused(world, *transactions)
    assert (error.code, keys(world, "a")) == ("55000", [1] if apart else [])


def test_a_renamed_table_s_transaction_can_be_skipped(world: Subscribed) -> None:
    """What it missed then may be a DELETE: its keys are not trusted any more."""
    both = batch([A, insert(1, 1)], [MOVED, Delete(1, "K", row("1", "0"))])
    worker = world.worker()
    worker.sub = replace(world.sub, subskiplsn=LSN(int(both.final_lsn[1])))
    worker.apply_batch(both)
    assert keys(world, "a") == [1]
    assert not world.rel("a").copied


def test_a_table_that_was_synchronised_under_its_old_name(world: Subscribed) -> None:
    """What its sync worker applied already was not applied under another name: nothing to stop."""
    late = batch([MOVED, insert(1, 1)])
    worker = world.worker()
    worker.rels["public", "a"] = replace(
        world.rel("a"), srsubstate=SubRelState.SYNCDONE, srsublsn=LSN(int(late.end_lsn[0]))
    )
    worker.apply_batch(late)
    assert keys(world, "a") == []


def test_another_relation_under_the_name_may_have_keys_that_are_there(world: Subscribed) -> None:
    """Dropped and made again: FOR ALL TABLES has one fingerprint for both."""
    world.worker().apply_batch(batch([A, insert(1, 1)]))
    error = refused(world, [A, insert(1, 1)], [ANOTHER, insert(3, 2)], [insert(3, 1)])
    assert (error.code, keys(world, "a")) == ("23505", [1, 2])
    assert (world.rel("a").copied, world.rel("a").remote_relid) == (False, 3)
    moved: list[Message] = [relation(3, "moved", "id", "v"), insert(3, 4)]
    assert refused(world, [A, insert(1, 1)], [ANOTHER, insert(3, 2)], moved).code == "55000"


def test_the_relation_that_was_subscribed_is_trusted(world: Subscribed) -> None:
    world.worker().apply_batch(batch([A, insert(1, 1)]))
    assert world.rel("a").copied
