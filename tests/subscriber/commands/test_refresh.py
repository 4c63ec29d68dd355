"""REFRESH PUBLICATION: the tables that join and leave."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    DuplicateTable,
    ObjectInUse,
    ObjectNotInPrerequisiteState,
)
from catalog.pg_lsn import LSN
from catalog.pg_replication_origin import origin_name
from catalog.pg_subscription import (
    sync_slot_name,
    system_identifier,
)
from catalog.pg_subscription_rel import KEY_UNSURE, Setter, SubRelState
from catalog.table_renames import TableRename
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.refresh import refresh_publication
from tests.subscriber.commands.subscribed import names, row
from tests.subscriber.twins import (
    Around,
    LakeTwin,
    PublishedTable,
    Slot,
    WorkerTwin,
    around,
    statement,
)
from workers.lake.table import LakeIdent, LakeTable, Stamp


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    create_subscription(statement(), made.context)
    made.notices.clear()
    made.wakes.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0


def test_a_change_returns_when_the_workers_go_by_it(world: Around) -> None:
    bring_in_line(row(world), statement(with_={"streaming": "off"}), world.context)
    assert world.events == ["take effect"]
    world.workers[:] = [[WorkerTwin(row(world).oid)], []]
    bring_in_line(row(world), statement(with_={"enabled": False}), world.context)
    assert world.workers == []
    assert world.events == ["take effect"]


def test_a_worker_that_is_late_is_a_warning(world: Around) -> None:
    def late(_subid: int) -> None:
        raise ObjectInUse("a worker has not come to a batch boundary in time", hint="It will.")

    object.__setattr__(world.context, "wait_until_workers_reload", late)
    bring_in_line(row(world), statement(with_={"streaming": "off"}), world.context)
    assert world.said()[-1] == "WARNING: a worker has not come to a batch boundary in time"
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(ObjectInUse):
        refresh_publication(
            row(world), world.publisher.connect(row(world)), world.context, copy_data=True
        )
    world.publisher.close()


def test_tables_come_and_go(world: Around) -> None:
    (gone,) = world.store.rels(row(world).oid)
    world.publisher.tables = {"b": PublishedTable(), "c": PublishedTable()}
    bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("b", "i"), ("c", "i")]
    assert world.events == [f"stop {gone.srrelid}", "take effect"]
    assert world.said() == [
        'NOTICE: table "public.b" added to subscription "mysub"',
        'NOTICE: table "public.c" added to subscription "mysub"',
        'NOTICE: table "public.a" removed from "mysub"',
    ]


def test_a_renamed_table_of_a_shared_lake_table(world: Around) -> None:
    """Its rows under the old name stay; what deletes them is said, whatever the name is."""
    old, own = ("was", "a `$HOME`"), {"to": "public.all", "shared": True}
    tables = {f"public.{name}": own for name in (*old, "moved")}
    world.publisher.tables = {name: PublishedTable() for name in old}
    bring_in_line(row(world), statement(tables=tables), world.context)
    world.notices.clear()
    world.publisher.tables = {"moved": PublishedTable()}
    bring_in_line(row(world), statement(tables=tables), world.context)
    assert names(world) == [("moved", "i")]
    told = {each.primary: each for each in world.notices if "removed" in each.primary}
    for name in old:
        found = told[f'table "public.{name}" removed from "mysub"']
        assert found.detail == 'Its rows stay in shared lake table "public.all".'
        source = f"{row(world).subuuid}:public.{name}"
        assert shlex.split((found.hint or "").partition("delete them: ")[2]) == [
            "pgsub",
            "sql",
            f"DELETE FROM `lake`.`public`.`all` WHERE `_pgsub_source` = '{source}'",
        ]


def test_table_added_without_copy(world: Around) -> None:
    world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(500))
    world.store.origin_advance(f"pg_{row(world).oid}", LSN(400), "x")
    world.publisher.tables["b"] = PublishedTable()
    bring_in_line(row(world), statement(with_={"copy_data": False}), world.context)
    assert names(world) == [("a", "i"), ("b", "r")]
    stamp = world.lake.tables[LakeIdent("public", "b")].stamp
    assert stamp is not None
    assert (stamp.lsn, stamp.floor) == (LSN(500), LSN(500))
    assert world.lake.durable == {"b": stamp}
    assert world.store.rels(row(world).oid)[1].floor == LSN(500)


def test_no_worker_runs_while_a_table_joins_without_copy(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publisher.tables["b"] = PublishedTable()
    create_table = LakeTwin.create_table

    def look(lake: LakeTwin, *args: Any, **keys: Any) -> LakeTable:
        assert world.events == ["hold"]
        assert row(world).subenabled  # what is stored stays as it is: a crash needs no repair
        return create_table(lake, *args, **keys)

    monkeypatch.setattr(LakeTwin, "create_table", look)
    bring_in_line(row(world), statement(with_={"copy_data": False}), world.context)
    assert world.events == ["hold", "let go", "take effect"]


class Killed(BaseException):
    """Stands for SIGKILL."""


def test_killed_while_a_table_joins_without_copy(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.publisher.tables["b"] = PublishedTable()
    no_copy = statement(with_={"copy_data": False})
    with monkeypatch.context() as patch:
        patch.setattr(LakeTwin, "create_table", _made_and_killed)
        with pytest.raises(Killed):
            bring_in_line(row(world), no_copy, world.context)
    assert names(world) == [("a", "i")]  # no row that no lake table stands behind
    assert row(world).subenabled
    assert LakeIdent("public", "b") in world.lake.tables
    bring_in_line(row(world), no_copy, world.context)
    assert names(world) == [("a", "i"), ("b", "r")]
    stamp = world.lake.tables[LakeIdent("public", "b")].stamp
    rel = world.store.rels(row(world).oid)[1]
    assert stamp is not None
    assert (stamp.epoch, stamp.lsn) == (rel.epoch, rel.lake_lsn)


def _made_and_killed(
    lake: LakeTwin, ident: LakeIdent, columns: Any, *, owner: str, **_: Any
) -> Any:
    lake.tables[ident] = LakeTable(ident, tuple(columns), owner, 1, None)
    raise Killed


def test_added_table_cannot_be_read(world: Around) -> None:
    world.publisher.tables["b"] = PublishedTable(readable=False)
    bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("a", "i"), ("b", "i")]
    assert 'WARNING: permission denied for table "public.b"' in world.said()


def test_added_table_exists_in_the_lake(world: Around) -> None:
    world.lake.add("b")
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(DuplicateTable):
        bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("a", "i")]


def test_table_comes_back(world: Around) -> None:
    own = row(world).subuuid
    world.publisher.tables = {"b": PublishedTable()}
    bring_in_line(row(world), statement(), world.context)
    world.lake.add("a", owner=own)
    world.publisher.tables = {"a": PublishedTable(), "b": PublishedTable()}
    bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("a", "i"), ("b", "i")]


def test_publication_publishes_something_else(world: Around) -> None:
    (rel,) = world.store.rels(row(world).oid)
    world.store.update_rel(rel.srsubid, rel.srrelid, copied=True)
    bring_in_line(row(world), statement(), world.context)
    assert world.store.rels(row(world).oid)[0].copied
    world.publisher.tables["a"].row_filter = "(id > 5)"
    bring_in_line(row(world), statement(), world.context)
    (rel,) = world.store.rels(row(world).oid)
    assert (rel.copied, (rel.fingerprint or "")[:17]) == (False, "iudt- OR (id > 5)")


@pytest.mark.parametrize("noticed", [True, False])
@pytest.mark.parametrize("copy_data", [True, False])
def test_another_table_under_the_name_is_copied_again(
    world: Around, noticed: bool, copy_data: bool
) -> None:
    """As by PostgreSQL, which knows tables by oid; noticed by a worker before, or not."""
    (rel,) = world.store.rels(row(world).oid)
    key = rel.srsubid, rel.srrelid
    world.store.set_rel_state(*key, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    world.store.set_rel_state(*key, SubRelState.SYNCDONE, LSN(1), Setter.TABLESYNC)
    world.store.set_rel_state(*key, SubRelState.READY, LSN(1), Setter.APPLY)
    relid = rel.remote_relid
    assert relid is not None
    world.store.update_rel(*key, copied=True)
    bring_in_line(row(world), statement(with_={"copy_data": copy_data}), world.context)
    assert names(world) == [("a", "r")]
    other = relid if noticed else None
    world.store.update_rel(*key, remote_relid=relid + 1, other_relid=other)
    bring_in_line(row(world), statement(with_={"copy_data": copy_data}), world.context)
    (rel,) = world.store.rels(row(world).oid)
    assert rel.srsubstate is (SubRelState.INIT if copy_data else SubRelState.READY)
    assert (rel.remote_relid, rel.other_relid, rel.copied) == (relid, None, False)
    assert rel.recopy is copy_data


def test_a_key_that_may_be_a_part_stays_one_until_the_table_is_copied(world: Around) -> None:
    (rel,) = world.store.rels(row(world).oid)
    world.store.update_rel(rel.srsubid, rel.srrelid, fingerprint=KEY_UNSURE)
    bring_in_line(row(world), statement(), world.context)
    world.publisher.tables["a"].row_filter = "(id > 5)"
    bring_in_line(row(world), statement(), world.context)
    (rel,) = world.store.rels(row(world).oid)
    assert (rel.copied, rel.key_unsure) == (False, True)


def joined_again(world: Around, *, lsn: int, stand: int) -> None:
    """``a`` left with its lake table at ``lsn``, the subscription stands at ``stand``."""
    sub = row(world)
    world.publisher.tables = {"b": PublishedTable()}
    bring_in_line(sub, statement(), world.context)
    world.store.update_subscription(sub.oid, max_flush_lsn=LSN(stand))
    world.lake.add("a", owner=sub.subuuid, stamp=Stamp(f"pg_{sub.oid}", LSN(lsn), "old", LSN(1)))
    world.publisher.tables = {"a": PublishedTable(), "b": PublishedTable()}
    bring_in_line(row(world), statement(with_={"copy_data": False}), world.context)


def test_a_table_returns_without_copy_where_the_subscription_stands(world: Around) -> None:
    joined_again(world, lsn=500, stand=500)
    assert names(world) == [("a", "r"), ("b", "i")]
    assert world.lake.fenced == ["a"]
    rel = world.store.rels(row(world).oid)[0]
    assert (rel.floor, rel.lake_lsn) == (LSN(500), LSN(500))


def test_a_table_that_is_ahead_does_not_return_without_copy(world: Around) -> None:
    """A worker died between publishing the table and advancing the origin: 400 to 500 comes again.

    What a dead worker left running has landed before it is looked at, or never does.
    """

    def landed(table: LakeTable) -> LakeTable:
        assert table.stamp is not None
        return replace(table, stamp=replace(table.stamp, lsn=LSN(500)))

    world.lake.on_fence = landed
    with pytest.raises(ObjectNotInPrerequisiteState, match="cannot join") as caught:
        joined_again(world, lsn=400, stand=400)
    assert "pgsub wait mysub --lsn 0/1F4" in (caught.value.hint or "")
    assert names(world) == [("b", "i")]
    assert world.events[-2:] == ["hold", "let go"]


def test_a_copied_table_may_return_whatever_it_holds(world: Around) -> None:
    """Its rows come on top, as PostgreSQL's; what comes again is before the copy."""
    sub = row(world)
    world.lake.add("a", owner=sub.subuuid, stamp=Stamp("x", LSN(500), "old", LSN(1)))
    world.publisher.tables = {"b": PublishedTable()}
    bring_in_line(sub, statement(), world.context)
    world.publisher.tables = {"a": PublishedTable()}
    bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("a", "i")]
    assert world.lake.fenced == ["a"], "when it left, not when it came back"


def test_slots_of_synchronisations_that_were_taken_away(world: Around) -> None:
    sub = row(world)
    (rel,) = world.store.rels(sub.oid)
    origin = origin_name(sub.oid, rel.srrelid)
    world.store.origin_create(origin)
    world.publisher.slots[sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))] = Slot()
    world.publisher.tables = {"b": PublishedTable()}
    with closing(world.publisher.connect(sub)) as conn:
        refresh_publication(sub, conn, world.context, copy_data=True)
    assert list(world.publisher.slots) == ["mysub"]
    assert world.store.origin_by_name(origin) is None
    assert world.store.leaked_slots() == []
    assert world.events == [f"stop {rel.srrelid}", "take effect"]


def test_a_slot_that_a_command_did_not_come_to_drop(world: Around) -> None:
    """It ended when the table had left the catalog, whose origin told of the slot."""
    sub = row(world)
    (rel,) = world.store.rels(sub.oid)
    slot = sync_slot_name(sub.oid, rel.srrelid, system_identifier(sub))
    world.store.origin_create(origin_name(sub.oid, rel.srrelid))
    world.publisher.slots[slot] = Slot()
    world.publisher.tables = {"b": PublishedTable()}

    def end(subid: int, relid: int) -> None:
        raise KeyboardInterrupt

    interrupted = replace(world.context, stop_sync_worker=end)
    with closing(world.publisher.connect(sub)) as conn, pytest.raises(KeyboardInterrupt):
        refresh_publication(sub, conn, interrupted, copy_data=True)
    assert names(world) == [("b", "i")]
    assert [each.slot_name for each in world.store.leaked_slots()] == [slot]
    with closing(world.publisher.connect(sub)) as conn:
        refresh_publication(row(world), conn, world.context, copy_data=True)
    assert list(world.publisher.slots) == ["mysub"]
    assert world.store.leaked_slots() == []


def test_two_commands_at_once(world: Around) -> None:
    """The one that stores second has compared with what is not there any more."""
    before = row(world)
    world.store.update_subscription(before.oid, max_flush_lsn=LSN(7), sysid="7")  # a worker's
    world.publisher.tables["b"] = PublishedTable()
    with closing(world.publisher.connect(before)) as conn:
        refresh_publication(before, conn, world.context, copy_data=True)
        world.store.update_subscription(before.oid, subenabled=False)
        with pytest.raises(ObjectInUse, match="was changed meanwhile"):
            refresh_publication(before, conn, world.context, copy_data=True)
    assert names(world) == [("a", "i"), ("b", "i")]


def test_the_origin_warning_is_about_tables_that_join(world: Around) -> None:
    sub = world.store.update_subscription(row(world).oid, suborigin="none")
    world.publisher.other_origins = [("public", "a", "pub"), ("public", "ta b", "pub")]
    with closing(world.publisher.connect(sub)) as conn:
        refresh_publication(sub, conn, world.context, copy_data=True)
        assert world.said() == []
        world.publisher.tables["c"] = PublishedTable()
        refresh_publication(sub, conn, world.context, copy_data=False)
        assert not any("origin = NONE" in said for said in world.said())
        world.publisher.tables["ta b"] = PublishedTable()
        refresh_publication(sub, conn, world.context, copy_data=True)
    assert [said for said in world.said() if "requested copy_data with origin = NONE" in said]


def test_a_refresh_that_fails_changes_nothing(world: Around) -> None:
    before = row(world)
    world.lake.add("b")
    world.publisher.tables["b"] = PublishedTable()
    world.publisher.publications = ("pub", "p2")
    with pytest.raises(DuplicateTable):
        bring_in_line(
            before,
            statement(connection="host=x password=y", publication=["pub", "p2"]),
            world.context,
        )
    assert row(world) == before
    assert not list(world.context.data_dir.rglob("passfile/*"))


def synced(world: Around, **columns: Any) -> None:
    """Table a was copied."""
    (rel,) = world.store.rels(row(world).oid)
    for state, lsn in ((SubRelState.DATASYNC, None), (SubRelState.SYNCDONE, LSN(9))):
        world.store.set_rel_state(rel.srsubid, rel.srrelid, state, lsn, Setter.TABLESYNC)
    world.store.update_rel(rel.srsubid, rel.srrelid, **columns)


@pytest.mark.parametrize("mode", ["follow", "keep", "suspend"])
def test_a_renamed_table_is_left_to_the_worker(world: Around, mode: str) -> None:
    tables = {"public.a": {"on_rename": mode}}
    bring_in_line(row(world), statement(tables=tables), world.context)
    synced(world)
    world.notices.clear()
    world.publisher.rename("a", "moved")
    bring_in_line(row(world), statement(tables=tables), world.context)
    if mode == "suspend":
        assert names(world) == [("moved", "i")]
    else:
        assert names(world) == [("a", "s")]
        told = 'NOTICE: table "public.a" is "public.moved" on the publisher now'
        assert world.said()[-1] == told


def test_a_table_under_the_name_of_a_kept_lake_table_is_refused(world: Around) -> None:
    """Table a was renamed and its lake table kept the name; now there is another table a."""
    synced(world, relname="moved", former_names=("public.a",))
    world.publisher.rename("a", "moved")
    world.publisher.tables["a"] = PublishedTable()
    with pytest.raises(DuplicateTable) as refused:
        bring_in_line(row(world), statement(), world.context)
    assert refused.value.primary == (
        'tables "public.a" and "public.moved" are both mapped to lake table "public.a"'
    )


def test_a_name_that_a_worker_is_about_to_give_is_not_given_away(world: Around) -> None:
    """The lake table has the new name, and the catalog has not yet, as after a kill."""
    synced(world)
    (rel,) = world.store.rels(row(world).oid)
    noted = TableRename(rel.srsubid, rel.srrelid, *("public", "moved") * 2, noted=5, lsn=LSN(77))
    world.store.note_rename(noted, rel)
    world.publisher.tables = {"a": PublishedTable(), "moved": PublishedTable()}
    bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("a", "s")]
    world.store.forget_rename(noted)
    bring_in_line(row(world), statement(), world.context)
    assert names(world) == [("a", "s"), ("moved", "i")]
