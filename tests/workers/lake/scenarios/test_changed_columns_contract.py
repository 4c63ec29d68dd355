"""The columns of a table change between two batches, on the branch that goes on."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.contract import Make, Table, append, stage, stamp
from workers.lake.column_changes import (
    AddColumn,
    ColumnChange,
    DropColumn,
    RenameColumn,
    WidenColumn,
)
from workers.lake.segment import Segment
from workers.lake.table import LakeColumn, LakeIdent, LakeTable


@pytest.fixture(params=["memory_lake", pytest.param("iceberg", marks=pytest.mark.spark)])
def make(request: pytest.FixtureRequest) -> Make:
    """Spark alone, without Iceberg's API, cannot change columns by their numbers."""
    found: Make = request.getfixturevalue(request.param)
    return found


THREE: list[ColumnChange] = [
    RenameColumn(2, "title"),
    AddColumn("n", pa.int32()),
    DropColumn(4),
]
SWAP: list[ColumnChange] = [RenameColumn(1, "title"), RenameColumn(2, "id")]


def names(columns: Sequence[LakeColumn]) -> str:
    """What a worker keeps in the table."""
    return ",".join(f"{column.field_id}={column.name}" for column in columns)


def found(table: Table) -> LakeTable:
    lake = table.dest.table(table.ident)
    assert lake is not None
    return lake


def test_rows_from_before_and_behind_a_change(table: Table) -> None:
    dest, ident, branch = table.dest, table.ident, table.branch()
    dest.write(ident, branch, [append(dest, [(1, "a", None), (2, "b", "big")])], stamp(20))
    dest.publish(ident, branch, stamp(20))
    changes: list[ColumnChange] = [
        RenameColumn(2, "title"),
        AddColumn("n", pa.int32()),
        DropColumn(4),
    ]
    lake = dest.change_columns(ident, changes, names)
    assert [column.name for column in lake.columns] == ["id", "title", "big", "n"]
    assert lake.publisher_columns == "1=id,2=title,3=big,5=n"
    assert found(table).publisher_columns == lake.publisher_columns
    published = ("id", "title", "big", "n")
    new = stage(
        dest,
        c0=pa.array([3], pa.int64()),
        c1=pa.array(["c"]),
        c2=pa.array([None], pa.string()),
        c3=pa.array([7], pa.int32()),
    )
    changed = stage(
        dest,
        op=pa.array([0, 1], pa.int8()),
        b0=pa.array([2, 1], pa.int64()),
        c0=pa.array([2, None], pa.int64()),
        c1=pa.array(["B", None]),
        c2=pa.array([None, None], pa.string()),
        c3=pa.array([8, None], pa.int32()),
        m2=pa.array([True, False]),
    )
    segment = Segment(published, ("id",), append=new, merge=changed, unchanged=("big",))
    dest.write(ident, branch, [segment], stamp(30))
    dest.publish(ident, branch, stamp(30))
    assert table.rows() == [(2, "B", "big", 8), (3, "c", None, 7)]
    dest.change_columns(ident, [WidenColumn(5, pa.int64())], names)
    big = stage(
        dest,
        c0=pa.array([4], pa.int64()),
        c1=pa.array(["d"]),
        c2=pa.array([None], pa.string()),
        c3=pa.array([5_000_000_000], pa.int64()),
    )
    dest.write(ident, branch, [Segment(published, ("id",), append=big)], stamp(40))
    dest.publish(ident, branch, stamp(40))
    assert [row[3] for row in table.rows()] == [8, 7, 5_000_000_000]


def test_a_change_that_was_made_has_no_effect(table: Table) -> None:
    dest, ident = table.dest, table.ident
    changes: list[ColumnChange] = [
        AddColumn("n", pa.int32()),
        RenameColumn(2, "title"),
        DropColumn(3),
    ]
    first = dest.change_columns(ident, changes, names)
    again = dest.change_columns(ident, changes, names)
    assert [(c.field_id, c.name) for c in again.columns] == [
        (c.field_id, c.name) for c in first.columns
    ]
    swapped = dest.change_columns(ident, SWAP, names)
    assert swapped.publisher_columns.startswith("1=title,2=id,")


def test_a_dropped_column_s_number_is_never_used_again(table: Table) -> None:
    dest, ident = table.dest, table.ident
    table.batch([append(dest, [(1, "old", None)])], 20)
    dest.change_columns(ident, [DropColumn(2)], names)
    lake = dest.change_columns(ident, [AddColumn("v", pa.string())], names)
    assert {c.name: c.field_id for c in lake.columns}["v"] == 5
    assert [row[-1] for row in table.rows()] == [None]


@pytest.mark.spark
def test_two_columns_of_one_name_are_refused(iceberg: Make, lake_ident: LakeIdent) -> None:
    table = Table(iceberg(), lake_ident)
    with pytest.raises(ReplicationError, match="twice"):
        table.dest.change_columns(lake_ident, [RenameColumn(2, "id")], names)
    assert [column.name for column in found(table).columns][:2] == ["id", "v"]


def test_a_fence_leaves_the_columns(table: Table) -> None:
    table.dest.change_columns(table.ident, [RenameColumn(2, "title")], names)
    lake = table.dest.fence(table.ident)
    assert lake.publisher_columns.startswith("1=id,2=title")
    table.batch([], 20)
    assert table.lsn() == 20


@pytest.mark.spark
def test_spark_alone_refuses(through_spark: Make, lake_ident: LakeIdent) -> None:
    table = Table(through_spark(), lake_ident)
    assert not table.dest.changes_columns
    with pytest.raises(ReplicationError, match="only by the embedded lake server") as caught:
        table.dest.change_columns(lake_ident, SWAP, names)
    assert caught.value.code == "0A000"
