"""Which tables this process writes, and how; the others are left to Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from tests.workers.lake.files.layouts import (
    ON_READ,
    a_list,
    in_folder,
    known,
    metadata,
    rows,
    written,
)
from workers.lake.files.table_layout import (
    TableLayout,
    only_spark,
    read_layout,
    special_property,
)
from workers.lake.metadata.partitioning import SortField, Transform
from workers.lake.storage.local_path import is_local, local_path
from workers.lake.writer_choice import Unwritable


def test_a_plain_table_s_files_are_known() -> None:
    found = known(metadata("long", "string"))
    assert (found.location, found.layout_id.schema_id, found.names) == ("/lake/t", 3, ["a", "b"])
    assert (found.codec, found.level, found.writes_deletes) == ("zstd", None, True)


def a_spec(transform: str, source: int = 11, spec_id: int = 0) -> dict[str, Any]:
    field = {"name": "p", "transform": transform, "source-id": source, "field-id": 1000}
    return {"spec-id": spec_id, "fields": [field]}


def an_order(transform: str, source: int = 11) -> dict[str, Any]:
    field = {"transform": transform, "source-id": source}
    field |= {"direction": "desc", "null-order": "nulls-last"}
    return {"default_sort_order_id": 1, "sort_orders": [{"order-id": 1, "fields": [field]}]}


SEVERAL_COLUMNS = {"spec-id": 0, "fields": [{"transform": "bucket[4]", "source-ids": [11, 12]}]}


@pytest.mark.parametrize(
    "changes",
    [
        {"location": "s3://bucket/t"},
        {"location": "hdfs://host/t"},
        {"location": "gs:/t"},
        {"partition_specs": [a_spec("zorder")]},
        {"partition_specs": [a_spec("bucket[0]")]},
        {"partition_specs": [a_spec("hour")]},
        {"partition_specs": [a_spec("identity", 99)]},
        {"partition_specs": [SEVERAL_COLUMNS]},
        an_order("zorder"),
        an_order("identity", 99),
    ],
    ids=str,
)
def test_other_places_and_unknown_transforms_are_left_to_spark(changes: dict[str, Any]) -> None:
    assert isinstance(read_layout(metadata(**changes)), Unwritable)


def test_partitions_and_the_order_of_new_files_are_known() -> None:
    specs = [a_spec("identity"), a_spec("bucket[16]", 12, 1)]
    order = an_order("truncate[3]", 12)
    found = known(metadata(partition_specs=specs, default_spec_id=1, **order))
    assert found.layout_id.spec_id == found.spec.spec_id == 1
    assert [each.transform for each in found.spec.fields] == [Transform("bucket", 16)]
    assert found.order == (SortField(12, Transform("truncate", 3), True, False),)
    assert found.has_places


def test_a_table_that_had_partitions_once_has_places() -> None:
    plain = {"spec-id": 0, "fields": []}
    assert not known(metadata()).has_places
    assert known(metadata(partition_specs=[plain, plain | {"spec-id": 1}])).has_places


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
    found = read_layout(metadata(properties=ON_READ | {name: value}))
    assert found == Unwritable(only_spark(name))
    assert special_property({"write.format.default": "parquet"}) is None


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
    why = 'Column "b" has a type that only Spark writes.'
    assert read_layout(metadata("long", type)) == Unwritable(why)


@pytest.mark.parametrize("default", ["initial-default", "write-default"])
def test_a_column_with_a_default_is_left_to_spark(default: str) -> None:
    """Rows that have no value there have it all the same."""
    found = metadata("long", "int")
    found["schemas"][1]["fields"][1][default] = 7
    why = 'Column "b" has a default value that only Spark writes.'
    assert read_layout(found) == Unwritable(why)


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
    assert found.writes_deletes is deletes
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


def test_what_a_copy_has_written_is_removed_and_nothing_else(files: TableLayout) -> None:
    kept = written(files, rows(files, 1))
    kept += written(files, rows(files, 2), copy_id="fedcba")
    gone = written(files, rows(files, 3), rows(files, 4), size=1, copy_id="abcdef")
    assert all("abcdef" in file.path for file in gone)
    assert len(in_folder(files)) == 4
    files.remove("abcdef")
    files.remove("abcdef")
    assert in_folder(files) == {file.path for file in kept}


def test_a_table_without_a_folder_has_nothing_to_remove(tmp_path: Path) -> None:
    known(metadata(location=str(tmp_path / "none"))).remove("abcdef")
