"""A refresh while a worker finishes a rename: no table leaves, and none is named twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from catalog.errcodes import ObjectInUse
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from catalog.table_renames import TableRename
from subscriber.commands import create_drop, refresh, up
from subscriber.commands.alter import alter_publications, alter_refresh
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


BEFORE_COPY = "The table synchronisation worker takes the name over before the copy."
AROUND_COPY = "A worker takes the name over, after the running copy or before the next one."


def in_state(world: Around, *states: SubRelState) -> SubscriptionRel:
    """Table a comes from ``i`` into the last of the states."""
    (rel,) = world.store.rels(row(world).oid)
    for state in states:
        lsn = LSN(9) if state is SubRelState.SYNCDONE else None
        world.store.set_rel_state(rel.srsubid, rel.srrelid, state, lsn, Setter.TABLESYNC)
    return world.store.rels(row(world).oid)[0]


def note(world: Around, rel: SubscriptionRel, name: str) -> TableRename:
    """A worker notes a new name of the table."""
    noted = TableRename(rel.srsubid, rel.srrelid, *("public", name) * 2, noted=5, lsn=LSN(77))
    world.store.note_rename(noted, rel)
    return noted


@pytest.mark.parametrize("noted", [False, True])
@pytest.mark.parametrize(
    ("states", "detail"),
    [
        ([], BEFORE_COPY),
        ([SubRelState.DATASYNC], AROUND_COPY),
        ([SubRelState.DATASYNC, SubRelState.FINISHEDCOPY], AROUND_COPY),
    ],
    ids=["waits", "is copied", "catches up"],
)
def test_a_renamed_table_that_is_not_synchronised_stays(
    world: Around, noted: bool, states: list[SubRelState], detail: str
) -> None:
    """A sync worker may wait long for its turn."""
    rel = in_state(world, *states)
    world.publisher.rename("a", "moved")
    world.publisher.tables["c"] = PublishedTable()
    if noted:
        note(world, rel, "moved")
    for _ in range(2):
        assert refresh_by_itself("mysub", world.context)
        assert names(world) == [("a", rel.srsubstate), ("c", "i")]
        assert not [event for event in world.events if event.startswith("stop")]
    told = {each.primary: each.detail for each in world.notices}
    assert told['table "public.a" is "public.moved" on the publisher now'] == detail
    assert world.store.rels(row(world).oid)[0] == rel


def by_refresh(world: Around, copy_data: bool) -> None:
    alter_refresh("mysub", world.context, copy_data=copy_data)


def by_file(world: Around, copy_data: bool) -> None:
    file = statement(refresh="auto", with_={"copy_data": copy_data})
    bring_in_line(row(world), file, world.context)


def by_publication(world: Around, copy_data: bool) -> None:
    """ADD PUBLICATION, SET PUBLICATION and DROP PUBLICATION."""
    world.publisher.publications = ("pub", "p2")
    asked = {"refresh": True, "copy_data": copy_data}
    alter_publications("mysub", "add", ["p2"], world.context, **asked)
    alter_publications("mysub", "set", ["pub", "p2"], world.context, **asked)
    alter_publications("mysub", "drop", ["p2"], world.context, **asked)


@pytest.mark.parametrize("copy_data", [True, False])
@pytest.mark.parametrize("command", [by_refresh, by_file, by_publication])
def test_no_command_takes_out_a_renamed_table_that_waits_for_its_copy(
    world: Around, command: Callable[[Around, bool], None], copy_data: bool
) -> None:
    note(world, in_state(world), "moved")
    world.publisher.rename("a", "moved")
    world.publisher.tables["c"] = PublishedTable()
    command(world, copy_data)
    assert names(world) == [("a", "i"), ("c", "i" if copy_data else "r")]


@pytest.mark.parametrize("resuming", [False, True])
def test_a_suspended_table_stays_under_its_name_only_if_it_is_copied_again(
    world: Around, resuming: bool
) -> None:
    """Without a resume no worker follows, and the table under the new name is another one."""
    rel = in_state(world)
    world.store.update_rel(rel.srsubid, rel.srrelid, suspend_time=1, resuming=resuming)
    world.publisher.rename("a", "moved")
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("a" if resuming else "moved", "i")]


def test_another_table_under_the_name_is_the_one_to_be_copied(world: Around) -> None:
    """The note goes on: the worker renames table a, and the other table a joins then."""
    noted = note(world, in_state(world), "moved")
    world.publisher.rename("a", "moved")
    world.publisher.tables["a"] = PublishedTable()
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("a", "i")]
    world.store.finish_rename(noted)
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("moved", "i"), ("a", "i")]


def test_a_table_that_is_renamed_twice_before_its_copy_stays(world: Around) -> None:
    noted = note(world, in_state(world), "moved")
    world.publisher.rename("a", "moved")
    world.publisher.rename("moved", "last")
    world.publisher.tables["moved"] = PublishedTable()
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("a", "i")], "the noted name is not given away"
    world.store.finish_rename(noted)
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("moved", "i"), ("last", "i")]


def test_a_noted_name_of_a_subscribed_table_is_not_followed(world: Around) -> None:
    """Table b was dropped, and a got the name: the name is the contract."""
    world.publisher.tables["b"] = PublishedTable()
    assert refresh_by_itself("mysub", world.context)
    note(world, world.store.rels(row(world).oid)[0], "b")
    del world.publisher.tables["b"]
    world.publisher.rename("a", "b")
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("b", "i")]
    assert world.store.renames(row(world).oid) == []


def test_of_two_tables_with_an_oid_neither_is_followed(world: Around) -> None:
    """One of them lacks rows, so the table under the new name is copied."""
    rel = in_state(world, SubRelState.DATASYNC, SubRelState.SYNCDONE)
    other = replace(rel, srrelid=0, relname="b", lake_table="b")
    world.store.insert_rel(other)
    world.publisher.rename("a", "moved")
    assert refresh_by_itself("mysub", world.context)
    assert names(world) == [("moved", "i")]
