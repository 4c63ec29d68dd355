"""Files with a NaN, which is in no bounds: Iceberg must not take them for what all rows are within.

NaN is greater than every number, in Spark as in PostgreSQL.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.workers.lake.contract import Make, stamp
from tests.workers.lake.files.layouts import known, metadata, staged, written
from workers.lake.effects import FileSizes
from workers.lake.files.data_files import as_rows
from workers.lake.segment import RowsOf, Segment
from workers.lake.sql.statements import sql_text, table_path
from workers.lake.storage.local_path import local_path
from workers.lake.table import LakeColumn, LakeIdent

NAN = math.nan
FLOATING = (pa.float32(), pa.float64())
BRANCH = "pgsub_1_1_1"
COLUMNS = [
    LakeColumn("id", pa.int64()),
    LakeColumn("r", pa.float32()),
    LakeColumn("d", pa.float64()),
]
NAMES = tuple(column.name for column in COLUMNS)


def test_what_may_have_one_is_told_to_have_no_bounds(tmp_path: Path) -> None:
    """Neither by the table's metadata nor by the file itself, which readers look at, too."""
    files = known(metadata("long", "float", "double", "string", location=str(tmp_path)))
    columns: list[Any] = [pa.array([1, 2]), *(pa.array([1, 2], type) for type in FLOATING)]
    (file,) = written(files, as_rows(files, staged(*columns, pa.array(["a", "b"])), "abcd"))
    assert file.unbounded == (12, 13)
    group = pq.ParquetFile(local_path(file.path)).metadata.row_group(0)
    assert [group.column(n).statistics is not None for n in range(4)] == [True, False, False, True]


def put(dest: Any, ident: LakeIdent, lsn: int, *rows: tuple[int, float]) -> None:
    """Rows of one number in both types; each call is a file."""
    schema = pa.schema([(f"c{n}", column.type) for n, column in enumerate(COLUMNS)])
    batch = pa.RecordBatch.from_pylist([{"c0": n, "c1": x, "c2": x} for n, x in rows], schema)
    taken = dest.stage([batch], schema, RowsOf(ident, NAMES))
    dest.write(ident, BRANCH, [Segment(NAMES, ("id",), append=taken)], stamp(lsn))
    dest.publish(ident, BRANCH, stamp(lsn))


def ids(dest: Any, ident: LakeIdent, where: str) -> list[int]:
    sql = sql_text("SELECT id FROM", table_path(ident), "WHERE", where, "ORDER BY id")
    found: list[int] = dest._sessions.get().query(sql, "looking").column(0).to_pylist()
    return found


@pytest.mark.parametrize("joined", [False, True], ids=["written", "joined"])
@pytest.mark.parametrize("version", [2, 3])
def test_rows_with_a_nan_are_found_and_outlive_a_delete_of_the_others(
    iceberg: Make,
    lake_ident: LakeIdent,
    version: int,
    joined: bool,
) -> None:
    dest: Any = iceberg(format_version=version)
    dest.create_table(lake_ident, COLUMNS, owner="me", relid=7, stamp=stamp(10))
    dest.create_branch(lake_ident, BRANCH)
    put(dest, lake_ident, 20, (1, 7.0), (2, NAN))
    if joined:
        put(dest, lake_ident, 21, (3, 7.0))
        assert dest.compact(lake_ident, BRANCH, FileSizes(few=2)) == 2
        put(dest, lake_ident, 22, (4, NAN))
    others = [2, 4] if joined else [2]
    # What Spark writes has bounds, and Iceberg leaves its NaN out of what is greater.
    by_spark = joined and version == 3
    for column in ("r", "d"):
        for condition in ("<> 7",) if by_spark else ("<> 7", "> 7", ">= 8"):
            assert ids(dest, lake_ident, f"{column} {condition}") == others
        assert ids(dest, lake_ident, f"isnan({column})") == others
    delete = sql_text("DELETE FROM", table_path(lake_ident), "WHERE d <= 7 AND r <= 7")
    dest._sessions.get().command(delete, "deleting")
    assert ids(dest, lake_ident, "true") == others
