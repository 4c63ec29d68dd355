"""The commands run against twins; the decisions against what lake and slot may say."""

from __future__ import annotations

import dataclasses
import json
import uuid
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    DuplicateObject,
    DuplicateTable,
    FeatureNotSupported,
    InsufficientPrivilege,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    UndefinedObject,
)
from catalog.leaked_slot import LeakedSlot
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import SubRelState
from config.load import Config, parse
from subscriber.commands.alter import alter_refresh
from subscriber.commands.create_drop import create_subscription, drop_subscription
from subscriber.commands.rebuild import rebuild, rebuild_subscription
from tests.subscriber.twins import Around, Identity, PublishedTable, Slot, statement
from workers.lake.table import LakeTable, Stamp

UUID = "0b7a3c2e-0000-4000-8000-000000000001"
OTHER = "0b7a3c2e-0000-4000-8000-000000000002"


def lsn(number: int) -> LSN:
    return LSN(number)


def stamp(at: int, epoch: str = "e", floor: int = 50) -> Stamp:
    return Stamp("pg_16385", lsn(at), epoch, lsn(floor))


@pytest.fixture
def lost(world: Around) -> Around:
    """A lake and a slot at 500 without their catalog; table a is at 700, b at 300, c and d new."""
    publisher = world.publisher
    publisher.tables = {name: PublishedTable() for name in "abcd"}
    publisher.slots["mysub"] = Slot(confirmed=lsn(500))
    publisher.identity = Identity(xlogpos=lsn(1000))
    world.lake.add("a", owner=UUID, stamp=stamp(700, "epoch a"))
    world.lake.add("b", owner=UUID, stamp=stamp(300, "epoch b", 60))
    world.lake.add("c", owner=UUID, stamp=Stamp("pg_16385", lsn(0), "epoch c", lsn(0)))
    return world


def refused(world: Around, **keys: Any) -> ReplicationError:
    """The error of a rebuild, which leaves nothing in the catalog."""
    with pytest.raises(ReplicationError) as caught:
        rebuild_subscription(statement(**keys), world.context)
    assert world.store.subscriptions() == []
    assert world.store.origins() == []
    assert world.publisher.connections == 0
    assert not list(world.context.data_dir.rglob("passfile/*"))
    return caught.value


def test_tables_claim_what_lake_and_slot_prove(lost: Around) -> None:
    sub = rebuild_subscription(statement(), lost.context)
    assert lost.store.subscription(sub.oid) == sub
    assert (sub.subuuid, sub.subcreate, sub.subslotname) == (UUID, SubCreate.READY, "mysub")
    assert (sub.sysid, sub.timeline, sub.max_flush_lsn) == ("7329764006882527550", 1, lsn(500))
    assert [
        (rel.relname, rel.srsubstate, rel.srsublsn, rel.lake_lsn, rel.floor, rel.epoch, rel.copied)
        for rel in lost.store.rels(sub.oid)
    ] == [
        ("a", SubRelState.SYNCDONE, lsn(700), lsn(700), lsn(50), "epoch a", False),
        ("b", SubRelState.SYNCDONE, lsn(300), lsn(300), lsn(60), "epoch b", False),
        ("c", SubRelState.INIT, None, lsn(0), lsn(0), None, False),
        ("d", SubRelState.INIT, None, lsn(0), lsn(0), None, False),
    ]
    (origin,) = lost.store.origins()
    assert (origin.roname, origin.remote_lsn) == (f"pg_{sub.oid}", lsn(0))
    assert sorted(lost.lake.fenced) == ["a", "b", "c"]
    assert {name: stamp and stamp.lsn for name, stamp in lost.lake.durable.items()} == {
        "a": lsn(700),
        "b": lsn(300),
        "c": lsn(0),
    }
    assert list(lost.publisher.slots) == ["mysub"]
    assert len(lost.wakes) == 1
    assert lost.publisher.connections == 0


def test_what_it_did_is_said_and_tables_behind_the_slot_are_listed(lost: Around) -> None:
    rebuild_subscription(statement(), lost.context)
    assert lost.said() == [
        'NOTICE: table "public.a" of subscription "mysub": s at 0/2BC',
        'NOTICE: table "public.b" of subscription "mysub": s at 0/12C',
        'NOTICE: table "public.c" of subscription "mysub": i: it is copied',
        'NOTICE: table "public.d" of subscription "mysub": i: it is copied',
        'WARNING: tables of subscription "mysub" end before what was confirmed to the publisher, '
        '0/1F4: "public.b" at 0/12C',
    ]


def test_a_table_at_the_slot_s_position_is_proven(lost: Around) -> None:
    lost.publisher.slots["mysub"].confirmed = lsn(300)
    rebuild_subscription(statement(), lost.context)
    assert not [said for said in lost.said() if said.startswith("WARNING")]


def test_what_was_published_until_the_fence_counts(lost: Around) -> None:
    """A dead worker's call that was under way when the tables were read first."""

    def late(table: LakeTable) -> LakeTable:
        return dataclasses.replace(table, stamp=stamp(800, "late"))

    lost.lake.on_fence = late
    sub = rebuild_subscription(statement(), lost.context)
    known = lost.store.rels(sub.oid)[:3]
    assert [(rel.srsubstate, rel.lake_lsn, rel.epoch) for rel in known] == [
        (SubRelState.SYNCDONE, lsn(800), "late")
    ] * 3


def test_a_password_gets_a_file_named_for_the_old_uuid(lost: Around) -> None:
    sub = rebuild_subscription(statement(connection="host=db dbname=shop password=x"), lost.context)
    assert sub.passfile is not None
    assert Path(sub.passfile).name.startswith(UUID)
    assert [str(path) for path in lost.context.data_dir.rglob("passfile/*")] == [sub.passfile]


def test_disabled_stays_disabled(lost: Around) -> None:
    assert not rebuild_subscription(statement(with_={"enabled": False}), lost.context).subenabled
    assert lost.wakes == []


# -- what speaks against it ---------------------------------------------------------------------


def test_no_slot(lost: Around) -> None:
    lost.publisher.slots.clear()
    error = refused(lost)
    assert isinstance(error, UndefinedObject)
    assert "slot_name" in (error.hint or "")
    assert refused(lost, with_={"slot_name": "NONE", "enabled": False, "create_slot": False}).code
    assert lost.lake.fenced == []


@pytest.mark.parametrize(
    ("slot", "code", "primary"),
    [
        (Slot(active=True), "55006", "is active for PID"),
        (Slot(plugin="wal2json"), "55000", "is not one of pgoutput"),
        (Slot(lost=True), "55000", "was invalidated"),
    ],
)
def test_a_slot_that_is_no_good(lost: Around, slot: Slot, code: str, primary: str) -> None:
    lost.publisher.slots["mysub"] = slot
    error = refused(lost)
    assert (error.code, primary in error.primary) == (code, True)
    assert lost.lake.fenced == []


def test_a_publisher_that_stands_before_a_table(lost: Around) -> None:
    lost.publisher.identity = Identity(xlogpos=lsn(699))
    error = refused(lost)
    assert isinstance(error, ObjectNotInPrerequisiteState)
    assert error.detail is not None
    assert error.detail.startswith("It stands at 0/2BB; a table is at 0/2BC.")
    assert lost.lake.fenced == []
    lost.publisher.identity = Identity(xlogpos=lsn(700))
    rebuild_subscription(statement(), lost.context)


@pytest.mark.parametrize("owner", [OTHER, None])
def test_tables_of_several_owners(lost: Around, owner: str | None) -> None:
    lost.lake.add("b", owner=owner, stamp=stamp(300))
    error = refused(lost)
    assert isinstance(error, ObjectNotInPrerequisiteState)
    assert f'"public.a": {UUID}, "public.b": {owner or "none"}' in (error.detail or "")
    assert lost.lake.fenced == []


def test_a_lake_without_any_of_the_tables(lost: Around) -> None:
    lost.lake.tables.clear()
    error = refused(lost)
    assert error.primary == 'the lake holds no table of subscription "mysub"'
    assert "pgsub up" in (error.hint or "")


def test_a_table_of_nobody_s(lost: Around) -> None:
    lost.lake.add("d")
    assert isinstance(refused(lost), DuplicateTable)
    sub = rebuild_subscription(statement(tables={"public.d": {"adopt": True}}), lost.context)
    assert lost.store.rels(sub.oid)[3].srsubstate is SubRelState.INIT
    assert "d" not in lost.lake.fenced


def test_a_lake_table_without_a_published_column(lost: Around) -> None:
    lost.lake.add("a", columns=["id"], owner=UUID, stamp=stamp(700))
    assert "missing replicated column" in refused(lost).primary


def test_a_table_to_be_copied_that_cannot_be_read(lost: Around) -> None:
    lost.publisher.tables["a"] = PublishedTable(readable=False)  # it is not copied
    lost.publisher.tables["d"] = PublishedTable(readable=False)
    assert isinstance(refused(lost), InsufficientPrivilege)
    del lost.publisher.tables["d"]
    rebuild_subscription(statement(), lost.context)


def test_tables_of_another_subscription_of_this_directory(lost: Around) -> None:
    rebuild_subscription(statement(), lost.context)
    lost.publisher.slots["two"] = Slot(confirmed=lsn(500))
    with pytest.raises(ObjectInUse, match='belong to subscription "mysub"'):
        rebuild_subscription(statement("two"), lost.context)


def test_shared_tables(lost: Around) -> None:
    stmt = statement(tables={"public.a": {"shared": True}})
    with pytest.raises(FeatureNotSupported, match="shared = true"):
        rebuild_subscription(stmt, lost.context)


def test_a_store_that_fails_leaves_no_password(
    lost: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise ReplicationError("disk full")

    monkeypatch.setattr(lost.store, "insert_rel", fail)
    assert refused(lost, connection="host=db dbname=shop password=x").primary == "disk full"


# -- the whole file -----------------------------------------------------------------------------


def config(*names: str) -> Config:
    body = {"connection": "host=db dbname=shop", "publication": ["pub"]}
    return parse(json.dumps({"subscriptions": dict.fromkeys(names, body)}), "f.yaml")


def test_those_that_are_there_are_left_alone(lost: Around) -> None:
    (first,) = rebuild(config("mysub"), lost.context)
    with pytest.raises(DuplicateObject) as caught:
        rebuild(config("mysub"), lost.context)
    assert caught.value.code == "42710"
    with pytest.raises(UndefinedObject):  # the other one has no slot
        rebuild(config("mysub", "two"), lost.context)
    assert lost.store.subscriptions() == [first]


def test_one_that_is_half_created_keeps_its_slot(lost: Around) -> None:
    (sub,) = rebuild(config("mysub"), lost.context)
    lost.store.update_subscription(sub.oid, subcreate=SubCreate.CREATING)
    with pytest.raises(ObjectNotInPrerequisiteState) as caught:
        rebuild(config("mysub"), lost.context)
    assert "pgsub drop --leave-slot mysub" in (caught.value.hint or "")
    assert "mysub" in lost.publisher.slots


def test_a_slot_that_was_left_is_in_use_again(lost: Around) -> None:
    """Else the next command on this publisher would drop it while no worker holds it."""
    rebuild(config("mysub"), lost.context)
    drop_subscription("mysub", lost.context, leave_slot=True)
    lost.store.put_leaked_slot(LeakedSlot("another", "host=db", "x", None, "left"))
    rebuild(config("mysub"), lost.context)
    assert [slot.slot_name for slot in lost.store.leaked_slots()] == ["another"]
    lost.publisher.tables = {"e": PublishedTable()}
    create_subscription(statement("two"), lost.context)
    drop_subscription("two", lost.context)
    assert "mysub" in lost.publisher.slots


def test_a_table_whose_copy_was_not_finished_is_copied_in_its_place(lost: Around) -> None:
    """It was shown in f, and the stream that it needed is lost with the catalog."""
    unfinished = Stamp("pg_16385_16390", lsn(900), "epoch a", lsn(50))
    lost.lake.add("a", owner=UUID, stamp=unfinished)
    sub = rebuild_subscription(statement(), lost.context)
    rels = {rel.relname: (rel.srsubstate, rel.recopy) for rel in lost.store.rels(sub.oid)}
    assert (rels["a"], rels["c"]) == (("i", True), ("i", False))
    assert 'NOTICE: table "public.a" of subscription "mysub": i: it is copied' in lost.said()


NUMBER = str(uuid.UUID(UUID).int >> 64)


def test_slots_of_synchronisations_are_listed_with_what_drops_them(lost: Around) -> None:
    """One in f, one in d that no lake table knows of, one whose table was done."""
    ours = [sync_slot_name(16385, relid, NUMBER) for relid in (16390, 16391, 16392)]
    lost.publisher.slots |= {name: Slot() for name in ours}
    stays = {
        sync_slot_name(16385, 16390, "7329764006882527550"): Slot(),  # PostgreSQL's own
        sync_slot_name(16385, 16390, f"1{NUMBER}"): Slot(),
        f"x_{ours[0]}": Slot(),
        f"{ours[0]}0": Slot(),
        sync_slot_name(16385, 16393, NUMBER): Slot(temporary=True),  # goes with its session
        sync_slot_name(16385, 16394, NUMBER): Slot(plugin="wal2json"),
        sync_slot_name(16385, 16395, NUMBER): Slot(database="other"),
    }
    lost.publisher.slots |= stays
    sub = rebuild_subscription(statement(), lost.context)
    assert system_identifier(sub) == NUMBER
    listed = lost.store.leaked_slots()
    assert [slot.slot_name for slot in listed] == ours
    assert {(slot.sysid, slot.datoid) for slot in listed} == {(sub.sysid, sub.datoid)}
    told = [message for message in lost.notices if "stays on the publisher" in message.primary]
    for name, message in zip(ours, told, strict=True):
        assert f'"{name}"' in message.primary
        assert f"SELECT pg_drop_replication_slot('{name}')" in (message.hint or "")
    alter_refresh("mysub", lost.context, copy_data=True)
    assert set(lost.publisher.slots) == {"mysub", *stays}
    assert lost.store.leaked_slots() == []


def test_none_are_listed_that_are_not_there(lost: Around) -> None:
    lost.lake.add("a", owner=UUID, stamp=Stamp("pg_16385_16390", lsn(900), "epoch a", lsn(50)))
    rebuild_subscription(statement(), lost.context)
    assert lost.store.leaked_slots() == []
