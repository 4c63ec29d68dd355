"""A refresh while a worker finishes a rename: no table leaves, and none is named twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ObjectInUse
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState
from catalog.table_renames import TableRename
from subscriber.commands import create_drop, refresh, up
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.published.auto_refresh import refresh_by_itself
from tests.subscriber.commands.subscribed import names, row
from tests.subscriber.twins import Around, PublishedTable, statement
from workers.process import failpoints


def renamed(world: Around) -> Callable[[], None]:
    """Table a is ready and is "moved" on the publisher; what a worker does to finish, once."""
    (rel,) = world.store.rels(row(world).oid)
    for state, lsn in ((SubRelState.DATASYNC, None), (SubRelState.SYNCDONE, LSN(9))):
        world.store.set_rel_state(rel.srsubid, rel.srrelid, state, lsn, Setter.TABLESYNC)
    note = TableRename(rel.srsubid, rel.srrelid, *("public", "moved") * 2, noted=5, lsn=LSN(77))
    world.store.note_rename(note, rel)

    def finish() -> None:
        if world.store.renames(note.subid):
            world.store.finish_rename(note)

    return finish


@pytest.mark.parametrize("told", ["a", "moved"])
def test_a_rename_that_ends_while_the_publisher_is_asked(
    world: Around, monkeypatch: pytest.MonkeyPatch, told: str
) -> None:
    """The answer may have the old name or the new one; the row has the new one in the end."""
    finish, ask = renamed(world), create_drop.published_tables

    def asked(*args: Any, **keys: Any) -> Any:
        found = ask(*args, **keys)
        finish()
        return found

    monkeypatch.setattr(refresh, "published_tables", asked)
    world.publisher.tables["c"] = PublishedTable()
    if told == "moved":
        world.publisher.rename("a", told)
    with pytest.raises(ObjectInUse) as refused:
        refresh_by_itself("mysub", world.context)
    assert refused.value.primary == ('table "public.a" was renamed to "public.moved" meanwhile')
    assert refused.value.hint == "Run the command again."
    assert names(world) == [("moved", "s")]
    if told == "a":
        world.publisher.rename(told, "moved")
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("moved", "s"), ("c", "i")]


def test_a_rename_that_ends_before_the_answer_is_stored(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = renamed(world)
    monkeypatch.setattr(
        failpoints, "reach", lambda place: finish() if place == "refresh.found" else None
    )
    world.publisher.rename("a", "moved")
    world.publisher.tables["c"] = PublishedTable()
    with pytest.raises(ObjectInUse):
        bring_in_line(row(world), statement(refresh="auto"), world.context)
    assert names(world) == [("moved", "s")]
    bring_in_line(row(world), statement(refresh="auto"), world.context)
    assert names(world) == [("moved", "s"), ("c", "i")]


@pytest.mark.parametrize("seconds", [60.0, -1.0])
def test_up_goes_on_while_a_worker_finishes_a_rename(
    world: Around, monkeypatch: pytest.MonkeyPatch, seconds: float
) -> None:
    """The launcher that applies the file does not end; without time left a warning remains."""
    finish = renamed(world)
    monkeypatch.setattr(
        failpoints, "reach", lambda place: finish() if place == "refresh.found" else None
    )
    monkeypatch.setattr(up, "RENAMES_SECONDS", seconds)
    world.publisher.rename("a", "moved")
    world.publisher.tables["c"] = PublishedTable()
    up._create_or_bring_in_line(statement(refresh="auto"), world.context)
    refusal = (
        'WARNING: subscription "mysub" was not changed to the file: '
        'table "public.a" was renamed to "public.moved" meanwhile'
    )
    assert (refusal in world.said()) == (seconds < 0)
    joined = [] if seconds < 0 else [("c", "i")]
    assert names(world) == [("moved", "s"), *joined]


def test_a_new_table_does_not_take_a_name_that_a_worker_notes_meanwhile(
    world: Around, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Table "moved" was another one when the publisher was asked."""
    monkeypatch.setattr(
        failpoints, "reach", lambda place: renamed(world) if place == "refresh.found" else None
    )
    world.publisher.tables = {"a": PublishedTable(), "moved": PublishedTable()}
    with pytest.raises(ObjectInUse):
        refresh_by_itself("mysub", world.context)
    assert names(world) == [("a", "s")]


def test_options_go_along_with_a_table_that_is_renamed_before_they_are_stored(
    world: Around,
) -> None:
    """The file has the old name, which was the table's when the file was read."""
    finish = renamed(world)
    world.publisher.rename("a", "moved")

    def connect(sub: Any) -> Any:
        finish()
        return world.publisher.connect(sub)

    file = statement(refresh="auto", tables={"public.a": {"on_rename": "keep"}})
    bring_in_line(row(world), file, replace(world.context, connect=connect))
    assert names(world) == [("moved", "s")]
    assert {name: each.on_rename for name, each in row(world).tables.items()} == {
        "public.moved": "keep"
    }
