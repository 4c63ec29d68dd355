"""``pgsub refresh NAME --recopy``: what it stores, in which order, and what it refuses."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    UndefinedObject,
    UndefinedTable,
)
from catalog.lake_maintenance import COMPACTION, LakeUpkeep
from catalog.last_error import LastError
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import SubCreate, Subscription, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from subscriber.commands import recopy
from subscriber.commands.alter import alter_connection, alter_refresh
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.recopy import recopy_tables, resume_tables
from tests.subscriber.twins import POINT, Around, Identity, PublishedTable, Slot, around, statement
from workers.process import failpoints

D, S, R = SubRelState.DATASYNC, SubRelState.SYNCDONE, SubRelState.READY
LATER = LSN(POINT + 5000)
OTHER = Identity(systemid="1", timeline=3, xlogpos=LSN(900))
"""Another server, whose positions are below ours."""


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    """Tables a to d, which stand in r, s, d and i; all but the last have rows."""
    made = around(tmp_path)
    made.publisher.tables = {name: PublishedTable() for name in "abcd"}
    create_subscription(statement(), made.context)
    store, subid = made.store, row(made).oid
    for name in "abc":
        store.set_rel_state(subid, rel(made, name).srrelid, D, None, Setter.TABLESYNC)
    for name in "ab":
        store.set_rel_state(subid, rel(made, name).srrelid, S, LSN(300), Setter.TABLESYNC)
    store.set_rel_state(subid, rel(made, "a").srrelid, R, LSN(300), Setter.APPLY)
    for name in "abc":
        store.update_rel(subid, rel(made, name).srrelid, epoch=name, lake_lsn=POINT, copied=True)
    store.origin_advance(f"pg_{subid}", POINT, "x")
    for heard in (made.notices, made.wakes, made.events):
        heard.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0


def row(world: Around) -> Subscription:
    found = world.store.subscription_by_name("mysub")
    assert found is not None
    return found


def rel(world: Around, name: str) -> SubscriptionRel:
    return next(each for each in world.store.rels(row(world).oid) if each.relname == name)


def states(world: Around) -> dict[str, str]:
    """State of each table, with a star where the next copy replaces the rows."""
    rels = world.store.rels(row(world).oid)
    return {each.relname: each.srsubstate + "*" * each.recopy for each in rels}


def position(world: Around) -> LSN:
    origin = world.store.origin_by_name(f"pg_{row(world).oid}")
    assert origin is not None
    return origin.remote_lsn


def test_one_table(world: Around) -> None:
    before = {name: rel(world, name) for name in "abcd"}
    recopy_tables("mysub", ["public.a"], world.context)
    assert states(world) == {"a": "i*", "b": "s", "c": "d", "d": "i"}
    now = rel(world, "a")
    assert now.epoch not in (None, "a")
    assert (now.srsublsn, now.lake_lsn, now.copied) == (None, LSN(0), False)
    assert [rel(world, name) for name in "bcd"] == [before[name] for name in "bcd"]
    assert world.events == ["take effect"]
    assert (position(world), row(world).max_flush_lsn) == (POINT, POINT)
    assert world.said() == ['NOTICE: table "public.a" will be copied again']


def test_every_table_and_a_copy_that_runs_is_stopped(world: Around) -> None:
    recopy_tables("mysub", [], world.context)
    assert states(world) == {"a": "i*", "b": "i*", "c": "d*", "d": "i*"}
    assert rel(world, "c").epoch != "c", "the running copy is nobody's"
    assert world.events == [f"stop {rel(world, 'c').srrelid}", "take effect"]


def test_twice_is_as_good_as_once(world: Around) -> None:
    recopy_tables("mysub", ["public.a", "public.c"], world.context)
    recopy_tables("mysub", ["public.a", "public.c"], world.context)
    assert states(world) == {"a": "i*", "b": "s", "c": "d*", "d": "i"}


def test_upkeep_that_failed_was_of_the_rows_that_go(world: Around) -> None:
    """It is counted on, as PostgreSQL's statistics are over a TRUNCATE."""
    for name in "ab":
        failed = LakeUpkeep(row(world).oid, rel(world, name).srrelid, COMPACTION, 3, 5, 9, "no")
        world.store.add_lake_upkeep(failed)
    recopy_tables("mysub", ["public.a"], world.context)
    known = world.store.lake_upkeep(row(world).oid)
    assert {(each.relid, each.times, each.done, each.error) for each in known} == {
        (rel(world, "a").srrelid, 3, 5, None),
        (rel(world, "b").srrelid, 3, 5, "no"),
    }


def test_a_disabled_subscription_is_marked(world: Around) -> None:
    world.store.update_subscription(row(world).oid, subenabled=False)
    recopy_tables("mysub", ["public.a"], world.context)
    assert states(world)["a"] == "i*"
    assert world.events == []


def test_a_table_that_is_not_there_changes_nothing(world: Around) -> None:
    before = states(world)
    with pytest.raises(UndefinedTable) as caught:
        recopy_tables("mysub", ["public.a", "public.nosuch"], world.context)
    assert caught.value.primary == ('table "public.nosuch" is not part of subscription "mysub"')
    assert caught.value.detail == "Its tables are: public.a, public.b, public.c, public.d."
    assert (states(world), world.events) == (before, [])


def test_half_a_subscription(world: Around) -> None:
    world.store.update_subscription(row(world).oid, subcreate=SubCreate.DROPPING)
    with pytest.raises(ObjectNotInPrerequisiteState, match="half dropped"):
        recopy_tables("mysub", [], world.context)


def test_without_the_publisher_nobody_knows_whether_there_is_a_gap(world: Around) -> None:
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    with pytest.raises(ConnectionFailure):
        recopy_tables("mysub", ["public.a"], world.context)
    assert states(world)["a"] == "r"


Break = Callable[[Around], None]


def drop(world: Around) -> None:
    del world.publisher.slots["mysub"]
    world.publisher.identity = replace(Identity(), xlogpos=LATER)


def invalidate(world: Around) -> None:
    world.publisher.slots["mysub"].lost = True
    world.publisher.identity = replace(Identity(), xlogpos=LATER)


def make_again(world: Around) -> None:
    world.publisher.slots["mysub"] = Slot(confirmed=LATER)
    world.publisher.identity = replace(Identity(), xlogpos=LATER)


def another_server(world: Around) -> None:
    world.publisher.slots.clear()
    world.publisher.identity = OTHER


def behind(world: Around) -> None:
    world.publisher.identity = replace(Identity(), xlogpos=LSN(POINT - 1))


def another_database(world: Around) -> None:
    world.publisher.slots.clear()
    world.publisher.identity = replace(Identity(), dbname="other", datoid=5)


GAPS: list[Break] = [drop, invalidate, make_again, another_server, another_database, behind]
every_gap = pytest.mark.parametrize("break_", GAPS, ids=[each.__name__ for each in GAPS])


@every_gap
def test_a_gap_concerns_every_table(world: Around, break_: Break) -> None:
    break_(world)
    before = (row(world), states(world), dict(world.publisher.slots))
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        recopy_tables("mysub", ["public.a"], world.context)
    assert "one by one" in caught.value.primary
    assert "pgsub refresh mysub --recopy" in (caught.value.hint or "")
    assert (row(world), states(world), dict(world.publisher.slots)) == before
    assert world.events == []


@every_gap
def test_after_a_gap_everything_begins_anew(world: Around, break_: Break) -> None:
    subid = row(world).oid
    world.store.put_last_error(LastError(subid, 0, 1, "55000", "the slot is lost"))
    break_(world)
    recopy_tables("mysub", [], world.context)
    begin_anew(world)
    assert world.store.last_errors() == []
    assert world.events == ["hold", "let go", "take effect"]


def begin_anew(world: Around) -> None:
    """Everything is as after a CREATE on the server as it is now, but for the rows."""
    identity, sub = world.publisher.identity, row(world)
    assert states(world) == {"a": "i*", "b": "i*", "c": "d*", "d": "i*"}
    assert {each.lake_lsn for each in world.store.rels(sub.oid)} == {LSN(0)}
    assert {**identity.stored()} == {
        "sysid": sub.sysid,
        "timeline": sub.timeline,
        "datoid": sub.datoid,
    }
    assert position(world) == sub.max_flush_lsn == identity.xlogpos
    assert world.publisher.slots["mysub"].confirmed == identity.xlogpos
    conn = world.publisher.connect(sub)
    assert recopy.find_gap(sub, conn, world.context) is None
    conn.close()


class Killed(BaseException):
    """Stands for SIGKILL."""


@every_gap
@pytest.mark.parametrize("place", failpoints.RECOPY)
def test_a_command_that_dies_is_repeated(
    world: Around, break_: Break, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def reach(name: str) -> None:
        if name == place:
            raise Killed

    break_(world)
    with monkeypatch.context() as patch:
        patch.setattr(failpoints, "reach", reach)
        with pytest.raises(Killed):
            recopy_tables("mysub", [], world.context)
    # No row rests on a position any more, and the gap is still seen.
    assert states(world) == {"a": "i*", "b": "i*", "c": "d*", "d": "i*"}
    conn = world.publisher.connect(row(world))
    assert recopy.find_gap(row(world), conn, world.context) is not None
    conn.close()
    recopy_tables("mysub", [], world.context)
    begin_anew(world)


def test_a_subscription_that_is_enabled_meanwhile_has_workers_that_stay(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for the end of those that ENABLE has started."""
    drop(world)
    world.store.update_subscription(row(world).oid, subenabled=False)

    def enable(place: str) -> None:
        if place == "recopy.slot_made":
            world.store.update_subscription(row(world).oid, subenabled=True)

    monkeypatch.setattr(failpoints, "reach", enable)
    recopy_tables("mysub", [], world.context)
    assert world.events == ["hold", "let go", "take effect"]


def test_a_slot_that_cannot_be_made(world: Around) -> None:
    drop(world)
    world.publisher.fail["create_slot"] = ReplicationError("no free slot", sqlstate="53400")
    with pytest.raises(ReplicationError, match="no free slot") as caught:
        recopy_tables("mysub", [], world.context)
    assert "max_replication_slots" in (caught.value.hint or "")
    del world.publisher.fail["create_slot"]
    recopy_tables("mysub", [], world.context)
    begin_anew(world)


@pytest.mark.parametrize("slot", [Slot(plugin="test_decoding"), Slot(database="other")])
def test_somebody_else_s_slot_is_left_alone(world: Around, slot: Slot) -> None:
    world.publisher.slots["mysub"] = slot
    with pytest.raises(ObjectInUse, match="is not one of pgoutput"):
        recopy_tables("mysub", [], world.context)
    assert world.publisher.slots["mysub"] is slot
    assert states(world)["a"] == "r"


def test_an_old_slot_on_another_server_is_told_of(world: Around) -> None:
    """By name, with the statement that drops it; a synchronisation's in ``status`` as well."""
    before = row(world)
    world.store.origin_create(origin_name(before.oid, rel(world, "c").srrelid))
    sync = sync_slot_name(before.oid, rel(world, "c").srrelid, system_identifier(before))
    another_server(world)
    recopy_tables("mysub", [], world.context)
    told = [n for n in world.notices if "may still be on the server" in n.primary]
    assert len(told) == 2
    for name, message in zip(("mysub", sync), told, strict=True):
        assert f'"{name}"' in message.primary
        assert f"system identifier is {before.sysid}" in (message.detail or "")
        assert f"SELECT pg_drop_replication_slot('{name}')" in (message.hint or "")
    left = world.store.leaked_slots()
    assert {slot.slot_name for slot in left} == {sync}
    assert {(slot.sysid, slot.conninfo, slot.passfile) for slot in left} == {
        (before.sysid, "", None)
    }


def test_a_slot_of_another_s_with_the_name_that_was_given_last_is_not_ours(world: Around) -> None:
    """The name may have been altered together with the connection: there, it is a stranger's."""
    alter_connection("mysub", "host=other dbname=shop", world.context)
    world.store.update_subscription(row(world).oid, subslotname="app")
    another_server(world)
    recopy_tables("mysub", [], world.context)
    (told,) = [n for n in world.notices if "may still be on the server" in n.primary]
    assert (told.hint or "").startswith("If nobody else uses it: ")
    assert world.store.leaked_slots() == [], "so no command drops it there"


@pytest.mark.parametrize("break_", [drop, behind])
def test_nothing_is_left_on_the_server_that_it_stays_on(world: Around, break_: Break) -> None:
    break_(world)
    recopy_tables("mysub", [], world.context)
    assert world.store.leaked_slots() == []


def test_refresh_by_name(world: Around) -> None:
    world.publisher.tables["e"] = PublishedTable()
    alter_refresh("mysub", world.context, copy_data=True)
    assert states(world)["e"] == "i"
    assert world.events == ["take effect"]


def test_a_finished_copy_is_stopped_and_begins_again(world: Around) -> None:
    """Its origin stays: it says that there may be a slot to be dropped."""
    store, subid = world.store, row(world).oid
    origin = origin_name(subid, rel(world, "c").srrelid)
    store.origin_create(origin)
    f = SubRelState.FINISHEDCOPY
    store.set_rel_state(subid, rel(world, "c").srrelid, f, None, Setter.TABLESYNC)
    recopy_tables("mysub", ["public.c"], world.context)
    assert states(world)["c"] == "i*"
    assert rel(world, "c").epoch != "c", "what its worker still writes is nobody's"
    assert store.origin_by_name(origin) is not None
    assert world.events == [f"stop {rel(world, 'c').srrelid}", "take effect"]


def suspend(world: Around, *names: str) -> None:
    for name in names:
        held = {"suspend_time": 5, "suspend_sqlstate": "22003", "suspend_lsn": LSN(700)}
        world.store.update_rel(row(world).oid, rel(world, name).srrelid, **held)


def test_a_suspended_table_is_resumed_by_a_new_copy(world: Around) -> None:
    suspend(world, "a", "c")
    resume_tables("mysub", ["public.a"], world.context)
    assert states(world) == {"a": "i*", "b": "s", "c": "d", "d": "i"}
    now = rel(world, "a")
    assert (now.suspended, now.resuming, now.awaits_sync) == (True, True, True)
    assert (rel(world, "c").suspended, rel(world, "c").resuming) == (True, False)
    assert world.said() == [
        'NOTICE: table "public.a" was suspended from 0/2BC on (22003); readers see its last good '
        "state until the new copy is complete",
        'NOTICE: table "public.a" will be copied again',
    ]


def test_all_suspended_tables_are_resumed_once(world: Around) -> None:
    suspend(world, "a", "c")
    resume_tables("mysub", [], world.context)
    assert states(world) == {"a": "i*", "b": "s", "c": "d", "d": "i"}
    epochs = [rel(world, name).epoch for name in "ac"]
    world.notices.clear()
    resume_tables("mysub", [], world.context)
    assert [rel(world, name).epoch for name in "ac"] == epochs, "the running copies go on"
    assert world.said() == [
        f'NOTICE: table "public.{name}" is being copied again already' for name in "ac"
    ]


@pytest.mark.parametrize("state", ["d", "f"])
def test_a_first_copy_that_failed_is_tried_again_and_replaces_nothing(
    world: Around, state: str
) -> None:
    """A copy that replaced would remove the rows of an adopted lake table."""
    if state == "f":
        store, f = world.store, SubRelState.FINISHEDCOPY
        store.set_rel_state(row(world).oid, rel(world, "c").srrelid, f, None, Setter.TABLESYNC)
    suspend(world, "c")
    before = rel(world, "c")
    resume_tables("mysub", ["public.c"], world.context)
    now = rel(world, "c")
    assert now == replace(before, resuming=True), "copy id and kind of the copy are the same"
    assert (now.recopy, now.awaits_sync) == (False, True)
    assert world.said() == [
        'NOTICE: table "public.c" was suspended in its copy (22003)',
        'NOTICE: the copy of table "public.c" will be tried again',
    ]
    assert world.events == ["take effect"]


def test_a_refresh_of_a_suspended_table_resumes_it(world: Around) -> None:
    suspend(world, "a")
    recopy_tables("mysub", ["public.a"], world.context)
    assert rel(world, "a").resuming


def test_nothing_to_resume(world: Around) -> None:
    resume_tables("mysub", [], world.context)
    assert world.said() == ['NOTICE: no table of subscription "mysub" is suspended']
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        resume_tables("mysub", ["public.b"], world.context)
    assert caught.value.primary == 'table "public.b" of subscription "mysub" is not suspended'
    assert "pgsub refresh mysub --recopy public.b" in (caught.value.hint or "")
    with pytest.raises(UndefinedTable):
        resume_tables("mysub", ["public.nosuch"], world.context)
    with pytest.raises(UndefinedObject):
        resume_tables("nobody", [], world.context)
