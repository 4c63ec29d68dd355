"""Warnings of tables whose rows the publisher may hide from a copy."""

from __future__ import annotations

import pytest

from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.check import check_subscription
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.recopy import recopy_tables
from subscriber.commands.row_security import row_security_warnings
from tests.subscriber.twins import Around, PublishedTable, statement
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
