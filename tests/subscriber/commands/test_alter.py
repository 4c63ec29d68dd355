"""ALTER SUBSCRIPTION against twins: what is stored, what is asked of the publisher and workers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    DuplicateObject,
    DuplicateTable,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
    ReplicationError,
    SyntaxErrorOrAccess,
    UndefinedObject,
)
from catalog.leaked_slot import leaked_slot
from catalog.pg_lsn import LSN
from catalog.pg_subscription import Stream, SubCreate, Subscription, TwoPhaseState
from catalog.pg_subscription_rel import KEY_UNSURE
from subscriber.commands import alter, leaked_slots
from subscriber.commands.alter import (
    alter_connection,
    alter_enabled,
    alter_options,
    alter_owner,
    alter_publications,
    alter_refresh,
    alter_rename,
    alter_skip,
)
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.context import CommandContext
from subscriber.commands.create_drop import create_subscription, drop_subscription
from tests.subscriber.twins import Around, PublishedTable, Slot, WorkerTwin, around, statement


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    """Publication ``pub`` of a and b; ``p2`` of b and c, not subscribed to."""
    made = around(tmp_path)
    made.publisher.publications = ("pub", "p2")
    made.publisher.tables = {name: PublishedTable() for name in "abc"}
    made.publisher.only = {"pub": ("a", "b"), "p2": ("b", "c")}
    create_subscription(statement(), made.context)
    made.notices.clear()
    made.wakes.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0


def row(world: Around, name: str = "mysub") -> Subscription:
    found = world.store.subscription_by_name(name)
    assert found is not None
    return found


def states(world: Around) -> dict[str, str]:
    return {rel.relname: str(rel.srsubstate) for rel in world.store.rels(row(world).oid)}


def trust(world: Around) -> None:
    """Every table is copied: its keys are known to be the publisher's."""
    for rel in world.store.rels(row(world).oid):
        world.store.update_rel(rel.srsubid, rel.srrelid, copied=True)


def trusted(world: Around) -> set[str]:
    return {rel.relname for rel in world.store.rels(row(world).oid) if rel.copied}


EVERY_FORM: list[Callable[[str, CommandContext], None]] = [
    lambda name, context: alter_connection(name, "host=x", context),
    lambda name, context: alter_publications(
        name, "add", ["p"], context, refresh=False, copy_data=True
    ),
    lambda name, context: alter_refresh(name, context, copy_data=True),
    lambda name, context: alter_enabled(name, True, context),
    lambda name, context: alter_enabled(name, False, context),
    lambda name, context: alter_options(name, {"disable_on_error": True}, context),
    lambda name, context: alter_skip(name, LSN(7), context),
    lambda name, context: alter_rename(name, "new", context),
]


@pytest.mark.parametrize("form", EVERY_FORM)
def test_a_subscription_that_is_not_there(
    world: Around, form: Callable[[str, CommandContext], None]
) -> None:
    """A-1, and one that is only half there."""
    with pytest.raises(UndefinedObject, match='subscription "nobody" does not exist'):
        form("nobody", world.context)
    half = world.store.update_subscription(row(world).oid, subcreate=SubCreate.DROPPING)
    with pytest.raises(ObjectNotInPrerequisiteState, match="only half dropped"):
        form("mysub", world.context)
    assert row(world) == half


# CONNECTION


def test_connection_is_parsed_and_not_tried(world: Around) -> None:
    """A-14."""
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    alter_connection("mysub", "postgresql://other:5433/shop", world.context)
    assert row(world).subconninfo == "host=other port=5433 dbname=shop"
    assert (len(world.wakes), world.events) == (1, ["take effect"])
    before = row(world)
    with pytest.raises(SyntaxErrorOrAccess, match="invalid connection string syntax"):
        alter_connection("mysub", "host=x nonsense", world.context)
    assert row(world) == before


def test_a_password_has_a_file_and_its_predecessor_goes(world: Around) -> None:
    alter_connection("mysub", "host=db password=one", world.context)
    first = Path(row(world).passfile or "")
    assert first.read_text() == "*:*:*:*:one\n"
    alter_connection("mysub", "host=db2 password=one", world.context)
    assert Path(row(world).passfile or "") == first
    alter_connection("mysub", "host=db password=two", world.context)
    second = Path(row(world).passfile or "")
    assert (first.exists(), second.read_text()) == (False, "*:*:*:*:two\n")
    alter_connection("mysub", "host=db", world.context)
    assert (row(world).passfile, second.exists()) == (None, False)


def test_a_password_that_was_not_stored_leaves_no_file(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    def somebody_else_is_faster(sub: Subscription, *args: Any) -> None:
        world.store.update_subscription(sub.oid, subsynccommit="off")
        store(sub, *args)

    store = alter._store_and_reload
    monkeypatch.setattr(alter, "_store_and_reload", somebody_else_is_faster)
    with pytest.raises(ObjectInUse, match="was changed meanwhile"):
        alter_connection("mysub", "host=db password=one", world.context)
    assert not list(world.context.data_dir.rglob("passfile/*"))
    assert row(world).subconninfo == "host=db dbname=shop"


def test_a_password_beside_its_environment_variable(world: Around) -> None:
    world.store.update_subscription(row(world).oid, password_env="SHOP_PASSWORD")
    with pytest.raises(SyntaxErrorOrAccess, match="exclusive") as caught:
        alter_connection("mysub", "host=db password=one", world.context)
    assert "SHOP_PASSWORD" in (caught.value.hint or "")
    assert "one" not in caught.value.report()


# PUBLICATION


def test_add_refreshes_the_whole_list(world: Around) -> None:
    alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    assert row(world).subpublications == ("pub", "p2")
    assert states(world) == {"a": "i", "b": "i", "c": "i"}
    assert world.said() == ['NOTICE: table "public.c" added to subscription "mysub"']
    assert world.events == ["take effect"]


def test_drop_leaves_what_another_publication_has(world: Around) -> None:
    """H-25: b is in both."""
    alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    (gone,) = [rel for rel in world.store.rels(row(world).oid) if rel.relname == "a"]
    world.store.origin_create(f"pg_{gone.srsubid}_{gone.srrelid}")
    world.events.clear()
    alter_publications("mysub", "drop", ["pub"], world.context, refresh=True, copy_data=True)
    assert row(world).subpublications == ("p2",)
    assert states(world) == {"b": "i", "c": "i"}
    assert world.events == [f"stop {gone.srrelid}", "take effect"]
    assert [origin.roname for origin in world.store.origins()] == [f"pg_{gone.srsubid}"]


def test_set_without_copy_begins_where_the_subscription_stands(world: Around) -> None:
    world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(500))
    alter_publications("mysub", "set", ["p2"], world.context, refresh=True, copy_data=False)
    assert states(world) == {"b": "i", "c": "r"}
    assert [rel.floor for rel in world.store.rels(row(world).oid)] == [LSN(0), LSN(500)]
    assert world.events[:2] == ["hold", "let go"]


def test_missing_publications_are_named_once_if_the_command_names_them(world: Around) -> None:
    """S-007-3, S-007-4."""
    alter_publications("mysub", "add", ["x", "y"], world.context, refresh=True, copy_data=True)
    assert world.said() == ['WARNING: publications "x", "y" do not exist on the publisher']
    assert row(world).subpublications == ("pub", "x", "y")
    world.notices.clear()
    alter_refresh("mysub", world.context, copy_data=True)
    alter_publications("mysub", "drop", ["y"], world.context, refresh=True, copy_data=True)
    assert world.said() == []
    alter_publications("mysub", "set", ["x"], world.context, refresh=True, copy_data=True)
    assert world.said()[0] == 'WARNING: publication "x" does not exist on the publisher'
    assert states(world) == {}


@pytest.mark.parametrize("call", ["connect", "exec"])
def test_a_refresh_that_fails_leaves_the_list_as_it_was(world: Around, call: str) -> None:
    before = row(world)
    world.publisher.fail[call] = ConnectionFailure("it went away")
    with pytest.raises(ConnectionFailure):
        alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    assert (row(world), set(states(world))) == (before, {"a", "b"})


def test_a_lake_table_in_the_way_leaves_the_list_as_it_was(world: Around) -> None:
    before = row(world)
    world.lake.add("c")
    with pytest.raises(DuplicateTable):
        alter_publications("mysub", "set", ["p2"], world.context, refresh=True, copy_data=True)
    assert (row(world), set(states(world))) == (before, {"a", "b"})


def test_refresh_of_a_disabled_subscription(world: Around) -> None:
    """A-9; what needs no refresh goes."""
    world.store.update_subscription(row(world).oid, subenabled=False)
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    with pytest.raises(ObjectNotInPrerequisiteState, match="is not allowed for disabled"):
        alter_refresh("mysub", world.context, copy_data=True)
    with pytest.raises(ObjectNotInPrerequisiteState, match="with refresh is not allowed"):
        alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    assert row(world).subpublications == ("pub",)
    alter_publications("mysub", "add", ["p2"], world.context, refresh=False, copy_data=True)
    assert row(world).subpublications == ("pub", "p2")
    assert world.events == []  # it waited for the end of workers, and there are none


def test_a_list_that_was_changed_unseen_is_not_trusted(world: Around) -> None:
    """pub is without DELETE, p2 with; a row is deleted while p2 is away, and its key comes again.

    Nothing announces b meanwhile and afterwards its fingerprint is what it was.
    """
    alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    trust(world)
    alter_publications("mysub", "drop", ["p2"], world.context, refresh=False, copy_data=True)
    assert trusted(world) == set()
    alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    assert trusted(world) == set()


def test_a_copy_that_runs_finds_another_fingerprint(world: Around) -> None:
    """It would store at ``s`` that its table is to be trusted: what it began with is still so."""
    alter_publications("mysub", "add", ["p2"], world.context, refresh=False, copy_data=True)
    assert [rel.fingerprint for rel in world.store.rels(row(world).oid)] == [None, None]


def test_another_list_makes_no_key_sure(world: Around) -> None:
    first = world.store.rels(row(world).oid)[0]
    world.store.update_rel(first.srsubid, first.srrelid, fingerprint=KEY_UNSURE)
    alter_publications("mysub", "add", ["p2"], world.context, refresh=False, copy_data=True)
    assert [rel.key_unsure for rel in world.store.rels(row(world).oid)] == [True, False]


def test_a_list_that_is_compared_keeps_the_trust_of_what_stayed_the_same(world: Around) -> None:
    trust(world)
    alter_publications("mysub", "add", ["p2"], world.context, refresh=True, copy_data=True)
    assert trusted(world) == {"a"}


# SET (…)


def test_options(world: Around) -> None:
    alter_options("mysub", {"streaming": Stream.OFF, "synchronous_commit": "on"}, world.context)
    assert (row(world).substream, row(world).subsynccommit) == (Stream.OFF, "on")
    assert world.events == ["take effect"]
    before = row(world)
    with pytest.raises(SyntaxErrorOrAccess, match="unrecognized subscription parameter"):
        alter_options("mysub", {"disable_on_error": True, "create_slot": False}, world.context)
    assert row(world) == before


def test_another_origin_ends_the_trust_in_keys(world: Around) -> None:
    """With none, the DELETE of a row that came from elsewhere does not arrive."""
    trust(world)
    alter_options("mysub", {"disable_on_error": True}, world.context)
    assert trusted(world) == {"a", "b"}
    alter_options("mysub", {"origin": "none"}, world.context)
    assert trusted(world) == set()


def test_failover_is_the_slot_s_first(world: Around) -> None:
    """A-3, then the slot, then the row."""
    with pytest.raises(ObjectNotInPrerequisiteState, match='"failover" for enabled'):
        alter_options("mysub", {"failover": True}, world.context)
    alter_enabled("mysub", False, world.context)
    world.publisher.fail["alter_slot"] = ReplicationError("no", sqlstate="55000")
    with pytest.raises(ConnectionFailure, match='could not alter replication slot "mysub"'):
        alter_options("mysub", {"failover": True, "streaming": Stream.OFF}, world.context)
    assert (row(world).subfailover, row(world).substream) == (False, Stream.PARALLEL)
    world.publisher.fail.clear()
    alter_options("mysub", {"failover": True, "slot_name": "new"}, world.context)
    assert (row(world).subfailover, row(world).subslotname) == (True, "new")
    assert world.publisher.altered == ["ALTER_REPLICATION_SLOT mysub ( FAILOVER true )"]


@pytest.mark.parametrize(
    ("version", "options", "sent"),
    [
        (18, {"two_phase": False, "failover": False}, "FAILOVER false, TWO_PHASE false"),
        (17, {"two_phase": False, "failover": False}, "FAILOVER false"),
        (16, {"two_phase": False, "failover": False}, None),
        (17, {"two_phase": False}, None),
    ],
)
def test_what_a_publisher_knows_of_slots(
    world: Around, version: int, options: dict[str, bool], sent: str | None
) -> None:
    alter_enabled("mysub", False, world.context)
    world.publisher.server_version = version
    alter_options("mysub", options, world.context)
    statements = [f"ALTER_REPLICATION_SLOT mysub ( {sent} )"] if sent else []
    assert world.publisher.altered == statements


def test_failover_on_an_older_publisher(world: Around) -> None:
    alter_enabled("mysub", False, world.context)
    world.publisher.server_version = 16
    with pytest.raises(ReplicationError, match="cannot be altered on a publisher") as caught:
        alter_options("mysub", {"failover": True}, world.context)
    assert (caught.value.code, row(world).subfailover) == ("0A000", False)


def test_two_phase_is_turned_on_without_the_publisher(world: Around) -> None:
    """The worker asks for it, once every table is ready."""
    alter_enabled("mysub", False, world.context)
    world.publisher.fail["connect"] = ConnectionFailure("could not connect to the publisher")
    alter_options("mysub", {"two_phase": True}, world.context)
    assert row(world).subtwophasestate is TwoPhaseState.PENDING


def test_two_phase_while_a_worker_lingers(world: Around) -> None:
    """A-6."""
    alter_enabled("mysub", False, world.context)
    world.workers[:] = [[WorkerTwin(row(world).oid)]]
    with pytest.raises(ObjectNotInPrerequisiteState, match="worker is still running"):
        alter_options("mysub", {"two_phase": False}, world.context)
    assert world.publisher.altered == []


def test_a_slot_that_a_walsender_still_holds_is_waited_for(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    alter_enabled("mysub", False, world.context)
    slot = world.publisher.slots["mysub"]
    slot.active = True
    monkeypatch.setattr(
        "subscriber.commands.main_slot.time.sleep", lambda _: setattr(slot, "active", False)
    )
    alter_options("mysub", {"failover": True}, world.context)
    assert (slot.active, row(world).subfailover) == (False, True)


def test_a_slot_that_somebody_reads_from(world: Around, monkeypatch: pytest.MonkeyPatch) -> None:
    """The publisher would wait until it is released."""
    monkeypatch.setattr(leaked_slots, "SLOT_RELEASE_SECONDS", 0.0)
    alter_enabled("mysub", False, world.context)
    world.publisher.slots["mysub"].active = True
    with pytest.raises(ConnectionFailure, match='slot "mysub" is active for PID'):
        alter_options("mysub", {"failover": True}, world.context)
    assert (row(world).subfailover, world.publisher.altered) == (False, [])


def test_slot_name_none_only_while_disabled(world: Around) -> None:
    """A-2, A-8; the slot stays where it is, and positions stay what they are."""
    sub = world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(500))
    with pytest.raises(ObjectNotInPrerequisiteState, match="slot_name = NONE for enabled"):
        alter_options("mysub", {"slot_name": None}, world.context)
    alter_enabled("mysub", False, world.context)
    alter_options("mysub", {"slot_name": None}, world.context)
    assert '"mysub" stays on the publisher' in world.said()[-1]
    with pytest.raises(ObjectNotInPrerequisiteState, match="does not have a slot name"):
        alter_enabled("mysub", True, world.context)
    alter_options("mysub", {"slot_name": "other"}, world.context)
    alter_enabled("mysub", True, world.context)
    assert (row(world).subslotname, row(world).max_flush_lsn) == ("other", sub.max_flush_lsn)
    assert list(world.publisher.slots) == ["mysub"]


def test_a_leaked_slot_that_is_taken_is_nobody_s_to_drop(world: Around) -> None:
    """Taken, then set free again: an ordinary command must not drop it as leaked then."""
    create_subscription(statement("two", with_={"copy_data": False}, publication="nosuch"),
                        world.context)  # fmt: skip
    drop_subscription("two", world.context, leave_slot=True)
    alter_enabled("mysub", False, world.context)
    alter_options("mysub", {"slot_name": "two"}, world.context)
    assert world.store.leaked_slots() == []
    alter_options("mysub", {"slot_name": None}, world.context)
    alter_options("mysub", {"slot_name": "mysub"}, world.context)
    drop_subscription("mysub", world.context)
    assert list(world.publisher.slots) == ["two"]


def test_one_of_the_server_before_stays_listed(world: Around) -> None:
    """Slot and connection change at once: it is a slot of that name on another server."""
    leaked = leaked_slot(row(world), "two", "it was left on purpose")
    world.store.put_leaked_slot(leaked)
    elsewhere = statement(connection="host=new", with_={"slot_name": "two", "connect": False})
    bring_in_line(row(world), elsewhere, world.context)
    assert row(world).subslotname == "two"
    assert world.store.leaked_slots() == [leaked]


def test_disable_disassociate_and_drop(world: Around) -> None:
    """S-007-1, H-10: workers that live do not hang it."""
    oid = row(world).oid
    world.workers[:] = [[WorkerTwin(oid)], [], [WorkerTwin(oid)], []]
    alter_enabled("mysub", False, world.context)
    alter_options("mysub", {"slot_name": None}, world.context)
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    drop_subscription("mysub", world.context)
    assert world.store.subscriptions() == []
    assert list(world.publisher.slots) == ["mysub"]


# SKIP, RENAME, OWNER


def test_skip(world: Around) -> None:
    """A-13."""
    world.store.origin_advance(f"pg_{row(world).oid}", LSN(500), "x")
    with pytest.raises(ReplicationError, match="must be greater than origin LSN"):
        alter_skip("mysub", LSN(499), world.context)
    alter_skip("mysub", LSN(500), world.context)
    assert row(world).subskiplsn == LSN(500)
    assert world.events == ["take effect"]
    alter_skip("mysub", None, world.context)
    assert row(world).subskiplsn == LSN(0)


def test_rename_keeps_slot_origin_and_tables(world: Around) -> None:
    before = row(world)
    world.workers[:] = [[WorkerTwin(before.oid)]]
    alter_rename("mysub", "new", world.context)
    after = row(world, "new")
    assert (after.oid, after.subslotname, after.max_flush_lsn) == (
        before.oid,
        "mysub",
        before.max_flush_lsn,
    )
    assert world.store.subscription_by_name("mysub") is None
    assert [origin.roname for origin in world.store.origins()] == [f"pg_{before.oid}"]
    assert len(world.store.rels(before.oid)) == 2
    assert 'must name it "new"' in world.said()[-1]
    assert world.events == ["take effect"]


def test_a_file_with_the_old_name_makes_no_second_one(world: Around) -> None:
    """Its slot and its lake tables are taken, so ``up`` says so instead of copying all again."""
    world.publisher.slots["mysub"] = Slot()
    alter_rename("mysub", "new", world.context)
    with pytest.raises(ReplicationError) as caught:
        create_subscription(statement(), world.context)
    assert caught.value.code in ("55006", "42710")
    assert [sub.subname for sub in world.store.subscriptions()] == ["new"]


def test_names_that_cannot_be_given(world: Around) -> None:
    with pytest.raises(DuplicateObject, match='subscription "mysub" already exists'):
        alter_rename("mysub", "mysub", world.context)
    for name, code in (("", "42602"), ("x" * 64, "42622")):
        with pytest.raises(ReplicationError) as caught:
            alter_rename("mysub", name, world.context)
        assert caught.value.code == code
    assert row(world)


def test_owner(world: Around) -> None:
    alter_owner("mysub", "postgres", world.context)
    alter_owner("mysub", None, world.context)
    for name, role, said in (("mysub", "bob", "role"), ("nobody", "bob", "role"),
                             ("nobody", None, "subscription")):  # fmt: skip
        with pytest.raises(UndefinedObject, match=said):
            alter_owner(name, role, world.context)


# Workers


def test_a_worker_that_is_late_is_a_warning(world: Around) -> None:
    def late(_subid: int) -> None:
        raise ObjectInUse("a worker has not come to a batch boundary in time", hint="It will.")

    object.__setattr__(world.context, "wait_until_workers_reload", late)
    alter_options("mysub", {"streaming": Stream.OFF}, world.context)
    assert row(world).substream is Stream.OFF
    assert world.said() == ["WARNING: a worker has not come to a batch boundary in time"]
