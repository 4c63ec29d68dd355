"""Rows of a branch that are looked up by queries."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tests.workers.lake.contract import PUBLISHED, Make, stage
from tests.workers.lake.watched import Watched, with_rows
from workers.lake.segment import KeyLookup, OtherKey, Segment
from workers.lake.sql.key_bounds import KeyRanges
from workers.lake.sql.row_queries import RowQueries
from workers.lake.table import LakeIdent

KEYED = Segment(PUBLISHED, ("id",))


@pytest.fixture
def table(iceberg: Make, lake_ident: LakeIdent) -> Watched:
    """Rows 0 to 9."""
    return with_rows(Watched(iceberg(), lake_ident), 10)


@pytest.fixture
def queries(table: Watched) -> RowQueries:
    dest: Any = table.dest
    where = (table.session, dest._staging, table.ident, table.branch())
    return RowQueries(*where, KeyRanges(table.ident, ()))


def never(found: pa.Table) -> Segment:
    raise AssertionError(found)


def test_keys_that_are_there(table: Watched, queries: RowQueries) -> None:
    keys = stage(table.dest, k=pa.array([0, 1, 2]), b0=pa.array([3, 50, 9]))
    found = queries.keys(KEYED, KeyLookup(keys, never))
    assert {row["k"] for row in found.to_pylist()} == {0, 2}
    assert queries.keys(KEYED, KeyLookup(None, never)).num_rows == 0


def test_rows_with_any_of_several_keys(table: Watched, queries: RowQueries) -> None:
    keys = stage(table.dest, k=pa.array([0, 1]), b0=pa.array([3, 50]))
    values = stage(table.dest, k=pa.array([0, 1]), b0=pa.array(["v3", "v4"]))
    found = queries.keys(KEYED, KeyLookup(keys, never, (OtherKey(("v",), values),)))
    lines = [tuple(row.values()) for row in found.to_pylist()]
    assert sorted(lines, key=str) == [(0, 0), (None, 1)]


def test_whole_rows(table: Watched, queries: RowQueries) -> None:
    images = stage(
        table.dest,
        image=pa.array([0, 1]),
        n=pa.array([1, 1], pa.int32()),
        c0=pa.array([3, 4]),
        c1=pa.array(["v3", "another"]),
        c2=pa.array(["big3", "big4"]),
    )
    (found,) = queries.whole_rows(KEYED, images).to_pylist()
    assert (found["image"], found["p"]) == (0, 3)
    none = stage(table.dest, image=pa.array([], pa.int64()))
    assert queries.whole_rows(KEYED, none).num_rows == 0


def test_rows_with_their_values(table: Watched, queries: RowQueries) -> None:
    keys = pa.table({"k": [0, 1], "b0": [7, 70]})
    staged = stage(table.dest, b0=pa.array([7, 70]))
    (found,) = queries.rows_with_keys(KEYED, staged, keys, ["big", "local note"]).to_pylist()
    assert (found["k"], found["p"], found["o0"], found["o1"]) == (0, 7, "big7", None)
