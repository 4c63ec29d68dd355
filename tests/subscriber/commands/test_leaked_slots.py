"""Slots that a command had to leave behind on a publisher."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
)
from catalog.leaked_slot import leaked_slot
from subscriber.commands.alter import alter_connection, alter_refresh
from subscriber.commands.create_drop import (
    create_subscription,
    drop_subscription,
)
from tests.subscriber.commands.left_slots import OTHER_WORDS, left_behind, permanent
from tests.subscriber.twins import Around, Slot, nothing_is_left, statement


def test_a_leaked_slot_goes_through_other_words_for_its_server(world: Around) -> None:
    _, name = left_behind(world)
    alter_connection("mysub", OTHER_WORDS, world.context)
    alter_refresh("mysub", world.context, copy_data=True)
    assert list(world.publisher.slots) == ["mysub"]
    assert world.store.leaked_slots() == []
    assert name not in str(world.said())


@pytest.mark.parametrize("changes", [{"systemid": "2"}, {"datoid": 5}])
def test_one_of_another_server_or_database_is_left_alone(
    world: Around, changes: dict[str, Any]
) -> None:
    """The words may be what they were."""
    sub, name = left_behind(world)
    world.publisher.identity = replace(world.publisher.identity, **changes)
    alter_refresh("mysub", world.context, copy_data=True)
    assert name in world.publisher.slots
    assert world.store.leaked_slots() == [leaked_slot(sub, name, "its table is synchronised")]


@pytest.mark.parametrize(("words", "left"), [("host=db dbname=shop", 0), (OTHER_WORDS, 1)])
def test_one_that_is_not_there_may_be_on_a_standby(world: Around, words: str, left: int) -> None:
    """A standby has its primary's system identifier and slots of its own."""
    _, name = left_behind(world)
    del world.publisher.slots[name]
    alter_connection("mysub", words, world.context)
    alter_refresh("mysub", world.context, copy_data=True)
    assert len(world.store.leaked_slots()) == left


def test_a_main_slot_is_dropped_only_in_the_words_it_was_left_by(world: Around) -> None:
    """A clone of the server has its identity, its database and its slots: this may be another's."""
    sub = create_subscription(statement(), world.context)
    left = leaked_slot(replace(sub, subconninfo="host=staging dbname=shop"), "app", "left")
    world.store.put_leaked_slot(left)
    world.publisher.slots["app"] = Slot()
    alter_refresh("mysub", world.context, copy_data=True)
    assert "app" in world.publisher.slots
    assert world.store.leaked_slots() == [left]
    world.store.put_leaked_slot(replace(left, conninfo=sub.subconninfo))
    alter_refresh("mysub", world.context, copy_data=True)
    assert "app" not in world.publisher.slots
    assert world.store.leaked_slots() == [left]


@pytest.mark.parametrize("standby", [False, True])
def test_one_whose_words_are_forgotten_is_gone_where_no_standby_says_so(
    world: Around, standby: bool
) -> None:
    _, name = left_behind(world)
    (left,) = world.store.leaked_slots()
    world.store.forget_leaked_slot(left)
    world.store.put_leaked_slot(replace(left, conninfo=""))
    del world.publisher.slots[name]
    world.publisher.standby = standby
    alter_refresh("mysub", world.context, copy_data=True)
    assert bool(world.store.leaked_slots()) == standby


def test_a_publisher_that_is_lost_meanwhile_disturbs_no_command(world: Around) -> None:
    left_behind(world)
    world.publisher.fail["identify_system"] = ConnectionFailure("lost the connection")
    alter_refresh("mysub", world.context, copy_data=True)
    assert len(world.store.leaked_slots()) == 1


def test_slots_of_synchronisations_are_looked_for_where_they_were_made(world: Around) -> None:
    """What another server does not have is not gone."""
    sub, name = permanent(world)
    world.publisher.identity = replace(world.publisher.identity, systemid="2")
    del world.publisher.slots[name]
    drop_subscription("mysub", world.context)
    (left,) = world.store.leaked_slots()
    assert (left.slot_name, left.sysid) == (name, sub.sysid)
    assert f"SELECT pg_drop_replication_slot('{name}')" in str(world.notices)


def test_drop_names_the_sync_slots_it_cannot_reach(world: Around) -> None:
    """D-2 with a slot name; D-3 without: it tries, and gives up silently."""
    sub, name = permanent(world)
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    with pytest.raises(ConnectionFailure, match="when attempting to drop") as caught:
        drop_subscription("mysub", world.context)
    assert "ALTER SUBSCRIPTION ... DISABLE" in (caught.value.hint or "")
    assert world.said()[-1] == f'WARNING: could not drop tablesync replication slot "{name}"'
    world.notices.clear()
    world.store.update_subscription(sub.oid, subslotname=None, subenabled=False)
    drop_subscription("mysub", world.context)
    assert (world.said(), world.store.subscriptions()) == ([], [])
    assert [slot.slot_name for slot in world.store.leaked_slots()] == [name]


def test_a_sync_slot_that_cannot_be_dropped_is_leaked(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subscriber.commands.leaked_slots.SLOT_RELEASE_SECONDS", 0.0)
    _, name = permanent(world)
    world.publisher.slots[name].active = True
    drop_subscription("mysub", world.context)
    assert [slot.slot_name for slot in world.store.leaked_slots()] == [name]


def test_a_leaked_slot_that_is_used_again_is_left_alone(world: Around) -> None:
    create_subscription(statement(), world.context)
    drop_subscription("mysub", world.context, leave_slot=True)
    again = {"create_slot": False, "copy_data": False, "slot_name": "mysub"}
    create_subscription(statement("again", with_=again), world.context)
    world.publisher.tables = {}
    create_subscription(statement("two"), world.context)
    drop_subscription("two", world.context)
    assert "mysub" in world.publisher.slots


def test_slot_that_is_active_is_leaked_and_tried_again(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("subscriber.commands.leaked_slots.SLOT_RELEASE_SECONDS", 0.0)
    create_subscription(statement(connection="host=db password=x"), world.context)
    world.publisher.slots["mysub"].active = True
    drop_subscription("mysub", world.context)
    (leaked,) = world.store.leaked_slots()
    assert leaked.reason == 'replication slot "mysub" is active'
    assert Path(leaked.passfile or "").exists()
    world.publisher.slots["mysub"].active = False
    create_subscription(statement("two", connection="host=db password=x"), world.context)
    drop_subscription("two", world.context)
    assert world.store.leaked_slots() == []
    nothing_is_left(world)
