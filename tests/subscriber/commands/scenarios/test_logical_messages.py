"""``messages_to``: how the table of logical messages joins, stays and leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import (
    DuplicateTable,
    FeatureNotSupported,
    ReplicationError,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from config.subscription import CreateSubscriptionStmt
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.rebuild import rebuild_subscription
from subscriber.commands.recopy import recopy_tables
from subscriber.commands.schema.show import columns_side_by_side
from tests.subscriber.twins import POINT, Around, Identity, PublishedTable, Slot, statement
from workers.lake.table import LakeIdent, Stamp

IDENT = LakeIdent("public", "said")
NAME = "pg_catalog.pg_logical_emit_message"
R = SubRelState.READY
UUID = "0b7a3c2e-0000-4000-8000-000000000001"


def asked(**keys: Any) -> CreateSubscriptionStmt:
    return statement(messages_to="public.said", **keys)


def row(world: Around) -> Subscription:
    found = world.store.subscription_by_name("mysub")
    assert found is not None
    return found


def rels(world: Around) -> dict[str, SubscriptionRel]:
    return {rel.relname: rel for rel in world.store.rels(row(world).oid)}


def messages(world: Around) -> SubscriptionRel:
    return rels(world)["pg_logical_emit_message"]


def stamp_of(world: Around) -> Stamp:
    stamp = world.lake.tables[IDENT].stamp
    assert stamp is not None
    return stamp


def test_create_makes_the_table_where_the_slot_begins(world: Around) -> None:
    """The other tables are copied; this one has nothing to copy."""
    create_subscription(asked(), world.context)
    assert {name: rel.srsubstate for name, rel in rels(world).items()} == {
        "a": "i",
        "pg_logical_emit_message": "r",
    }
    lake, rel = world.lake.tables[IDENT], messages(world)
    assert [(each.name, str(each.type)) for each in lake.columns] == [
        ("prefix", "string"),
        ("content", "binary"),
        ("lsn", "string"),
        ("transactional", "bool"),
    ]
    assert (rel.floor, rel.lake_lsn, stamp_of(world).lsn) == (POINT, POINT, POINT)
    assert (rel.epoch, lake.owner) == (stamp_of(world).epoch, row(world).subuuid)
    assert rel.holds_messages
    assert rel.remote_relid is None


def test_a_create_that_fails_leaves_no_lake_table(world: Around) -> None:
    world.lake.fail["create_table said"] = ReplicationError("the lake is away")
    with pytest.raises(ReplicationError, match="the lake is away"):
        create_subscription(asked(), world.context)
    assert world.store.subscriptions() == []
    assert world.publisher.slots == {}
    assert world.lake.tables == {}


def test_the_table_joins_while_no_worker_runs_and_leaves(world: Around) -> None:
    create_subscription(statement(), world.context)
    world.publisher.tables["b"] = PublishedTable()
    world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(POINT + 500))
    world.events.clear()
    bring_in_line(row(world), asked(), world.context)
    assert world.events == ["hold", "let go", "take effect"]
    assert rels(world)["b"].srsubstate is SubRelState.INIT
    assert (messages(world).srsubstate, messages(world).floor) == (R, LSN(POINT + 500))
    before = row(world)
    bring_in_line(row(world), asked(), world.context)
    assert row(world) == before
    bring_in_line(row(world), statement(), world.context)
    assert rels(world).keys() == {"a", "b"}
    assert row(world).tables == {}
    assert IDENT in world.lake.tables
    assert f'NOTICE: table "{NAME}" removed from "mysub"' in world.said()


def test_the_table_comes_back_behind_what_it_has(world: Around) -> None:
    create_subscription(asked(), world.context)
    bring_in_line(row(world), statement(), world.context)
    world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(POINT + 500))
    bring_in_line(row(world), asked(), world.context)
    assert (messages(world).floor, stamp_of(world).lsn) == (LSN(POINT + 500), LSN(POINT + 500))


def test_another_lake_table_needs_a_step_between(world: Around) -> None:
    create_subscription(asked(), world.context)
    with pytest.raises(FeatureNotSupported) as caught:
        bring_in_line(row(world), statement(messages_to="public.other"), world.context)
    assert "without messages_to" in (caught.value.hint or "")


def test_an_old_publisher_is_refused(world: Around) -> None:
    world.publisher.server_version = 13
    with pytest.raises(FeatureNotSupported, match="version 13 sends no logical messages"):
        create_subscription(asked(), world.context)
    assert world.publisher.slots == {}


def test_a_lake_table_of_somebody_else_is_refused(world: Around) -> None:
    world.lake.add("said")
    with pytest.raises(DuplicateTable):
        create_subscription(asked(), world.context)


def test_a_copy_of_all_tables_leaves_it_alone(world: Around) -> None:
    create_subscription(asked(), world.context)
    before = messages(world)
    recopy_tables("mysub", [], world.context)
    assert messages(world) == before
    assert f'NOTICE: table "{NAME}" will be copied again' not in world.said()


def test_a_lost_lake_table_is_made_anew_by_name(world: Around) -> None:
    create_subscription(asked(), world.context)
    before = messages(world)
    world.publisher.identity = Identity(xlogpos=LSN(POINT + 900))
    world.store.update_rel(before.srsubid, before.srrelid, lake_lsn=LSN(POINT + 700))
    world.lake.drop_table(IDENT)
    recopy_tables("mysub", [NAME], world.context)
    now = messages(world)
    assert (now.srsubstate, now.floor, now.lake_lsn) == (R, LSN(POINT + 700), LSN(POINT + 700))
    assert now.epoch == stamp_of(world).epoch != before.epoch
    assert world.said()[-1] == (
        f'NOTICE: table "{NAME}" has nothing to copy and goes on at {LSN(POINT + 700)}'
    )


def test_a_new_slot_is_where_it_goes_on(world: Around) -> None:
    """Another server, whose positions are below ours."""
    create_subscription(asked(), world.context)
    world.publisher.identity = Identity(systemid="1", timeline=3, xlogpos=LSN(900))
    recopy_tables("mysub", [], world.context)
    now = messages(world)
    assert (now.srsubstate, now.floor, now.lake_lsn) == (R, LSN(900), LSN(900))
    assert (stamp_of(world).lsn, stamp_of(world).epoch) == (LSN(900), now.epoch)
    assert rels(world)["a"].srsubstate is SubRelState.INIT


def test_a_rebuilt_catalog_goes_on_where_the_table_is(world: Around) -> None:
    world.publisher.slots["mysub"] = Slot(confirmed=LSN(500))
    at = Stamp("pg_16385", LSN(700), "e", LSN(50))
    world.lake.add("a", owner=UUID, stamp=at)
    world.lake.add("said", ("prefix", "content", "lsn", "transactional"), owner=UUID, stamp=at)
    rebuild_subscription(asked(), world.context)
    now = messages(world)
    assert (now.srsubstate, now.srsublsn, now.lake_lsn) == ("s", LSN(700), LSN(700))


def test_a_rebuilt_catalog_without_the_table_waits_for_up(world: Around) -> None:
    world.publisher.slots["mysub"] = Slot(confirmed=LSN(500))
    world.lake.add("a", owner=UUID, stamp=Stamp("pg_16385", LSN(700), "e", LSN(50)))
    rebuild_subscription(asked(), world.context)
    assert rels(world).keys() == {"a"}
    assert any("of logical messages does not exist" in each for each in world.said())
    bring_in_line(row(world), asked(), world.context)
    assert messages(world).srsubstate is R


def test_no_column_of_it_is_compared_with_the_publisher(world: Around) -> None:
    create_subscription(asked(), world.context)
    rows = columns_side_by_side("mysub", None, world.context)
    assert {each["relation"] for each in rows} == {"public.a"}


def test_the_entry_of_the_table_gives_options(world: Around) -> None:
    stmt = asked(tables={NAME: {"properties": {"p": "1"}}})
    options = replace(stmt.tables[NAME], to=None)
    assert stmt.tables[NAME].to == ("public", "said")
    assert dict(options.properties) == {"p": "1"}
