"""Batches of a lake table of two columns, for tests that look at its files and snapshots."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

from catalog.pg_lsn import LSN
from workers.lake.segment import Segment
from workers.lake.sql.statements import branch_path, sql_text
from workers.lake.table import MAIN, LakeColumn, LakeIdent, Stamp

BIGINT = pa.int64()
COLUMNS = (LakeColumn("id", BIGINT), LakeColumn("v", pa.string()))


def stamp(lsn: int, epoch: str = "epoch") -> Stamp:
    return Stamp("pg_1", LSN(lsn), epoch, LSN(5))


def append(dest: Any, first: int, rows: int, key: pa.DataType = BIGINT) -> Segment:
    table = pa.table({"c0": pa.array(range(first, first + rows), key), "c1": ["x"] * rows})
    return Segment(("id", "v"), ("id",), append=dest.stage(table.to_batches(), table.schema))


def update(dest: Any, keys: list[int], key: pa.DataType) -> Segment:
    ids, op = pa.array(keys, key), pa.array([0] * len(keys), pa.int8())
    table = pa.table({"op": op, "b0": ids, "c0": ids, "c1": ["changed"] * len(keys)})
    return Segment(("id", "v"), ("id",), merge=dest.stage(table.to_batches(), table.schema))


def count(dest: Any, ident: LakeIdent, branch: str = MAIN) -> int:
    sql = sql_text("SELECT count(*) FROM", branch_path(ident, branch))
    found = dest._sessions.get().query(sql, "counting")
    return int(found.column(0)[0].as_py())


def delete(dest: Any, *keys: int) -> Segment:
    table = pa.table(
        {
            "op": pa.array([1] * len(keys), pa.int8()),
            "b0": pa.array(keys, pa.int64()),
            "c0": pa.nulls(len(keys), pa.int64()),
            "c1": pa.nulls(len(keys), pa.string()),
        }
    )
    return Segment(("id", "v"), ("id",), merge=dest.stage(table.to_batches(), table.schema))


def published(iceberg: Callable[..., Any], ident: LakeIdent, *, batches: int) -> tuple[Any, str]:
    """A table of so many batches, the last with stamp 19 + ``batches``, and its standing branch."""
    dest, branch = iceberg(), "pgsub_1_1_1"
    dest.create_table(ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(ident, branch)
    for n in range(batches):
        dest.write(ident, branch, [append(dest, n, 1)], stamp(20 + n))
        dest.publish(ident, branch, stamp(20 + n))
    return dest, branch
