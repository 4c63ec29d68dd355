"""The main slot: what CREATE makes of one, and what DROP does with it."""

from contextlib import closing
from pathlib import Path

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import (
    SubCreate,
    Subscription,
    SyncSlot,
    TwoPhaseState,
)
from subscriber.commands.alter import alter_options
from subscriber.commands.create_drop import (
    create_subscription,
    drop_subscription,
    enable_subscription,
)
from subscriber.commands.leaked_slots import retry_leaked_slots
from subscriber.commands.main_slot import renew_slot
from subscriber.commands.refresh import refresh_publication
from tests.subscriber.commands.left_slots import made_permanent, permanent
from tests.subscriber.twins import Around, PublisherTwin, Slot, nothing_is_left, statement
from tests.workers.prepared import keep
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts


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


def test_two_phase_that_an_older_publisher_cannot_turn_off(world: Around) -> None:
    """The slot would go on to send prepared transactions."""
    sub = create_subscription(statement(with_={"enabled": False}), world.context)
    enabled = TwoPhaseState.ENABLED
    world.store.update_subscription(sub.oid, subtwophasestate=enabled)
    world.publisher.server_version = 17
    with pytest.raises(ReplicationError, match="two_phase of a replication slot") as caught:
        alter_options("mysub", {"two_phase": False}, world.context)
    found = world.store.subscription(sub.oid)
    assert found is not None
    assert (caught.value.code, found.subtwophasestate) == ("0A000", enabled)
    world.publisher.server_version = 18
    alter_options("mysub", {"two_phase": False}, world.context)
    assert world.publisher.altered == ["ALTER_REPLICATION_SLOT mysub ( TWO_PHASE false )"]


@pytest.mark.parametrize(("failover", "state"), [(False, "e"), (True, "p")])
def test_a_slot_that_is_made_anew_has_two_phase_too(
    world: Around, failover: bool, state: str
) -> None:
    """But not beside failover, which no publisher makes: the worker turns it on."""
    sub = create_subscription(statement(with_={"failover": failover}), world.context)
    sub = world.store.update_subscription(sub.oid, subtwophasestate=TwoPhaseState.ENABLED)
    xacts = PreparedXacts(world.context.data_dir, sub.subuuid, sub.oid)
    keep(xacts, PreparedXact("gid", 7, LSN(1), LSN(2), 0))
    renew_slot(sub, world.publisher, world.context)
    found = world.store.subscription(sub.oid)
    assert found is not None
    assert found.subtwophasestate == state
    assert world.publisher.slots["mysub"].two_phase is not failover
    assert not xacts.folder.exists()
