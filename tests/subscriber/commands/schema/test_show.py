"""``pgsub schema``: whom it asks, what it prints, and what it refuses."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from catalog.errcodes import (
    LOCK_NOT_AVAILABLE,
    ObjectInUse,
    ReplicationError,
    UndefinedObject,
    UndefinedTable,
)
from catalog.pg_lsn import LSN
from catalog.pg_subscription_rel import Setter, SubRelState, SubscriptionRel
from subscriber.commands.create_drop import create_subscription
from subscriber.commands.schema.show import COLUMNS, columns_side_by_side
from tests.subscriber.twins import FIRST_OID, Around, PublishedTable, around, statement
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns
from workers.lake.table import LakeIdent

A = LakeIdent("public", "a")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[Around]:
    """Table a was copied with columns id and v; b waits for its copy."""
    made = around(tmp_path)
    made.publisher.tables = {name: PublishedTable() for name in "ab"}
    create_subscription(
        statement(tables={"public.a": {"defaults": {"day": "now()"}}}), made.context
    )
    rel, store = row(made, "a"), made.store
    store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.DATASYNC, None, Setter.TABLESYNC)
    store.set_rel_state(rel.srsubid, rel.srrelid, SubRelState.SYNCDONE, LSN(9), Setter.TABLESYNC)
    store.update_rel(rel.srsubid, rel.srrelid, epoch="e", copied=True)
    made.lake.add("a")
    made.lake.tables[A] = replace(
        made.lake.tables[A],
        columns=tuple(
            replace(each, field_id=n) for n, each in enumerate(made.lake.tables[A].columns, 1)
        ),
        publisher_columns=remembered(),
    )
    made.notices.clear()
    yield made
    made.store.close()
    assert made.publisher.connections == 0


def remembered(**kept: int) -> str:
    columns = tuple(RememberedColumn(n, name, 23, -1, 23, n) for n, name in ((1, "id"), (2, "v")))
    numbers = {int(name.strip("n")): field_id for name, field_id in kept.items()}
    return RememberedColumns("e", FIRST_OID, 2, {FIRST_OID: 7}, columns, numbers).as_text()


def row(world: Around, name: str) -> SubscriptionRel:
    sub = world.store.subscription_by_name("mysub")
    assert sub is not None
    return next(each for each in world.store.rels(sub.oid) if each.relname == name)


def test_a_row_has_both_sides(world: Around) -> None:
    first, second = columns_side_by_side("mysub", "public.a", world.context)
    assert tuple(first) == COLUMNS
    assert {name: first[name] for name in COLUMNS[:9]} == {
        "relation": "public.a",
        "attnum": 1,
        "attname": "id",
        "data_type": "integer",
        "nullable": True,
        "in_key": True,
        "column_default": None,
        "lake_column": "id",
        "lake_type": "int",
    }
    assert (second["field_id"], second["state"], second["remedy"]) == (2, "follows", None)


def test_without_a_table_all_tables_are_shown(world: Around) -> None:
    found = columns_side_by_side("mysub", None, world.context)
    assert [(each["relation"], each["state"]) for each in found] == [
        ("public.a", "follows"),
        ("public.a", "follows"),
        ("public.b", "not copied"),
        ("public.b", "not copied"),
    ]


def test_a_column_that_left_says_when(world: Around) -> None:
    rel = row(world, "a")
    lake = world.lake.tables[A]
    gone = replace(lake.columns[1], name="w", field_id=3)
    world.lake.tables[A] = replace(
        lake, columns=(*lake.columns, gone), publisher_columns=remembered(n3=3)
    )
    sentences = ['column "w" dropped; kept in the lake']
    world.store.add_schema_change(
        rel.srsubid, rel.srrelid, 1_700_000_000_000_000, LSN(8), sentences
    )
    *_, last = columns_side_by_side("mysub", "public.a", world.context)
    assert (last["attname"], last["lake_column"], last["state"]) == (None, "w", "kept")
    assert (str(last["since"]), last["since_lsn"]) == ("2023-11-14 22:13:20+00:00", LSN(8))


@pytest.mark.parametrize(("mode", "state"), [("follow", "pending"), ("stop", "differs")])
def test_the_table_s_mode_decides_what_comes_next(world: Around, mode: str, state: str) -> None:
    sub = world.store.subscription_by_name("mysub")
    assert sub is not None
    options = replace(sub.tables["public.a"], on_schema_change=mode)
    world.store.update_subscription(sub.oid, tables={"public.a": options})
    world.publisher.tables["a"].columns = ("id", "v", "x")
    *_, added = columns_side_by_side("mysub", "public.a", world.context)
    assert (added["attname"], added["lake_column"], added["state"]) == ("x", None, state)


@pytest.mark.parametrize(("suspended", "state"), [(None, "pending"), (1, "differs")])
@pytest.mark.parametrize("waits", [False, True])
def test_a_renamed_table_is_named(
    world: Around, waits: bool, suspended: int | None, state: str
) -> None:
    """No command is told while a worker follows, be it the table's sync worker."""
    rel, store = row(world, "a"), world.store
    if waits:
        store.set_rel_state(
            *(rel.srsubid, rel.srrelid, SubRelState.INIT, None, Setter.SUBSCRIPTIONCMDS)
        )
    store.update_rel(rel.srsubid, rel.srrelid, suspend_time=suspended)
    world.publisher.rename("a", "renamed")
    found = columns_side_by_side("mysub", "public.a", world.context)
    assert {(each["state"], each["remedy"] is None) for each in found} == {
        (state, state == "pending")
    }
    assert {each["detail"] for each in found} == {'The publisher\'s table is "public.renamed" now.'}
    assert [each["attname"] for each in found] == [None, None]


def test_what_is_refused(world: Around) -> None:
    with pytest.raises(UndefinedObject, match='subscription "other" does not exist'):
        columns_side_by_side("other", None, world.context)
    with pytest.raises(UndefinedTable, match="not part of subscription"):
        columns_side_by_side("mysub", "public.c", world.context)
    refused = ReplicationError("canceling statement", sqlstate=LOCK_NOT_AVAILABLE)
    world.publisher.fail["format_type"] = refused
    with pytest.raises(ObjectInUse, match=r'"public\.a" is locked on the publisher'):
        columns_side_by_side("mysub", "public.a", world.context)
