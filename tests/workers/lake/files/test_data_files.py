"""A table's own files: which tables get them, and what is in them; no server."""

from __future__ import annotations

import datetime
import threading
from collections.abc import Iterable, Iterator
from dataclasses import replace
from decimal import Decimal
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from catalog.errcodes import IoError, ReplicationError
from workers.lake.files.data_files import (
    as_rows,
    check_values,
    write_groups,
    write_rows,
    write_whole,
)
from workers.lake.files.position_deletes import (
    RowPositions,
    by_file,
    read_deletes,
    together,
    write_deletes,
)
from workers.lake.files.table_layout import TableLayout, table_files
from workers.lake.staged_rows import NewFile
from workers.lake.storage.local_store import LocalStore, is_local, local_path
from workers.lake.table import SOURCE_COLUMN, LakeIdent

IDENT = LakeIdent("s", "t")
ON_READ = {f"write.{each}.mode": "merge-on-read" for each in ("merge", "update", "delete")}
FIELD_ID = b"PARQUET:field_id"


def a_list(element: Any, element_id: int, *, required: bool = False) -> dict[str, Any]:
    return {
        "type": "list",
        "element-id": element_id,
        "element": element,
        "element-required": required,
    }


def metadata(*types: Any, required: bool = False, **changes: Any) -> dict[str, Any]:
    """Of a table with columns ``a``, ``b`` … whose field ids are 11, 12 …"""
    fields = [
        {"id": 11 + n, "name": chr(ord("a") + n), "type": each, "required": required}
        for n, each in enumerate(types or ("long", "string"))
    ]
    made = {
        "format-version": 2,
        "location": "/lake/t",
        "table-uuid": "u",
        "current-schema-id": 3,
        "schemas": [{"schema-id": 0, "fields": []}, {"schema-id": 3, "fields": fields}],
        "default-spec-id": 0,
        "partition-specs": [{"spec-id": 0, "fields": []}],
        "default-sort-order-id": 0,
        "properties": ON_READ,
    }
    return made | {name.replace("_", "-"): value for name, value in changes.items()}


def known(found: dict[str, Any]) -> TableLayout:
    files = table_files(found)
    assert files is not None
    return files


@pytest.fixture
def files(tmp_path: Path) -> TableLayout:
    return known(metadata(location=str(tmp_path)))


def rows(files: TableLayout, *ids: int) -> pa.RecordBatch:
    return as_rows(files, staged(pa.array(ids, pa.int64()), pa.array(["x"] * len(ids))), "ab")


def staged(*columns: Any) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(list(columns), [f"c{n}" for n in range(len(columns))])


def written(files: TableLayout, *batches: pa.RecordBatch, **more: Any) -> list[NewFile]:
    told: list[NewFile] = []
    groups = (pa.Table.from_batches([batch]) for batch in batches if batch.num_rows)
    write_groups(files, groups, told.append, **more)
    return told


def in_folder(files: TableLayout) -> set[str]:
    folder = local_path(files.location) / "data"
    return {str(path) for path in folder.iterdir()} if folder.exists() else set()


# -- which tables ---------------------------------------------------------------------------------


def test_a_plain_table_s_files_are_known() -> None:
    found = known(metadata("long", "string"))
    assert (found.location, found.shape.schema_id, found.names) == ("/lake/t", 3, ["a", "b"])
    assert (found.codec, found.level, found.deletes) == ("zstd", None, True)


PARTITIONED = [{"spec-id": 0, "fields": [{"name": "a", "transform": "identity"}]}]
TWO_SPECS = [{"spec-id": 0, "fields": []}, {"spec-id": 1, "fields": []}]


@pytest.mark.parametrize(
    "changes",
    [
        {"location": "s3://bucket/t"},
        {"location": "hdfs://host/t"},
        {"location": "gs:/t"},
        {"partition_specs": PARTITIONED},
        {"partition_specs": TWO_SPECS},
        {"default_sort_order_id": 1},
    ],
    ids=str,
)
def test_other_places_partitions_and_orders_are_left_to_spark(changes: dict[str, Any]) -> None:
    assert table_files(metadata(**changes)) is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("write.data.path", "/elsewhere"),
        ("write.folder-storage.path", "/elsewhere"),
        ("write.object-storage.path", "/elsewhere"),
        ("write.object-storage.enabled", "TRUE"),
        ("write.format.default", "orc"),
        ("write.parquet.compression-codec", "lz4_raw"),
        ("write.parquet.bloom-filter-enabled.column.a", "true"),
        ("encryption.key-id", "k"),
    ],
)
def test_what_a_table_asks_for_besides_is_left_to_spark(name: str, value: str) -> None:
    assert table_files(metadata(properties=ON_READ | {name: value})) is None


@pytest.mark.parametrize(
    "type",
    [
        {"type": "struct", "fields": []},
        {"type": "map", "key-id": 1, "key": "int", "value-id": 2, "value": "int"},
        a_list({"type": "struct", "fields": []}, 21),
        "time",
        "uuid",
        "fixed[16]",
        "timestamp_ns",
    ],
    ids=str,
)
def test_a_type_nothing_is_published_to_is_left_to_spark(type: Any) -> None:
    assert table_files(metadata("long", type)) is None


def test_while_rows_are_written_the_next_ones_are_made_and_no_more(files: TableLayout) -> None:
    """In a thread that is gone behind the call, whatever became of it."""
    made: list[int] = []

    def batches() -> Iterator[pa.RecordBatch]:
        for n in range(5):
            assert threading.current_thread() is not threading.main_thread()
            made.append(n)
            yield staged(pa.array([n, None], pa.int64()), pa.array(["x", None]))

    before = threading.active_count()
    told: list[NewFile] = []
    write_whole(files, IDENT, batches(), "ab", told.append)
    assert (sum(file.rows for file in told), made) == (10, [0, 1, 2, 3, 4])
    made.clear()

    def full(*args: Any, **more: Any) -> None:
        next(iter(args[1]))
        raise OSError("full")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("workers.lake.files.data_files.write_groups", full)
        patch.setattr("workers.lake.files.data_files.ROW_GROUP_ROWS", 2)
        with pytest.raises(OSError, match="full"):
            write_whole(files, IDENT, batches(), "ab", told.append)
    assert made == [0, 1]
    required = known(metadata("long", "string", location=files.location, required=True))
    with pytest.raises(ReplicationError):
        write_whole(required, IDENT, batches(), "ab", told.append)
    assert threading.active_count() == before
    assert len(in_folder(files)) == 1


@pytest.mark.parametrize("default", ["initial-default", "write-default"])
def test_a_column_with_a_default_is_left_to_spark(default: str) -> None:
    """Rows that have no value there have it all the same."""
    found = metadata("long", "int")
    found["schemas"][1]["fields"][1][default] = 7
    assert table_files(found) is None


@pytest.mark.parametrize(
    ("version", "properties", "deletes"),
    [
        (1, ON_READ, False),
        (2, ON_READ, True),
        (3, ON_READ, True),
        (2, {}, False),
        (2, ON_READ | {"write.merge.mode": "copy-on-write"}, False),
        (2, ON_READ | {"write.delete.mode": "copy-on-write"}, False),
    ],
)
def test_deletes_are_written_where_they_are_read(
    version: int, properties: dict[str, str], deletes: bool
) -> None:
    found = known(metadata(format_version=version, properties=properties))
    assert found.deletes is deletes
    assert found.has_vectors is (version == 3)


@pytest.mark.parametrize(
    ("codec", "level", "found"),
    [
        ("zstd", "9", ("zstd", 9)),
        ("GZIP", "1", ("gzip", 1)),
        ("snappy", "3", ("snappy", None)),
        ("uncompressed", None, ("none", None)),
    ],
)
def test_files_are_compressed_as_the_table_says(
    tmp_path: Path, codec: str, level: str | None, found: tuple[str, int | None]
) -> None:
    properties = {"write.parquet.compression-codec": codec}
    if level is not None:
        properties["write.parquet.compression-level"] = level
    files = known(metadata(location=str(tmp_path), properties=properties))
    assert (files.codec, files.level) == found
    (file,) = written(files, rows(files, 1, 2))
    assert pq.read_table(local_path(file.path))["a"].to_pylist() == [1, 2]


@pytest.mark.parametrize("location", ["/x/y", "file:/x/y", "file:///x/y", "file:/x/y/"])
def test_a_local_folder_has_several_spellings(location: str) -> None:
    assert is_local(location)
    assert local_path(known(metadata(location=location)).new_path()).parent == Path("/x/y/data")


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


def test_what_an_attempt_has_written_is_removed_and_nothing_else(files: TableLayout) -> None:
    kept = written(files, rows(files, 1))
    kept += written(files, rows(files, 2), attempt="fedcba")
    gone = written(files, rows(files, 3), rows(files, 4), size=1, attempt="abcdef")
    assert all("abcdef" in file.path for file in gone)
    assert len(in_folder(files)) == 4
    files.remove("abcdef")
    files.remove("abcdef")
    assert in_folder(files) == {file.path for file in kept}


def test_a_table_without_a_folder_has_nothing_to_remove(tmp_path: Path) -> None:
    known(metadata(location=str(tmp_path / "none"))).remove("abcdef")


# -- deletes --------------------------------------------------------------------------------------

PLACES = st.lists(
    st.tuples(st.sampled_from(["a", "b", "ç", "file:/x y"]), st.integers(0, 2**40 - 1)), max_size=40
)


def as_places(places: Iterable[tuple[str, int]]) -> Any:
    paths, positions = zip(*places, strict=True) if places else ((), ())
    return by_file(pa.array(paths, pa.string()), pa.array(positions, pa.int64()))


def plain(places: Iterable[tuple[str, int]]) -> dict[str, list[int]]:
    """The same in plain Python."""
    found: dict[str, list[int]] = {}
    for path, at in sorted(set(places)):
        found.setdefault(path, []).append(at)
    return found


def lists(places: RowPositions) -> dict[str, list[int]]:
    return {path: positions.tolist() for path, positions in places.items()}


@settings(deadline=None, max_examples=100)
@given(PLACES, PLACES)
def test_places_by_file_are_each_file_s_in_order_and_each_once(
    one: list[tuple[str, int]], two: list[tuple[str, int]]
) -> None:
    places = as_places(one), as_places(two)
    assert [lists(each) for each in places] == [plain(one), plain(two)]
    assert lists(together(places)) == plain(one + two)
    assert lists(together([])) == {}


@pytest.mark.parametrize("count", [1, 50_000])
@pytest.mark.parametrize("names", [["x"], ["y", "x", "é z"]], ids=["one file", "several"])
def test_deletes_are_read_as_they_were_written(
    files: TableLayout, names: list[str], count: int
) -> None:
    places = {
        f"{files.location}/data/{name}.parquet": np.arange(count, dtype=np.int64) * (n + 1)
        for n, name in enumerate(names)
    }
    file = write_deletes(files, places)
    assert (file.rows, file.size) == (count * len(names), local_path(file.path).stat().st_size)
    assert file.of == (next(iter(places)) if len(names) == 1 else None)
    for path in (file.path, f"file:{file.path}"):
        found = read_deletes(LocalStore(), path)
        assert found.keys() == places.keys()
        assert all((found[each] == places[each]).all() for each in places)


def test_a_file_of_deletes_is_one_by_the_specification(files: TableLayout) -> None:
    """Sorted by file, then by position; its fields are known by their ids."""
    one, two = np.array([1, 5], np.int64), np.array([0], np.int64)
    file = write_deletes(files, {"/y": one, "/x": two})
    parquet: Any = pq.ParquetFile(local_path(file.path))
    fields = parquet.schema_arrow
    assert {field.name: int(field.metadata[FIELD_ID]) for field in fields} == {
        "file_path": 2147483546,
        "pos": 2147483545,
    }
    assert not any(field.nullable for field in fields)
    found = [tuple(row.values()) for row in parquet.read().to_pylist()]
    assert found == [("/x", 0), ("/y", 1), ("/y", 5)]
    statistics = parquet.metadata.row_group(0).column(0).statistics
    assert (statistics.min, statistics.max) == ("/x", "/y")


def test_a_file_that_is_lost_is_not_one_of_the_staging_folder(files: TableLayout) -> None:
    with pytest.raises(IoError) as error:
        read_deletes(files.store, f"{files.location}/data/none.parquet")
    assert error.value.code == "58030"
    assert "staging" not in error.value.report()
