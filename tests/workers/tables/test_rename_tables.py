"""What the next apply worker makes of a note; the whole way is in ``test_rename_watch``."""

from __future__ import annotations

import pytest

from catalog.errcodes import FeatureNotSupported
from catalog.pg_lsn import LSN
from catalog.table_renames import TableRename
from tests.workers.subscribed import Subscribed
from workers.lake.memory.destination import MemoryDestination
from workers.lake.table import LakeIdent
from workers.tables.rename_tables import settle_renames

NEW = LakeIdent("public", "new")


def note(world: Subscribed, name: str = "new", lake: str = "new") -> None:
    rel = world.rel("a")
    where = ("public", name, "public", lake)
    world.store.note_rename(TableRename(rel.srsubid, rel.srrelid, *where, 1, LSN(5)), rel)


def test_without_a_note_the_lake_is_not_asked(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    dest = MemoryDestination(world.lake)
    monkeypatch.setattr(dest, "table", None)
    assert settle_renames(dest, world.store, world.sub) == world.sub


def test_a_lake_table_that_was_renamed_already_is_taken_as_it_is(world: Subscribed) -> None:
    note(world)
    dest = MemoryDestination(world.lake)
    dest.rename_table(LakeIdent("public", "a"), NEW)
    settle_renames(dest, world.store, world.sub)
    assert (world.rel("new").lake_table, set(map(str, world.lake.tables))) == (
        "new",
        {"public.new", "public.b"},
    )


def test_a_table_of_somebody_else_is_not_taken_for_the_renamed_one(world: Subscribed) -> None:
    note(world)
    world.lake.tables[NEW] = world.lake.tables.pop(LakeIdent("public", "a"))
    world.lake.tables[NEW].owner = "somebody"
    settle_renames(MemoryDestination(world.lake), world.store, world.sub)
    assert (world.rel("new").lake_table, world.sub.tables) == ("a", {})


def test_a_catalog_that_cannot_rename_leaves_the_name(
    world: Subscribed, monkeypatch: pytest.MonkeyPatch
) -> None:
    note(world)
    dest = MemoryDestination(world.lake)

    def refuse(*_idents: LakeIdent) -> None:
        raise FeatureNotSupported("the lake's catalog cannot rename tables")

    monkeypatch.setattr(dest, "rename_table", refuse)
    found = settle_renames(dest, world.store, world.sub)
    assert world.rel("new").lake_table == "a"
    assert found.tables["public.new"].to == ("public", "a")
    assert settle_renames(dest, world.store, found) == found


def test_a_name_that_another_table_of_the_subscription_has_is_given_up(world: Subscribed) -> None:
    note(world, name="b", lake="b")
    settle_renames(MemoryDestination(world.lake), world.store, world.sub)
    assert world.store.renames(world.sub.oid) == []
    assert set(map(str, world.lake.tables)) == {"public.a", "public.b"}


def test_a_table_that_left_has_no_note(world: Subscribed) -> None:
    note(world)
    world.store.delete_rel(world.sub.oid, world.rel("a").srrelid)
    settle_renames(MemoryDestination(world.lake), world.store, world.sub)
    assert set(map(str, world.lake.tables)) == {"public.a", "public.b"}


def test_a_power_cut_behind_the_renaming_keeps_the_new_name(world: Subscribed) -> None:
    note(world)
    dest = MemoryDestination(world.lake)
    dest.make_durable([LakeIdent("public", "a"), LakeIdent("public", "b")])
    dest.rename_table(LakeIdent("public", "a"), NEW)
    world.lake.power_cut()
    settle_renames(MemoryDestination(world.lake), world.store, world.sub)
    assert world.rel("new").lake_table == "new"
