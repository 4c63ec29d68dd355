"""CREATE, DROP, ENABLE and DISABLE SUBSCRIPTION."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    DuplicateTable,
    InsufficientPrivilege,
    InvalidParameterValue,
    IoError,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    SyntaxErrorOrAccess,
    UndefinedObject,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription import SubCreate
from catalog.pg_subscription_rel import SubRelState
from subscriber.commands import create_drop
from subscriber.commands.create_drop import (
    create_subscription,
    disable_subscription,
    drop_subscription,
    enable_subscription,
)
from tests.subscriber.twins import (
    POINT,
    Around,
    PublishedTable,
    WorkerTwin,
    nothing_is_left,
    statement,
)
from tests.workers.prepared import keep
from workers.lake.table import LakeIdent
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts


def test_create_with_copy(world: Around) -> None:
    world.publisher.tables["B"] = PublishedTable()
    sub = create_subscription(statement(), world.context)
    assert world.store.subscription(sub.oid) == sub
    assert (sub.subcreate, sub.subslotname, sub.max_flush_lsn) == (SubCreate.READY, "mysub", POINT)
    assert (sub.sysid, sub.timeline) == ("7329764006882527550", 1)
    rels = world.store.rels(sub.oid)
    assert [(rel.relname, rel.srsubstate, rel.srsublsn) for rel in rels] == [
        ("B", "i", None),
        ("a", "i", None),
    ]
    assert (rels[0].fingerprint or "").startswith("iudt- @")
    assert world.lake.tables == {}
    assert list(world.publisher.slots) == ["mysub"]
    assert [origin.roname for origin in world.store.origins()] == [f"pg_{sub.oid}"]
    assert world.said() == ['NOTICE: created replication slot "mysub" on publisher']
    assert len(world.wakes) == 1


def test_create_without_copy_makes_stamped_tables(world: Around) -> None:
    stmt = statement(
        with_={"copy_data": False},
        tables={"public.a": {"to": "Lake.A"}},
    )
    sub = create_subscription(stmt, world.context)
    (rel,) = world.store.rels(sub.oid)
    assert (rel.srsubstate, rel.srsublsn, rel.copied) == (SubRelState.READY, None, False)
    assert (rel.floor, rel.lake_lsn) == (POINT, POINT)
    table = world.lake.tables[LakeIdent("Lake", "A")]
    assert table.owner == sub.subuuid
    assert [(column.name, column.type) for column in table.columns] == [
        ("id", pa.int32()),
        ("v", pa.int32()),
    ]
    assert table.stamp is not None
    assert (table.stamp.origin, table.stamp.lsn, table.stamp.floor, table.stamp.epoch) == (
        f"pg_{sub.oid}",
        POINT,
        POINT,
        rel.epoch,
    )


def test_a_table_that_is_made_has_what_is_generated(world: Around) -> None:
    tables = {"public.a": {"generated": {"twice": "id * 2"}}}
    create_subscription(statement(with_={"copy_data": False}, tables=tables), world.context)
    columns = world.lake.tables[LakeIdent("public", "a")].columns
    assert [(column.name, column.type) for column in columns] == [
        ("id", pa.int32()),
        ("v", pa.int32()),
        ("twice", pa.int64()),
    ]


@pytest.mark.parametrize(
    ("generated", "code"),
    [
        ({"v": "id * 2"}, "55000"),
        ({"g": "nosuch * 2"}, "42703"),
        ({"g": "_pgsub_source"}, "42703"),
        ({"g": "id *"}, "42601"),
        ({"g": "rand() * id"}, "42P17"),
        ({"g": "id * 2", "h": "g + 1"}, "42P17"),
        ({"_pos": "id * 2"}, "42939"),
    ],
)
@pytest.mark.parametrize("made", [False, True], ids=["no lake table yet", "a lake table"])
def test_what_cannot_be_generated(
    world: Around, generated: dict[str, str], code: str, made: bool
) -> None:
    if made:
        world.lake.add("a", ("id", "v", "g", "h", "_pos"))
    tables = {"public.a": {"adopt": made, "generated": generated}}
    with pytest.raises(ReplicationError) as refused:
        create_subscription(statement(tables=tables), world.context)
    assert refused.value.code == code
    assert world.store.subscriptions() == []


def test_an_adopted_table_has_what_is_generated(world: Around) -> None:
    """One over a column of its own, which the publisher need not have."""
    tables = {"public.a": {"adopt": True, "generated": {"g": "id + own"}}}
    world.lake.add("a", ("id", "v", "own"))
    with pytest.raises(ObjectNotInPrerequisiteState, match='missing generated column: "g"'):
        create_subscription(statement(tables=tables), world.context)
    world.lake.add("a", ("id", "v", "own", "g"))
    create_subscription(statement(tables=tables), world.context)


def test_row_is_there_before_the_slot(world: Around) -> None:
    seen: list[tuple[str, int]] = []

    def look() -> None:
        (row,) = world.store.subscriptions()
        seen.append((row.subcreate, len(world.store.rels(row.oid))))

    world.publisher.on_create_slot = look
    create_subscription(statement(), world.context)
    assert seen == [("creating", 1)]


def test_connect_false(world: Around) -> None:
    world.publisher.fail["connect"] = AssertionError()
    sub = create_subscription(statement(with_={"connect": False}), world.context)
    assert (sub.subcreate, sub.subenabled, sub.subslotname) == ("ready", False, "mysub")
    assert world.store.rels(sub.oid) == []
    assert world.said() == ["WARNING: subscription was created, but is not connected"]
    assert world.wakes == []


def test_table_that_cannot_be_read(world: Around) -> None:
    world.publisher.tables["b"] = PublishedTable(readable=False)
    with pytest.raises(InsufficientPrivilege, match=r'denied for table "public\.b"') as caught:
        create_subscription(statement(), world.context)
    assert "GRANT SELECT" in (caught.value.hint or "")
    nothing_is_left(world)
    create_subscription(statement(with_={"copy_data": False}), world.context)


def test_missing_publications_only_warn(world: Around) -> None:
    create_subscription(statement(publication=["x", "pub", "y"]), world.context)
    assert world.said()[0] == 'WARNING: publications "x", "y" do not exist on the publisher'
    create_subscription(statement("two", publication="z"), world.context)
    assert 'WARNING: publication "z" does not exist on the publisher' in world.said()


def test_origin_warning(world: Around) -> None:
    world.publisher.other_origins = [("public", "a", "pub")]
    create_subscription(statement(with_={"origin": "none"}), world.context)
    assert "requested copy_data with origin = NONE" in world.said()[0]


def test_password_goes_to_a_private_file(world: Around) -> None:
    sub = create_subscription(statement(connection="host=db password=secret"), world.context)
    assert sub.passfile is not None
    path = Path(sub.passfile)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.read_text() == "*:*:*:*:secret\n"
    assert "secret" not in repr(world.store.subscriptions())
    drop_subscription("mysub", world.context)
    assert not path.exists()


def test_password_env_must_be_there(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidParameterValue, match='"NO_SUCH_THING" is not set'):
        create_subscription(statement(password_env="NO_SUCH_THING"), world.context)
    monkeypatch.setenv("SHOP_PASSWORD", "two\nlines")
    with pytest.raises(SyntaxErrorOrAccess, match="line break"):
        create_subscription(statement(password_env="SHOP_PASSWORD"), world.context)
    monkeypatch.setenv("SHOP_PASSWORD", "secret")
    sub = create_subscription(statement(password_env="SHOP_PASSWORD"), world.context)
    assert (sub.password_env, sub.passfile) == ("SHOP_PASSWORD", None)


def test_name_taken(world: Around) -> None:
    create_subscription(statement(), world.context)
    with pytest.raises(DuplicateObject, match='subscription "mysub" already exists'):
        create_subscription(statement(), world.context)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        ("connect", ConnectionFailure("could not connect to the publisher")),
        ("exec", ReplicationError("permission denied", sqlstate="42501")),
        ("create_slot", ReplicationError("all replication slots are in use", sqlstate="53400")),
        ("create_slot", ReplicationError("logical decoding requires wal_level", sqlstate="55000")),
    ],
)
def test_errors_of_the_publisher(world: Around, call: str, error: ReplicationError) -> None:
    world.publisher.fail[call] = error
    with pytest.raises(ReplicationError) as caught:
        create_subscription(statement(connection="host=db password=x"), world.context)
    assert caught.value is error
    nothing_is_left(world)


def test_lake_not_writable(world: Around) -> None:
    world.lake.fail["create_table"] = IoError("no space left on device")
    with pytest.raises(IoError):
        create_subscription(statement(with_={"copy_data": False}), world.context)
    nothing_is_left(world)


def test_second_lake_table_fails(world: Around) -> None:
    world.publisher.tables["b"] = PublishedTable()
    world.lake.fail["create_table b"] = IoError("no space left on device")
    with pytest.raises(IoError):
        create_subscription(statement(with_={"copy_data": False}), world.context)
    nothing_is_left(world)


def test_table_of_a_dropped_subscription_is_adopted(world: Around) -> None:
    no_copy = {"copy_data": False}
    create_subscription(statement(with_=no_copy), world.context)
    drop_subscription("mysub", world.context)
    with pytest.raises(DuplicateTable):
        create_subscription(statement(with_=no_copy), world.context)
    adopt = {"public.a": {"adopt": True}}
    sub = create_subscription(statement(with_=no_copy, tables=adopt), world.context)
    assert world.lake.tables[LakeIdent("public", "a")].owner == sub.subuuid


def test_adopted_table_survives_a_failed_create(world: Around) -> None:
    world.lake.add("a")
    world.publisher.tables["b"] = PublishedTable()
    world.lake.fail["create_table"] = IoError("no space left on device")
    adopt = {"public.a": {"adopt": True}}
    with pytest.raises(IoError):
        create_subscription(statement(tables=adopt, with_={"copy_data": False}), world.context)
    assert list(world.lake.tables) == [LakeIdent("public", "a")]
    world.lake.fail.clear()
    create_subscription(statement(tables=adopt, with_={"copy_data": False}), world.context)


class Killed(BaseException):
    """Stands for SIGKILL: nothing of ours runs after it."""


def die_in_create(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave what a process killed after making slot and tables leaves."""
    with monkeypatch.context() as patch:
        patch.setattr(create_drop, "_undo_create", lambda *args, **kwargs: None)
        patch.setattr(create_drop, "store_new_rel", _killed)
        with pytest.raises(Killed):
            create_subscription(statement(with_={"copy_data": False}), world.context)
    (row,) = world.store.subscriptions()
    assert row.subcreate is SubCreate.CREATING
    assert list(world.publisher.slots) == ["mysub"]
    assert len(world.lake.tables) == 1


def _killed(*args: object) -> None:
    raise Killed


def test_killed_create_starts_over(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    die_in_create(world, monkeypatch)
    with pytest.raises(ObjectNotInPrerequisiteState, match="only half created"):
        enable_subscription("mysub", world.context)
    sub = create_subscription(statement(with_={"copy_data": False}), world.context)
    assert sub.subcreate is SubCreate.READY
    assert [row.oid for row in world.store.subscriptions()] == [sub.oid]


def test_killed_create_can_be_dropped(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    die_in_create(world, monkeypatch)
    world.publisher.fail["drop_slot"] = ReplicationError("permission denied", sqlstate="42501")
    with pytest.raises(ObjectNotInPrerequisiteState, match="could not drop"):
        drop_subscription("mysub", world.context)
    world.publisher.fail.clear()
    drop_subscription("mysub", world.context)
    nothing_is_left(world)


def test_drop(world: Around) -> None:
    sub = create_subscription(statement(), world.context)
    world.store.origin_create(f"pg_{sub.oid}_{world.store.rels(sub.oid)[0].srrelid}")
    world.workers[:] = [[WorkerTwin(sub.oid), WorkerTwin(1)], [WorkerTwin(1)]]
    drop_subscription("mysub", world.context)
    assert world.workers == []
    nothing_is_left(world)
    with pytest.raises(UndefinedObject, match='subscription "mysub" does not exist'):
        drop_subscription("mysub", world.context)


def test_drop_cannot_reach_the_publisher(world: Around) -> None:
    sub = create_subscription(statement(), world.context)
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    with pytest.raises(ConnectionFailure, match="attempting to drop replication slot") as caught:
        drop_subscription("mysub", world.context)
    assert "--leave-slot" in (caught.value.hint or "")
    assert world.store.subscription(sub.oid) == sub
    drop_subscription("mysub", world.context, leave_slot=True)
    assert world.store.subscriptions() == []
    assert [slot.slot_name for slot in world.store.leaked_slots()] == ["mysub"]
    assert "stays on the publisher" in world.said()[-1]


def test_killed_drop_is_finished(world: Around) -> None:
    sub = create_subscription(statement(), world.context)
    world.store.update_subscription(sub.oid, subcreate=SubCreate.DROPPING, subenabled=False)
    world.publisher.slots.clear()
    again = create_subscription(statement(), world.context)
    assert again.oid != sub.oid
    world.store.update_subscription(again.oid, subcreate=SubCreate.DROPPING)
    drop_subscription("mysub", world.context)
    nothing_is_left(world)


def test_enable_and_disable(world: Around) -> None:
    sub = create_subscription(statement(with_={"enabled": False}), world.context)
    assert not sub.subenabled
    assert world.wakes == []
    enable_subscription("mysub", world.context)
    assert world.store.subscription_by_name("mysub") != sub
    world.workers[:] = [[WorkerTwin(sub.oid)], []]
    disable_subscription("mysub", world.context)
    assert world.store.subscription_by_name("mysub") == sub
    assert len(world.wakes) == 2
    for command in (enable_subscription, disable_subscription):
        with pytest.raises(UndefinedObject):
            command("nobody", world.context)


@pytest.mark.parametrize(
    ("version", "options", "state", "at_once"),
    [
        (18, {}, "p", False),
        (18, {"copy_data": False}, "e", True),
        (16, {"copy_data": False}, "e", True),
        (18, {"copy_data": False, "failover": True}, "p", False),
    ],
)
def test_two_phase_of_a_new_slot(
    world: Around, version: int, options: dict[str, bool], state: str, at_once: bool
) -> None:
    """Enabled at once where every table is ready at once; else pending."""
    world.publisher.server_version = version
    stmt = statement(with_={"two_phase": True, **options})
    assert create_subscription(stmt, world.context).subtwophasestate == state
    assert world.publisher.slots["mysub"].two_phase is at_once


@pytest.mark.parametrize(("version", "can"), [(14, False), (15, True)])
def test_a_publisher_of_14_makes_no_slot_with_two_phase(
    world: Around, version: int, can: bool
) -> None:
    sub = create_drop.new_row(statement(with_={"two_phase": True}))
    world.publisher.server_version = version
    assert create_drop._can_enable_two_phase(sub, world.publisher) is can


def test_two_phase_without_any_table_is_pending(world: Around) -> None:
    world.publisher.tables.clear()
    stmt = statement(with_={"two_phase": True, "copy_data": False})
    assert create_subscription(stmt, world.context).subtwophasestate == "p"


def test_drop_removes_what_was_prepared(world: Around) -> None:
    sub = create_subscription(statement(), world.context)
    xacts = PreparedXacts(world.context.data_dir, sub.subuuid, sub.oid)
    keep(xacts, PreparedXact("gid", 7, LSN(1), LSN(2), 0))
    drop_subscription("mysub", world.context)
    assert not xacts.folder.exists()
