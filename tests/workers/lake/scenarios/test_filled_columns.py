"""A column gets one value in all rows that are there, behind the backs of readers.

And why Iceberg's own default of a column is not used: see the last test.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.contract import Make, Table, append, merge, stage, stamp
from workers.lake.column_changes import AddColumn, ColumnChange, RenameColumn
from workers.lake.metadata.table_schema import current_schema
from workers.lake.segment import Segment
from workers.lake.table import LakeColumn, LakeIdent

VALUES: dict[str, pa.Scalar[Any]] = {
    "b": pa.scalar(True),
    "i": pa.scalar(-7, pa.int32()),
    "l": pa.scalar(2**40, pa.int64()),
    "f": pa.scalar(0.1, pa.float32()),
    "d": pa.scalar(1e300, pa.float64()),
    "day": pa.scalar(date(1, 1, 1), pa.date32()),
    "ts": pa.scalar(datetime(1999, 12, 31, 23, 59, 59, 999999), pa.timestamp("us")),
    "tz": pa.scalar(datetime(2026, 1, 1, tzinfo=UTC), pa.timestamp("us", "UTC")),
    "n": pa.scalar(Decimal("-1.50"), pa.decimal128(38, 2)),
    "it's `t`": pa.scalar('it\'s a \\ "text"; -- {\n}', pa.string()),
    "x": pa.scalar(b"\x00\xff", pa.binary()),
    "list": pa.scalar([1, None, 3], pa.list_(pa.field("element", pa.int32()))),
}


@pytest.fixture(params=["memory_lake", pytest.param("iceberg", marks=pytest.mark.spark)])
def make(request: pytest.FixtureRequest) -> Make:
    """Spark alone, without Iceberg's API, cannot change columns by their numbers."""
    found: Make = request.getfixturevalue(request.param)
    return found


def remember(columns: Sequence[LakeColumn]) -> str:
    return ",".join(column.name for column in columns)


def filled(table: Table, values: dict[str, pa.Scalar[Any]], lsn: int) -> Callable[[], None]:
    """Fill new columns on a branch at the table's position; returns the publication."""
    dest, ident, branch = table.dest, table.ident, table.branch()
    added: list[ColumnChange] = [
        AddColumn(f"{name}__next", value.type) for name, value in values.items()
    ]
    lake = dest.change_columns(ident, added, lambda _: "")
    ids = {column.name: column.field_id for column in lake.columns}
    segment = Segment((), fill=tuple((f"{name}__next", each) for name, each in values.items()))
    dest.write_branch(ident, branch, [segment], stamp(lsn))
    named = [RenameColumn(ids[f"{name}__next"], name) for name in values]
    return lambda: dest.publish_with(ident, branch, stamp(lsn), named, remember)


def seen(table: Table) -> list[tuple[Any, ...]]:
    """Rows without the columns ``big`` and ``local note``."""
    return [(*row[:2], *row[4:]) for row in table.rows()]


@pytest.mark.parametrize("version", [2, 3])
def test_rows_that_are_there_get_the_value_and_later_ones_their_own(
    make: Make, lake_ident: LakeIdent, version: int, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["make"] == "iceberg":
        table = Table(make(format_version=version), lake_ident)
    elif version == 2:
        table = Table(make(), lake_ident)
    else:
        return  # the lake in memory has no format
    dest = table.dest
    table.batch([append(dest, [(1, "a", "big"), (2, "b", None), (3, "c", None)])], 20)
    changes = [(1, 2, None, None, None, False), (0, 3, 3, "C", None, False)]
    table.batch([merge(dest, changes)], 30)
    publish = filled(table, {"n": pa.scalar(7, pa.int32())}, 30)
    assert seen(table) == [(1, "a", None), (3, "C", None)]  # n__next
    publish()
    assert seen(table) == [(1, "a", 7), (3, "C", 7)]
    assert table.lsn() == 30
    lake = dest.table(table.ident)
    assert lake is not None
    assert lake.publisher_columns == "id,v,big,local note,n"
    new = stage(
        dest,
        c0=pa.array([4, 5], pa.int64()),
        c1=pa.array(["d", "e"]),
        c2=pa.array([None, None], pa.string()),
        c3=pa.array([None, 8], pa.int32()),
    )
    other = stage(
        dest,
        op=pa.array([0], pa.int8()),
        b0=pa.array([1], pa.int64()),
        c0=pa.array([1], pa.int64()),
        c1=pa.array(["A"]),
        c2=pa.array([None], pa.string()),
        c3=pa.array([None], pa.int32()),
        m2=pa.array([True]),
    )
    published = ("id", "v", "big", "n")
    segment = Segment(published, ("id",), append=new, merge=other, unchanged=("big",))
    table.batch([segment], 40)
    assert seen(table) == [(1, "A", None), (3, "C", 7), (4, "d", None), (5, "e", 8)]
    assert [row[2] for row in table.rows() if row[0] == 1] == ["big"]


def test_a_value_of_every_type_is_the_value_of_every_row(table: Table) -> None:
    table.batch([append(table.dest, [(n, "r", None) for n in range(3)])], 20)
    filled(table, VALUES, 20)()
    expected = tuple(value.as_py() for value in VALUES.values())
    assert [row[2:] for row in seen(table)] == [expected] * 3


@pytest.mark.spark
def test_a_partitioned_table_is_filled(iceberg: Make, lake_ident: LakeIdent) -> None:
    """Rows lie in files of two partition specs."""
    dest: Any = iceberg()
    table = Table(dest, lake_ident)
    table.batch([append(dest, [(n, "a", None) for n in range(5)])], 20)
    name = f"lake.{lake_ident.schema}.{lake_ident.table}"
    dest._sessions.get().command(f"ALTER TABLE {name} ADD PARTITION FIELD bucket(3, id)", "test")
    dest._forget(lake_ident)
    table.batch([append(dest, [(n, "b", None) for n in range(5, 9)])], 30)
    filled(table, {"n": pa.scalar("x")}, 30)()
    letters = ["a"] * 5 + ["b"] * 4
    assert seen(table) == [(n, letter, "x") for n, letter in enumerate(letters)]


@pytest.mark.spark
def test_why_the_column_has_no_initial_default_of_iceberg(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    """Spark shows the default in rows of older files, but a condition leaves the rows out.

    Once this fails, a table of format 3 need not be written again for a default.
    """
    dest: Any = iceberg(format_version=3)
    table = Table(dest, lake_ident)
    table.batch([append(dest, [(1, "a", None), (2, "b", None)])], 20)
    with dest._tables._gateway.api("test") as api:
        operations = api.load(lake_ident).operations()
        metadata = api.as_json(operations.current())
        schema = current_schema(metadata)
        new = {"id": metadata["last-column-id"] + 1, "name": "n", "required": False, "type": "int"}
        fields = [*schema["fields"], {**new, "initial-default": 7}]
        changed = {**schema, "fields": fields}
        api.replace_columns(operations, operations.current(), changed, {})
    assert seen(table) == [(1, "a", 7), (2, "b", 7)]
    name = f"lake.{lake_ident.schema}.{lake_ident.table}"
    for condition in ("n = 7", "n IS NOT NULL"):
        found = dest._sessions.get().query(f"SELECT id FROM {name} WHERE {condition}", "test")
        assert found.num_rows == 0, condition


def test_new_rows_of_a_segment_get_a_constant(table: Table) -> None:
    """Rows of a transaction from before the column: changed rows keep the value that they have."""
    dest = table.dest
    table.batch([append(dest, [(1, "a", None)])], 20)
    filled(table, {"n": VALUES["i"], "s": VALUES["it's `t`"]}, 20)()
    constants = (("n", pa.scalar(9, pa.int32())), ("s", VALUES["it's `t`"]))
    changes = merge(dest, [(0, 1, 1, "A", None, False)])
    both = replace(changes, append=append(dest, [(2, "b", None)]).append, constants=constants)
    table.batch([both, append(dest, [(3, "c", None)], constants=constants[:1])], 30)
    text = VALUES["it's `t`"].as_py()
    assert seen(table) == [(1, "A", -7, text), (2, "b", 9, text), (3, "c", 9, None)]
