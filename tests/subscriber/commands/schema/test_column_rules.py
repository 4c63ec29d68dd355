"""Rules under ``columns``: names at CREATE and ``up``, and what a changed rule does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from catalog.errcodes import (
    CannotCoerce,
    ConnectionFailure,
    FeatureNotSupported,
    InvalidParameterValue,
    UndefinedColumn,
    UndefinedTable,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from subscriber.commands.alter_to_file import bring_in_line
from subscriber.commands.check import check_subscription
from subscriber.commands.create_drop import create_subscription
from tests.subscriber.commands.subscribed import row
from tests.subscriber.twins import Around, PublishedTable, around, nothing_is_left, statement
from workers.lake.table import LakeIdent


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    made = around(tmp_path)
    made.publisher.tables = {"a": PublishedTable(columns=("id", "ssn", "v"))}
    yield made
    made.store.close()


def excluding(*names: str, **more: Any) -> dict[str, Any]:
    return {"public.a": {"columns": {name: {"exclude": True} for name in names}, **more}}


def rel_of(world: Around) -> SubscriptionRel:
    (rel,) = world.store.rels(row(world).oid)
    return rel


def copied(world: Around) -> None:
    """As after the first copy."""
    rel = rel_of(world)
    for state, lsn, setter in (
        (SubRelState.DATASYNC, None, Setter.TABLESYNC),
        (SubRelState.SYNCDONE, LSN(500), Setter.TABLESYNC),
        (SubRelState.READY, LSN(500), Setter.APPLY),
    ):
        world.store.set_rel_state(rel.srsubid, rel.srrelid, state, lsn, setter)
    world.store.update_rel(rel.srsubid, rel.srrelid, epoch="e")


def test_a_table_without_the_column_is_made(world: Around) -> None:
    create_subscription(
        statement(tables=excluding("ssn"), with_={"copy_data": False}), world.context
    )
    made = world.lake.tables[LakeIdent("public", "a")]
    assert [column.name for column in made.columns] == ["id", "v"]
    assert row(world).tables["public.a"].excluded == ("ssn",)


def test_a_rule_that_names_no_column_has_the_nearest(world: Around) -> None:
    asked = statement(tables=excluding("SSN2"))
    with pytest.raises(UndefinedColumn) as caught:
        create_subscription(asked, world.context)
    assert caught.value.hint is not None
    assert caught.value.hint.startswith('Perhaps you meant column "ssn".')
    nothing_is_left(world)


def test_a_type_that_the_publisher_s_cannot_have_is_refused(world: Around) -> None:
    """The column is an integer."""
    tables = {"public.a": {"columns": {"v": {"type": "binary"}}}}
    with pytest.raises(CannotCoerce) as caught:
        create_subscription(statement(tables=tables), world.context)
    assert caught.value.detail == "Possible for the publisher's type: string, decimal(p,s)."
    nothing_is_left(world)


def test_another_type_has_the_table_copied_again(world: Around) -> None:
    create_subscription(statement(), world.context)
    copied(world)
    tables = {"public.a": {"columns": {"v": {"type": "string"}}}}
    bring_in_line(row(world), statement(tables=tables), world.context)
    assert rel_of(world).recopy
    assert row(world).tables["public.a"].types == (("v", "string"),)


def test_a_key_and_the_last_column_stay(world: Around) -> None:
    with pytest.raises(InvalidParameterValue, match=r'column "id" of table "public\.a" cannot be'):
        create_subscription(statement(tables=excluding("id")), world.context)
    world.publisher.tables = {"a": PublishedTable(columns=("ssn",), key=0)}
    with pytest.raises(FeatureNotSupported, match="all columns of table"):
        create_subscription(statement(tables=excluding("ssn")), world.context)
    nothing_is_left(world)


def test_a_table_under_another_name_stops_the_tables_that_join(world: Around) -> None:
    tables = {"public.root": {"columns": {"ssn": {"exclude": True}}}}
    with pytest.raises(UndefinedTable, match=r'"public\.root" of the configuration'):
        create_subscription(statement(tables=tables), world.context)
    nothing_is_left(world)
    create_subscription(statement(), world.context)
    bring_in_line(row(world), statement(tables=tables), world.context)  # no table joins
    world.publisher.tables["b"] = PublishedTable()
    with pytest.raises(UndefinedTable):
        bring_in_line(row(world), statement(tables=tables), world.context)


def test_a_rule_whose_column_left_is_a_warning(world: Around) -> None:
    """``up`` after a restart must go on; the workers hold the table back if need be."""
    asked = statement(tables=excluding("ssn"))
    create_subscription(asked, world.context)
    copied(world)
    world.publisher.tables = {"a": PublishedTable(columns=("id", "v"))}
    world.notices.clear()
    bring_in_line(row(world), asked, world.context)
    assert world.said() == [
        'WARNING: column "ssn" of the configuration of table "public.a" is not published'
    ]
    assert check_subscription(asked, world.context, world.context.settings).ok
    bring_in_line(row(world), statement(), world.context)  # and the rule may go
    assert rel_of(world).srsubstate is SubRelState.READY
    with pytest.raises(UndefinedColumn):  # a new rule has to name a column
        bring_in_line(row(world), statement(tables=excluding("w")), world.context)


@pytest.mark.parametrize(("before", "after"), [((), ("ssn",)), (("ssn",), ()), (("ssn",), ("v",))])
def test_a_changed_rule_has_the_table_copied_again(
    world: Around, before: tuple[str, ...], after: tuple[str, ...]
) -> None:
    create_subscription(statement(tables=excluding(*before)), world.context)
    copied(world)
    world.notices.clear()
    bring_in_line(row(world), statement(tables=excluding(*after)), world.context)
    rel = rel_of(world)
    assert (rel.srsubstate, rel.recopy, rel.epoch == "e") == (SubRelState.INIT, True, False)
    assert row(world).tables["public.a"].excluded == after
    said = 'NOTICE: table "public.a" will be copied again: its rules for columns have changed'
    assert said in world.said()
    bring_in_line(row(world), statement(tables=excluding(*after)), world.context)
    assert rel_of(world) == rel


def test_also_if_the_publisher_cannot_be_asked(world: Around) -> None:
    create_subscription(statement(), world.context)
    copied(world)
    world.publisher.fail["connect"] = ConnectionFailure("away")
    bring_in_line(row(world), statement(tables=excluding("ssn")), world.context)
    assert rel_of(world).srsubstate is SubRelState.INIT


def test_rows_that_only_the_lake_has_are_not_copied_over(world: Around) -> None:
    create_subscription(statement(tables={"public.a": {"adopt": True}}), world.context)
    copied(world)
    with pytest.raises(FeatureNotSupported, match="hidden columns of table"):
        bring_in_line(row(world), statement(tables=excluding("ssn", adopt=True)), world.context)
    assert row(world).tables["public.a"].excluded == ()
    assert rel_of(world).srsubstate is SubRelState.READY
