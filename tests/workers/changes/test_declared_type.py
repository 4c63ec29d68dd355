"""Which types a publisher's column may have in the lake, and what becomes of the lake's column."""

from __future__ import annotations

from dataclasses import replace

import pyarrow as pa
import pytest

from catalog.errcodes import CannotCoerce, DatatypeMismatch
from catalog.pg_subscription import TableOptions
from tests.workers.apply.test_follow_schema import shape
from tests.workers.transactions import relation
from workers.changes.cannot_follow import CannotFollow
from workers.changes.columns_of_copy import PublishedColumn, plan_columns
from workers.changes.declared_type import type_errors, type_of
from workers.changes.masked_columns import check_lake_types, column_type
from workers.changes.remembered_columns import RememberedColumn, RememberedColumns, from_text
from workers.changes.schema_change import decide, first_look
from workers.lake.column_changes import AddColumn, DropColumn, RenameColumn
from workers.lake.table import LakeColumn, LakeIdent
from workers.publisher.fingerprint import PublishedActions
from workers.publisher.remote_table import ColumnType, RemoteColumn, RemoteTable

DECIMAL = TableOptions(types=(("x", "decimal(38,9)"),))
IDENT = LakeIdent("public", "a")
OIDS = {"int2": 21, "int4": 23, "int8": 20, "numeric": 1700, "bytea": 17, "date": 1082}
OIDS |= {"timestamp": 1114, "timestamptz": 1184, "text": 25, "float8": 701, "jsonb": 3802}
NUMBERS, TIMES = {"int2", "int4", "int8", "numeric"}, {"date", "timestamp", "timestamptz"}
LAKE = (LakeColumn("id", pa.int32(), field_id=1), LakeColumn("x", pa.string(), field_id=2))


def typed(name: str) -> ColumnType:
    return ColumnType(OIDS[name], -1, "pg_catalog", name, "b")


def published(type: ColumnType) -> RemoteTable:
    columns = (RemoteColumn(1, "x", False, False, type),)
    actions = PublishedActions(True, True, True, True, False)
    return RemoteTable("public", "a", 1, "r", "d", columns, (), actions)


def test_the_types() -> None:
    options = TableOptions(types=(("s", "string"), ("t", "timestamp"), ("b", "binary")))
    found = {name: type_of(name, options) for name in "stbx"}
    assert found == {"s": pa.string(), "t": pa.timestamp("us"), "b": pa.binary(), "x": None}
    assert column_type("x", typed("numeric"), DECIMAL) == pa.decimal128(38, 9)
    assert column_type("y", typed("numeric"), DECIMAL) == pa.string()
    assert options.rules == ("s", "t", "b")


@pytest.mark.parametrize(
    ("declared", "possible"),
    [
        ("string", {*OIDS}),
        ("decimal(38,9)", NUMBERS),
        ("timestamp", TIMES),
        ("binary", {"bytea"}),
    ],
)
def test_types_of_the_publisher(declared: str, possible: set[str]) -> None:
    options = TableOptions(types=(("x", declared), ("gone", declared)))
    for name in OIDS:
        errors = [*type_errors(published(typed(name)), options)]
        assert bool(errors) is (name not in possible)
        for error in errors:
            assert isinstance(error, CannotCoerce)
            assert f"cannot be of type {declared} in the lake" in error.primary
            assert "string" in (error.detail or "")
    array = replace(typed("int4"), oid=1007, element=typed("int4"))
    assert bool([*type_errors(published(array), options)]) == (declared != "string")


def test_the_lake_column_has_the_type() -> None:
    for types in ({"x": pa.decimal128(38, 9)}, {"y": pa.int32()}):
        check_lake_types(DECIMAL, types, IDENT)
    for wrong in (pa.string(), pa.decimal128(38, 10), pa.int64()):
        with pytest.raises(DatatypeMismatch, match=r"is not of type decimal\(38,9\)"):
            check_lake_types(DECIMAL, {"x": wrong}, IDENT)
    text = TableOptions(types=(("x", "string"),))
    check_lake_types(text, {"x": pa.large_string()}, IDENT)


def test_a_copy_gives_the_column_the_type_and_takes_it_away() -> None:
    memory = RememberedColumns(
        *("e", 1, 2, {1: 5}),
        (RememberedColumn(1, "id", 23, -1, 23, 1), RememberedColumn(2, "x", 1700, -1, 1700, 2)),
    )
    number = PublishedColumn(1, "id", 23, -1, pa.int32())
    plain = PublishedColumn(2, "x", 1700, -1, pa.string())
    ruled = replace(plain, type=pa.decimal128(38, 9), ruled=True)
    plan = plan_columns([number, ruled], 1, LAKE, memory, DECIMAL)
    assert plan.now == (AddColumn("x__next", ruled.type),)
    later = (*LAKE, LakeColumn("x__next", ruled.type, field_id=3))
    assert plan.at_publication(later) == (DropColumn(2), RenameColumn(3, "x"))
    there = (LAKE[0], LakeColumn("x", ruled.type, field_id=2))
    memory = from_text(replace(memory, typed=("x",)).as_text())
    assert plan_columns([number, ruled], 1, there, memory, DECIMAL).now == ()
    back = plan_columns([number, plain], 1, there, memory, TableOptions())
    assert back.now == (AddColumn("x__next", pa.string()),)
    own = plan_columns([number, plain], 1, there, replace(memory, typed=()), TableOptions())
    assert own.now == ()  # the type is the user's choice


def test_a_number_that_became_wider_has_another_text() -> None:
    """float4 to float8 is followed, but not where the lake has the texts of the values."""
    real = replace(typed("float8"), oid=700, typname="float4")
    columns = [replace(each, typid=700, type=real) for each in shape("x").columns]
    before_shape = replace(shape("x"), columns=(*columns,))
    wide = [replace(each, typid=701, type=typed("float8")) for each in columns]
    now = replace(before_shape, columns=(*wide,), files={1: 6})
    message = relation(1, "a", "x")
    sent = [replace(message, columns=(replace(message.columns[0], typid=n),)) for n in (700, 701)]
    for options, lake_type in (
        (TableOptions(), pa.float32()),
        (TableOptions(types=(("x", "string"),)), pa.string()),
    ):
        lake = (LakeColumn("x", lake_type, field_id=1),)
        before = first_look(before_shape, sent[0], lake, options, "e")
        assert before is not None
        assert before.typed == tuple(dict(options.types))
        if not options.types:
            assert decide(before, now, sent[1], lake, options).changes
            continue
        with pytest.raises(CannotFollow) as caught:
            decide(before, now, sent[1], lake, options)
        assert caught.value.copies


def test_a_renamed_column_is_not_the_rule_s_any_more() -> None:
    lake = (LakeColumn("x", pa.decimal128(38, 9), field_id=1),)
    before = first_look(shape("x"), relation(1, "a", "x"), lake, DECIMAL, "e")
    assert before is not None
    with pytest.raises(CannotFollow, match='configuration of the table names column "x"'):
        decide(before, shape("y"), relation(1, "a", "y"), lake, DECIMAL)
