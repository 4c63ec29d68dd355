"""Warnings of tables whose rows in the lake may come to differ without any error."""

from __future__ import annotations

from typing import Any

import pytest

from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.check import check_subscription
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.recopy import recopy_tables
from subscriber.commands.unseen_differences import row_security_warnings
from subscriber.messages import Notice
from tests.subscriber.twins import COMPOSITE, ENUM, ENUMS, Around, PublishedTable, statement
from tests.workers.publisher.scripted import ScriptedPublisher

WARNING = (
    'WARNING: row security of table "public.{}" applies to role "reader"; its copy may lack rows'
)


def test_create_warns_of_hidden_rows(world: Around) -> None:
    world.publisher.tables = {"a": PublishedTable(), "b": PublishedTable(row_security=True)}
    create_subscription(statement(), world.context)
    assert [said for said in world.said() if "row security" in said] == [WARNING.format("b")]


def test_check_warns_and_passes(world: Around) -> None:
    create_subscription(statement(), world.context)
    world.publisher.tables = {"a": PublishedTable(row_security=True)}
    found = check_subscription(statement(), world.context, world.context.settings)
    assert found.ok
    primaries = [each.primary for each in found.findings]
    assert WARNING.format("a").removeprefix("WARNING: ") in primaries


def test_a_refresh_warns_of_new_tables(world: Around) -> None:
    create_subscription(statement(), world.context)
    world.publisher.tables = {name: PublishedTable(row_security=True) for name in "ab"}
    world.notices.clear()
    (sub,) = world.store.subscriptions()
    bring_in_line(sub, statement(), world.context)
    assert [said for said in world.said() if "row security" in said] == [WARNING.format("b")]


def test_without_a_copy_no_row_is_missed(world: Around) -> None:
    world.publisher.tables = {"a": PublishedTable(row_security=True)}
    create_subscription(statement(with_={"copy_data": False}), world.context)
    assert not [said for said in world.said() if "row security" in said]


def test_another_copy_warns_of_the_tables_that_are_copied(world: Around) -> None:
    world.publisher.tables = {name: PublishedTable() for name in "ab"}
    create_subscription(statement(), world.context)
    world.publisher.tables = {name: PublishedTable(row_security=True) for name in "ab"}
    world.notices.clear()
    recopy_tables("mysub", ["public.a"], world.context)
    assert [said for said in world.said() if "row security" in said] == [WARNING.format("a")]


@pytest.mark.parametrize(
    ("version", "setting", "ends"),
    [(18, "on", "its copy may lack rows"), (11, "off", "its copy will fail")],
)
def test_the_words_depend_on_the_connection(version: int, setting: str, ends: str) -> None:
    """With row_security = off PostgreSQL refuses the copy; partitions are asked for from 12 on."""
    conn = ScriptedPublisher(version, {"row_security": [("s", "t", "reader", setting)]})
    (said,) = row_security_warnings(conn, [("s", "t")])
    assert said.primary.endswith(ends)
    assert "BYPASSRLS" in (said.hint or "")
    assert ("pg_partition_tree" in conn.asked[0]) is (version >= 12)


def test_no_table_is_no_query() -> None:
    assert list(row_security_warnings(ScriptedPublisher(18, {}), [])) == []


def about_text(world: Around, **table: Any) -> list[Notice]:
    """The warnings about text when a subscription of the table is created, and checked."""
    world.publisher.tables = {"a": PublishedTable(**table)}
    create_subscription(statement(), world.context)
    found = check_subscription(statement(), world.context, world.context.settings)
    assert found.ok
    words = ("may change without an event", "may be renamed")
    checked = [
        each
        for each in found.findings
        if isinstance(each, Notice) and any(word in each.primary for word in words)
    ]
    said = [text for text in world.said() if any(word in text for word in words)]
    assert said == [f"WARNING: {each.primary}" for each in checked]
    return checked


@pytest.mark.parametrize(
    ("oid", "kind", "altered"),
    [
        (ENUM, 'enum "public.stage"', "RENAME VALUE"),
        (ENUMS, 'enum "public.stage"', "RENAME VALUE"),
        (COMPOSITE, 'composite type "public.point3"', "ADD ATTRIBUTE or DROP ATTRIBUTE"),
    ],
)
def test_a_key_whose_text_may_change_is_told(
    world: Around, oid: str, kind: str, altered: str
) -> None:
    (said,) = about_text(world, types={"id": oid, "v": oid})
    assert said.primary == (
        f'column "id" of {kind} finds rows of table "public.a", and its text may change without '
        "an event"
    )
    assert f"ALTER TYPE ... {altered}" in (said.detail or "")
    assert "pgsub refresh NAME --recopy public.a" in (said.hint or "")


def test_columns_beside_the_key_are_watched_and_not_told(world: Around) -> None:
    assert about_text(world, types={"v": ENUM}) == []


def test_whole_rows_are_found_by_each_column(world: Around) -> None:
    (said,) = about_text(world, types={"v": ENUM}, key=0, identity="f")
    assert said.primary.startswith('column "v" of enum')


def test_a_table_of_inserts_has_no_key_to_miss(world: Around) -> None:
    assert about_text(world, types={"id": ENUM}, letters="tfft") == []


def test_names_of_objects_are_told_in_each_column(world: Around) -> None:
    (said,) = about_text(world, types={"v": "2205"})
    assert said.primary == (
        'column "v" of table "public.a" has names of objects, which may be renamed'
    )
