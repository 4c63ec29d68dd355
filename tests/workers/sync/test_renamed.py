"""A table that is to be copied is found by its oid, under the name that it has now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from catalog.errcodes import ReplicationError, UndefinedObject, at_fault
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from tests.workers.subscribed import Subscribed
from tests.workers.tables.test_rename_watch import NEW, Publisher, insert, lake_tables
from workers.apply.suspend import may_suspend
from workers.lake.memory.destination import MemoryDestination
from workers.process.worker_exit import WorkerExit
from workers.sync.renamed import following_name
from workers.tables.rename_tables import settle_rename_of


@pytest.fixture
def publisher(world: Subscribed) -> Publisher:
    return Publisher(world)


def to_be_copied(world: Subscribed) -> SubscriptionRel:
    rel = world.rel("a")
    world.store.set_rel_state(
        *(rel.srsubid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
    )
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="copy 2")
    return world.rel("a")


def copy(world: Subscribed, publisher: Publisher, rel: SubscriptionRel) -> None:
    watch = publisher.applier.renames
    assert watch is not None
    with following_name(watch, world.store, world.sub, rel, LSN(700)):
        raise UndefinedObject('table "public.a" not found on publisher')


def test_the_copy_goes_on_under_the_new_name(world: Subscribed, publisher: Publisher) -> None:
    rel = to_be_copied(world)
    publisher.tables[1] = NEW
    with pytest.raises(WorkerExit, match=r'table "public\.a" is "public\.new" now'):
        copy(world, publisher, rel)
    publisher.start()  # an apply worker that comes meanwhile leaves the table to its sync worker
    assert lake_tables(world) == {"public.a", "public.b"}
    sub = settle_rename_of(MemoryDestination(world.lake), world.store, world.sub, rel.srrelid)
    renamed = world.rel("new")
    assert (renamed.srrelid, renamed.srsubstate, renamed.epoch) == (rel.srrelid, "i", "copy 2")
    assert lake_tables(world) == {"public.new", "public.b"}
    assert world.store.renames(sub.oid) == []
    (change,) = world.store.schema_changes()
    assert change.lsn == LSN(700)


def test_a_copy_that_made_no_lake_table_yet_makes_it_under_the_new_name(
    world: Subscribed, publisher: Publisher
) -> None:
    rel = to_be_copied(world)
    publisher.tables[1] = NEW
    with pytest.raises(WorkerExit):
        copy(world, publisher, rel)
    world.lake.tables.pop(next(each for each in world.lake.tables if each.table == "a"))
    settle_rename_of(MemoryDestination(world.lake), world.store, world.sub, rel.srrelid)
    assert world.rel("new").lake_table == "new"


def test_a_lake_table_of_somebody_else_is_not_renamed(
    world: Subscribed, publisher: Publisher
) -> None:
    """The first copy has not made the lake table, and another writer has one of the old name."""
    rel = to_be_copied(world)
    ident = next(each for each in world.lake.tables if each.table == "a")
    world.lake.tables[ident].owner = "another"
    publisher.tables[1] = NEW
    with pytest.raises(WorkerExit):
        copy(world, publisher, rel)
    settle_rename_of(MemoryDestination(world.lake), world.store, world.sub, rel.srrelid)
    assert world.rel("new").lake_table == "new"
    assert lake_tables(world) == {"public.a", "public.b"}


def test_changes_of_the_other_table_of_a_name_are_not_those_of_one_that_waits(
    world: Subscribed, publisher: Publisher
) -> None:
    """The name b belongs to the table that was a: its rows are not dropped for a's copy."""
    to_be_copied(world)
    publisher.start()
    publisher.apply(insert(1, "b", 1))
    assert world.rows("b") == [(1, 1)]


@pytest.mark.parametrize("why", ["dropped", "not published", "swapped", "never seen", "stop"])
def test_what_is_not_followed_stays_an_error(
    world: Subscribed, publisher: Publisher, why: str
) -> None:
    rel = to_be_copied(world)
    publisher.tables[1] = NEW
    if why == "dropped":
        del publisher.tables[1]
    elif why == "not published":
        publisher.unpublished = frozenset({NEW})
    elif why == "swapped":
        publisher.tables[3] = ("public", "a")
    elif why == "never seen":
        world.store.update_rel(rel.srsubid, rel.srrelid, remote_relid=None)
        rel = world.rel("a")
    else:
        publisher.settings = publisher.settings.model_copy(update={"on_schema_change": "stop"})
    with pytest.raises(UndefinedObject):
        copy(world, publisher, rel)
    assert world.store.renames(world.sub.oid) == []


def test_a_lock_that_hides_the_published_names_suspends_nothing(
    world: Subscribed, publisher: Publisher
) -> None:
    """Another transaction has a table of the publications locked; the next attempt asks again."""
    world.declare("a", on_error="suspend")
    publisher.start()
    rel = to_be_copied(world)
    publisher.tables[1], publisher.locked = NEW, True
    with pytest.raises(ReplicationError) as unknown, at_fault(rel):
        copy(world, publisher, rel)
    assert unknown.value.code == "55P03"
    assert not may_suspend(unknown.value, world.sub, "suspend")
    assert world.store.renames(world.sub.oid) == []
    publisher.locked = False
    with pytest.raises(WorkerExit, match="its lake table is renamed"), at_fault(rel):
        copy(world, publisher, rel)


def test_rows_that_come_under_another_name_while_the_table_catches_up(
    world: Subscribed, publisher: Publisher
) -> None:
    rel, applier = world.rel("a"), publisher.applier
    applier.own_relid, applier.publishes_each_batch = rel.srrelid, True
    applier.rels = {("public", "a"): replace(rel, srsubstate=SubRelState.DATASYNC)}
    assert applier.renames is not None
    applier.renames.copies = True
    publisher.apply(insert(1, "a", 1), insert(1, "new", 2))
    assert world.rows("a") == [(1, 1), (2, 2)]
