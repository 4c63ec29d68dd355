"""A new table's folder: safe in every file system, and recognisable."""

from __future__ import annotations

import pytest

from workers.lake.metadata.table_location import (
    folders_of,
    given_warehouse,
    is_own_folder,
    is_whole,
    new_location,
    table_location,
)
from workers.lake.table import LakeIdent

HOSTILE = ["`", "a.b", "'", '"', "\\", "new\nline", "{s}", "%s", "/* */", "🙂"]


@pytest.mark.parametrize("name", [*HOSTILE, "..", "a/b", ".", "x" * 63, "ünï"])
def test_locations_are_safe_and_differ(name: str) -> None:
    folder = table_location("/lake/warehouse/", LakeIdent(name, name), 16400, "u1")
    assert folder.startswith("/lake/warehouse/")
    schema, table = folder.removeprefix("/lake/warehouse/").split("/")
    assert ".." not in (schema, table)
    assert table.startswith("16400-")
    assert folder.isascii()
    assert folder != table_location("/lake/warehouse", LakeIdent(name + "x", name), 16400, "u1")


@pytest.mark.parametrize("name", ["orders", "..", "a/b", "Ünïcode " * 9, "'"])
def test_a_folder_of_ours_is_known_by_its_name(name: str) -> None:
    made = table_location("s3://bucket/warehouse/", LakeIdent("s", name), 16390, "0a1b2c3d")
    assert is_own_folder(made)
    assert not is_own_folder(f"{made}/data")


@pytest.mark.parametrize(
    "location",
    ["", "/", "s3://b/public/orders", "/w/7-orders", "/w/orders-0a1b2c3d", "/w/7-a-0A1B2C3D"],
)
def test_a_folder_of_others_is_not(location: str) -> None:
    assert not is_own_folder(location)


def test_no_folder_is_chosen_without_a_warehouse() -> None:
    assert new_location(None, LakeIdent("s", "t"), 7) is None


@pytest.mark.parametrize("name", ["my_wh", "warehouse", "arn", "./warehouse"])
def test_no_path_is_made_of_a_warehouse_s_name(name: str) -> None:
    """The lake server would take the path for one below its working directory."""
    assert new_location(name, LakeIdent("s", "t"), 7) is None
    assert new_location("", LakeIdent("s", "t"), 7) is None
    one, other = (new_location("/w", LakeIdent("s", "t"), 7) for _ in range(2))
    assert one is not None
    assert is_own_folder(one)
    assert one != other, "a table that is dropped and created again has another folder"


def test_a_table_s_files_may_lie_in_several_folders() -> None:
    elsewhere = {"write.data.path": "s3://b/data", "write.metadata.path": "/t", "owner": "me"}
    assert folders_of("/t", elsewhere) == ("/t", "s3://b/data")


@pytest.mark.parametrize(
    ("catalog", "warehouse"),
    [
        ({"type": "jdbc", "warehouse": "s3://b/p"}, "s3://b/p"),
        ({"type": "glue", "warehouse": "s3://b/p"}, "s3://b/p"),
        ({"type": "hive", "warehouse": ""}, None),
        ({"type": "rest", "warehouse": "s3://b/p"}, None),
        ({"type": "REST", "catalog-impl": "", "warehouse": "s3://b/p"}, None),
        ({"type": "rest", "warehouse": "arn:aws:s3tables:eu:1:bucket/b"}, None),
        ({"catalog-impl": "org.apache.iceberg.rest.RESTCatalog", "warehouse": "s3://b"}, None),
    ],
    ids=str,
)
def test_a_rest_catalog_chooses_the_folders(catalog: dict[str, str], warehouse: str | None) -> None:
    assert given_warehouse(catalog) == warehouse


@pytest.mark.parametrize(
    ("location", "whole"),
    [
        ("s3://bucket/p", True),
        ("hdfs://name:8020/p", True),
        ("hdfs:///p", False),
        ("file:///srv/p", False),
        ("file:/srv/p", False),
        ("/srv/p", False),
    ],
)
def test_a_location_with_a_bucket_or_a_host_is_whole(location: str, whole: bool) -> None:
    assert is_whole(location) is whole
