"""Going on after a gap: what is said, what is stored, and a command that dies in between."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    FeatureNotSupported,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
)
from catalog.leaked_slot import leaked_slot
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import TableOptions, sync_slot_name, system_identifier
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from subscriber.commands.accept_gap import accept_gap, anchor
from tests.subscriber.left_behind import COLUMNS, Left, left_behind
from tests.subscriber.twins import Slot
from tests.workers.prepared import keep
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent, Stamp
from workers.process import failpoints
from workers.publisher.same_server import ServerMisfit, judge_server, judge_slot
from workers.stream.prepared_groups import PreparedXact
from workers.stream.prepared_xacts import PreparedXacts
from workers.tables.position import check_position

ERROR = ObjectNotInPrerequisiteState("the publisher is behind", detail="It left.")


@pytest.fixture
def left(tmp_path: Path) -> Iterator[Left]:
    with left_behind(tmp_path) as made:
        yield made


@pytest.mark.parametrize("changes", [{}, {"xlogpos": LSN(200)}])
def test_on_its_own_server_nothing_is_left(left: Left, changes: dict[str, Any]) -> None:
    left.world.publisher.slots["mysub"].confirmed = LSN(900)
    left.server(**changes)
    left.accept()
    assert left.world.store.leaked_slots() == []


def test_without_a_gap_it_refuses_and_changes_nothing(left: Left) -> None:
    before = (left.sub, left.world.store.rels(left.sub.oid), left.stamp("ready"))
    with pytest.raises(ObjectNotInPrerequisiteState, match="there is no gap to accept") as caught:
        accept_gap("mysub", left.context)
    assert caught.value.code == "55000"
    assert (left.sub, left.world.store.rels(left.sub.oid), left.stamp("ready")) == before
    assert left.world.publisher.slots["mysub"].confirmed == 470


# The slot


def assert_tables_stay(left: Left, *, trusted: bool = False) -> None:
    """Position and epoch; but a key that is inserted may be there: its DELETE may be missing."""
    assert [(left.rel(n).epoch, left.rel(n).copied) for n in ("ready", "done")] == [
        ("first", trusted)
    ] * 2
    assert (left.rel("ready").lake_lsn, left.rel("done").srsublsn) == (400, 450)
    assert left.origin() == 500


def test_a_suspended_table_stays_as_it_is_even_without_a_lake_table(left: Left) -> None:
    """The copy of its resume brings what it misses; its position may be above a new server's."""
    done = left.rel("done")
    held = left.world.store.update_rel(done.srsubid, done.srrelid, suspend_time=1)
    del left.lake.tables[LakeIdent("public", "done")]
    left.world.publisher.identity = replace(left.world.publisher.identity, xlogpos=LSN(200))
    left.world.publisher.slots["mysub"].confirmed = LSN(150)
    accept_gap("mysub", left.context)
    assert left.rel("done") == held
    with pytest.raises(ObjectNotInPrerequisiteState, match="there is no gap to accept"):
        accept_gap("mysub", left.context)


def test_a_slot_that_was_moved_on(left: Left) -> None:
    left.world.publisher.slots["mysub"].confirmed = LSN(900)
    said = left.accept()
    assert "changes from 0/1E0 to 0/384 are not received" in said[0]
    assert '"public.ready"' in said[0]
    assert left.sub.max_flush_lsn == 900
    assert_tables_stay(left)


@pytest.mark.parametrize("slot", [None, Slot(lost=True, confirmed=LSN(470))])
def test_a_slot_that_is_gone_or_lost_is_made_again(left: Left, slot: Slot | None) -> None:
    del left.world.publisher.slots["mysub"]
    if slot is not None:
        left.world.publisher.slots["mysub"] = slot
    said = left.accept()
    assert 'created replication slot "mysub"' in said[0]
    assert "changes from 0/1E0 to 0/3E8 are not received" in said[1]
    assert left.sub.max_flush_lsn == left.world.publisher.slots["mysub"].confirmed == 1000
    assert_tables_stay(left)


def test_somebody_else_s_slot_is_left_alone(left: Left) -> None:
    left.world.publisher.slots["mysub"].plugin = "wal2json"
    with pytest.raises(ObjectNotInPrerequisiteState, match="is not one of pgoutput"):
        accept_gap("mysub", left.context)
    assert left.world.publisher.slots["mysub"].plugin == "wal2json"
    assert_tables_stay(left, trusted=True)


# The server


def assert_all_anchored(left: Left, begin: int, **at: int) -> None:
    """New epochs, no state that a position of the old world decides about."""
    for name in ("ready", "done"):
        rel = left.rel(name)
        assert (rel.lake_lsn, rel.floor) == (at[name], at[name])
        assert (left.stamp(name).lsn, left.stamp(name).epoch) == (at[name], rel.epoch)
        assert rel.epoch != "first"
        assert (rel.srsubstate, rel.copied) == (SubRelState.READY, False)
    assert left.rel("new").srsubstate is SubRelState.INIT
    assert (left.origin(), left.sub.max_flush_lsn) == (begin, begin)


@pytest.mark.parametrize(
    ("confirmed", "ready", "done"),
    [
        (300, 400, 430),  # a synchronised failover slot: what it sends up to 430 is there
        (420, 420, 430),
        (700, 700, 700),  # made after the promotion
    ],
)
def test_a_standby_that_was_promoted_behind_us(
    left: Left, confirmed: int, ready: int, done: int
) -> None:
    left.server(timeline=2)
    left.world.publisher.histories[2] = "1\t0/1AE\tpromoted"  # at 430
    left.world.publisher.slots["mysub"].confirmed = LSN(confirmed)
    said = left.accept()
    assert "committed from 0/1AE to 0/1F4 is in the lake and not on it" in said[0]
    missed = f"What it committed from 0/1AE to {LSN(confirmed)} is not received."
    assert (missed in said[0]) == (confirmed > 430)
    assert_all_anchored(left, confirmed, ready=ready, done=done)
    assert (left.sub.timeline, left.world.publisher.slots["mysub"].confirmed) == (2, confirmed)


def test_another_server_begins_where_its_slot_is(left: Left) -> None:
    left.server(systemid="2", timeline=1)
    left.world.publisher.slots["mysub"].confirmed = LSN(50)
    left.accept()
    left.lake.power_cut()
    assert_all_anchored(left, 50, ready=50, done=50)
    assert left.sub.sysid == "2"


def test_another_database_begins_where_its_slot_is(left: Left) -> None:
    """The slot was made there: nothing that it sends was received before."""
    before, store = left.sub, left.world.store
    rel = left.rel("new")
    store.origin_create(origin_name(rel.srsubid, rel.srrelid))
    left.server(dbname="other", datoid=5)
    left.world.publisher.slots["mysub"].confirmed = LSN(50)
    said = left.accept()
    assert_all_anchored(left, 50, ready=50, done=50)
    assert left.sub.datoid == 5
    assert 'It is database "other" (OID 5), expected OID 16385' in said[0]
    (slot,) = store.leaked_slots()  # there can be no other of the main slot's name
    assert (slot.datoid, slot.sysid) == (before.datoid, before.sysid)
    (told,) = [line for line in said if slot.slot_name in line]
    assert "may still be in the database that" in told
    assert "The database's OID is 16385." in told


def test_what_stays_on_the_server_before_is_told_of_and_listed(left: Left) -> None:
    """The slot that it went by, that of a synchronisation, and one that was leaked there.

    The first is told of only: another name may have been given to it since.
    """
    before, store = left.sub, left.world.store
    rel = left.rel("new")
    store.origin_create(origin_name(rel.srsubid, rel.srrelid))
    sync = sync_slot_name(before.oid, rel.srrelid, system_identifier(before))
    done = leaked_slot(before, "pg_done", "its table is synchronised")
    somebodys = replace(done, slot_name="x", subname="other")
    for slot in (done, somebodys):
        store.put_leaked_slot(slot)
    left.server(systemid="2", timeline=1)
    left.accept()
    told = [n for n in left.world.notices if "may still be on the server" in n.primary]
    assert [re.findall('slot "(.*?)"', n.primary)[0] for n in told] == ["mysub", sync, "pg_done"]
    for message in told:
        (name,) = re.findall('slot "(.*?)"', message.primary)
        assert f"server's system identifier is {before.sysid}" in (message.detail or "")
        assert f"SELECT pg_drop_replication_slot('{name}')" in (message.hint or "")
    listed = {slot.slot_name: slot for slot in store.leaked_slots()}
    assert set(listed) == {sync, "pg_done", "x"}
    assert {slot.sysid for slot in listed.values()} == {before.sysid}
    assert (listed["pg_done"], listed["x"]) == (done, somebodys)


@pytest.mark.parametrize("changes", [{"xlogpos": LSN(200)}, {"timeline": 2}])
def test_a_fork_that_is_not_known_begins_at_a_new_slot(left: Left, changes: dict[str, Any]) -> None:
    """The old slot may stand before the fork: it would send again what the lake has."""
    left.server(**changes)
    left.world.publisher.histories[2] = ""
    left.world.publisher.slots["mysub"].confirmed = LSN(150)
    left.accept()
    begin = left.world.publisher.identity.xlogpos
    assert left.world.publisher.slots["mysub"].confirmed == begin
    assert_all_anchored(left, begin, ready=begin, done=begin)


@pytest.mark.parametrize("committed", [None, 440, 480])
def test_a_transaction_that_was_prepared_before_the_fork(left: Left, committed: int | None) -> None:
    """One that the lake may have may not be committed again; one that it lacks is prepared."""
    xacts = PreparedXacts(left.context.data_dir, left.sub.subuuid, left.sub.oid)
    xact = PreparedXact("gid", 7, LSN(400), LSN(410), 0)
    keep(xacts, xact, replace(xact, gid="lost", xid=8, end_lsn=LSN(431)))
    if committed is not None:
        xacts.commit(xact, LSN(committed))
        xacts.make_durable()
    left.server(timeline=2)
    left.world.publisher.histories[2] = "1\t0/1AE\tpromoted"  # at 430; the lake is at 450
    left.world.publisher.slots["mysub"].confirmed = LSN(700)
    left.accept()
    found = PreparedXacts(left.context.data_dir, left.sub.subuuid, left.sub.oid)
    found.sweep(LSN(left.origin()))
    assert [xact.gid for _, xact in found.all()] == ([] if committed == 440 else ["gid"])


# Lake tables


@pytest.mark.parametrize(("changes", "stands"), [({"xlogpos": LSN(200)}, LSN(0)), ({}, LSN(480))])
def test_a_finished_copy_goes_on_if_the_server_is_the_one_that_was(
    left: Left, changes: dict[str, Any], stands: LSN
) -> None:
    """Rule 8: the number of a server that was restored is what it was, its positions are not."""
    rel, store = left.rel("new"), left.world.store
    origin = origin_name(rel.srsubid, rel.srrelid)
    store.origin_create(origin)
    store.origin_advance(origin, LSN(480), "its copy")
    if changes:
        left.server(**changes)
    else:
        left.world.publisher.slots["mysub"].confirmed = LSN(600)
    left.accept()
    assert store.origin_lsn(origin) == stands


def set_back(left: Left, stamp: Stamp | None = None) -> None:
    ident = LakeIdent("public", "ready")
    dest = MemoryDestination(left.lake)
    dest.drop_table(ident)
    stamp = stamp or Stamp("o", LSN(300), "first", LSN(100))
    dest.create_table(ident, COLUMNS, owner=left.sub.subuuid, relid=1, stamp=stamp)


@pytest.mark.parametrize(
    ("stamp", "since"),
    [
        (Stamp("o", LSN(300), "first", LSN(100)), "from 0/12C to 0/1F4"),
        (Stamp("o", LSN(900), "another", LSN(100)), "of an unknown past to 0/1F4"),
    ],
)
def test_a_table_that_was_set_back_goes_on_where_the_stream_is(
    left: Left, stamp: Stamp, since: str
) -> None:
    set_back(left, stamp)
    said = left.accept()
    assert f'table "public.ready": changes {since} are not in the lake' in said[0]
    assert (left.stamp("ready").lsn, left.rel("ready").lake_lsn) == (500, 500)
    assert left.rel("ready").srsubstate is SubRelState.READY
    assert (left.rel("done").epoch, left.rel("done").lake_lsn) == ("first", 450)
    assert (left.origin(), left.sub.max_flush_lsn) == (500, 480)


def test_a_table_that_somebody_else_made_is_refused(left: Left) -> None:
    ident, dest = LakeIdent("public", "ready"), MemoryDestination(left.lake)
    dest.drop_table(ident)
    dest.create_table(ident, COLUMNS, owner="x", relid=1, stamp=Stamp("o", LSN(1), "e", LSN(1)))
    with pytest.raises(ObjectInUse, match="does not belong to"):
        accept_gap("mysub", left.context)


def test_a_shared_lake_table_is_left_alone(left: Left) -> None:
    """Its branches and its newest position are others', too."""
    tables = {"public.ready": TableOptions(shared=True)}
    left.world.store.update_subscription(left.sub.oid, tables=tables)
    left.server(xlogpos=LSN(200))
    before = left.stamp("ready")
    with pytest.raises(FeatureNotSupported, match="shares its lake table"):
        accept_gap("mysub", left.context)
    assert (left.stamp("ready"), left.rel("ready").lake_lsn) == (before, before.lsn)


def test_a_table_that_is_gone_is_told_and_left(left: Left) -> None:
    MemoryDestination(left.lake).drop_table(LakeIdent("public", "ready"))
    left.server(xlogpos=LSN(200))
    left.world.notices.clear()
    accept_gap("mysub", left.context)
    assert 'lake table "public.ready" does not exist' in left.world.notices[0].primary
    assert (left.rel("ready").lake_lsn, left.stamp("done").lsn) == (200, 200)


# A command that dies


def behind(left: Left) -> None:
    left.server(timeline=2)
    left.world.publisher.histories[2] = "1\t0/1AE\tpromoted"
    left.world.publisher.slots["mysub"].confirmed = LSN(420)


def lost(left: Left) -> None:
    left.world.publisher.slots["mysub"].lost = True


def restored(left: Left) -> None:
    left.server(xlogpos=LSN(200))


BROKEN = {"behind": behind, "lost": lost, "restored": restored, "set back": set_back}


@pytest.mark.parametrize("place", failpoints.ACCEPT_GAP)
@pytest.mark.parametrize("broken", BROKEN)
def test_a_command_that_dies_leaves_an_error_and_the_next_finishes(
    left: Left, broken: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    BROKEN[broken](left)

    def die(name: str) -> None:
        if name == place:
            raise ConnectionFailure("died")

    with monkeypatch.context() as dying:
        dying.setattr("workers.process.failpoints.reach", die)
        try:
            accept_gap("mysub", left.context)
        except ConnectionFailure:
            pass
        else:
            return  # this one never comes to that place
    # What follows "stored" are the tables, and a slot alone concerns none.
    assert _something_does_not_fit(left) or place in failpoints.ACCEPT_GAP[2:]
    assert _something_does_not_fit(left) or broken != "restored" or place != "accept_gap.stored"
    before = {name: left.rel(name).lake_lsn for name in ("ready", "done")}
    if _something_does_not_fit(left):
        left.accept()
    if broken == "behind":
        assert_all_anchored(left, 420, ready=420, done=430)
    elif place in failpoints.ACCEPT_GAP[2:]:
        after = {name: left.rel(name).lake_lsn for name in ("ready", "done")}
        assert after == before


def test_what_workers_confirm_after_the_death_of_a_launcher_is_not_forgotten(
    left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one does not know that they were to be stopped; the other tables go on."""
    set_back(left)

    def confirm(name: str) -> None:
        if name == "accept_gap.slot_settled":
            left.world.store.update_subscription(left.sub.oid, max_flush_lsn=LSN(700))
            left.world.publisher.slots["mysub"].confirmed = LSN(700)

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("workers.process.failpoints.reach", confirm)
        accept_gap("mysub", left.context)
    assert left.sub.max_flush_lsn == 700
    assert not _something_does_not_fit(left)


def _something_does_not_fit(left: Left) -> bool:
    identity: Any = left.world.publisher.identity
    slot = left.world.publisher.slots.get("mysub")
    from workers.publisher.replication_slots import fetch_slot

    errors: list[Any] = [slot is None, judge_server(left.sub, LSN(left.origin()), identity, ())]
    errors.append(judge_slot(left.sub, fetch_slot(left.world.publisher, "mysub")))
    for name in ("ready", "done"):
        lake = MemoryDestination(left.lake).table(LakeIdent("public", name))
        assert lake is not None
        try:
            check_position(left.rel(name), lake, "mysub")
        except ObjectNotInPrerequisiteState as error:
            errors.append(error)
    return any(errors)


# Where a table goes on


def misfit(fork: int | None) -> ServerMisfit:
    return ServerMisfit(ERROR, None if fork is None else LSN(fork))


@pytest.mark.parametrize(
    ("stamped", "epoch", "server", "begin", "lsn"),
    [
        (300, "e", None, 480, 500),  # set back: what the subscription knows to have taken
        (300, "e", None, 900, 900),  # and the slot was moved on
        (900, "other", None, 480, 500),
        (600, "e", None, 480, 600),  # a dead worker's batch landed before the fence
        (400, "e", misfit(None), 200, 200),
        (400, "e", misfit(450), 300, 400),
        (400, "e", misfit(350), 300, 350),
        (400, "e", misfit(350), 360, 360),
        (900, "other", misfit(450), 300, 450),
    ],
)
def test_where_a_table_goes_on(
    stamped: int, epoch: str, server: ServerMisfit | None, begin: int, lsn: int
) -> None:
    rel = SubscriptionRel(
        1, 2, SubRelState.READY, None, "p", "t", "p", "t", epoch="e", lake_lsn=LSN(400)
    )
    stamp = Stamp("o", LSN(stamped), epoch, LSN(0))
    found = anchor(rel, stamp, server, LSN(begin), LSN(500))
    assert found.lsn == lsn
    assert found.lake_lsn == (stamped if epoch == "e" else None)
