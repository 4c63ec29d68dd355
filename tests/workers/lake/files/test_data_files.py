"""Data files as they are written: columns, values, sizes, errors; no server."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from catalog.errcodes import ReplicationError
from tests.workers.lake.files.layouts import (
    FIELD_ID,
    IDENT,
    a_list,
    in_folder,
    known,
    metadata,
    rows,
    staged,
    written,
)
from workers.lake.files.data_files import (
    as_rows,
    check_values,
    write_groups,
)
from workers.lake.files.table_layout import TableLayout
from workers.lake.files.write_rows import write_rows
from workers.lake.staged_rows import NewFile
from workers.lake.storage.local_path import local_path
from workers.lake.table import SOURCE_COLUMN

# -- the files ------------------------------------------------------------------------------------


def test_columns_and_elements_have_the_table_s_field_ids(tmp_path: Path) -> None:
    nested = a_list(a_list("int", 22), 21)
    files = known(metadata("long", nested, a_list("string", 23), location=str(tmp_path)))
    values = (pa.array([1], pa.int64()), pa.array([[[7], None]]), pa.array([["x", None]]))
    (file,) = written(files, as_rows(files, staged(*values), "abc"))
    schema: Any = pq.read_schema(local_path(file.path))
    inner = schema.field("b").type.value_field
    numbered = [*schema, inner, inner.type.value_field, schema.field("c").type.value_field]
    assert [int(field.metadata[FIELD_ID]) for field in numbered] == [11, 12, 13, 21, 22, 23]
    assert pq.read_table(local_path(file.path)).to_pylist() == [
        {"a": 1, "b": [[7], None], "c": ["x", None]}
    ]


def test_decimals_are_integers_as_far_as_they_go(tmp_path: Path) -> None:
    """As Iceberg's specification has it: up to 9 digits, up to 18, more."""
    types = ("decimal(9,2)", "decimal(18, 0)", "decimal(19,4)", "decimal(38,38)")
    files = known(metadata(*types, location=str(tmp_path)))
    values = [Decimal("-1234567.89"), Decimal(10**18 - 1), Decimal("1.0000"), Decimal("0.5")]
    columns = [
        pa.array([value, None], type)
        for value, type in zip(values, files.schema.types, strict=True)
    ]
    (file,) = written(files, as_rows(files, staged(*columns), "abcd"))
    schema = pq.ParquetFile(local_path(file.path)).schema
    assert [schema.column(n).physical_type for n in range(4)] == [
        *("INT32", "INT64"),
        *["FIXED_LEN_BYTE_ARRAY"] * 2,
    ]
    found = pq.read_table(local_path(file.path))
    assert [column.to_pylist() for column in found.columns] == [[each, None] for each in values]


def test_timestamps_are_microseconds_with_and_without_a_zone(tmp_path: Path) -> None:
    files = known(metadata("timestamp", "timestamptz", "date", location=str(tmp_path)))
    moment = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    zoned = moment.replace(tzinfo=datetime.UTC)
    columns = (
        pa.array([moment], pa.timestamp("us")),
        pa.array([zoned], pa.timestamp("us", "UTC")),
        pa.array([datetime.date(1, 1, 1)]),
    )
    (file,) = written(files, as_rows(files, staged(*columns), "abc"))
    parquet = pq.ParquetFile(local_path(file.path))
    said = [str(parquet.schema.column(n).logical_type) for n in range(3)]
    assert "isAdjustedToUTC=false, timeUnit=microseconds" in said[0]
    assert "isAdjustedToUTC=true, timeUnit=microseconds" in said[1]
    assert said[2] == "Date"
    assert parquet.read().to_pylist() == [{"a": moment, "b": zoned, "c": datetime.date(1, 1, 1)}]


def test_rows_have_the_table_s_columns_in_its_order() -> None:
    files = known(metadata("long", "string", "int", "boolean"))
    batch = staged(pa.array(["x"], pa.large_string()), pa.array([7], pa.int64()))
    found = as_rows(files, batch, ("b", "a"))
    assert found.schema == files.schema
    assert found.to_pylist() == [{"a": 7, "b": "x", "c": None, "d": None}]


def test_a_shared_table_s_rows_say_where_they_are_from() -> None:
    plain = known(metadata("long", "string"))
    named = plain.schema.set(1, plain.schema.field(1).with_name(SOURCE_COLUMN))
    files = replace(plain, schema=named)
    batch = staged(pa.array([1, 2], pa.int64()))
    assert as_rows(files, batch, "a", "here")[SOURCE_COLUMN].to_pylist() == ["here"] * 2
    assert as_rows(files, batch, "a")[SOURCE_COLUMN].null_count == 2


@pytest.mark.parametrize("columns", [("a", "b"), ("a",)], ids=["sent", "not sent"])
def test_a_null_where_none_may_be_names_column_and_table_and_no_value(
    columns: tuple[str, ...],
) -> None:
    files = known(metadata("string", "string", required=True))
    whole = as_rows(files, staged(pa.array(["s3cret"]), pa.array(["x"])), "ab")
    assert check_values(IDENT, whole) is whole
    batch = staged(pa.array(["s3cret", "other"]), pa.array(["s3cret too", None]))
    with pytest.raises(ReplicationError) as error:
        check_values(IDENT, as_rows(files, batch, columns))
    assert error.value.code == "23502"
    assert 'column "b" of lake table "s.t"' in error.value.primary
    assert "s3cret" not in error.value.report()


# -- writing --------------------------------------------------------------------------------------


def test_a_file_is_what_it_is_said_to_be(files: TableLayout) -> None:
    (file,) = written(files, rows(files, 1, 2), rows(files), rows(files, 3))
    assert in_folder(files) == {file.path}
    place = local_path(file.path)
    assert (file.rows, file.size, file.of) == (3, place.stat().st_size, None)
    assert pq.read_table(place)["a"].to_pylist() == [1, 2, 3]


def test_a_next_file_is_begun_where_one_is_large_enough(files: TableLayout) -> None:
    found = written(files, *(rows(files, n) for n in range(5)), size=1)
    assert [file.rows for file in found] == [1] * 5
    values = [pq.read_table(local_path(file.path))["a"][0].as_py() for file in found]
    assert values == [0, 1, 2, 3, 4]
    assert len(in_folder(files)) == 5


@pytest.mark.parametrize(
    ("rows_at_most", "bytes_at_most", "groups"),
    [(4, 10**6, [4, 4, 2]), (10**6, 50, [4, 5, 1]), (10**6, 10**6, [10])],
)
def test_row_groups_are_of_many_batches(
    files: TableLayout, monkeypatch: Any, rows_at_most: int, bytes_at_most: int, groups: list[int]
) -> None:
    """A file of small batches is not one of small row groups."""
    monkeypatch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", rows_at_most)
    monkeypatch.setattr("workers.lake.files.data_files.ROW_GROUP_BYTES", bytes_at_most)
    batches = [rows(files, *range(n)) for n in (1, 0, 1, 2, 3, 0, 2, 1, 0)]
    told: list[NewFile] = []
    write_rows(files, iter(batches), told.append)
    parquet = pq.ParquetFile(local_path(told[0].path))
    found = [parquet.read_row_group(n)["a"].to_pylist() for n in range(parquet.num_row_groups)]
    assert [*chain(*found)] == [0, 0, 0, 1, 0, 1, 2, 0, 1, 0]
    assert list(map(len, found)) == groups


def test_no_rows_are_no_file(files: TableLayout) -> None:
    assert written(files) == []
    assert written(files, rows(files), rows(files)) == []
    assert in_folder(files) == set()


@pytest.mark.parametrize("cause", [RuntimeError("lost"), OSError(28, "full"), KeyboardInterrupt()])
def test_an_error_removes_the_file_that_is_not_finished(
    files: TableLayout, cause: BaseException
) -> None:
    def batches() -> Iterator[pa.RecordBatch]:
        yield rows(files, 1)
        yield rows(files, 2)
        raise cause

    told: list[NewFile] = []
    groups = (pa.Table.from_batches([batch]) for batch in batches())
    with pytest.raises((RuntimeError, ReplicationError, KeyboardInterrupt)):
        write_groups(files, groups, told.append, size=1)
    assert in_folder(files) == {file.path for file in told}
    assert [file.rows for file in told] == [1, 1]
    with pytest.raises((RuntimeError, ReplicationError, KeyboardInterrupt)) as error:
        write_rows(files, batches(), told.append)
    assert in_folder(files) == {file.path for file in told}
    if isinstance(cause, OSError):
        assert isinstance(error.value, ReplicationError)
        assert error.value.code == "53100"
