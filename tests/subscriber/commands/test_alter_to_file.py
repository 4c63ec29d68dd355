"""A subscription is brought in line with its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    ConnectionFailure,
    FeatureNotSupported,
    ObjectNotInPrerequisiteState,
    ReplicationError,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription import (
    Stream,
    TableOptions,
)
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.create_drop import create_subscription
from tests.subscriber.commands.subscribed import names, row
from tests.subscriber.twins import (
    Around,
    PublishedTable,
    around,
    statement,
)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    create_subscription(statement(), made.context)
    made.notices.clear()
    made.wakes.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0


def test_nothing_to_do(world: Around) -> None:
    before = row(world)
    assert bring_in_line(before, statement(), world.context) == before
    assert (row(world), world.said()) == (before, [])
    assert world.events == []


def test_changed_options(world: Around) -> None:
    changed = bring_in_line(
        row(world),
        statement(
            connection="host=other",
            with_={"streaming": "off", "disable_on_error": True, "enabled": False},
            tables={"public.a": {"on_unrepresentable": "null", "on_error": "suspend"}},
        ),
        world.context,
    )
    assert changed == row(world)
    assert (changed.subconninfo, changed.substream, changed.subenabled) == (
        "host=other",
        Stream.OFF,
        False,
    )
    assert world.said() == [
        'NOTICE: subscription "mysub" was brought in line:'
        " conninfo, disableonerr, enabled, stream, tables"
    ]
    assert world.wakes


def test_expressions_that_are_none_are_refused(world: Around) -> None:
    """Before the workers of a subscription that exists would stop over them."""
    before = row(world)
    for text, code in (("id +", "42601"), ("sum(id)", "42803"), ("now()", "42P17")):
        with pytest.raises(ReplicationError) as refused:
            bring_in_line(
                before, statement(tables={"public.a": {"generated": {"g": text}}}), world.context
            )
        assert refused.value.code == code
    assert row(world) == before
    told = {"public.a": {"generated": {"g": "id * 2"}}}
    assert bring_in_line(before, statement(tables=told), world.context).tables == {
        "public.a": TableOptions(generated=(("g", "id * 2"),))
    }


def test_enabled_is_left_alone_unless_said(world: Around) -> None:
    world.store.update_subscription(row(world).oid, subenabled=False)
    bring_in_line(row(world), statement(), world.context)
    assert not row(world).subenabled
    bring_in_line(row(world), statement(with_={"enabled": True}), world.context)
    assert row(world).subenabled


def test_the_tables_of_a_disabled_one_are_compared_too(world: Around) -> None:
    """A-9 refuses it by REFRESH; a file says what is to be, enabled or not."""
    world.store.update_subscription(row(world).oid, subenabled=False)
    world.publisher.tables["b"] = PublishedTable()
    bring_in_line(row(world), statement(), world.context)
    assert (names(world), row(world).subenabled) == ([("a", "i"), ("b", "i")], False)


def test_new_password(world: Around) -> None:
    with_password = statement(connection="host=db dbname=shop password=one")
    first = bring_in_line(row(world), with_password, world.context).passfile
    assert bring_in_line(row(world), with_password, world.context).passfile == first
    second = statement(connection="host=db dbname=shop password=two")
    changed = bring_in_line(row(world), second, world.context).passfile
    assert first is not None
    assert changed is not None
    assert not Path(first).exists()
    assert Path(changed).read_text() == "*:*:*:*:two\n"
    assert bring_in_line(row(world), statement(), world.context).passfile is None
    assert not Path(changed).exists()


def test_publisher_away(world: Around) -> None:
    world.publisher.fail["connect"] = ConnectionFailure("connection refused")
    bring_in_line(row(world), statement(with_={"streaming": "on"}), world.context)
    assert row(world).substream is Stream.ON
    assert "were not refreshed: connection refused" in world.said()[0]


@pytest.mark.parametrize("refresh", ["manual", "auto"])
def test_no_table_leaves_while_a_publication_is_missing(world: Around, refresh: str) -> None:
    """Between DROP PUBLICATION and CREATE PUBLICATION."""
    bring_in_line(row(world), statement(refresh=refresh), world.context)
    world.publisher.publications = ()
    world.publisher.tables = {}
    world.notices.clear()
    changed = statement(refresh=refresh, with_={"streaming": "on"})
    bring_in_line(row(world), changed, world.context)
    assert names(world) == [("a", "i")]
    assert row(world).substream is Stream.ON
    assert world.said()[0] == (
        'WARNING: tables of subscription "mysub" were not refreshed: '
        'publication "pub" does not exist on the publisher'
    )
    world.publisher.publications = ("pub",)
    bring_in_line(row(world), changed, world.context)
    assert names(world) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"tables": {"public.a": {"to": "x.y"}}},
        {"tables": {"public.a": {"shared": True}}},
    ],
)
def test_what_cannot_change(world: Around, keys: dict[str, Any]) -> None:
    before = row(world)
    with pytest.raises(FeatureNotSupported):
        bring_in_line(before, statement(**keys), world.context)
    assert row(world) == before


def test_two_phase_follows_the_file_if_written_there(world: Around) -> None:
    with pytest.raises(ObjectNotInPrerequisiteState, match='"two_phase" for enabled'):
        bring_in_line(row(world), statement(with_={"two_phase": True}), world.context)
    asked = statement(with_={"two_phase": True, "enabled": False})
    assert bring_in_line(row(world), asked, world.context).subtwophasestate == "p"
    assert not row(world).subenabled
    assert world.publisher.altered == []
    silent = statement(with_={"enabled": False})
    assert bring_in_line(row(world), silent, world.context).subtwophasestate == "p"
    world.store.update_subscription(row(world).oid, subtwophasestate="e")
    assert bring_in_line(row(world), asked, world.context).subtwophasestate == "e"
    off = statement(with_={"two_phase": False, "enabled": False})
    assert bring_in_line(row(world), off, world.context).subtwophasestate == "d"
    assert world.publisher.altered == ["ALTER_REPLICATION_SLOT mysub ( TWO_PHASE false )"]


def test_failover_of_a_subscription_that_the_file_disables(world: Around) -> None:
    with pytest.raises(ObjectNotInPrerequisiteState, match='"failover" for enabled'):
        bring_in_line(row(world), statement(with_={"failover": True}), world.context)
    assert (row(world).subfailover, world.publisher.altered) == (False, [])
    stmt = statement(with_={"failover": True, "enabled": False})
    assert bring_in_line(row(world), stmt, world.context) == row(world)
    assert (row(world).subfailover, row(world).subenabled) == (True, False)
    assert world.publisher.altered == ["ALTER_REPLICATION_SLOT mysub ( FAILOVER true )"]


def test_a_file_cannot_enable_what_has_no_slot(world: Around) -> None:
    """A-8; with a slot in the file it can, at once."""
    before = world.store.update_subscription(row(world).oid, subslotname=None, subenabled=False)
    with pytest.raises(ObjectNotInPrerequisiteState, match="does not have a slot name"):
        bring_in_line(before, statement(with_={"enabled": True}), world.context)
    assert row(world) == before
    stmt = statement(with_={"enabled": True, "slot_name": "mysub"})
    bring_in_line(before, stmt, world.context)
    assert (row(world).subenabled, row(world).subslotname) == (True, "mysub")


def test_a_file_disables_and_disassociates_at_once(world: Around) -> None:
    options = {"enabled": False, "slot_name": "NONE", "create_slot": False}
    bring_in_line(row(world), statement(with_=options), world.context)
    assert (row(world).subenabled, row(world).subslotname) == (False, None)
    assert 'NOTICE: subscription "mysub" was brought in line: enabled, slotname' in world.said()


def test_another_slot_keeps_the_positions(world: Around) -> None:
    sub = world.store.update_subscription(row(world).oid, max_flush_lsn=LSN(500))
    bring_in_line(sub, statement(with_={"slot_name": "other"}), world.context)
    assert (row(world).subslotname, row(world).max_flush_lsn) == ("other", LSN(500))
    assert 'NOTICE: subscription "mysub" was brought in line: slotname' in world.said()
    assert any('"mysub" stays on the publisher' in said for said in world.said())


def to_columns(mapping: dict[str, str]) -> dict[str, Any]:
    return {"public.a": {"columns": {name: {"to": lake} for name, lake in mapping.items()}}}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"id": "v", "v": "id"}),
        ({"id": "v", "v": "id"}, {}),
        ({"id": "x"}, {"v": "x"}),
        ({"id": "x", "v": "y"}, {"id": "y", "v": "x"}),
    ],
)
def test_a_lake_column_keeps_its_published_column(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    world = around(tmp_path)
    create_subscription(statement(tables=to_columns(before)), world.context)
    with pytest.raises(FeatureNotSupported, match=r"lake column .* cannot go from column"):
        bring_in_line(row(world), statement(tables=to_columns(after)), world.context)
    assert dict(row(world).tables["public.a"].columns) == before
    world.store.close()


@pytest.mark.parametrize(
    ("before", "after"), [({}, {"id": "key"}), ({"id": "key"}, {}), ({"id": "x"}, {"id": "y"})]
)
def test_a_mapping_may_come_go_and_change(
    tmp_path: Path, before: dict[str, str], after: dict[str, str]
) -> None:
    world = around(tmp_path)
    create_subscription(statement(tables=to_columns(before)), world.context)
    bring_in_line(row(world), statement(tables=to_columns(after)), world.context)
    assert dict(row(world).tables["public.a"].columns) == after
    world.store.close()


def test_the_file_may_have_the_former_name_of_a_table(world: Around) -> None:
    """The lake table of one has kept its name, the other has another entry by now."""
    tables: dict[str, Any] = {"public.a": {"on_unrepresentable": "null"}}
    bring_in_line(row(world), statement(tables=tables), world.context)
    (rel,) = world.store.rels(row(world).oid)
    world.store.update_rel(rel.srsubid, rel.srrelid, relname="moved", former_names=("public.a",))
    world.publisher.tables = {"moved": PublishedTable()}
    bring_in_line(row(world), statement(tables=tables), world.context)
    kept = TableOptions(to=("public", "a"), on_unrepresentable="null")
    assert row(world).tables == {"public.moved": kept}
    world.notices.clear()
    bring_in_line(row(world), statement(tables=tables), world.context)
    assert world.said() == []
    assert names(world) == [("moved", "i")]
