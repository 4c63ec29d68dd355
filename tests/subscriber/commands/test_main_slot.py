"""The main slot: what CREATE makes of one, and what DROP does with it."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.leaked_slot import LeakedSlot, leaked_slot
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import (
    SubCreate,
    Subscription,
    SyncSlot,
    sync_slot_name,
    system_identifier,
)
from subscriber.commands.alter import alter_connection, alter_refresh
from subscriber.commands.create_drop import (
    create_subscription,
    drop_subscription,
    enable_subscription,
)
from subscriber.commands.leaked_slots import retry_leaked_slots
from subscriber.commands.refresh import refresh_publication
from tests.subscriber.twins import Around, PublisherTwin, Slot, nothing_is_left, statement


def test_slot_made_before(world: Around) -> None:
    world.publisher.slots["pre"] = Slot(confirmed=LSN(77))
    options = {"create_slot": False, "slot_name": "pre"}
    sub = create_subscription(statement(with_=options), world.context)
    assert (sub.subslotname, sub.max_flush_lsn) == ("pre", LSN(77))
    drop_subscription("mysub", world.context)
    assert world.publisher.slots == {}


@pytest.mark.parametrize(
    ("slot", "said"),
    [
        (None, "does not exist on the publisher"),
        (Slot(plugin="test_decoding"), "is not one of pgoutput"),
        (Slot(active=True), "is active for PID"),
    ],
)
def test_slot_made_before_that_will_not_do(world: Around, slot: Slot | None, said: str) -> None:
    if slot is not None:
        world.publisher.slots["pre"] = slot
    create_subscription(statement(with_={"create_slot": False, "slot_name": "pre"}), world.context)
    (warning,) = world.notices
    assert said in warning.primary
    assert warning.hint


def test_slot_name_none(world: Around) -> None:
    options = {"create_slot": False, "slot_name": "NONE", "enabled": False}
    sub = create_subscription(statement(with_=options), world.context)
    assert (sub.subslotname, sub.max_flush_lsn) == (None, LSN(0))
    with pytest.raises(ObjectNotInPrerequisiteState, match="does not have a slot name"):
        enable_subscription("mysub", world.context)
    world.publisher.fail["connect"] = AssertionError()
    drop_subscription("mysub", world.context)


def test_slot_taken(world: Around) -> None:
    world.publisher.slots["mysub"] = Slot()
    with pytest.raises(DuplicateObject, match='replication slot "mysub" already exists'):
        create_subscription(statement(connection="password=x"), world.context)
    assert list(world.publisher.slots) == ["mysub"]
    world.publisher.slots.clear()
    nothing_is_left(world)


def test_slot_taken_in_the_last_moment_is_not_dropped(world: Around) -> None:
    world.publisher.on_create_slot = lambda: world.publisher.slots.update(mysub=Slot())
    world.publisher.fail["create_slot"] = ReplicationError("already exists", sqlstate="42710")
    with pytest.raises(ReplicationError, match="already exists"):
        create_subscription(statement(), world.context)
    assert list(world.publisher.slots) == ["mysub"]
    assert world.store.subscriptions() == []


def test_slot_made_although_the_answer_was_lost(world: Around) -> None:
    world.publisher.on_create_slot = lambda: world.publisher.slots.update(mysub=Slot())
    world.publisher.fail["create_slot"] = ConnectionFailure("lost the connection")
    with pytest.raises(ConnectionFailure):
        create_subscription(statement(), world.context)
    nothing_is_left(world)


def test_slot_made_although_the_connection_was_lost(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old connection is good for nothing; the slot is dropped on a new one."""
    lost = ConnectionFailure("lost the connection")
    connect = PublisherTwin.connect

    def cut() -> None:
        world.publisher.slots["mysub"] = Slot()
        world.publisher.fail |= {"create_slot": lost, "exec": lost}

    def connect_again(twin: PublisherTwin, sub: Subscription) -> PublisherTwin:
        twin.fail.clear()
        return connect(twin, sub)

    world.publisher.on_create_slot = cut
    monkeypatch.setattr(PublisherTwin, "connect", connect_again)
    object.__setattr__(world.context, "connect", world.publisher.connect)
    with pytest.raises(ConnectionFailure):
        create_subscription(statement(), world.context)
    nothing_is_left(world)


def test_slot_that_is_still_being_made_is_not_forgotten(world: Around) -> None:
    world.publisher.on_create_slot = lambda: world.publisher.slots.update(mysub=Slot(active=True))
    world.publisher.fail["create_slot"] = ConnectionFailure("lost the connection")
    with pytest.raises(ConnectionFailure):
        create_subscription(statement(), world.context)
    (row,) = world.store.subscriptions()
    assert row.subcreate is SubCreate.CREATING
    assert "is active for PID" in world.said()[-1]
    world.publisher.slots["mysub"].active = False
    world.publisher.fail.clear()
    drop_subscription("mysub", world.context)
    nothing_is_left(world)


def test_drop_with_a_missing_slot(world: Around) -> None:
    """D-4: an error with nothing changed, unless an earlier DROP may have dropped it."""
    sub = create_subscription(statement(), world.context)
    world.publisher.slots.clear()
    with pytest.raises(ConnectionFailure, match="could not drop replication slot") as caught:
        drop_subscription("mysub", world.context)
    assert "SET (slot_name = NONE)" in (caught.value.hint or "")
    assert "pgsub drop --leave-slot mysub" in (caught.value.hint or "")
    assert world.store.subscription(sub.oid) == sub
    assert world.publisher.connections == 0
    world.store.update_subscription(sub.oid, subcreate=SubCreate.DROPPING)
    drop_subscription("mysub", world.context)
    assert "does not exist on publisher, skipping" in world.said()[-1]
    nothing_is_left(world)


def test_drop_of_a_disassociated_subscription_asks_nobody(world: Around) -> None:
    """D-3: the slot that was its own stays, for whoever uses it next."""
    sub = create_subscription(statement(), world.context)
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    world.store.update_subscription(sub.oid, subslotname=None, subenabled=False)
    drop_subscription("mysub", world.context)
    assert (world.store.subscriptions(), world.store.leaked_slots()) == ([], [])
    assert list(world.publisher.slots) == ["mysub"]


def permanent(world: Around) -> tuple[Subscription, str]:
    """A subscription that synchronises on permanent slots, and the slot of its table."""
    create_subscription(statement(), world.context)
    return made_permanent(world)


def made_permanent(world: Around) -> tuple[Subscription, str]:
    (sub,) = world.store.subscriptions()
    sub = world.store.update_subscription(sub.oid, sync_slot=SyncSlot.PERMANENT)
    (rel,) = world.store.rels(sub.oid)
    name = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    world.publisher.slots[name] = Slot()
    world.store.origin_create(origin_name(sub.oid, rel.srrelid))
    return sub, name


def test_drop_takes_the_slots_of_unfinished_synchronisations_along(world: Around) -> None:
    permanent(world)
    drop_subscription("mysub", world.context)
    nothing_is_left(world)


def test_drop_knows_a_sync_slot_by_its_origin(world: Around) -> None:
    """The option says something else by now."""
    sub, _ = permanent(world)
    world.store.update_subscription(sub.oid, sync_slot=SyncSlot.TEMPORARY)
    drop_subscription("mysub", world.context)
    nothing_is_left(world)


def test_s_p_4_a_slot_whose_worker_died_after_s_goes_with_the_next_command(world: Around) -> None:
    """Its password is still needed, by everybody else who connects."""
    create_subscription(statement(connection="host=db password=x"), world.context)
    sub, name = made_permanent(world)
    leaked = LeakedSlot(name, sub.subconninfo, sub.subname, sub.passfile, "s")
    world.store.put_leaked_slot(leaked)
    (rel,) = world.store.rels(sub.oid)
    with closing(world.publisher.connect(sub)) as conn:
        retry_leaked_slots(sub, conn, world.context)
        assert name in world.publisher.slots, "the table is on its way: its next worker's"
        world.store.origin_drop(origin_name(sub.oid, rel.srrelid))
        refresh_publication(sub, conn, world.context, copy_data=True)
    assert list(world.publisher.slots) == ["mysub"]
    assert world.store.leaked_slots() == []
    assert Path(sub.passfile or "").exists()
    drop_subscription("mysub", world.context)
    nothing_is_left(world)


def left_behind(world: Around) -> tuple[Subscription, str]:
    """A sync slot that is leaked, and whose table is done."""
    sub, name = permanent(world)
    (rel,) = world.store.rels(sub.oid)
    world.store.origin_drop(origin_name(sub.oid, rel.srrelid))
    world.store.put_leaked_slot(leaked_slot(sub, name, "its table is synchronised"))
    return sub, name


OTHER_WORDS = "dbname=shop user=me host=10.0.0.7"


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


@pytest.mark.parametrize(
    ("standby", "timeout", "limit"),
    [(True, "30s", 30.0), (True, 0, None), (False, "30s", None)],
)
def test_a_slot_on_a_standby_is_given_up_after_a_while(
    world: Around, standby: bool, timeout: str | int, limit: float | None
) -> None:
    """On a primary it waits for open transactions, which end by themselves."""
    world.publisher.standby = standby
    world.store.put_settings({"settings": {"create_slot_timeout": timeout}})
    create_subscription(statement(), world.context)
    assert world.publisher.timeouts == [limit]


def test_a_slot_that_was_given_up_leaves_nothing_behind(world: Around) -> None:
    world.publisher.standby = True
    late = ObjectNotInPrerequisiteState("was not made", hint="pg_log_standby_snapshot()")
    world.publisher.fail["create_slot"] = late
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        create_subscription(statement(), world.context)
    assert caught.value.hint == "pg_log_standby_snapshot()"
    nothing_is_left(world)
