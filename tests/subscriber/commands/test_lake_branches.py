"""No branch of pgsub is left on a lake table that no subscription writes any more."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from catalog.errcodes import ConnectionFailure
from catalog.pg_subscription_rel import SubRelState
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.commands.lake_branches import drop_lake_branches
from subscriber.commands.refresh import refresh_publication
from tests.subscriber.commands.subscribed import row
from tests.subscriber.twins import Around, PublishedTable, statement
from tests.workers.lake.server.torn_tables import TornLake
from workers.lake.table import SHARED, LakeIdent


@pytest.fixture
def subscribed(world: Around) -> Around:
    """A subscription whose tables were copied to the lake."""
    world.publisher.tables["b"] = PublishedTable()
    create_subscription(statement(), world.context)
    for rel in world.store.rels(row(world).oid):
        world.lake.add(rel.lake_table, owner=row(world).subuuid)
    return world


def tables(world: Around) -> list[str]:
    return sorted(rel.lake_table for rel in world.store.rels(row(world).oid))


def test_a_drop_leaves_no_branch(subscribed: Around) -> None:
    """After a fence, so that no late call publishes one."""
    names = tables(subscribed)
    drop_subscription("mysub", subscribed.context)
    assert sorted(subscribed.lake.fenced) == names
    assert sorted(subscribed.lake.unbranched) == [(name, "pgsub_") for name in names]


def test_a_lake_that_is_away_does_not_stop_a_drop(subscribed: Around) -> None:
    """The tables are listed, and the next command of the kind drops the branches."""
    sub, names = row(subscribed), tables(subscribed)
    subscribed.lake.fail["drop_branches"] = ConnectionFailure("the lake server does not answer")
    drop_subscription("mysub", subscribed.context)
    assert subscribed.store.subscriptions() == []
    (left,) = [said for said in subscribed.said() if "branches of pgsub may stay" in said]
    assert all(f'"public.{name}"' in left for name in names)
    listed = subscribed.store.leaked_branches()
    assert [leak.lake_table for leak in listed] == names
    assert {leak.reason for leak in listed} == {"the lake server does not answer"}
    subscribed.lake.fail.clear()
    drop_lake_branches(sub, [], subscribed.context)
    assert {(name, "pgsub_") for name in names} <= set(subscribed.lake.unbranched)
    assert subscribed.store.leaked_branches() == []


def test_a_killed_command_leaves_a_row(subscribed: Around) -> None:
    subscribed.lake.fail["drop_branches"] = KeyboardInterrupt()
    with pytest.raises(KeyboardInterrupt):
        drop_subscription("mysub", subscribed.context)
    listed = subscribed.store.leaked_branches()
    assert [leak.lake_table for leak in listed] == tables(subscribed)
    assert {leak.reason for leak in listed} == {"the command was killed"}


def test_tables_of_others_and_of_shared_sources(subscribed: Around) -> None:
    """Somebody made the table anew; and other sources go on in a shared one, without a fence."""
    sub, names = row(subscribed), tables(subscribed)
    ident = LakeIdent("public", names[0])
    table = subscribed.lake.tables[ident]
    rels = [rel for rel in subscribed.store.rels(sub.oid) if rel.lake_table == names[0]]
    for rel in rels:
        subscribed.store.delete_rel(sub.oid, rel.srrelid)
    subscribed.lake.tables[ident] = replace(table, owner="another")
    drop_lake_branches(sub, rels, subscribed.context)
    assert (subscribed.lake.fenced, subscribed.lake.unbranched) == ([], [])
    subscribed.lake.tables[ident] = replace(table, owner=SHARED)
    drop_lake_branches(sub, rels, subscribed.context)
    prefix = f"pgsub_{sub.subuuid.replace('-', '')}_"
    assert (subscribed.lake.fenced, subscribed.lake.unbranched) == ([], [(names[0], prefix)])


def test_a_table_that_leaves_has_no_branch_and_the_others_keep_theirs(subscribed: Around) -> None:
    first, *others = tables(subscribed)
    publisher = subscribed.publisher
    del publisher.tables[first]
    sub = row(subscribed)
    with closing(publisher.connect(sub)) as conn:
        refresh_publication(sub, conn, subscribed.context, copy_data=True)
    assert tables(subscribed) == others
    assert subscribed.lake.unbranched == [(first, "pgsub_")]


@pytest.mark.parametrize("state", [SubRelState.DATASYNC, SubRelState.SYNCDONE])
def test_the_files_of_an_open_copy_go_with_the_table(
    subscribed: Around, state: SubRelState
) -> None:
    """Later nobody knows the name of the copy. A copy that has ended is the table."""
    sub = row(subscribed)
    rel = subscribed.store.rels(sub.oid)[0]
    copied = replace(rel, srsubstate=state, epoch="the copy")
    drop_lake_branches(sub, [copied], subscribed.context)
    open_copies = [(rel.lake_table, "the copy")] if state is SubRelState.DATASYNC else []
    assert subscribed.lake.discarded == open_copies


def test_a_table_with_a_branch_keeps_the_files_of_a_copy(subscribed: Around) -> None:
    sub = row(subscribed)
    rel = subscribed.store.rels(sub.oid)[0]
    subscribed.store.delete_rel(sub.oid, rel.srrelid)
    subscribed.lake.fail["drop_branches"] = ConnectionFailure("the lake server does not answer")
    copied = replace(rel, srsubstate=SubRelState.DATASYNC, epoch="the copy")
    drop_lake_branches(sub, [copied], subscribed.context)
    assert subscribed.lake.discarded == []


@pytest.mark.parametrize("how", ["DROP", "a table leaves"])
def test_what_is_kept_of_lake_tables_that_are_gone_is_forgotten(
    subscribed: Around, how: str
) -> None:
    TornLake(subscribed.context.data_dir)
    subscribed.store.put_lake_durable([("public", "a", "file:/a"), ("public", "t", "file:/t")])
    if how == "DROP":
        drop_subscription("mysub", subscribed.context)
    else:
        del subscribed.publisher.tables["a"]
        bring_in_line(row(subscribed), statement(), subscribed.context)
    assert subscribed.store.lake_durable() == [("public", "t", "file:/t")]
