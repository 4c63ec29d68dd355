"""Branches that stayed are dropped at the next chance, and no branch of anybody else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.leaked_branch import LeakedBranch
from catalog.pg_subscription import SubCreate
from catalog.pg_subscription_rel import SubscriptionRel
from tests.workers.subscribed import Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import MAIN, LakeIdent, LakeTable
from workers.tables.leaked_branches import drop_leaked_branches

A = LakeIdent("public", "a")
OLD = "pgsub_1_1_old"


def leak(subuuid: str = "u", name: str = "a", reason: str = "no route") -> LeakedBranch:
    return LeakedBranch("public", name, subuuid, "mysub", 1, reason)


@pytest.fixture
def left(world: Subscribed) -> Subscribed:
    """The table has left its subscription, and has a branch."""
    dest = MemoryDestination(world.lake)
    dest.create_branch(A, OLD)
    dest.create_branch(A, "mine")
    world.store.delete_rel(world.sub.oid, world.rel("a").srrelid)
    world.store.put_leaked_branch(leak())
    return world


def drop(world: Subscribed, dest: MemoryDestination | None = None) -> list[LeakedBranch]:
    lake = dest or MemoryDestination(world.lake)
    return drop_leaked_branches(
        world.store, lambda idents: [lake.table(ident) for ident in idents], lambda: lake
    )


def branches(world: Subscribed) -> set[str]:
    return set(world.lake.tables[A].refs) - {MAIN}


def test_the_branches_go_behind_a_fence_and_then_the_row(left: Subscribed) -> None:
    before = left.lake.tables[A].refs[MAIN]
    assert drop(left) == []
    assert branches(left) == {"mine"}
    assert left.lake.tables[A].refs[MAIN] != before
    assert left.store.leaked_branches() == []


class Away(MemoryDestination):
    """A lake that refuses one call."""

    def drop_branches(self, *_: object, **__: object) -> None:
        raise ConnectionFailure("the lake server does not answer")


def test_what_stays_is_listed_with_today_s_reason(left: Subscribed) -> None:
    said = leak(reason="the lake server does not answer")
    assert drop(left, Away(left.lake)) == [said]
    assert left.store.leaked_branches() == [said]
    assert branches(left) == {"mine", OLD}


def test_a_lake_that_cannot_be_read_raises_nothing(left: Subscribed) -> None:
    def away(_: Sequence[LakeIdent]) -> list[LakeTable | None]:
        raise ConnectionFailure("no lake")

    def never() -> MemoryDestination:
        raise AssertionError("it is not opened")

    assert drop_leaked_branches(left.store, away, never) == [leak(reason="no lake")]
    left.lake.tables.pop(A)
    gone: list[LakeTable | None] = [None]
    assert drop_leaked_branches(left.store, lambda _: gone, never) == [], "the table is gone"
    assert left.store.leaked_branches() == []


def test_a_table_of_another_owner_is_left_alone(left: Subscribed) -> None:
    left.store.forget_leaked_branch(leak())
    left.store.put_leaked_branch(leak(subuuid="another"))
    assert drop(left) == []
    assert branches(left) == {"mine", OLD}
    assert left.store.leaked_branches() == []


@pytest.mark.parametrize("dropping", [False, True])
def test_a_table_that_is_written_again_is_left_to_its_worker(
    world: Subscribed, dropping: bool
) -> None:
    """Unless its subscription is being dropped: no worker comes any more."""
    dest = MemoryDestination(world.lake)
    dest.create_branch(A, OLD)
    world.store.put_leaked_branch(leak())
    if dropping:
        world.store.update_subscription(world.sub.oid, subcreate=SubCreate.DROPPING)
    assert drop(world, dest) == []
    assert (OLD in branches(world)) == (not dropping)
    assert world.store.leaked_branches() == []


@pytest.mark.parametrize("moment", ["table", "fence"])
def test_a_table_that_is_subscribed_again_meanwhile_keeps_its_branches(
    world: Subscribed, moment: str
) -> None:
    """Its new worker copies to a branch: a fence or a drop would end the copy."""
    rel = world.rel("a")
    MemoryDestination(world.lake).create_branch(A, OLD)
    world.store.delete_rel(world.sub.oid, rel.srrelid)
    world.store.put_leaked_branch(leak())
    before = world.lake.tables[A].refs[MAIN]

    def refresh(operation: str) -> None:
        if operation == moment:
            subscribe_again(world, rel)

    assert drop(world, MemoryDestination(world.lake, failpoint=refresh)) == []
    assert (world.lake.tables[A].refs[MAIN] == before) == (moment == "table")
    assert branches(world) == {OLD}
    assert world.store.leaked_branches() == []


def test_a_table_that_leaves_again_meanwhile_stays_on_the_list(left: Subscribed) -> None:
    """The command that listed it was killed; the branches of its last worker are still there."""
    again = replace(leak(), since=9, reason="the command was killed")

    def command(operation: str) -> None:
        if operation == "drop_branches":
            left.store.put_leaked_branch(again)

    assert drop(left, MemoryDestination(left.lake, failpoint=command)) == []
    assert left.store.leaked_branches() == [again]


def subscribe_again(world: Subscribed, rel: SubscriptionRel) -> None:
    """As REFRESH PUBLICATION of another process does."""
    world.store.insert_rel(replace(rel, srrelid=0))
