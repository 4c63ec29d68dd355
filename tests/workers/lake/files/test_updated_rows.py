"""The rows that updates leave: sent values, and values that only the table has."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.contract import (
    Change,
    Make,
    merge,
    stage,
    stamp,
)
from tests.workers.lake.watched import Watched, with_rows
from workers.lake.effects import Counts
from workers.lake.segment import Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.table import LakeColumn, LakeIdent

_MOMENT = datetime.datetime(2026, 1, 2, 3, 4, 5, 6)
VALUES: dict[str, tuple[pa.DataType, Any, Any]] = {
    "text": (pa.string(), "é 🦆", ""),
    "bytes": (pa.binary(), b"\x00\xff", b""),
    "flag": (pa.bool_(), True, False),
    "small": (pa.int32(), -(2**31), 7),
    "real": (pa.float32(), 0.5, float("inf")),
    "double": (pa.float64(), -0.1, 1e300),
    "day": (pa.date32(), datetime.date(1500, 2, 28), datetime.date(9999, 12, 31)),
    "at": (pa.timestamp("us"), _MOMENT, datetime.datetime(1, 1, 1)),
    "zoned": (
        pa.timestamp("us", "UTC"),
        _MOMENT.replace(tzinfo=datetime.UTC),
        datetime.datetime(1969, 12, 31, tzinfo=datetime.UTC),
    ),
    "price": (pa.decimal128(9, 2), Decimal("-1234567.89"), Decimal("0.00")),
    "long": (pa.decimal128(18, 0), Decimal(10**18 - 1), Decimal(0)),
    "longer": (pa.decimal128(38, 10), Decimal("1.0123456789"), Decimal("-1.0000000000")),
    "list": (pa.list_(pa.field("element", pa.string())), ["a", None, ""], []),
    "days": (pa.list_(pa.field("element", pa.date32())), [datetime.date(2026, 1, 1)], [None]),
}


def bounds(dest: Any, ident: LakeIdent) -> list[tuple[Any, Any]]:
    """Least and greatest value of each column but lists: what readers leave out files by."""
    sql = sql_text("SELECT readable_metrics.* FROM", table_path(ident, "data_files"))
    (row,) = dest._sessions.get().query(sql, "looking").to_pylist()
    found = [row[name] for name, (type, _, _) in VALUES.items() if not pa.types.is_list(type)]
    return [(each["lower_bound"], each["upper_bound"]) for each in found]


@pytest.mark.parametrize("staged_rows", [10, 0], ids=["in memory", "in files"])
def test_what_was_not_sent_stays_as_the_table_has_it(
    iceberg: Make, lake_ident: LakeIdent, staged_rows: int
) -> None:
    """Of every type there is; also where the key changes, and where the table had NULL."""
    dest: Any = iceberg(local_relation_rows=staged_rows)
    names = ("id", *VALUES)
    columns = [LakeColumn("id", pa.int64())]
    columns += [LakeColumn(name, type) for name, (type, _, _) in VALUES.items()]
    note = LakeColumn("note", pa.list_(pa.field("element", pa.int32())))
    dest.create_table(lake_ident, [*columns, note], owner="me", relid=7, stamp=stamp(10))

    def values(ids: list[int | None], at: int) -> dict[str, Any]:
        found: dict[str, Any] = {"c0": pa.array(ids, pa.int64())}
        for n, (type, *given) in enumerate(VALUES.values(), 1):
            found[f"c{n}"] = pa.array([given[at]] * len(ids), type)
        return found

    def batch(segment: Segment, lsn: int) -> Any:
        branch = f"pgsub_1_1_{lsn}"
        dest.create_branch(lake_ident, branch)
        counts = dest.write(lake_ident, branch, [segment], stamp(lsn))
        dest.publish(lake_ident, branch, stamp(lsn))
        return counts

    batch(Segment(names, ("id",), append=stage(dest, **values([1, 2, 3], 0))), 20)
    scalars = [
        None if pa.types.is_floating(type) else old  # a NaN is in no bounds
        for type, old, _ in VALUES.values()
        if not pa.types.is_list(type)
    ]
    assert bounds(dest, lake_ident) == [(each, each) for each in scalars]
    empty = {name: pa.nulls(1, array.type) for name, array in values([4], 0).items()}
    empty["c0"] = pa.array([4], pa.int64())
    batch(Segment(names, ("id",), append=stage(dest, **empty)), 21)
    path = table_path(lake_ident)
    dest._sessions.get().command(sql_text("UPDATE", path, "SET note = array(id, NULL)"), "noting")
    masks = {f"m{n}": pa.array([True, False, True, True]) for n in range(1, len(names))}
    keys = {"op": pa.array([0] * 4, pa.int8()), "b0": pa.array([1, 2, 4, 9], pa.int64())}
    changes = stage(dest, **keys, **values([10, 2, 4, 9], 1), **masks)
    counts = batch(Segment(names, ("id",), merge=changes, unchanged=tuple(VALUES)), 30)
    assert counts == Counts(merged=3, update_missing=1)
    found = dest._sessions.get().query(sql_text("SELECT * FROM", path, "ORDER BY id"), "reading")
    old, new = ([given[at] for given in VALUES.values()] for at in (1, 2))
    assert [list(row.values()) for row in found.to_pylist()] == [
        [2, *new, [2, None]],
        [3, *old, [3, None]],
        [4, *[None] * len(VALUES), [4, None]],
        [10, *old, [1, None]],
    ]


def test_updates_of_many_rows_take_what_was_staged_part_by_part(
    iceberg: Make, lake_ident: LakeIdent
) -> None:
    table = with_rows(Watched(iceberg(local_relation_rows=10), lake_ident), 300)
    changes: list[Change] = [(0, n, n, f"n{n}", f"b{n}", n % 3 == 0) for n in range(299, 40, -1)]
    counts = table.batch([merge(table.dest, changes, unchanged=True)], 30)
    assert counts == Counts(merged=259)
    found = {row[0]: row[1:3] for row in table.rows()}
    assert found == {
        n: (f"n{n}" if n > 40 else f"v{n}", f"b{n}" if n > 40 and n % 3 else f"big{n}")
        for n in range(300)
    }
