"""The publisher's columns beside the lake's: every state, by example."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

from catalog.pg_lsn import LSN
from catalog.pg_subscription import Subscription, TableOptions
from catalog.pg_subscription_rel import SubRelState, SubscriptionRel
from catalog.schema_changes import SchemaChange
from subscriber.commands.schema.compare import (
    ColumnPair,
    ColumnState,
    Publisher,
    Sides,
    compare,
    message_of,
)
from tests.workers.publisher.scripted import INT4
from workers.changes.remembered_columns import RememberedColumns, forgotten
from workers.changes.schema_change import first_look
from workers.lake.table import SOURCE_COLUMN, LakeColumn, LakeIdent, LakeTable
from workers.publisher.declared_columns import DeclaredColumn
from workers.publisher.fingerprint import PublishedActions
from workers.publisher.remote_table import ColumnType, RemoteColumn, RemoteTable
from workers.publisher.table_shape import ShapeColumn, TableShape

RELID, EPOCH = 16389, "e1"
TYPES = {"integer": INT4, "bigint": ColumnType(20, -1, "pg_catalog", "int8", "b")}
TYPES["text"] = ColumnType(25, -1, "pg_catalog", "text", "b")
LAKE_TYPES: dict[str, pa.DataType] = {
    "integer": pa.int32(),
    "bigint": pa.int64(),
    "text": pa.string(),
}
SUB = Subscription(
    oid=16384, subname="mysub", subconninfo="", subslotname="mysub", subpublications=("pub",)
)
REL = SubscriptionRel(
    *(16384, 16385, SubRelState.READY, LSN(500), "public", "t", "public", "t"),
    epoch=EPOCH,
    remote_relid=RELID,
    copied=True,
)
OPTIONS = TableOptions()
START = ((1, "id", "integer"), (2, "v", "integer"), (3, "w", "text"))
"""attnum, name, type of the columns at the time of the copy."""


def publisher(
    *columns: tuple[int, str, str],
    dropped: frozenset[int] = frozenset(),
    unpublished: frozenset[int] = frozenset(),
    computed: frozenset[int] = frozenset(),
    relid: int = RELID,
) -> Publisher:
    """A table with these columns, of which ``id`` is the key."""
    table = RemoteTable(
        "public",
        "t",
        relid,
        "r",
        "d",
        tuple(
            RemoteColumn(n, name, name == "id", False, TYPES[type], TYPES[type].oid)
            for n, name, type in columns
            if n not in unpublished
        ),
        (),
        PublishedActions(True, True, True, True, False),
        versions=("1/1",),
        identity=1,
    )
    shape = TableShape(
        relid,
        tuple(
            ShapeColumn(n, name, TYPES[type].oid, -1, TYPES[type], computed=n in computed)
            for n, name, type in columns
        ),
        dropped,
        {relid: 7},
    )
    declared = tuple(DeclaredColumn(n, name, type, name != "id") for n, name, type in columns)
    return Publisher(table, shape, declared)


LAKE = tuple(LakeColumn(name, LAKE_TYPES[type], field_id=n) for n, name, type in START)


def remembered(options: TableOptions = OPTIONS, **kept: int) -> RememberedColumns:
    at_copy = publisher(*START)
    names = {name: options.lake_column(name) for _, name, _ in START}
    lake = [replace(each, name=names[each.name]) for each in LAKE]
    found = first_look(at_copy.shape, message_of(at_copy.table), lake, options, EPOCH)
    assert found is not None
    return replace(found, kept={int(n.strip("n")): field_id for n, field_id in kept.items()})


def sides(now: Publisher | None, *more: LakeColumn, **changes: Any) -> Sides:
    lake = LakeTable(LakeIdent("public", "t"), (*LAKE, *more), SUB.subuuid, 1, None)
    told: dict[str, Any] = {"lake": lake, "remembered": remembered(), **changes}
    return Sides(SUB, told.pop("rel", REL), told.pop("options", OPTIONS), now, **told)


def lines(found: list[ColumnPair]) -> list[tuple[str | None, str | None, str]]:
    """The publisher's name, the lake's name and the state of each pair."""
    return [
        (
            each.declared.name if each.declared else None,
            each.lake.name if each.lake else None,
            str(each.state),
        )
        for each in found
    ]


def states(found: list[ColumnPair]) -> set[str]:
    return {str(each.state) for each in found}


def test_columns_in_line_follow() -> None:
    found = compare(sides(publisher(*START)))
    assert lines(found) == [(n, n, "follows") for n in ("id", "v", "w")]
    assert [each.in_key for each in found] == [True, False, False]
    assert all(each.remedy is None and each.detail is None for each in found)


def test_a_renamed_an_added_and_a_dropped_column_wait_for_the_next_row() -> None:
    now = publisher(
        (1, "id", "integer"), (2, "title", "integer"), (4, "x", "bigint"), dropped=frozenset({3})
    )
    found = compare(sides(now))
    assert lines(found) == [
        ("id", "id", "follows"),
        ("title", "v", "pending"),
        ("x", None, "pending"),
        (None, "w", "pending"),
    ]
    assert [each.detail for each in found] == [
        None,
        'column "v" renamed to "title"',
        'column "x" added',
        'column "w" dropped; kept in the lake',
    ]
    assert all(each.remedy is None for each in found)


def test_a_change_that_cannot_be_followed_is_copied_again_or_has_a_remedy() -> None:
    now = publisher(*START, (4, "x", "bigint"), computed=frozenset({4}))
    *same, added = compare(sides(now))
    assert states(same) == {"follows"}
    assert (added.state, added.remedy) == (ColumnState.COPIED_AGAIN, None)
    assert "added with a value" in str(added.detail)
    *_, added = compare(sides(now, rel=replace(REL, remote_relid=None)))
    assert added.state is ColumnState.DIFFERS
    assert added.remedy is not None
    assert added.remedy.startswith("pgsub refresh mysub --recopy public.t ")


def test_a_kept_column_says_since_when() -> None:
    now = publisher((1, "id", "integer"), (2, "v", "integer"), dropped=frozenset({3}))
    memory = replace(remembered(n3=3), columns=remembered().columns[:2])
    sentence = 'column "w" dropped; kept in the lake'
    left = SchemaChange(16384, 16385, 1_700_000_000_000_000, LSN(900), (sentence,))
    later = SchemaChange(16384, 16385, 1_800_000_000_000_000, LSN(950), ('column "x" added',))
    *_, kept = compare(sides(now, remembered=memory, changes=[left, later]))
    assert (kept.declared, kept.lake, kept.state) == (None, LAKE[2], ColumnState.KEPT)
    assert (kept.since, kept.detail) == (left, sentence)
    *_, kept = compare(sides(now, remembered=memory))  # the change was forgotten since
    assert (kept.since, kept.detail) == (None, None)


def test_a_kept_column_is_recognised_under_the_name_that_made_room() -> None:
    lake = (*LAKE[:2], replace(LAKE[2], name="w_dropped_3"), LakeColumn("w", pa.int64(), True, 4))
    now = publisher(*START[:2], (4, "w", "bigint"), dropped=frozenset({3}))
    memory = replace(remembered(n3=3), columns=remembered().columns[:2])
    left = SchemaChange(16384, 16385, 1, LSN(9), ('column "w" dropped; kept in the lake',))
    table = LakeTable(LakeIdent("public", "t"), lake, SUB.subuuid, 1, None)
    found = compare(sides(now, lake=table, remembered=memory, changes=[left]))
    assert lines(found)[2:] == [("w", "w", "pending"), (None, "w_dropped_3", "kept")]
    assert found[-1].since is left


def test_a_column_outside_the_list_is_not_published() -> None:
    now = publisher(*START, (4, "secret", "text"), unpublished=frozenset({4}))
    *_, secret = compare(sides(now))
    assert (secret.state, secret.lake) == (ColumnState.UNPUBLISHED, None)


def test_columns_of_the_lake_alone() -> None:
    options = TableOptions(shared=True, generated=(("day", "to_date(at)"),))
    more = [LakeColumn(name, pa.string()) for name in ("day", SOURCE_COLUMN, "mine")]
    found = compare(sides(publisher(*START), *more, options=options, remembered=None))
    assert lines(found)[3:] == [
        (None, "day", "generated"),
        (None, SOURCE_COLUMN, "lake only"),
        (None, "mine", "lake only"),
    ]
    assert states(found[:3]) == {"by name"}


def test_a_mapped_column_is_found_under_its_lake_name() -> None:
    options = TableOptions(columns=(("v", "value"),))
    lake = (LAKE[0], replace(LAKE[1], name="value"), LAKE[2])
    table = LakeTable(LakeIdent("public", "t"), lake, SUB.subuuid, 1, None)
    memory = remembered(options)
    found = compare(sides(publisher(*START), lake=table, options=options, remembered=memory))
    assert lines(found)[1] == ("v", "value", "follows")
    found = compare(sides(publisher(*START), lake=table, options=options, remembered=None))
    assert lines(found)[1] == ("v", "value", "by name")


@pytest.mark.parametrize("memory", [None, forgotten(EPOCH)])
def test_without_memory_a_column_that_the_lake_lacks_has_a_remedy(
    memory: RememberedColumns | None,
) -> None:
    now = publisher(*START, (4, "x", "bigint"))
    *same, missing = compare(sides(now, remembered=memory))
    assert states(same) == {"by name"}
    assert missing.state is ColumnState.DIFFERS
    assert missing.remedy == "pgsub refresh mysub --recopy public.t adds it."
    *_, missing = compare(sides(now, remembered=memory, changes_columns=False))
    assert missing.remedy == "Add it by ALTER TABLE in pgsub sql."


def test_where_changes_are_not_followed_rows_go_by_name() -> None:
    now = publisher((1, "id", "integer"), (2, "v", "bigint"), (3, "title", "text"))
    found = compare(sides(now, follows=False))
    assert lines(found) == [
        ("id", "id", "follows"),
        ("v", "v", "by name"),
        ("title", "w", "differs"),
    ]


@pytest.mark.parametrize(
    ("changes", "state", "remedy"),
    [
        ({"lake": None}, "differs", "pgsub refresh mysub --recopy public.t makes it anew."),
        ({"lake": None, "rel": replace(REL, srsubstate=SubRelState.INIT)}, "not copied", None),
        ({"rel": replace(REL, srsubstate=SubRelState.DATASYNC)}, "copied again", None),
        ({"rel": replace(REL, remote_relid=1)}, "copied again", None),
        (
            {"rel": replace(REL, remote_relid=1), "follows": False},
            "differs",
            "pgsub refresh mysub --recopy public.t copies the table that has the name now.",
        ),
        (
            {"rel": replace(REL, suspend_time=1, suspend_sqlstate="22003", suspend_error="out")},
            "differs",
            "Remove the cause; then pgsub resume mysub public.t copies the table again.",
        ),
    ],
)
def test_what_is_said_of_a_whole_table(
    changes: dict[str, Any], state: str, remedy: str | None
) -> None:
    found = compare(sides(publisher(*START), **changes))
    assert [(str(each.state), each.remedy) for each in found] == [(state, remedy)] * 3


def test_a_table_that_the_publisher_lacks() -> None:
    remedy = "pgsub refresh mysub takes the table out of the subscription; the lake table stays."
    gone = compare(sides(None))
    assert lines(gone) == [(None, n, "differs") for n in ("id", "v", "w")]
    assert {each.remedy for each in gone} == {remedy}
    assert {each.detail for each in gone} == {"The publisher has no table of the name."}
    renamed = compare(sides(None, now_named="public.t2"))
    assert renamed[0].detail == 'The publisher\'s table is "public.t2" now.'
    assert str(renamed[0].remedy).startswith("pgsub refresh mysub copies it under its new name")
    followed = compare(sides(None, now_named="public.t2", follows_name=True))
    assert (states(followed), followed[0].remedy) == ({"pending"}, None)
    now = publisher(*START)
    left = compare(sides(replace(now, table=replace(now.table, versions=()))))
    assert {each.detail for each in left} == {"No publication of the subscription has the table."}
