"""The embedded server's Spark configuration: precedence, and where tasks run."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.errcodes import IoError
from workers.lake.connect.session_conf import FIXED
from workers.lake.server.server_conf import (
    catalog_conf,
    check_lake_folder,
    embedded_catalog,
    server_conf,
    tasks_at_once,
    writes_here,
)

LAKE = Path("/data/lake")
GB = 2**30


def test_a_catalog_s_keys_get_the_catalog_s_name() -> None:
    found = catalog_conf({"type": "rest", "spark.sql.catalog.lake.uri": "u"})
    assert found == {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "rest",
        "spark.sql.catalog.lake.uri": "u",
        "spark.sql.catalog.lake.rest-metrics-reporting-enabled": "false",
        "spark.sql.catalog.lake.io.manifest.cache-enabled": "true",
        "spark.sql.catalog.lake.io.manifest.cache.max-total-bytes": "16777216",
        "spark.sql.catalog.lake.table-default.write.parquet.row-group-size-bytes": "16777216",
        "spark.sql.catalog.lake.table-default.write.parquet.dict-size-bytes": "262144",
    }
    asked = {"type": "rest", "table-default.write.parquet.row-group-size-bytes": "7"}
    groups = "spark.sql.catalog.lake.table-default.write.parquet.row-group-size-bytes"
    assert catalog_conf(asked)[groups] == "7"
    assert groups not in catalog_conf({"type": "jdbc", "warehouse": "/lake"})
    patience = "spark.sql.catalog.lake.hadoop.iceberg.hive.lock-creation-timeout-ms"
    assert catalog_conf({"type": "hive", "uri": "u"})[patience] == "20000"
    assert patience not in found
    asked = catalog_conf({"type": "rest", "rest-metrics-reporting-enabled": "true"})
    assert asked["spark.sql.catalog.lake.rest-metrics-reporting-enabled"] == "true"


def test_the_user_s_keys_win_except_where_a_wrong_value_loses_rows() -> None:
    key = next(iter(FIXED))
    conf = server_conf(LAKE, 3, {}, {"spark.sql.shuffle.partitions": "9", key: "wrong"}, GB)
    assert conf["spark.sql.shuffle.partitions"] == "9"
    assert conf[key] == FIXED[key]
    assert conf["spark.master"] == "local[3]"
    assert conf["spark.sql.catalog.lake.uri"] == embedded_catalog(LAKE)["uri"]
    other = server_conf(LAKE, 3, {"type": "rest"}, {}, GB)
    assert other["spark.sql.catalog.lake.type"] == "rest"
    assert "spark.sql.catalog.lake.uri" not in other


@pytest.mark.parametrize(
    ("cores", "memory", "catalog", "tasks"),
    [
        (2, 2 * GB, {}, 2),
        (2, 2 * GB, {"type": "jdbc", "warehouse": "/lake"}, 2),
        (2, 2 * GB, {"type": "jdbc", "warehouse": "s3://lake"}, 16),
        (2, 2 * GB, {"type": "rest"}, 16),
        (2, 1 * GB, {"type": "rest"}, 8),
        (2, 9 * GB, {"type": "rest"}, 16),
        (4, GB // 4, {"type": "glue"}, 4),
        (32, 2 * GB, {"type": "rest"}, 32),
    ],
)
def test_tasks_that_wait_for_a_store_are_more_than_processors(
    cores: int, memory: int, catalog: dict[str, str], tasks: int
) -> None:
    """As many as the heap has room for: a task may write a file."""
    assert tasks_at_once(cores, memory, catalog) == tasks
    conf = server_conf(LAKE, cores, catalog, {}, memory)
    assert (conf["spark.master"], conf["spark.sql.shuffle.partitions"]) == (
        f"local[{tasks}]",
        str(cores),
    )


@pytest.mark.parametrize(
    ("conf", "here", "daemon", "secret"),
    [
        ({}, True, True, True),
        ({"spark.master": "local[8]"}, True, True, True),
        ({"spark.master": "local[*]"}, True, True, True),
        ({"spark.master": "local-cluster[2,1,1024]"}, False, True, False),
        ({"spark.master": "spark://host:7077"}, False, False, False),
        ({"spark.pyspark.python": "/other/python"}, False, False, True),
    ],
    ids=str,
)
def test_tasks_of_the_server_s_process_see_the_files_of_workers(
    conf: dict[str, str], here: bool, daemon: bool, secret: bool
) -> None:
    assert writes_here(conf) is here
    made = server_conf(LAKE, 1, {}, conf, GB)
    assert ("spark.python.daemon.module" in made) is daemon
    assert (made.get("spark.python.worker.reuse") == "false") is daemon
    assert (made.get("spark.authenticate") == "true") is secret


def test_a_lake_folder_that_cannot_be_used_is_refused(tmp_path: Path) -> None:
    check_lake_folder(tmp_path)
    check_lake_folder(tmp_path / "none yet")
    (tmp_path / "file").touch()
    with pytest.raises(IoError) as error:
        check_lake_folder(tmp_path / "file")
    assert (error.value.code, error.value.detail) == ("58030", "It is not a directory.")
